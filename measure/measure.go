// Package measure measures the network between two instances, packet by packet:
// latency, jitter, lateness, reordering, loss, and the CPU time per packet. It
// works on every substrate and fabric, and also measures the floor of its own
// instrument.
//
// It follows the container networking paper (section III.A), RFC 2544 (frame
// sizes, section 9.1), RFC 8172 (what to report about a virtualised platform)
// and ETSI GS NFV-TST 009 (repeated trials). A trial is one stream of probes. It
// becomes a vitrine.Outcome whose Measured is a Detail, so the run folder keeps
// it like any other trial.
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
	"time"

	"vitrine"
	"vitrine/measure/cpu"
	"vitrine/measure/delay"
	"vitrine/measure/packet"
	"vitrine/result"
	"vitrine/testbed"
	"vitrine/testbed/quiet"
)

// The metrics that can be measured.
const (
	Latency    = "latency"
	Jitter     = "jitter"
	Efficiency = "efficiency"
)

// The values of Detail.Way.
const (
	OneWay    = "one way"
	RoundTrip = "round trip"
)

// Floor is the name of the fabric without a network. Sender and receiver share the loopback
// interface of an otherwise idle network namespace. Without the privilege to create one, they use
// the host's loopback interface. The result is the delay and the cost of the instrument itself.
const Floor = "floor"

// Kind marks a manifest's measurement as a measurement of this package.
const Kind = "network"

// Metrics returns all metrics.
func Metrics() []string { return []string{Latency, Jitter, Efficiency} }

// Defaults, after the paper's streams (section III.A).
const (
	DefaultPackets        = 50_000
	DefaultBandwidth      = 130e6  // bits a second, of jitter's stream
	DefaultEfficiencyRate = 64_000 // packets a second
	// DefaultLatencyRate is low, because packets must not queue behind each other. The paper
	// instead sends each packet after the previous one has returned.
	DefaultLatencyRate = 10_000
	DefaultRepeat      = 3
)

// Settings say what to measure and how. The manifest keeps them.
type Settings struct {
	Kind       string        `json:"kind"` // Kind
	Metrics    []string      `json:"metrics"`
	Substrates []string      `json:"substrates"`
	Fabrics    []string      `json:"fabrics"`
	Also       []Combination `json:"also,omitempty"`          // in addition to every substrate on every fabric
	Inside     bool          `json:"sender_inside,omitempty"` // the sender runs on the substrate too, not on the host
	Sizes      []int         `json:"frame_sizes_without_fcs"` // bytes
	SmallSize  int           `json:"small_frame_size"`        // for jitter and efficiency; bytes
	Packets    int           `json:"packets"`                 // per stream
	Repeat     int           `json:"repeat"`                  // fresh deployments
	Cut        delay.Cut     `json:"cut"`                     // packets left out at the ends of each stream
	Rates      Rates         `json:"rates"`                   // packets a second
	Given      Given         `json:"given"`                   // rates that the user set; they are not scaled
	Platform   Platform      `json:"platform,omitzero"`       // filled in when the measurement runs
	Options    Options       `json:"options,omitempty"`
	Scaled     []string      `json:"scaled,omitempty"` // what was scaled to this host, and why
}

// Options holds the options of substrates and fabrics by name, as the user wrote them. They are a
// readable form of the testbed's Parts.
type Options map[string]json.RawMessage

// All yields the names in order, each with its options on one line.
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

// Rates are in packets a second.
type Rates struct {
	Latency    float64 `json:"latency"`
	Jitter     float64 `json:"jitter"`
	Efficiency float64 `json:"efficiency"`
}

// Given has the rates that the user set.
type Given struct {
	Latency    bool `json:"latency"`
	Jitter     bool `json:"jitter"`
	Efficiency bool `json:"efficiency"`
}

// AllSubstrates returns every substrate to measure on, each once.
func (s *Settings) AllSubstrates() []string {
	return s.all(s.Substrates, func(c Combination) string { return c.Substrate })
}

// AllFabrics returns every fabric to measure, each once.
func (s *Settings) AllFabrics() []string {
	return s.all(s.Fabrics, func(c Combination) string { return c.Fabric })
}

