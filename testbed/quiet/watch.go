package quiet

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"vitrine"
)

// ErrTooNoisy is the error of a run on a host that stayed noisy.
var ErrTooNoisy = errors.New("this host is too noisy")

// A Watch reads the host during one trial.
type Watch interface {
	// End ends the reading and returns the time that it covers. It is called once.
	End(ctx context.Context) (from, to time.Time, err error)
	// Judge is called after End. It returns the reading, and the reason why the trial was
	// disturbed, which is empty if it was not. own is the number of CPUs that the run's instances
	// used in that time. If own is NaN, it is unknown, and other processes are not judged. The
	// reason names no process of the instances.
	Judge(own float64, instances ...vitrine.Vantage) (vitrine.HostReading, string)
}

// CPUs returns the number of CPUs that the instances used together, for Judge. It is NaN if the use
// of an instance is unknown.
func CPUs(use map[string]vitrine.Use) float64 {
	var sum float64
	for _, u := range use {
		if u.CPU == nil {
			return math.NaN()
		}
		sum += *u.CPU
	}
	return sum
}

// A Watcher begins to read the host. Guard.Watch is one.
type Watcher func(context.Context) (Watch, error)

// Mark adds the reading to a trial's outcome. A disturbed trial is invalid. why is empty if the
// trial was not disturbed.
func Mark(o *vitrine.Outcome, host vitrine.HostReading, why string) {
	o.Host = &host
	if why != "" {
		MarkDisturbed(o, why)
	}
}

// MarkDisturbed makes the outcome of a disturbed trial invalid. why comes before the reason that an
// invalid outcome already has.
func MarkDisturbed(o *vitrine.Outcome, why string) {
	if !o.Valid && o.Reason != "" {
		why += "; " + o.Reason
	}
	o.Valid, o.Disturbed, o.Reason = false, true, why
}

// mostDisturbed is how many trials in a row may be disturbed.
const mostDisturbed = 5

// A Row counts disturbed trials in a row.
type Row struct{ disturbed int }

// Add counts the outcome. After too many disturbed outcomes in a row, it returns an ErrTooNoisy.
// In the error, plural names the outcomes, such as "trials", and name names the last one.
func (r *Row) Add(o vitrine.Outcome, plural, name string) error {
	if !o.Disturbed {
		r.disturbed = 0
		return nil
	}
	if r.disturbed++; r.disturbed < mostDisturbed {
		return nil
	}
	return fmt.Errorf("%w: %d %s in a row were disturbed, the last one %s: %s; run it on a quieter host, or continue it with --resume",
		ErrTooNoisy, r.disturbed, plural, name, o.Reason)
}
