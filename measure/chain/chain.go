// Package chain measures how the round trip and its variation grow with the
// number of network functions that packets pass: section III.B of the container
// networking paper. Probes go from the sender through each function in turn to
// the receiver, whose replies go straight back (the paper's figure 7).
//
//	sender -> hop 3 -> hop 2 -> hop 1 -> receiver
//	   ^-----------------------------------'
//
// All hops are deployed at once. Hops are numbered from the receiver, and each sends to
// the hop with the next lower number. A chain of length 2 begins at hop 2; a chain of
// length 0 is only the receiver. So all lengths are measured in turn over the same
// instances, and changes of the host affect all of them alike. For the same reason,
// each repeat is a fresh deployment, and repeats are the outermost loop.
//
// A trial is one stream of probes through one length. It becomes a
// vitrine.Outcome whose Measured is a Stream.
package chain

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"vitrine"
	"vitrine/measure"
	"vitrine/measure/delay"
	"vitrine/measure/packet"
	"vitrine/reference/forwarder"
	"vitrine/reference/forwarder/xdp"
	"vitrine/result"
)

// Kind marks a manifest's measurement as a measurement of this package.
const Kind = "chain"

// The forwarders.
const (
	Packet = forwarder.Packet // the reference forwarder, a process
	XDP    = forwarder.XDP    // the reference forwarder, a program in the kernel
	OVS    = "ovs"            // rules of Open vSwitch steer and rewrite; a process at each hop sends back what it gets
	Script = "script"         // the user's own program
)

// The components. Instances are named after them: receiver-1, hop-2. The sender is
// generator-1.
const (
	Receiver = "receiver"
	Hop      = "hop"
)

// Forwarders returns all forwarders.
func Forwarders() []string { return []string{Packet, XDP, OVS, Script} }

// Defaults of Settings.
const (
	DefaultPackets = 1000
	DefaultRate    = 1000 // packets a second: the chain is empty before the next packet
	DefaultRepeat  = 5
	DefaultMost    = 4  // hops
	MaxLength      = 64 // hops
)

// Settings say what to measure and how. The manifest keeps them.
type Settings struct {
	Kind       string           `json:"kind"`       // Kind
	Substrates []string         `json:"substrates"` // of the hops; sender and receiver are on the host
	Fabrics    []string         `json:"fabrics"`
	Forwarders []string         `json:"forwarders"`
	Program    []string         `json:"program,omitempty"` // for Script: program and arguments
	Attach     string           `json:"attach,omitempty"`  // for XDP: auto, native, generic
	Lengths    []int            `json:"lengths"`           // numbers of hops, ascending
	Size       int              `json:"frame_size_without_fcs"`
	Packets    int              `json:"packets"` // per stream
	Rate       float64          `json:"rate"`    // packets a second
	Repeat     int              `json:"repeat"`  // fresh deployments
	Cut        delay.Cut        `json:"cut"`     // packets left out at the ends of each stream
	Inject     Injection        `json:"inject,omitzero"`
	Platform   measure.Platform `json:"platform,omitzero"`  // filled in when the measurement runs
	HopCPUs    string           `json:"hop_cpus,omitempty"` // likewise; empty: an earlier program, whose hops ran on any of their CPUs
	Options    measure.Options  `json:"options,omitempty"`
}

// An Injection is a delay that is added at a hop, to check that the measurement
// finds it. Each repeat is then measured with and without the delay.
type Injection struct {
	Hop   int           `json:"hop"` // 0: none
	Delay time.Duration `json:"delay_ns"`
}

// A Path is the substrate, fabric and forwarder of a chain.
type Path struct {
	Substrate string `json:"substrate"`
	Fabric    string `json:"fabric"`
	Forwarder string `json:"forwarder"`
}

func (p Path) String() string { return p.Substrate + " on " + p.Fabric + ", " + p.Forwarder }

// Paths returns all paths of the settings, including paths that no host supports.
func (s *Settings) Paths() []Path {
	var list []Path
	for _, substrate := range s.Substrates {
		for _, fabric := range s.Fabrics {
			for _, forwarder := range s.Forwarders {
				list = append(list, Path{substrate, fabric, forwarder})
			}
		}
	}
	return list
}

