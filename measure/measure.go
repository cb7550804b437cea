// Package measure measures the network between two instances, packet by packet:
// latency, jitter, lateness, reordering, loss, and the CPU time that a packet
// takes, for every substrate and fabric, beside the floor of its own instrument.
//
// It follows the container networking paper (section III.A), RFC 2544 (frame
// sizes, section 9.1), RFC 8172 (what is to be said of a virtualised platform)
// and ETSI GS NFV-TST 009 (repeated trials). A trial is one stream of probes; it
// becomes a vitrine.Outcome whose Measured is a Detail, so that the run folder
// keeps it as it keeps all trials.
package measure

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"iter"
	"maps"
	"slices"
	"strings"

	"vitrine"
	"vitrine/measure/cpu"
	"vitrine/measure/delay"
	"vitrine/measure/packet"
	"vitrine/result"
	"vitrine/testbed"
	"vitrine/testbed/quiet"
)

// What is measured.
const (
	Latency    = "latency"
	Jitter     = "jitter"
	Efficiency = "efficiency"
)

// The ways of a stream's packets.
const (
	OneWay    = "one way"
	RoundTrip = "round trip"
)

// Floor is the name of the fabric that is none: the loopback interface of an
// otherwise idle network namespace, in which sender and receiver both are. What
// is measured there is the instrument's own part.
const Floor = "floor"

// Kind tells a manifest's measurement of this package from those of others.
const Kind = "network"

// Metrics are what can be measured, in the order in which it is.
func Metrics() []string { return []string{Latency, Jitter, Efficiency} }

// The paper's streams (section III.A).
const (
	DefaultPackets        = 50_000
	DefaultBandwidth      = 130e6  // bits a second, of jitter's stream
	DefaultEfficiencyRate = 64_000 // packets a second
	// DefaultLatencyRate is low enough that no packet waits for the one before it;
	// the paper sends the next once the last has come back.
	DefaultLatencyRate = 10_000
	DefaultRepeat      = 3
)

// Settings are what is measured, and how. It is kept in the manifest.
type Settings struct {
	Kind       string        `json:"kind"` // Kind
	Metrics    []string      `json:"metrics"`
	Substrates []string      `json:"substrates"`
	Fabrics    []string      `json:"fabrics"`
	Also       []Combination `json:"also,omitempty"`          // measured beside every substrate on every fabric
	Inside     bool          `json:"sender_inside,omitempty"` // the sender is an instance of the substrate too, not on the host
	Sizes      []int         `json:"frame_sizes_without_fcs"` // bytes
	SmallSize  int           `json:"small_frame_size"`        // of jitter and efficiency; bytes
	Packets    int           `json:"packets"`                 // of each stream
	Repeat     int           `json:"repeat"`                  // fresh deployments
	Cut        delay.Cut     `json:"cut"`                     // of each stream, left out
	Rates      Rates         `json:"rates"`                   // packets a second
	Given      Given         `json:"given"`                   // by the user, so not to be scaled
	Platform   Platform      `json:"platform,omitzero"`       // known once it runs
	Options    Options       `json:"options,omitempty"`
	Scaled     []string      `json:"scaled,omitempty"` // what was scaled to this host, and why
}

// Options are what substrates and fabrics are told, by name, as the user wrote
// it: the testbed's Parts for those who read.
type Options map[string]json.RawMessage

// All gives the names in order, and what is said, in one line.
func (o Options) All() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for _, name := range slices.Sorted(maps.Keys(o)) {
			var line bytes.Buffer
			if json.Compact(&line, o[name]) != nil || !yield(name, line.String()) {
				return
			}
		}
	}
}

// Rates are packets a second.
type Rates struct {
	Latency    float64 `json:"latency"`
	Jitter     float64 `json:"jitter"`
	Efficiency float64 `json:"efficiency"`
}

// Given says which rates are the user's own.
type Given struct {
	Latency    bool `json:"latency"`
	Jitter     bool `json:"jitter"`
	Efficiency bool `json:"efficiency"`
}

