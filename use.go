package vitrine

// Use is the mean use of one instance over a trial's window. A nil field was
// not read, and Missing says why; it is never 0 for "unknown".
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

// Generator is the name, and the component, of the instance that the load comes
// from: watched like the others, but no part of the function.
const Generator = "generator"

// The resources that a search may scale on.
const (
	CPU     = "cpu"
	Memory  = "memory"
	Network = "network"
)