// Check returns a *vitrine.BadInput for the first setting that is not valid.
func (s *Settings) Check() error {
	bad := func(what string, found any, want string) error {
		return &vitrine.BadInput{File: what, Found: fmt.Sprintf("%v", found), Want: want}
	}
	for _, f := range s.Forwarders {
		if !slices.Contains(Forwarders(), f) {
			return bad("--forwarder", fmt.Sprintf("%q", f), "want some of "+strings.Join(Forwarders(), ", "))
		}
	}
	if twice := cmp.Or(measure.Repeated(s.Substrates), measure.Repeated(s.Fabrics), measure.Repeated(s.Forwarders)); twice != "" {
		return bad("the plan", twice+" twice", "name each substrate, fabric and forwarder once")
	}
	switch {
	case len(s.Paths()) == 0:
		return bad("the plan", "nothing to measure", "name at least one substrate, fabric and forwarder")
	case slices.Contains(s.Forwarders, Script) != (len(s.Program) > 0):
		return bad("--script", fmt.Sprintf("%q", s.Program), "want a program with --forwarder script, and only with it")
	case !slices.Contains([]string{"", xdp.Auto, xdp.Native, xdp.Generic}, s.Attach):
		return bad("--attach", fmt.Sprintf("%q", s.Attach), "want auto, native or generic")
	case s.Attach != "" && !slices.Contains(s.Forwarders, XDP):
		return bad("--attach", s.Attach, "want it only with --forwarder xdp")
	case len(s.Lengths) == 0 || s.Lengths[0] < 0 || s.mostHops() > MaxLength:
		return bad("--length", s.Lengths, fmt.Sprintf("want 0 to %d hops, such as 1..4", MaxLength))
	case !slices.IsSorted(s.Lengths) || len(slices.Compact(slices.Clone(s.Lengths))) < len(s.Lengths):
		return bad("--length", s.Lengths, "want each length once, in ascending order")
	case s.Size < packet.MinSize || s.Size > packet.MaxSize:
		return bad("--frame", s.Size, fmt.Sprintf("want %d to %d bytes, without the frame check sequence", packet.MinSize, packet.MaxSize))
	case s.Packets < 10 || s.Packets > 1<<20:
		return bad("--count", s.Packets, "want 10 to 1048576")
	case s.Repeat < 1 || s.Repeat > 1000:
		return bad("--repeat", s.Repeat, "want 1 to 1000")
	case !(s.Rate >= 1 && s.Rate <= 1e6):
		return bad("--rate", s.Rate, "want 1 to 1000000 packets a second")
	case !s.Cut.Fits(s.Packets):
		return bad("--head and --tail", fmt.Sprintf("%d and %d", s.Cut.Head, s.Cut.Tail), "want at most half of the packets")
	}
	return s.checkInjection()
}

func (s *Settings) checkInjection() error {
	i := s.Inject
	bad := func(found, want string) error {
		return &vitrine.BadInput{File: "--inject", Found: found, Want: want}
	}
	switch {
	case i.Hop == 0 && i.Delay == 0:
		return nil
	case slices.Contains(s.Forwarders, Script):
		return bad("a delay with --forwarder script", "want a forwarder of vitrine, which can add the delay")
	case i.Hop < 1 || i.Hop > s.mostHops():
		return bad(fmt.Sprintf("hop %d", i.Hop), fmt.Sprintf("want a hop of the chain, 1 to %d", s.mostHops()))
	case i.Delay <= 0 || i.Delay > time.Millisecond:
		return bad(i.Delay.String(), "want more than 0, at most 1ms")
	case s.Lengths[0] >= i.Hop:
		return bad(fmt.Sprintf("hop %d, which all lengths pass", i.Hop), "want also a length below it, such as --length 0..4")
	}
	return nil
}

// mostHops returns the number of hops of the longest chain.
func (s *Settings) mostHops() int { return s.Lengths[len(s.Lengths)-1] }

// UsedCPUs returns those of the CPUs that hops run on.
func (s *Settings) UsedCPUs(cpus []int) []int { return cpus[:min(s.mostHops(), len(cpus))] }

// PlaceHops describes which of the CPUs the hops run on.
func (s *Settings) PlaceHops(cpus []int) string {
	hops := s.mostHops()
	if hops == 0 {
		return "no hops"
	}
	used := s.UsedCPUs(cpus)
	return fmt.Sprintf("each hop on one of %v, in turn, at most %d on each", used, (hops+len(used)-1)/len(used))
}

// hopCPU returns the CPU of a hop. On more CPUs the scheduler could move the hop in each deployment,
// also to another NUMA node.
func hopCPU(cpus []int, number int) int { return cpus[(number-1)%len(cpus)] }

// A Config is a measurement to run.
type Config struct {
	measure.Stage
	Plan Plan
	Wait time.Duration // limit for a chain to begin to answer; 0: a default for the substrate
}

// A Stream is the result of one stream of probes.
type Stream struct {
	Path
	Length      int          `json:"length"`                // hops
	Injected    bool         `json:"injected"`              // with the delay of Settings.Inject
	Forwarding  []string     `json:"forwarding"`            // the modes that the hops logged, such as "xdp, native"
	Accelerator string       `json:"accelerator,omitempty"` // of hops that are virtual machines: "kvm", "tcg"
	Sent        packet.Sent  `json:"sent"`
	Dropped     uint32       `json:"dropped_by_socket"`   // by those of the sender and of the echo
	Unstamped   int          `json:"unstamped,omitempty"` // replies without the kernel's time stamp
	Network     delay.Report `json:"network"`             // Delay is the round-trip delay
}

// ReadStream decodes the Stream of an outcome of this package.
func ReadStream(o vitrine.Outcome) (Stream, error) {
	var s Stream
	if err := json.Unmarshal(o.Measured, &s); err != nil {
		return s, fmt.Errorf("trial %d attempt %d is not a stream through a chain: %w", o.Seq, o.Attempt, err)
	}
	return s, nil
}

// ReadSettings reads the measurement of a manifest. ok is false if the manifest has no
// measurement, or a measurement of another kind.
func ReadSettings(m result.Manifest) (s Settings, ok bool, err error) {
	ok, err = m.ReadMeasurement(Kind, &s)
	return s, ok, err
}
