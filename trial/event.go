package trial

import (
	"time"

	"vitrine"
	"vitrine/search/rate"
	"vitrine/spec"
)

// A Kind is the kind of an Event.
type Kind string

// The events of a campaign, in this order; inner ones repeat.
const (
	SizingChosen Kind = "sizing-chosen" // or a turn of the sizing begins, or the size search has ended
	TrialBegins  Kind = "trial-begins"
	TrialDone    Kind = "trial-done"
	RateDone     Kind = "rate-done"
	SizingDone   Kind = "sizing-done"
)

// An Event reports progress of a campaign. Fields that do not belong to its kind are zero.
type Event struct {
	Kind     Kind
	Elapsed  time.Duration
	Choice   spec.Choice
	Sizing   vitrine.Sizing
	Why      string
	Step     rate.Step
	Key      vitrine.Key
	Outcome  *vitrine.Outcome
	Recorded bool // the outcome comes from the record of an earlier run
	Measured *vitrine.Measured
}

func (c *Campaign) emit(e Event) {
	if c.Observe != nil {
		e.Elapsed = time.Since(c.began)
		c.Observe(e)
	}
}
