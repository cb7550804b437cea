package papers

import (
	"vitrine/measure"
	"vitrine/measure/chain"
	"vitrine/measure/delay"
	"vitrine/measure/packet"
)

// Network is an exhibit's streams between two instances. Its rates are fixed, so
// that they are part of the plan: below what each comparable path carries.
type Network struct {
	Measure    []string              `yaml:"measure"` // of measure.Metrics
	Substrates []string              `yaml:"substrates"`
	Fabrics    []string              `yaml:"fabrics"`
	Also       []measure.Combination `yaml:"also"`    // in addition to every substrate on every fabric
	Frames     []int                 `yaml:"frames"`  // bytes without the frame check sequence; none: 64
	Inside     bool                  `yaml:"inside"`  // the sender runs in the substrate too
	Rate       float64               `yaml:"rate"`    // packets a second
	Packets    int                   `yaml:"packets"` // of each stream
}

// Chain is an exhibit's streams through chains of forwarders.
type Chain struct {
	Substrates []string `yaml:"substrates"`
	Fabrics    []string `yaml:"fabrics"`
	Forwarders []string `yaml:"forwarders"`
	Most       int      `yaml:"most"`    // hops
	Rate       float64  `yaml:"rate"`    // packets a second
	Packets    int      `yaml:"packets"` // of each stream
}

// A Scale says how much is measured.
type Scale string

// Scales.
const (
	Quick Scale = "quick" // short, to see that everything runs; never judged
	Full  Scale = "full"  // the plan
)

const (
	fullRepeats  = 10 // fresh deployments of each path
	quickRepeats = 2
	quickPackets = 500
	quickMost    = 3 // hops
	// small is the size of the paper's small frames; bytes without the frame
	// check sequence, like all sizes.
	small = 64
)

// NetworkSettings returns the exhibit's settings at a scale.
func (e Exhibit) NetworkSettings(scale Scale) measure.Settings {
	n := e.Network
	s := measure.Settings{
		Kind: measure.Kind, Metrics: n.Measure, Substrates: n.Substrates, Fabrics: n.Fabrics, Also: n.Also, Inside: n.Inside,
		Sizes: n.Frames, SmallSize: small, Packets: n.Packets, Repeat: fullRepeats,
		Rates: measure.Rates{Latency: n.Rate, Jitter: n.Rate, Efficiency: n.Rate},
		Given: measure.Given{Latency: true, Jitter: true, Efficiency: true},
	}
	if len(s.Sizes) == 0 {
		s.Sizes = []int{small}
	}
	if scale == Quick {
		s.Packets, s.Repeat = min(s.Packets, quickPackets), quickRepeats
	}
	s.Cut = delay.Cut{Head: s.Packets / 100, Tail: s.Packets / 100}
	return s
}

// ChainSettings returns the exhibit's settings at a scale.
func (e Exhibit) ChainSettings(scale Scale) chain.Settings {
	c := e.Chain
	most := c.Most
	s := chain.Settings{
		Kind: chain.Kind, Substrates: c.Substrates, Fabrics: c.Fabrics, Forwarders: c.Forwarders, Size: packet.MinSize, Rate: c.Rate,
		Packets: c.Packets, Repeat: fullRepeats,
	}
	if scale == Quick {
		s.Packets, s.Repeat, most = min(s.Packets, quickPackets), quickRepeats, min(most, quickMost)
	}
	for n := range most + 1 {
		s.Lengths = append(s.Lengths, n)
	}
	s.Cut = delay.Cut{Head: s.Packets / 100, Tail: s.Packets / 100}
	return s
}
