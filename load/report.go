// Package load defines how a function is driven. A generator is an executable that follows one
// contract, whether it is built in or a user's own script. It reads rate, duration and targets,
// and prints one Report as a line of JSON.
package load

// A Trial is one run of a generator. The generator reads it from the environment
// (VITRINE_RATE, VITRINE_DURATION, VITRINE_WARMUP, VITRINE_TARGETS,
// VITRINE_SCRATCH, VITRINE_SEED and one VITRINE_PARAM_<NAME> per parameter) or
// from its arguments: --rate, --duration, --warmup, --targets, --scratch, --seed,
// then --param name=value for each parameter.
type Trial struct {
	Rate     float64           // calls per second; the workload's unit says what a call is
	Duration float64           // of the window, in seconds
	Warmup   float64           // before the window, in seconds; its calls have a rising rate and do not count
	Targets  []string          // address:port of each entry instance
	Scratch  string            // folder for the generator's files; kept with the results
	Seed     uint64            // seed of all random numbers
	Params   map[string]string // parameters of the workload
}

// A Report is the one line of JSON that a generator prints on standard output. It
// counts calls due inside the window, and follows each one until it is answered
// or times out. Every offered call either succeeds or fails with one cause. The
// arrays of Seconds have one entry for each second of the window, by the calls'
// scheduled time, and add up to the totals. Other lines may precede the report on
// standard output, but none may follow it. The exit status is 0.
type Report struct {
	Duration float64 `json:"duration_s"` // of the window, measured by the generator
	// Start of the window, in seconds since 1970 by the time of day of the host
	// that runs the trial. 0 means the start of the process plus the warm-up.
	WindowStart float64 `json:"window_start_unix_s,omitempty"`

	Scheduled int64            `json:"scheduled"`
	Offered   int64            `json:"offered"` // sent
	Succeeded int64            `json:"succeeded"`
	Failed    map[string]int64 `json:"failed"` // by cause: "timeout", "503", ...
	Seconds   Seconds          `json:"seconds"`
	// InFlight is the number of calls in flight (sent, not yet answered or timed
	// out) at every 100 ms of the window, from its start. It shows whether the
	// trial was steady. A user's own generator may omit it.
	InFlight []int64 `json:"in_flight,omitempty"`
	// Answered is the time from the start of the window to the end of the last call that was due
	// in the window, whether answered or failed. A user's own generator may omit it.
	Answered float64 `json:"answered_s,omitempty"`
	// Late is the longest time after its due time at which the generator began a call of the
	// window, in seconds. A user's own generator may omit it.
	Late float64 `json:"late_s,omitempty"`
	// Latency of the successful calls, from the scheduled time to the last
	// answer, in nanoseconds: an HdrHistogram V2 (compressed), base64.
	Latency string `json:"latency"`
	Error   string `json:"error,omitempty"` // why the trial could not be run
}

// Seconds holds the series of a Report.
type Seconds struct {
	Scheduled []int64            `json:"scheduled"`
	Offered   []int64            `json:"offered"`
	Succeeded []int64            `json:"succeeded"`
	Failed    map[string][]int64 `json:"failed"`
}
