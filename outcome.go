package vitrine

import (
	"encoding/json"
	"math"
	"time"
)

// A Key names one trial of a campaign. Its fields are the first seven columns of
// trials.csv, and a resumed run looks up finished trials by it.
type Key struct {
	Seq       int     // 1, 2, ... over the whole campaign
	Attempt   int     // 1, 2, ...: an invalid trial is tried again
	Substrate string  // "process", "docker", ...
	Options   string  // the varied options, "pinning=on"; empty when none vary
	Subject   string  `json:"Sizing"` // what is measured: a sizing, "bn1s-sp2m-hs1l", or a stream, "latency-64"
	Repeat    int     // 1, 2, ...: each repeat is a fresh deployment
	Rate      float64 // offered rate asked for, in the workload's unit
}

// Emulation stands for QEMU's translator, which runs virtual machines without
// hardware support. Its figures cannot be compared with those from hardware.
const Emulation = "tcg"

// NotComparable returns why figures measured with the accelerator cannot be
// compared with others, or an empty string when they can.
func NotComparable(accelerator string) string {
	if accelerator != Emulation {
		return ""
	}
	return "measured under emulation (" + Emulation + "): not comparable with hardware"
}

// An Outcome is the result of one trial.
type Outcome struct {
	Key
	Duration  time.Duration // of the window: warm-up and drain excluded
	Overhead  time.Duration // of the trial outside its window, from the generator's start to its end; 0: not known
	Scheduled int64         // calls due inside the window
	Offered   int64         // of those, sent
	Succeeded int64
	Failed    map[string]int64 // by cause: "timeout", "503", ...
	Latency   Latency
	Seconds   []Second // one per second of the window

	// InFlight counts the calls in flight, sent and not yet answered or timed
	// out, at each InFlightEvery of the window, from its start. Nil: the
	// generator does not report them.
	InFlight []int64 `json:",omitempty"`
	// Answered is the time from the start of the window to the end of the last call that
	// was due in it. 0: the generator does not report it.
	Answered time.Duration `json:",omitempty"`
	// Late is the longest time after its due time at which the generator began a call of the
	// window. 0: the generator does not report it.
	Late time.Duration `json:",omitempty"`

	Use map[string]Use // by instance, means over the window

	// Sampling says how regularly the monitor sampled the window. Nil: not recorded, or most
	// of the window was not in the time of the trial.
	Sampling *Sampling `json:",omitempty"`

	Valid  bool   // false: never a verdict on the function
	Reason string // why it is invalid, or a note

	// InstanceEnded says that an instance of the function ended during the trial, which is
	// then invalid.
	InstanceEnded bool `json:",omitempty"`

	// Disturbed says that something else on the host disturbed the trial. Such a trial
	// is invalid, and says nothing about the function and the generator.
	Disturbed bool `json:",omitempty"`

	// Host is what the host did during the trial. Nil: it was not watched.
	Host *HostReading `json:",omitempty"`

	// Accelerator of the function's virtual machines: "kvm" or "tcg". It is empty
	// when there were none, and in the outcomes of older versions.
	Accelerator string `json:",omitempty"`

	// Measured holds further results in the form of the package that made them:
	// measure.Detail for packet streams. A trial under load has none.
	Measured json.RawMessage `json:",omitempty"`
}

// InFlightEvery is the time between two entries of Outcome.InFlight.
const InFlightEvery = 100 * time.Millisecond

// MostLate is the longest delay of a call by its generator that hardly changes the load. It is no share of
// the window, because a busy host delays calls as long in a short window as in a long one.
const MostLate = 100 * time.Millisecond

// SuccessRatio returns succeeded / scheduled, 0..1; 0 when nothing was scheduled.
func (o Outcome) SuccessRatio() float64 {
	if o.Scheduled == 0 {
		return 0
	}
	return float64(o.Succeeded) / float64(o.Scheduled)
}

// FailedTotal returns the number of failures of all causes.
func (o Outcome) FailedTotal() int64 {
	var n int64
	for _, v := range o.Failed {
		n += v
	}
	return n
}

// CPUPerCall returns the CPU time in s that a call cost each component's instances, all together, at
// the rate that was asked for. With random arrivals the number of calls differs from that rate by
// chance. CPUPerCall is NaN if the CPU of one of the instances is unknown. The generator is left out.
func (o Outcome) CPUPerCall() map[string]float64 {
	cost := map[string]float64{}
	for _, u := range o.Use {
		switch {
		case u.Component == Generator:
		case u.CPU == nil:
			cost[u.Component] = math.NaN()
		default:
			cost[u.Component] += *u.CPU / o.Rate
		}
	}
	return cost
}

// Latency holds quantiles, in milliseconds, over the calls that succeeded. A
// call's latency runs from its scheduled time to the last answer.
type Latency struct{ P50, P95, P99 float64 }

// A Second is one second of a trial's window, by the calls' scheduled time.
type Second struct {
	Scheduled, Offered, Succeeded, Failed int64
}

// Undisturbed returns the outcomes without those of disturbed trials, which say nothing about the
// function or the generator. No search sees them.
func Undisturbed(all []Outcome) (kept []Outcome) {
	for _, o := range all {
		if !o.Disturbed {
			kept = append(kept, o)
		}
	}
	return kept
}
