package measure

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"vitrine"
	"vitrine/testbed/quiet"
)

// attempts at a trial, before it stays without a valid outcome.
const attempts = 3

// A Trial is one stream to measure.
type Trial interface {
	// Key is what the run folder knows the attempt by.
	Key(attempt int) vitrine.Key
}

// A Visit is one fresh deployment and the trials that it is made for.
type Visit[T Trial] struct {
	Where  string // what is deployed: the manifest names it when it is left out
	Doing  string // progress, as it begins
	Trials []T
}

// A Runner goes through the visits of a plan and keeps what they give.
type Runner struct {
	*Stage
	places  []string // of all visits, each once
	streams int      // of all visits
	done    int      // finished, on record or left out
	// left are the places that were left out: what the host cannot do, and what
	// failed.
	left      map[string]error
	disturbed quiet.Row
}

// RunVisits measures the trials that are not on record yet. What this host
// cannot do, and what fails, is kept in the manifest with its reason, and the
// next visit follows; a place that was left out is not visited again. The error
// is of the run folder or the context.
func RunVisits[T Trial](ctx context.Context, stage *Stage, visits []Visit[T], measure func(ctx context.Context, r *Runner, open []T) error) (*Runner, error) {
	r := &Runner{Stage: stage, left: map[string]error{}}
	for _, v := range visits {
		r.streams += len(v.Trials)
		if !slices.Contains(r.places, v.Where) {
			r.places = append(r.places, v.Where)
		}
	}
	if err := r.note(); err != nil { // what was left out before may be possible now
		return r, err
	}
	for _, v := range visits {
		open := unrecorded(r, v.Trials)
		if len(open) == 0 {
			continue
		}
		after := r.done + len(open)
		if r.left[v.Where] != nil {
			r.done = after
			continue
		}
		r.tell(Event{Doing: v.Doing})
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
		r.done, r.left[v.Where] = after, err
		r.tell(Event{Doing: fmt.Sprintf("%s was left out: %v", v.Where, err)})
		if err := r.note(); err != nil {
			return r, err
		}
	}
	return r, nil
}

// unrecorded are the trials that are not finished.
func unrecorded[T Trial](r *Runner, trials []T) (open []T) {
	for _, t := range trials {
		_, o, done := r.Results.Attempts(t.Key(1), attempts)
		if !done {
			open = append(open, t)
			continue
		}
		r.done++
		r.tell(Event{Outcome: &o, Recorded: true})
	}
	return open
}

// Next is the key of the trial's next attempt.
func (r *Runner) Next(t Trial) vitrine.Key {
	made, _, _ := r.Results.Attempts(t.Key(1), attempts)
	return t.Key(made + 1)
}

// Keep puts an outcome on record and says whether its trial is finished: valid,
// or out of attempts. Disturbed attempts do not count; after too many in a row the
// error ends the run.
func (r *Runner) Keep(o vitrine.Outcome) (finished bool, err error) {
	if err := r.Results.Append(o); err != nil {
		return false, err
	}
	if _, _, finished = r.Results.Attempts(o.Key, attempts); finished {
		r.done++
	}
	r.tell(Event{Outcome: &o})
	return finished, r.disturbed.Add(o, "streams", fmt.Sprintf("%s at %g packets/s", o.Subject, o.Rate))
}

// note keeps in the manifest what was left out, and why.
func (r *Runner) note() error {
	m := r.Results.Manifest()
	m.Unsupported = nil
	for where, err := range r.left {
		if m.Unsupported == nil {
			m.Unsupported = map[string]string{}
		}
		m.Unsupported[where] = err.Error()
	}
	return r.Results.SaveManifest(m)
}

func (r *Runner) tell(e Event) {
	if r.Observe != nil {
		e.Done, e.Of = r.done, r.streams
		r.Observe(e)
	}
}

// Verdict is the error that a run ends with: of the places that failed, and of
// those that this host cannot have when nothing was measured at all. The floor
// of the instrument is not what a run is for.
func (r *Runner) Verdict() error {
	var unsupported, failed []error
	measured := false
	for _, where := range r.places {
		err := r.left[where]
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
