package callback

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/url"
	"time"
)

// A receiver is one authority (scheme, host and port) that callbacks go to.
type receiver struct {
	authority string
	lanes     []lane
	waiting   int       // messages, in all lanes and under way
	failures  int       // tries in a row that failed
	downUntil time.Time // no Once message is taken before
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

// idle says that nothing waits and nothing is worth remembering. The sender's mutex is held.
func (r *receiver) idle() bool { return r.waiting == 0 }

// start runs a lane until its queue is empty. s.mu is held.
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

// take gives the next message of a lane, or ends the lane.
func (s *Sender) take(r *receiver, l *lane) (waiting, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(l.queue) == 0 {
		l.running, l.queue = false, nil
		if s.receivers[r.authority] == r && r.idle() && r.failures == 0 { // not another one made since
			delete(s.receivers, r.authority)
		}
		return waiting{}, false
	}
	m := l.queue[0]
	l.queue[0] = waiting{} // frees the body
	l.queue = l.queue[1:]
	return m, true
}

// done frees the room of a message.
func (s *Sender) done(r *receiver, m waiting) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.waiting--
	s.waiting--
	s.bytes -= int64(len(m.Body))
}

// deliver tries until the message is taken, refused or given up.
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
		var refused *Refused
		if err == nil {
			s.sent.Add(1)
			s.answered(r)
			return nil
		}
		if errors.As(err, &refused) {
			s.refused.Add(1)
			s.answered(r)
			s.config.Log.Warn("callback refused", "target", m.Target, "kind", m.Kind, "status", refused.Status)
			return err
		}
		var denied *Denied
		if errors.As(err, &denied) {
			s.refused.Add(1)
			s.config.Log.Warn("callback denied", "target", m.Target, "kind", m.Kind, "error", denied)
			return err
		}
		if ctx.Err() != nil {
			return ErrClosed // no fault of the receiver's
		}
		failing, wait := s.unanswered(r)
		// To a receiver that fails time and again each message gets one try, so
		// that those behind it do not wait for all its tries.
		if m.Once || try >= s.config.Tries || failing > s.config.Tries {
			s.failed.Add(1)
			s.config.Log.Warn("callback failed", "target", m.Target, "kind", m.Kind, "tries", try, "error", err)
			return err
		}
		select {
		case <-ctx.Done():
			return ErrClosed
		case <-time.After(wait):
		}
	}
}

func (s *Sender) answered(r *receiver) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.failures, r.downUntil = 0, time.Time{}
}

// unanswered counts a failure, and gives how many there were in a row and how long to wait.
func (s *Sender) unanswered(r *receiver) (failures int, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	wait = Backoff(r.failures, s.config.Backoff, s.config.Longest)
	r.failures++
	r.downUntil = time.Now().Add(wait)
	return r.failures, wait
}

// Backoff gives how long to wait after so many failures before: doubling from first
// to longest, less up to a quarter by chance so that retries do not come together.
func Backoff(failures int, first, longest time.Duration) time.Duration {
	wait := longest
	if failures < 30 {
		wait = min(longest, first<<failures)
	}
	return wait - rand.N(wait/4+1) //nolint:gosec // spreads retries; no secret
}
