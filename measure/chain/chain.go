// Package chain measures how the round trip and its variation grow with the
// number of network functions that packets pass: section III.B of the container
// networking paper. Probes go from the sender through each function in turn to
// the receiver, whose replies go straight back (its figure 7); a chain of length
// 0 is from instance to instance (its figure 6).
//
//	sender -> hop 3 -> hop 2 -> hop 1 -> receiver
//	   ^-----------------------------------'
//
// All hops are deployed at once. Hops are numbered from the receiver, and each
// sends to the one below: a chain of length 2 is entered at hop 2. So all
// lengths are measured in turn over the same instances, and what the host does
// meanwhile falls on all of them alike.
package chain

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"vitrine"
	"vitrine/measure/delay"
	"vitrine/measure/packet"
	"vitrine/reference/forwarder"
	"vitrine/trial"
)

// What forwards at a hop.
const (
	Packet = forwarder.Packet // the reference forwarder, a process
	XDP    = forwarder.XDP    // the reference forwarder, a program in the kernel
	OVS    = "ovs"            // rules of Open vSwitch steer and rewrite; a process at each hop sends back what it gets
	Script = "script"         // the user's own program
)

// Forwarders are what can forward.
func Forwarders() []string { return []string{Packet, XDP, OVS, Script} }

// Defaults of Settings.
const (
	DefaultPackets = 1000
	DefaultRate    = 1000 // packets a second: a chain is empty again before the next packet
	DefaultRepeat  = 5
	DefaultMost    = 4  // hops
	MaxLength      = 64 // hops
)

// Settings are what is measured, and how.
type Settings struct {
	Substrate string        `json:"substrate"` // of the hops; sender and receiver are on the host
	Fabric    string        `json:"fabric"`
	Forwarder string        `json:"forwarder"`
	Program   []string      `json:"program,omitempty"` // of Script: program and arguments
	Attach    string        `json:"attach,omitempty"`  // of XDP: auto, native, generic
	Lengths   []int         `json:"lengths"`           // numbers of hops, rising
	Size      int           `json:"frame_size_without_fcs"`
	Packets   int           `json:"packets"` // of each stream
	Rate      float64       `json:"rate"`    // packets a second
	Repeat    int           `json:"repeat"`  // streams of each length
	Cut       delay.Cut     `json:"cut"`     // of each stream, left out
	Inject    Injection     `json:"inject,omitzero"`
	Wait      time.Duration `json:"-"` // for a chain to begin to answer
}

// An Injection is a delay that a hop is given, to be found again: each repeat is
// then measured with and without it.
type Injection struct {
	Hop   int           `json:"hop"` // 0: none
	Delay time.Duration `json:"delay_ns"`
}

