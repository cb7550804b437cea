package vitrine

// A Vantage says where the use of one instance can be read. A path that is
// empty cannot be read here, and Missing says why.
type Vantage struct {
	Instance  string  // "sprout-1"
	Component string  // "sprout"
	VCPUs     float64 // given; 0: unlimited
	Memory    int64   // given, bytes; 0: unlimited

	CgroupV2      string // folder with cpu.stat and memory.current
	CgroupCPUAcct string // v1 folder with cpuacct.usage
	CgroupCPU     string // v1 folder with cpu.stat (throttling)
	CgroupMemory  string // v1 folder with memory.usage_in_bytes
	PID           int    // main process; 0: not known
	NetNS         string // path of the network namespace; empty: shares the host's
	Interface     string // the one of the namespace to read; empty: all but lo
	Guest         string // of a virtual machine: CSV file with what its own kernel counts, kept apart from all else here

	Missing map[string]string // "cpu", "memory", "network", "throttled" -> why
}

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
