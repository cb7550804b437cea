package wire

import (
	"time"
)

// A Timer is Timer of TS 29.598 clause 6.2.6.2.2.
type Timer struct {
	TimerID           string    `json:"timerId,omitempty"` // set in notifications; in requests it is in the path
	Expires           time.Time `json:"expires"`
	MetaTags          Tags      `json:"metaTags,omitempty"`
	CallbackReference string    `json:"callbackReference,omitempty"` // notified of the expiry; may be empty
	DeleteAfter       *uint32   `json:"deleteAfter,omitempty"`       // seconds to keep the timer after the expiry
}

// A TimerIDList is the result of a search or a bulk deletion of timers.
type TimerIDList struct {
	TimerIDs   []string `json:"timerIds"`
	Incomplete bool     `json:"incomplete,omitempty"` // of a deletion: more timers may match
}

// ParseTimer parses and checks a timer. The error is a *Problem.
func ParseTimer(data []byte, l Limits) (Timer, error) {
	var t Timer
	if err := decode(data, &t); err != nil {
		return t, BadParam(CauseMessageFormat, "body", "%v", err)
	}
	return t, t.Check(l)
}

// Check returns an error unless the timer is complete. The error is a *Problem.
func (t *Timer) Check(l Limits) error {
	if t.Expires.IsZero() {
		return BadParam(CauseIEMissing, "/expires", "a date and time of RFC 3339 is needed")
	}
	return t.MetaTags.Check("/metaTags", l)
}
