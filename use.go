package vitrine

// Use is the mean use of one instance over a trial's window. A nil field is
// unknown, and Missing says why; 0 always means no use.
type Use struct {
	Component string
	CPU       *float64 // CPUs
	Memory    *float64 // bytes
	RxBytes   *float64 // per second
	TxBytes   *float64 // per second
	Throttled *float64 // share of the window's time spent throttled, 0..
	Missing   map[string]string

	VCPUs       float64 // given; 0: unlimited
	MemoryLimit int64   // given, bytes; 0: unlimited
}

// Sampling says how regularly the monitor took its samples over a trial's window. A gap
// is a time without a sample of more than 0.5 s (of more than five intervals, if that
// is longer). CPU, network and throttled time come from counters, so a gap does not
// change their means. What happened inside a gap, such as a peak, is not known.
type Sampling struct {
	Gaps    int
	Longest float64 // longest time without a sample, in s, gap or not
}

// Generator is the name and the component of the load generator's instance. The
// monitor samples it like the others, but it is no part of the function.
const Generator = "generator"

// The resources by which a search picks the bottleneck.
const (
	CPU     = "cpu"
	Memory  = "memory"
	Network = "network"
)
