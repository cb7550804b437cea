package vitrine

// A Vantage says where to read the use of one instance. An empty path means that
// this host does not show that use; Missing says why.
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
	Interface     string // the interface of the namespace to read; empty: all but lo
	Guest         string // virtual machines only: CSV file with the counts of the guest's kernel, which no other field includes

	Missing map[string]string // "cpu", "memory", "network", "throttled" -> why
}
