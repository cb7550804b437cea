package papers

import (
	"path"

	"vitrine/measure"
	"vitrine/measure/chain"
	"vitrine/measure/delay"
	"vitrine/measure/packet"
)

// Network is an exhibit's streams between two instances.
type Network struct {
	Measure    []string              `yaml:"measure"` // of measure.Metrics
	Substrates []string              `yaml:"substrates"`
	Fabrics    []string              `yaml:"fabrics"`
	Also       []measure.Combination `yaml:"also"`   // beside every substrate on every fabric
	Frames     []int                 `yaml:"frames"` // bytes without the frame check sequence; none: 64
	Inside     bool                  `yaml:"inside"` // the sender runs in the substrate too
}

// Chain is an exhibit's streams through chains of forwarders.
type Chain struct {
	Substrates []string `yaml:"substrates"`
	Fabrics    []string `yaml:"fabrics"`
	Forwarders []string `yaml:"forwarders"`
}

// A Scale is how much is measured.
type Scale string

// Scales. The time is of sending, without deploying, of the exhibit that takes
// longest.
const (
	Quick Scale = "quick" // two repeats of short streams, to see that all runs: intervals are wide
	Usual Scale = "usual" // three repeats: minutes
	Full  Scale = "full"  // ten repeats, streams as long as the paper's: up to hours
)

// Measured says whether the exhibit is of packets, not of capacities.
func (e Exhibit) Measured() bool { return e.Network != nil || e.Chain != nil }

// Base is the exhibit whose measurement this one shows.
func (e Exhibit) Base() string {
	if e.As == "" {
		return e.Name
	}
	return path.Join(path.Dir(e.Name), e.As)
}

// small is the size of the paper's small frames; bytes without the frame check
// sequence, as all sizes.
const small = 64

// NetworkSettings are the exhibit's at a scale. Rates are the paper's, to be
// scaled to the host.
func (e Exhibit) NetworkSettings(scale Scale) measure.Settings {
	n := e.Network
	s := measure.Settings{
		Kind: measure.Kind, Metrics: n.Measure, Substrates: n.Substrates, Fabrics: n.Fabrics, Also: n.Also, Inside: n.Inside,
		Sizes: n.Frames, SmallSize: small,
		Rates: measure.Rates{
			Latency: measure.DefaultLatencyRate, Jitter: measure.PacketRate(measure.DefaultBandwidth, small), Efficiency: measure.DefaultEfficiencyRate,
		},
	}
	if len(s.Sizes) == 0 {
		s.Sizes = []int{small}
	}
	long, short := map[Scale]int{Quick: 5_000, Usual: measure.DefaultPackets, Full: measure.DefaultPackets}, map[Scale]int{Quick: 500, Usual: 2_000, Full: measure.DefaultPackets}
	s.Packets = long[scale]
	if len(n.Measure) == 1 && n.Measure[0] == measure.Latency {
		s.Packets = short[scale]
	}
	s.Repeat = map[Scale]int{Quick: 2, Usual: measure.DefaultRepeat, Full: 10}[scale]
	s.Cut = delay.Cut{Head: s.Packets / 100, Tail: s.Packets / 100}
	return s
}

// ChainSettings are the exhibit's at a scale.
func (e Exhibit) ChainSettings(scale Scale) chain.Settings {
	c := e.Chain
	s := chain.Settings{
		Kind: chain.Kind, Substrates: c.Substrates, Fabrics: c.Fabrics, Forwarders: c.Forwarders, Size: packet.MinSize, Rate: chain.DefaultRate,
		Packets: map[Scale]int{Quick: 200, Usual: chain.DefaultPackets, Full: 10 * chain.DefaultPackets}[scale],
		Repeat:  map[Scale]int{Quick: 2, Usual: 3, Full: 10}[scale],
	}
	for n := range map[Scale]int{Quick: 4, Usual: 5, Full: 9}[scale] {
		s.Lengths = append(s.Lengths, n)
	}
	s.Cut = delay.Cut{Head: s.Packets / 100, Tail: s.Packets / 100}
	return s
}