// Check says what makes no measurement.
func (s *Settings) Check() error {
	bad := func(what string, found any, want string) error {
		return &vitrine.BadInput{File: what, Found: fmt.Sprintf("%v", found), Want: want}
	}
	switch {
	case !slices.Contains(Forwarders(), s.Forwarder):
		return bad("--forwarder", fmt.Sprintf("%q", s.Forwarder), "want one of "+strings.Join(Forwarders(), ", "))
	case s.Forwarder == OVS && s.Fabric != "ovs":
		return bad("--forwarder ovs", "fabric "+s.Fabric, "want --fabric ovs: it is its rules that forward")
	case (s.Forwarder == Script) != (len(s.Program) > 0):
		return bad("--script", fmt.Sprintf("%q", s.Program), "want a program with --forwarder script, and only with it")
	case len(s.Lengths) == 0 || s.Lengths[0] < 0 || s.most() > MaxLength:
		return bad("--length", s.Lengths, fmt.Sprintf("want 0 to %d hops, such as 1..4", MaxLength))
	case !slices.IsSorted(s.Lengths) || len(slices.Compact(slices.Clone(s.Lengths))) < len(s.Lengths):
		return bad("--length", s.Lengths, "want each length once, rising")
	case s.Size < packet.MinSize || s.Size > packet.MaxSize:
		return bad("--size", s.Size, fmt.Sprintf("want %d to %d bytes, without the frame check sequence", packet.MinSize, packet.MaxSize))
	case s.Packets < 10 || s.Packets > 1<<20:
		return bad("--packets", s.Packets, "want 10 to 1048576")
	case s.Repeat < 1 || s.Repeat > 1000:
		return bad("--repeat", s.Repeat, "want 1 to 1000")
	case !(s.Rate >= 1 && s.Rate <= 1e6):
		return bad("--rate", s.Rate, "want 1 to 1000000 packets a second")
	case s.Cut.Head < 0 || s.Cut.Tail < 0 || s.Cut.Head+s.Cut.Tail > s.Packets/2:
		return bad("--cut", s.Cut, "want at most half of the packets")
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
	case s.Forwarder == Script:
		return bad("a delay", "one of our forwarders: what a script does is its own")
	case i.Hop < 1 || i.Hop > s.most():
		return bad(fmt.Sprintf("hop %d", i.Hop), fmt.Sprintf("one of the chain's, 1 to %d", s.most()))
	case i.Delay <= 0 || i.Delay > time.Millisecond:
		return bad(i.Delay.String(), "more than 0, at most 1ms")
	case s.Lengths[0] >= i.Hop:
		return bad(fmt.Sprintf("hop %d, which all lengths pass", i.Hop), "a length below it, such as --length 0..4")
	}
	return nil
}

// most is how many hops are needed.
func (s *Settings) most() int { return s.Lengths[len(s.Lengths)-1] }

// A Config is a measurement to run.
type Config struct {
	Settings Settings
	Backends trial.Backends
	CPUs     trial.CPUs
	RunID    string
	Dir      string // for what the instances say
	Observe  func(Event)
	Log      *slog.Logger
}

// An Event is told as the measurement goes on.
type Event struct {
	Doing  string  // what begins; empty: a stream was finished
	Stream *Stream //
	Done   int     // streams
	Of     int     // streams
}

// A Stream is the probes of one stream.
type Stream struct {
	Repeat   int          `json:"repeat"`
	Length   int          `json:"length"`   // hops
	Injected bool         `json:"injected"` // with the delay of Settings.Inject
	Sent     packet.Sent  `json:"sent"`
	Dropped  uint32       `json:"dropped_by_socket"`
	Network  delay.Report `json:"network"` // Delay is the round trip
	Valid    bool         `json:"valid"`
	Reason   string       `json:"reason,omitempty"` // why it is not
}

// A Hop is what is known of one hop.
type Hop struct {
	Number int    `json:"number"` // from the receiver
	MAC    string `json:"mac"`
	Ready  string `json:"ready,omitempty"` // what its forwarder said
}

// A Report is what was measured.
type Report struct {
	Settings Settings  `json:"settings"`
	Hops     []Hop     `json:"hops"`
	Points   []Point   `json:"points"`
	Fits     []Fit     `json:"fits"`
	Found    []Finding `json:"found,omitempty"` // of the injection
	Notes    []string  `json:"notes,omitempty"`
	Streams  []Stream  `json:"streams"`
}

// A Point is one length. Intervals are of repeats.
type Point struct {
	Length    int            `json:"length"`
	Injected  bool           `json:"injected"`
	RoundTrip delay.Interval `json:"round_trip_p50_us"` // of each stream's median
	Mean      delay.Interval `json:"round_trip_mean_us"`
	Least     float64        `json:"round_trip_least_us"` // of all repeats
	P99       delay.Interval `json:"round_trip_p99_us"`
	Jitter    delay.Interval `json:"jitter_mean_us"` // RFC 3550, section 6.4.1
	Sent      int            `json:"sent"`
	Lost      int            `json:"lost"`
	Reordered int            `json:"reordered"`
}
