package overload

import (
	"sync/atomic"
	"time"
)

// Feedback is what upstreams that support RFC 7339 learn. They keep one share and one number for each
// server, whatever the requests are. So all gates behind one server share a Feedback. Any number of
// workers may read it concurrently, without a lock. One goroutine at a time calls Tell and Continue.
type Feedback struct {
	state atomic.Uint64 // sequence*lossSpan + loss: no reader gets the number of another loss
}

// lossSpan is more than the largest loss, in percent.
const lossSpan = 128

// NewFeedback returns a Feedback that asks for nothing.
func NewFeedback() *Feedback {
	f := new(Feedback)
	// Upstreams ignore feedback with a lower number than the last, also after a restart. The
	// clock grows at least as fast as the number, if Tell is called at most ten times a second. If the
	// clock was set back, call Continue; after a crash the last number is not known.
	f.set(0, uint64(time.Now().UnixMilli()/100))
	return f
}

// Tell sets the share of requests to hold back, in percent.
func (f *Feedback) Tell(loss int) {
	if was, _, sequence := f.Values(); loss != was {
		f.set(loss, sequence+1)
	}
}

// Continue numbers the feedback above the last number of another Feedback, whose place this one takes.
func (f *Feedback) Continue(last uint64) {
	loss, _, sequence := f.Values()
	f.set(loss, max(sequence, last+1))
}

func (f *Feedback) set(loss int, sequence uint64) { f.state.Store(sequence*lossSpan + uint64(loss)) }

// Values returns the share of requests to hold back in percent (oc), for how long
// (oc-validity), and a number that grows with each change (oc-seq).
func (f *Feedback) Values() (loss int, validity time.Duration, sequence uint64) {
	state := f.state.Load()
	return int(state % lossSpan), retry, state / lossSpan
}