// all returns names and the values of "of" for Also, without duplicates.
func (s *Settings) all(names []string, of func(Combination) string) []string {
	names = slices.Clone(names)
	for _, c := range s.Also {
		if name := of(c); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// measures reports whether the metric is asked for.
func (s *Settings) measures(metric string) bool { return slices.Contains(s.Metrics, metric) }

// mostOneWay returns the largest number of streams to one receiver. Efficiency sends two.
func (s *Settings) mostOneWay() (streams int) {
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

// PacketRate returns the number of frames of size bytes per second that carry bandwidth bits per
// second. The bandwidth excludes the preamble, the frame check sequence and the inter-frame gap.
func PacketRate(bandwidth float64, size int) float64 { return bandwidth / float64(size) / 8 }

// Check returns a *vitrine.BadInput for the first setting that is not valid.
func (s *Settings) Check() error {
	bad := func(what string, found any, want string) error {
		return &vitrine.BadInput{File: what, Found: fmt.Sprintf("%v", found), Want: want}
	}
	for _, m := range s.Metrics {
		if !slices.Contains(Metrics(), m) {
			return bad("--measure", m, "want some of "+strings.Join(Metrics(), ", "))
		}
	}
	if twice := cmp.Or(Repeated(s.Metrics), Repeated(s.Substrates), Repeated(s.Fabrics), Repeated(s.Sizes)); twice != "" {
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
	case s.mostOneWay()*s.Packets > packet.MostReceived:
		return bad("--count", fmt.Sprintf("%d packets in %d streams", s.Packets, s.mostOneWay()),
			fmt.Sprintf("want at most %d for one receiver: send fewer packets, or choose fewer frame sizes", packet.MostReceived))
	case s.Repeat < 1 || s.Repeat > 1000:
		return bad("--repeat", s.Repeat, "want 1 to 1000")
	case !s.Cut.Fits(s.Packets):
		return bad("--head and --tail", fmt.Sprintf("%d and %d", s.Cut.Head, s.Cut.Tail), "want at most half of the packets")
	}
	for _, rate := range []float64{s.Rates.Latency, s.Rates.Jitter, s.Rates.Efficiency} {
		if !(rate >= 1 && rate <= 1e8) {
			return bad("--rate", rate, "want 1 to 100000000 packets a second")
		}
	}
	return nil
}

// Repeated returns the first value that occurs twice in list, or an empty string.
func Repeated[T comparable](list []T) string {
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

// A Stage is the environment that a measurement runs in.
type Stage struct {
	Testbed testbed.Config
	CPUs    testbed.CPUs
	Results *result.Run
	Observe func(Event) // may be nil
	// Watch reads the host during one stream; nil: streams are not checked for
	// disturbances.
	Watch quiet.Watcher
}

// Label returns the label of the run's probes. Other runs have other labels.
func (s *Stage) Label() uint32 {
	label := fnv.New32a()
	_, _ = label.Write([]byte(s.Testbed.Run))
	return label.Sum32()
}

// An Event reports progress of the measurement.
type Event struct {
	Doing    string           // a progress message; empty if Outcome is set
	Outcome  *vitrine.Outcome // of one attempt
	Recorded bool             // Outcome is from an earlier session
	Done     int              // finished streams
	Of       int              // all streams

	Sending time.Duration // of the streams that are not finished, without deployment
	// Left is the estimated time until all streams are finished. It is extrapolated from the
	// streams that this session finished; 0: none yet.
	Left time.Duration
}

// A Detail is the result of one stream.
type Detail struct {
	Metric   string      `json:"metric"`
	Way      string      `json:"way"`
	Size     int         `json:"frame_size_without_fcs"` // bytes
	Fabric   string      `json:"fabric"`
	Sent     packet.Sent `json:"sent"`
	Dropped  uint32      `json:"dropped_by_socket"`              // because the buffer of the receiver or of the echo was full, over all its streams
	Foreign  int         `json:"foreign"`                        // packets that were not the receiver's probes
	Drift    int64       `json:"receiver_drift_ns"`              // of CLOCK_REALTIME against the receiver's steady clock; over all its streams if it has another kernel than the sender
	Room     int         `json:"receive_buffer_bytes,omitempty"` // of the socket of the receiver or the echo, with the kernel's overhead; 0: not known
	Stamps   string      `json:"stamps"`                         // source of the receive time stamps
	Hardware bool        `json:"hardware_stamps"`                // the card also gave stamps, by its own clock
	OneClock bool        `json:"one_clock"`                      // one kernel stamped both ends; otherwise delays contain an unknown offset

	// Skew is how much faster the receiver's clock ran than the sender's, in parts
	// per million. It is set only if the two have different kernels, and is already
	// removed from Network and Application.
	Skew float64 `json:"skew_ppm,omitempty"`

	Network delay.Report `json:"network"` // by the receive stamps
	// Application is the lateness until the receiving program got the packets, for
	// one-way streams.
	Application *delay.Distribution `json:"application_lateness,omitempty"`

	CPU         *cpu.PerPacket `json:"cpu,omitempty"`         // efficiency only
	Accelerator string         `json:"accelerator,omitempty"` // for virtual machines: "kvm", "tcg"
	Ports       []PortFacts    `json:"ports,omitempty"`
}

// PortFacts describes an instance's interface.
type PortFacts struct {
	Instance  string   `json:"instance"`
	Interface string   `json:"interface"`
	Driver    string   `json:"driver"` // veth, macvlan, ...
	MTU       int      `json:"mtu"`
	IPv6      string   `json:"ipv6"`         // "off", "on", "not known"
	Neighbour string   `json:"neighbours"`   // "static", or why not
	Offloads  []string `json:"offloads"`     // enabled ones
	Receiving string   `json:"receive_work"` // the CPU of the kernel's receive work, and why the kernel has no separate CPU
}

// ReadDetail decodes the Detail of an outcome of this package.
func ReadDetail(o vitrine.Outcome) (Detail, error) {
	var d Detail
	if err := json.Unmarshal(o.Measured, &d); err != nil {
		return d, fmt.Errorf("trial %d attempt %d is not a stream of packets: %w", o.Seq, o.Attempt, err)
	}
	return d, nil
}

// marshal cannot fail, because a Detail holds only text and finite numbers.
func marshal(d Detail) json.RawMessage {
	text, err := json.Marshal(d)
	if err != nil {
		panic("measure: " + err.Error())
	}
	return text
}

// ReadSettings reads the measurement of a manifest. ok is false if the manifest has no
// measurement, or a measurement of another kind.
func ReadSettings(m result.Manifest) (s Settings, ok bool, err error) {
	ok, err = m.ReadMeasurement(Kind, &s)
	return s, ok, err
}
