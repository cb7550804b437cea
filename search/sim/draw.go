package sim

import (
	"math"
	"math/rand/v2"

	"vitrine"
)

// The shapes that functions may be drawn in.
const (
	Saturating = "saturating" // past capacity the goodput stays
	Collapsing = "collapsing" // past capacity the goodput falls as 1/rate
	Rounded    = "rounded"    // calls arrive at random: success falls before the CPU is used up
	SlowToFill = "slow-to-fill"
	SlowToHeal = "slow-to-heal"
)

// Shapes returns all shapes.
func Shapes() []string {
	return []string{Saturating, Collapsing, Rounded, SlowToFill, SlowToHeal}
}

// A Population is a set of random functions with one component, whose saturation
// is log-uniform in a range of rates.
type Population struct {
	Shape    string
	Low      float64 // lowest saturation, calls a second
	High     float64
	Noise    float64 // of the capacity, from second to second, in clusters of about five seconds
	Luck     float64 // of the capacity, from deployment to deployment
	Drift    float64 // what the capacity gains in an hour, as a share of itself
	Remember bool    // an overload that fails more than about a third of the calls strains the function
	Seed     uint64
}

// Sizing returns the sizing of all functions of a Population.
func (p Population) Sizing() vitrine.Sizing {
	return vitrine.Sizing{{Short: "fn", Count: 1, Initial: 's'}}
}

// Function draws the i-th function. The same population gives the same functions.
func (p Population) Function(i int) *Function {
	random := rand.New(rand.NewPCG(p.Seed, uint64(i)))
	saturation := p.Low * math.Pow(p.High/p.Low, random.Float64())
	const idle = 0.02 // CPUs
	f := &Function{
		Components: []Component{{
			Component: vitrine.Component{Name: "function", Short: "fn", Scalable: true},
			Demand:    (1 - idle) / saturation, Idle: idle,
			Memory: 64 << 20, MemoryPerCall: 16 << 10, BytesPerCall: 4 << 10,
		}},
		Flavors:  []vitrine.Flavor{{Name: "small", VCPUs: 1, Memory: 1 << 30}},
		Noise:    Noise{Second: p.Noise, Hold: 0.8, Use: p.Noise, Deployment: p.Luck, Drift: p.Drift},
		Collapse: 1,
		Seed:     random.Uint64(),
	}
	if p.Remember {
		f.Queue = 0.2
		f.Memory = Memory{Damage: 0.1 + 0.2*random.Float64(), Bears: 0.35, Onset: 1 + 2*random.Float64(), Recovery: 1 + 3*random.Float64()}
	}
	switch p.Shape {
	case Collapsing:
		f.Collapse = 2
	case Rounded:
		f.Buffer = 5 + random.IntN(30)
	case SlowToFill:
		f.Queue = 1 + 4*random.Float64()
	case SlowToHeal:
		f.Memory = Memory{Damage: 0.2 + 0.3*random.Float64(), Bears: 0.35, Onset: 1, Recovery: 5 + 15*random.Float64()}
	}
	return f
}
