package trial

import (
	"context"
	"fmt"
	"time"

	"vitrine"
	"vitrine/testbed"
	"vitrine/testbed/quiet"
)

// A lookout watches the host during one trial. Without a Watch, its methods do nothing.
type lookout struct {
	watch    quiet.Watch
	from, to time.Time
	ended    bool
}

// lookOut begins to watch the host for one trial.
func (s *site) lookOut(ctx context.Context) (*lookout, error) {
	if s.Watch == nil {
		return &lookout{}, nil
	}
	watch, err := s.Watch(ctx) // waits after disturbed trials
	if err != nil {
		return nil, fmt.Errorf("watch the host: %w", err)
	}
	return &lookout{watch: watch}, nil
}

// end ends the watching. It may be called more than once.
func (l *lookout) end(ctx context.Context) (err error) {
	if l.watch == nil || l.ended {
		return nil
	}
	l.ended = true
	if l.from, l.to, err = l.watch.End(ctx); err != nil {
		return fmt.Errorf("watch the host: %w", err)
	}
	return nil
}

// judge adds the host's reading to the outcome, and marks the outcome if the trial was disturbed.
// function lists the function's instances, and use has the use of all instances while the host was
// watched. Without a cgroup, the monitor does not see the generator, because each trial starts another
// process. That process began and ended while the host was watched, so its CPU time is known.
func (l *lookout) judge(out *vitrine.Outcome, generator *testbed.Instance, function []vitrine.Vantage, use map[string]vitrine.Use) {
	if l.watch == nil {
		return
	}
	if u := use[generator.Name]; u.CPU == nil {
		if spent, known := generator.Spent(); known {
			u.CPU = new(spent.Seconds() / l.to.Sub(l.from).Seconds())
			use[generator.Name] = u
		}
	}
	host, why := l.watch.Judge(quiet.CPUs(use), function...)
	quiet.Mark(out, host, why)
}

// mostClockStep is the largest difference between the two clocks of judgeClock that is no step. They
// are read one after the other, and a busy host may interrupt that.
const mostClockStep = 20 * time.Millisecond

// judgeClock marks the outcome if the time of day was set during the trial. SIPp logs its messages
// by it, and the function may use it too. passed is how long the trial took by the time of day, and
// took by the steady clock.
func judgeClock(out *vitrine.Outcome, passed, took time.Duration) {
	if step := passed - took; step.Abs() > mostClockStep {
		quiet.MarkDisturbed(out, fmt.Sprintf("disturbed: the time of day was set by %s during the trial", step.Round(time.Millisecond)))
	}
}

// tooNoisy returns the error that ends the campaign after too many disturbed trials in a row.
// Recorded trials do not count, because the host may be quiet when a run is resumed.
func (c *Campaign) tooNoisy(last vitrine.Outcome) error {
	err := c.disturbed.Add(last, "trials", fmt.Sprintf("at %g %s", last.Rate, c.Workload.Unit))
	if err != nil && !c.keepsAwake() && quiet.TryAwake() == nil {
		err = fmt.Errorf("%w; neighbours may disturb a new run less with servers.keep_awake: on", err)
	}
	return quiet.AdviseClock(err, last.Reason, c.Results.Manifest().Host.Governor)
}
