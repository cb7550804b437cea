package trial

import (
	"context"
	"errors"
	"fmt"

	"vitrine"
	"vitrine/result"
	"vitrine/search/rate"
	"vitrine/search/size"
	"vitrine/spec"
)

// A subject is a sizing under one choice of the options, with its trials so far.
type subject struct {
	at      *site
	rates   seeking
	history []vitrine.Outcome // includes disturbed trials
	next    rate.Step         // Done: the search for rates has ended
}

// newSubject makes the search for the rates of a sizing.
func (c *Campaign) newSubject(at *site, chosen size.Step) (*subject, error) {
	rates, err := c.newSeeking(chosen)
	if err != nil {
		return nil, err
	}
	at.begin(chosen.Sizing)
	return &subject{at: at, rates: rates, next: rates.search.Next(nil)}, nil
}

// tryNext runs the subject's next trial, or takes it from the record. Then it asks the search for
// the one after it.
func (c *Campaign) tryNext(ctx context.Context, s *subject) error {
	outcome, recorded, err := c.findOrRun(ctx, s.at, c.key(s.at, s.next, s.history), s.next)
	if err != nil {
		return err
	}
	s.at.decideFresh(outcome.SuccessRatio() < c.Workload.Thresholds[0])
	s.history = append(s.history, outcome)
	c.emit(Event{Kind: TrialDone, Choice: s.at.choice, Sizing: s.at.sizing, Step: s.next, Outcome: &outcome, Recorded: recorded})
	s.next = s.rates.search.Next(vitrine.Undisturbed(s.history))
	if recorded {
		return nil
	}
	return c.tooNoisy(outcome)
}

// end evaluates the subject's trials. stopped is the error that ended the campaign, or nil. A
// subject without trials that was stopped is left out.
func (s *subject) end(c *Campaign, stopped error) vitrine.Measured {
	if s.next.Done {
		stopped = nil
		c.emit(Event{Kind: RateDone, Choice: s.at.choice, Sizing: s.at.sizing, Why: s.next.Why})
	} else if len(s.history) == 0 {
		return vitrine.Measured{}
	}
	return c.evaluate(s.at, s.rates, s.history, stopped)
}

// measureInTurns measures all sizings under all choices of the options in turns. In each turn, each
// of them has one fresh deployment. So a host whose speed changes within minutes changes it for all.
func (c *Campaign) measureInTurns(ctx context.Context) error {
	subjects, err := c.subjects()
	for open := len(subjects); err == nil && open > 0; {
		open = 0
		for _, s := range subjects {
			if err == nil && !s.next.Done {
				open++
				err = c.turn(ctx, s)
			}
		}
	}
	for _, s := range subjects {
		measured := s.end(c, err)
		if s.next.Done {
			c.emit(Event{Kind: SizingDone, Choice: s.at.choice, Sizing: s.at.sizing, Measured: &measured})
		}
	}
	return err
}

// subjects lists the sizings of all choices, in the order of a campaign without turns.
func (c *Campaign) subjects() (all []*subject, err error) {
	for _, choice := range c.choices {
		var chosen []vitrine.Measured
		step := c.search.Next(nil)
		for ; !step.Done; step = c.search.Next(chosen) {
			s, err := c.newSubject(&site{Campaign: c, choice: choice}, step)
			if err != nil {
				return nil, err
			}
			all, chosen = append(all, s), append(chosen, vitrine.Measured{Sizing: step.Sizing})
			c.addPath(choice, step)
		}
		c.stopped(choice, step.Why)
	}
	return all, nil
}

// addPath records a step of the search for sizings.
func (c *Campaign) addPath(choice spec.Choice, step size.Step) {
	c.summary.Path = append(c.summary.Path, result.Step{
		Sizing: step.Sizing.String(), Why: step.Why, Substrate: choice.Substrate, Options: choice.Options,
		Predicted: c.predicted(step),
	})
}

// turn runs the trials of the subject's next deployment, and removes everything that it made.
func (c *Campaign) turn(ctx context.Context, s *subject) (err error) {
	defer func() { err = errors.Join(err, s.at.close(context.WithoutCancel(ctx))) }()
	repeat := s.next.Repeat
	c.emit(Event{Kind: SizingChosen, Choice: s.at.choice, Sizing: s.at.sizing, Why: fmt.Sprintf("turn %d", repeat)})
	for err == nil && !s.next.Done && s.next.Repeat == repeat {
		err = c.tryNext(ctx, s)
	}
	return err
}