// AllSubstrates are those that are measured on, each once.
func (s *Settings) AllSubstrates() []string {
	return s.all(s.Substrates, func(c Combination) string { return c.Substrate })
}

// AllFabrics are those that are measured, each once.
func (s *Settings) AllFabrics() []string {
	return s.all(s.Fabrics, func(c Combination) string { return c.Fabric })
}

// all adds to the names those of Also.
func (s *Settings) all(names []string, of func(Combination) string) []string {
	names = slices.Clone(names)
	for _, c := range s.Also {
		if name := of(c); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// measures says whether the metric is asked for.
func (s *Settings) measures(metric string) bool { return slices.Contains(s.Metrics, metric) }

// oneWay is how many streams a receiver takes at most: efficiency sends two.
func (s *Settings) oneWay() (streams int) {
	if s.measures(Latency) {
		streams += len(s.Sizes)
	}
	if s.measures(Jitter) {
		streams++
	}
	if s.measures(Efficiency) {
		streams += 2
	}
	return streams
}

// PacketRate is how many frames of the size a second make the bandwidth in bits
// a second, both without preamble, frame check sequence and gap.
func PacketRate(bandwidth float64, size int) float64 { return bandwidth / float64(size) / 8 }

// Check says what makes no measurement.
func (s *Settings) Check() error {
	bad := func(what string, found any, want string) error {
		return &vitrine.BadInput{File: what, Found: fmt.Sprintf("%v", found), Want: want}
	}
	for _, m := range s.Metrics {
		if !slices.Contains(Metrics(), m) {
			return bad("--measure", m, "want of "+strings.Join(Metrics(), ", "))
		}
	}
	if twice := cmp.Or(repeated(s.Metrics), repeated(s.Substrates), repeated(s.Fabrics), repeated(s.Sizes)); twice != "" {
		return bad("the plan", twice+" twice", "name each measurement, substrate, fabric and frame size once")
	}
	for _, size := range append(slices.Clone(s.Sizes), s.SmallSize) {
		if size < packet.MinSize || size > packet.MaxSize {
			return bad("--frames", size, fmt.Sprintf("want %d to %d bytes, without the frame check sequence", packet.MinSize, packet.MaxSize))
		}
	}
	switch {
	case len(s.Metrics) == 0 || len(s.Substrates) == 0 || len(s.Fabrics) == 0 || len(s.Sizes) == 0:
		return bad("the plan", "nothing to measure", "name at least one measurement, substrate, fabric and frame size")
	case s.Packets < 100 || s.Packets > 1<<22:
		return bad("--count", s.Packets, "want 100 to 4194304")
	case s.oneWay()*s.Packets > packet.MostReceived:
		return bad("--count", fmt.Sprintf("%d packets in %d streams", s.Packets, s.oneWay()),
			fmt.Sprintf("want at most %d, which one receiver takes: fewer packets, or fewer frame sizes", packet.MostReceived))
	case s.Repeat < 1 || s.Repeat > 1000:
		return bad("--repeat", s.Repeat, "want 1 to 1000")
	case s.Cut.Head < 0 || s.Cut.Tail < 0 || s.Cut.Head > s.Packets || s.Cut.Tail > s.Packets || s.Cut.Head+s.Cut.Tail > s.Packets/2:
		return bad("--head and --tail", fmt.Sprintf("%d and %d", s.Cut.Head, s.Cut.Tail), "want at most half of the packets")
	}
	for _, rate := range []float64{s.Rates.Latency, s.Rates.Jitter, s.Rates.Efficiency} {
		if !(rate >= 1 && rate <= 1e8) {
			return bad("--rate", rate, "want 1 to 100000000 packets a second")
		}
	}
	return nil
}

// repeated is what a list has twice; empty: nothing.
func repeated[T comparable](list []T) string {
	for i, v := range list {
		if slices.Contains(list[:i], v) {
			return fmt.Sprint(v)
		}
	}
	return ""
}

// A Config is a measurement to run.
type Config struct {
	Stage
	Plan      Plan
	KernelCPU KernelCPU
}

// A Stage is what a measurement is made with.
type Stage struct {
	Testbed testbed.Config
	CPUs    testbed.CPUs
	Results *result.Run
	Observe func(Event) // may be nil
	// Watch reads the host for one stream; nil: nobody checks whether something
	// disturbs the streams.
	Watch quiet.Watcher
}

// Label is of the run's probes, so that those of others are known.
func (s *Stage) Label() uint32 {
	label := fnv.New32a()
	_, _ = label.Write([]byte(s.Testbed.Run))
	return label.Sum32()
}

// An Event is told as the measurement goes on.
type Event struct {
	Doing    string           // what begins; empty: Outcome came
	Outcome  *vitrine.Outcome // of one attempt
	Recorded bool             // it is from an earlier session
	Done     int              // streams that are finished
	Of       int              // streams
}

// A Detail is what one stream gave.
type Detail struct {
	Metric   string      `json:"metric"`
	Way      string      `json:"way"`
	Size     int         `json:"frame_size_without_fcs"` // bytes
	Fabric   string      `json:"fabric"`
	Sent     packet.Sent `json:"sent"`
	Dropped  uint32      `json:"dropped_by_socket"` // for want of room in the receiver's buffer, in all streams that it took
	Foreign  int         `json:"foreign"`           // packets that were no probes of the stream
	Drift    int64       `json:"receiver_drift_ns"` // of CLOCK_REALTIME, as the receiver saw it
	Stamps   string      `json:"stamps"`            // whose the receive time stamps are
	Hardware bool        `json:"hardware_stamps"`   // the card gave stamps too, of its own clock
	OneClock bool        `json:"one_clock"`         // sent and received stamps are of one kernel; else delays hold an unknown offset

	// Skew is how much faster the receiver's clock ran, in millionths, of two
	// kernels; it is taken out of Network and Application.
	Skew float64 `json:"skew_ppm,omitempty"`

	Network delay.Report `json:"network"` // by the stamps
	// Application is lateness by when the receiving program had the packets; of
	// one-way streams.
	Application *delay.Distribution `json:"application_lateness,omitempty"`

	CPU         *cpu.PerPacket `json:"cpu,omitempty"`         // of efficiency
	Accelerator string         `json:"accelerator,omitempty"` // of virtual machines: "kvm", "tcg"
	Ports       []PortFacts    `json:"ports,omitempty"`
}

// PortFacts is how an instance's interface was.
type PortFacts struct {
	Instance  string   `json:"instance"`
	Interface string   `json:"interface"`
	Driver    string   `json:"driver"` // veth, macvlan, ...
	MTU       int      `json:"mtu"`
	IPv6      string   `json:"ipv6"`         // "off", "on", "not known"
	Neighbour string   `json:"neighbours"`   // "static", or why not
	Offloads  []string `json:"offloads"`     // that are on
	Receiving string   `json:"receive_work"` // of the kernel: on which CPU, and why on none of its own
}

// ReadDetail is the detail of an outcome of this package.
func ReadDetail(o vitrine.Outcome) (Detail, error) {
	var d Detail
	if err := json.Unmarshal(o.Measured, &d); err != nil {
		return d, fmt.Errorf("trial %d attempt %d is no stream of packets: %w", o.Seq, o.Attempt, err)
	}
	return d, nil
}

// marshal cannot fail: a Detail has only numbers, which are finite, and text.
func marshal(d Detail) json.RawMessage {
	text, err := json.Marshal(d)
	if err != nil {
		panic("measure: " + err.Error())
	}
	return text
}

// ReadSettings reads what a manifest says of its measurement; ok is false where
// that is of another kind.
func ReadSettings(m result.Manifest) (s Settings, ok bool, err error) {
	if len(m.Measurement) == 0 {
		return s, false, nil
	}
	if err := json.Unmarshal(m.Measurement, &s); err != nil {
		return s, false, fmt.Errorf("the measurement of the manifest: %w", err)
	}
	return s, s.Kind == Kind, nil
}
