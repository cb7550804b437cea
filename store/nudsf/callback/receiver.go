package callback

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/url"
	"time"
)

// A receiver is an authority (scheme, host and port) that callbacks go to.
type receiver struct {
	authority string
	lanes     []lane
	waiting   int           // messages queued in all lanes or being sent
	bytes     int64         // that they hold
	failures  int           // failed tries in a row
	downUntil time.Time     // until then, Send rejects Once messages
	up        chan struct{} // closed at the next answer; nil: no try has failed since the last one
}

// A lane sends its messages one after the other.
type lane struct {
	queue   []waiting
	running bool
}

type waiting struct {
	Message
	url *url.URL
}

// idle reports whether the receiver has no messages. The caller holds the sender's mutex.
func (r *receiver) idle() bool { return r.waiting == 0 }

// start runs a lane until its queue is empty. The caller holds s.mu.
func (s *Sender) start(r *receiver, l *lane) {
	l.running = true
	ctx := s.ctx
	s.lanes.Go(func() {
		for {
			m, ok := s.take(r, l)
			if !ok {
				return
			}
			err := s.deliver(ctx, r, m)
			s.done(r, m)
			if m.Done != nil {
				m.Done(err)
			}
		}
	})
}

// take returns the next message of a lane. If there is none, it ends the lane.
func (s *Sender) take(r *receiver, l *lane) (waiting, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(l.queue) == 0 {
		l.running, l.queue = false, nil
		if s.receivers[r.authority] == r && r.idle() && r.failures == 0 { // r may have been replaced by a newer receiver
			delete(s.receivers, r.authority)
		}
		return waiting{}, false
	}
	m := l.queue[0]
	l.queue[0] = waiting{} // frees the body
	l.queue = l.queue[1:]
	return m, true
}

// done releases the queue space of a message.
func (s *Sender) done(r *receiver, m waiting) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.waiting--
	r.bytes -= m.held()
	s.waiting--
	s.bytes -= m.held()
}

// deliver tries until the receiver accepts or refuses the message, or the tries are used up.
func (s *Sender) deliver(ctx context.Context, r *receiver, m waiting) error {
	for try := 1; ; try++ {
		if ctx.Err() != nil {
			return ErrClosed
		}
		if !m.Deadline.IsZero() && !time.Now().Before(m.Deadline) {
			return ErrLate
		}
		if try > 1 {
			s.retried.Add(1)
		}
		err := s.client.post(ctx, m)
		if err == nil {
			s.sent.Add(1)
			s.answered(r)
			return nil
		}
		if refused, ok := errors.AsType[*Refused](err); ok {
			s.refused.Add(1)
			s.answered(r)
			s.config.Log.Warn("callback refused", "target", m.Target, "kind", m.Kind, "status", refused.Status)
			return err
		}
		if denied, ok := errors.AsType[*Denied](err); ok {
			s.refused.Add(1)
			s.config.Log.Warn("callback denied", "target", m.Target, "kind", m.Kind, "error", denied)
			return err
		}
		if ctx.Err() != nil {
			return ErrClosed // not the receiver's fault
		}
		failing, wait, up := s.unanswered(r)
		// If a receiver keeps failing, each message gets only one try, so that later messages do not
		// wait for all its tries.
		last := m.Once || try >= s.config.Tries || failing > s.config.Tries
		if last {
			s.failed.Add(1)
			s.config.Log.Warn("callback failed", "target", m.Target, "kind", m.Kind, "tries", try, "error", err)
		} else {
			up = nil // other answers must not use up this message's tries
		}
		if !m.Once { // the next message of the lane waits too, or a dead receiver would cost a try for each
			pause(ctx, wait, up)
		}
		if last {
			return err
		}
	}
}

// pause waits until ctx ends or the receiver is up, but not longer than wait.
func pause(ctx context.Context, wait time.Duration, up <-chan struct{}) {
	select {
	case <-ctx.Done():
	case <-up:
	case <-time.After(wait):
	}
}

func (s *Sender) answered(r *receiver) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.failures, r.downUntil = 0, time.Time{}
	if r.up != nil {
		close(r.up)
		r.up = nil
	}
}

// unanswered counts a failure. It returns the failures in a row, the wait before the next try, and a
// channel that is closed when the receiver answers.
func (s *Sender) unanswered(r *receiver) (failures int, wait time.Duration, up <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	wait = Backoff(r.failures, s.config.Backoff, s.config.Longest)
	r.failures++
	r.downUntil = time.Now().Add(wait)
	if r.up == nil {
		r.up = make(chan struct{})
	}
	return r.failures, wait, r.up
}

// Backoff returns the wait after a number of earlier failures. It doubles from first up to longest,
// less a random part of up to a quarter, so that retries spread out.
func Backoff(failures int, first, longest time.Duration) time.Duration {
	wait := longest
	if failures < 30 {
		wait = min(longest, first<<failures)
	}
	return wait - rand.N(wait/4+1) //nolint:gosec // spreads retries; no secret
}
