package measure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"vitrine"
	"vitrine/testbed/quiet"
)

// attempts is the largest number of attempts at a trial without a valid outcome.
const attempts = 3

// A Trial is one stream to measure.
type Trial interface {
	// Key returns the attempt's key in the run folder.
	Key(attempt int) vitrine.Key
	// Span returns the time of sending.
	Span() time.Duration
}

// A Visit is one fresh deployment and its trials.
type Visit[T Trial] struct {
	Where  string // what is deployed; the name in the manifest if the visit is left out
	Doing  string // progress message when the visit begins
	Trials []T
}

// A Runner makes the visits of a plan and records their outcomes.
type Runner struct {
	*Stage
	places  []string // of all visits, each once
	streams int      // of all visits
	done    int      // finished, on record or left out
	pace    pace
	// leftOut has the omitted places with the reason: the host does not support them, or they
	// failed.
	leftOut   map[string]error
	disturbed quiet.Row
}

// RunVisits measures the trials that are not on record yet. If a visit fails, or this host does
// not support it, RunVisits writes the reason to the manifest and continues with the next visit.
// It does not visit that place again. It returns only errors of the run folder, of its Guard and of
// the context, and quiet.ErrTooNoisy. It measures nothing if the run has other trials than the visits.
func RunVisits[T Trial](ctx context.Context, stage *Stage, visits []Visit[T], measure func(ctx context.Context, r *Runner, open []T) error) (*Runner, error) {
	r := &Runner{Stage: stage, leftOut: map[string]error{}, pace: pace{began: time.Now(), open: map[int]time.Duration{}}}
	for _, v := range visits {
		r.streams += len(v.Trials)
		for _, t := range v.Trials {
			made, _, done := r.Results.Attempts(t.Key(1), attempts)
			if done {
				continue
			}
			if err := r.Results.CheckNew(t.Key(made + 1)); err != nil {
				return r, err
			}
			r.pace.open[t.Key(1).Seq] = t.Span()
		}
		if !slices.Contains(r.places, v.Where) {
			r.places = append(r.places, v.Where)
		}
	}
	if err := r.note(); err != nil { // this host may now support places that an earlier session left out
		return r, err
	}
	for _, v := range visits {
		open := openTrials(r, v.Trials)
		if len(open) == 0 {
			continue
		}
		after := r.done + len(open)
		leaveOut := func() {
			r.done = after
			for _, t := range open {
				delete(r.pace.open, t.Key(1).Seq)
			}
		}
		if r.leftOut[v.Where] != nil {
			leaveOut()
			continue
		}
		r.emit(Event{Doing: v.Doing})
		err := measure(ctx, r, open)
		if ctx.Err() != nil {
			return r, errors.Join(context.Cause(ctx), err)
		}
		if errors.Is(err, quiet.ErrTooNoisy) {
			return r, err
		}
		if err == nil {
			continue
		}
		if refused := r.Results.Guard(); refused != nil { // no later visit could be recorded
			return r, refused
		}
		r.leftOut[v.Where] = err
		leaveOut()
		r.emit(Event{Doing: fmt.Sprintf("%s was left out: %v", v.Where, err)})
		if err := r.note(); err != nil {
			return r, err
		}
	}
	return r, nil
}

// openTrials returns the trials that are not finished.
func openTrials[T Trial](r *Runner, trials []T) (open []T) {
	for _, t := range trials {
		_, o, done := r.Results.Attempts(t.Key(1), attempts)
		if !done {
			open = append(open, t)
			continue
		}
		r.done++
		r.emit(Event{Outcome: &o, Recorded: true})
	}
	return open
}

// Next returns the key of the trial's next attempt.
func (r *Runner) Next(t Trial) vitrine.Key {
	made, _, _ := r.Results.Attempts(t.Key(1), attempts)
	return t.Key(made + 1)
}

// Keep records an outcome and reports whether its trial is finished. It is finished if the outcome
// is valid or no attempts are left. Disturbed attempts do not count. After too many of them in a
// row, Keep returns an error that ends the run.
func (r *Runner) Keep(o vitrine.Outcome) (finished bool, err error) {
	if err := r.Results.Append(o); err != nil {
		return false, err
	}
	if _, _, finished = r.Results.Attempts(o.Key, attempts); finished {
		r.done++
		r.pace.finish(o)
	}
	r.emit(Event{Outcome: &o})
	err = r.disturbed.Add(o, "streams", fmt.Sprintf("%s at %g packets/s", o.Subject, o.Rate))
	return finished, quiet.AdviseClock(err, o.Reason, r.Results.Manifest().Host.Governor)
}

// keepAll records the outcomes of streams that were measured together, and returns the streams to
// repeat. A noisy host ends the run only if it was still noisy during the last one.
func (r *Runner) keepAll(list []stream, outcomes []vitrine.Outcome) (again []stream, noisy error) {
	for i, o := range outcomes {
		finished, err := r.Keep(o)
		if err != nil && !errors.Is(err, quiet.ErrTooNoisy) {
			return nil, err
		}
		if !finished {
			again = append(again, list[i])
		}
		noisy = err
	}
	return again, noisy
}

// note writes the places that were left out into the manifest, with the reasons.
func (r *Runner) note() error {
	m := r.Results.Manifest()
	m.Unsupported = nil
	for where, err := range r.leftOut {
		if m.Unsupported == nil {
			m.Unsupported = map[string]string{}
		}
		m.Unsupported[where] = err.Error()
	}
	return r.Results.SaveManifest(m)
}

func (r *Runner) emit(e Event) {
	if r.Observe != nil {
		e.Done, e.Of = r.done, r.streams
		e.Sending, e.Left = r.pace.left(time.Since(r.pace.began))
		r.Observe(e)
	}
}

// A pace compares the sent time of a session with the elapsed time.
type pace struct {
	began time.Time
	open  map[int]time.Duration // time of sending of the streams that are not finished, by sequence number
	sent  time.Duration         // time of sending of the streams that this session finished
}

// finish counts a stream's last attempt. A stream that was never sent does not count for the pace.
func (p *pace) finish(o vitrine.Outcome) {
	if o.Offered > 0 {
		p.sent += p.open[o.Seq]
	}
	delete(p.open, o.Seq)
}

// left returns the time of sending of the open streams, and the estimated time until they are
// finished. The estimate is 0 if no stream has shown the pace yet.
func (p *pace) left(elapsed time.Duration) (sending, left time.Duration) {
	for _, span := range p.open {
		sending += span
	}
	if p.sent > 0 {
		left = time.Duration(elapsed.Seconds() * sending.Seconds() / p.sent.Seconds() * float64(time.Second))
	}
	return sending, left
}

// Verdict returns the final error of a run: the places that failed and, if nothing was measured,
// the places that this host does not support. If only the instrument's floor was measured, nothing
// was measured.
func (r *Runner) Verdict() error {
	var unsupported, failed []error
	measured := false
	for _, where := range r.places {
		err := r.leftOut[where]
		switch {
		case err == nil:
			measured = measured || where != floor().String()
		case vitrine.IsUnsupported(err):
			unsupported = append(unsupported, fmt.Errorf("%s: %w", where, err))
		default:
			failed = append(failed, fmt.Errorf("%s: %w", where, err))
		}
	}
	if !measured {
		failed = append(failed, unsupported...)
	}
	return errors.Join(failed...)
}
