package vitrine

// Where the capacity lies outside what the search could see.
const (
	CensoredNone      = "none"
	CensoredBelow     = "below"     // even the lowest rate failed: Rate is that rate, [Low, High] is [0, Rate]
	CensoredAbove     = "above"     // even the highest rate passed: Rate is that rate, the capacity is at least Low
	CensoredGenerator = "generator" // the generator could not offer enough to find it
)

// A Capacity is the highest offered rate whose success ratio is at least
// Threshold (NFV-VITAL, II.B.2), in the workload's unit.
type Capacity struct {
	Threshold float64 `json:"threshold"` // 0..1
	Rate      float64 `json:"capacity"`
	Low       float64 `json:"capacity_low"`  // 95% confidence interval
	High      float64 `json:"capacity_high"` // never narrower than [last pass, first fail]
	Censored  string  `json:"capacity_censored"`
}

// Measured is what a campaign learned about one sizing.
type Measured struct {
	Sizing      Sizing
	Resources   Resources
	Capacities  []Capacity                    // one per threshold, in the workload's order
	Bottleneck  string                        // the component used most at capacity; empty: not known
	Utilization map[string]map[string]float64 // resource -> component -> used / given at capacity, 0..1
}
