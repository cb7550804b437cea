// Package load says how a function is driven. A generator is an executable
// under one contract, whether it is the user's own script or built in: it is
// told rate, duration and targets, and prints one Report as a line of JSON.
package load

// A Trial is what a generator is asked to do. It reads it from the
// environment (VITRINE_RATE, VITRINE_DURATION, VITRINE_WARMUP, VITRINE_TARGETS,
// VITRINE_SCRATCH, VITRINE_SEED and one VITRINE_PARAM_<NAME> per parameter) or
// from its arguments: --rate, --duration, --warmup, --targets, --scratch,
// --seed, then --param name=value for each parameter.
type Trial struct {
	Rate     float64           // calls per second (or the workload's unit)
	Duration float64           // of the window, in seconds
	Warmup   float64           // before the window, in seconds: offered, rising to the rate, not counted
	Targets  []string          // address:port of each entry instance
	Scratch  string            // folder for its files; kept with the results
	Seed     uint64            // of whatever it draws
	Params   map[string]string // the workload's own
}

// A Report is the one line of JSON that a generator prints on standard output.
// Counts are of calls due inside the window, each followed until answered or
// timed out: every call that was offered succeeds or fails, by one cause. The
// arrays of Seconds have one entry a second of the window, by the calls'
// scheduled time, and add up to the totals. Other lines may come before the
// report on standard output, none after it; exit status 0.
type Report struct {
	Duration float64 `json:"duration_s"` // of the window as the generator saw it
	// Start of the window, seconds since 1970; 0: start of the process + warm-up.
	WindowStart float64 `json:"window_start_unix_s,omitempty"`

	Scheduled int64            `json:"scheduled"`
	Offered   int64            `json:"offered"` // sent
	Succeeded int64            `json:"succeeded"`
	Failed    map[string]int64 `json:"failed"` // by cause: "timeout", "503", ...
	Seconds   Seconds          `json:"seconds"`
	// InFlight counts the calls in flight (sent, not yet answered or timed out)
	// at every 100 ms of the window, from its start. It shows whether the trial
	// was steady. Optional for generators of the user's own.
	InFlight []int64 `json:"in_flight,omitempty"`
	// Latency of the calls that succeeded, from the scheduled time to the last
	// answer, in nanoseconds: an HdrHistogram V2 (compressed), base64.
	Latency string `json:"latency"`
	Error   string `json:"error,omitempty"` // why the trial could not be run
}

// Seconds are a Report's series.
type Seconds struct {
	Scheduled []int64            `json:"scheduled"`
	Offered   []int64            `json:"offered"`
	Succeeded []int64            `json:"succeeded"`
	Failed    map[string][]int64 `json:"failed"`
}
