// Package callback sends notifications to the URIs that consumers gave. Each
// receiver has its own bounded queues, so that one that is slow or dead costs neither
// memory nor the time of others.
package callback

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"net/url"
	"sync"
	"sync/atomic"
	"time"
)

// Errors of Send, and of Message.Done.
var (
	ErrFull   = errors.New("callback: the receiver's queue is full")
	ErrClosed = errors.New("callback: the sender has ended")
	ErrLate   = errors.New("callback: not sent before its time was over")
)

// A Down is the error of a message to a receiver that has just failed.
type Down struct{ Until time.Time }

func (e *Down) Error() string {
	return fmt.Sprintf("callback: the receiver is not answering; next try at %s", e.Until.Format(time.RFC3339))
}

// A Refused is the error of a message that the receiver answered with a status that
// another try would not change.
type Refused struct{ Status int }

func (e *Refused) Error() string {
	return fmt.Sprintf("callback: the receiver refused with status %d", e.Status)
}

// A Message is one notification: a POST.
type Message struct {
	Target          string // URI; see Targets.Check
	Kind            string // 3gpp-Sbi-Callback, TS 29.500 clause 5.2.3.2.3: "Nudsf_Timer_timerExpiry"
	ContentType     string
	ContentLocation string // may be empty
	Body            []byte
	Key             string    // messages to a receiver with the same key go in order
	Deadline        time.Time // not sent after it; zero: none
	Once            bool      // one try; and Send fails with *Down while the receiver is known to fail

	// Done is called once with the outcome, unless Send failed: nil, *Refused, *Denied,
	// ErrLate, ErrClosed, or why the last try failed. May be nil.
	Done func(error)
}

// Config of a Sender. Zero values give the defaults.
type Config struct {
	Targets   Targets
	Queue     int           // messages waiting for a receiver; 256
	Lanes     int           // messages under way to a receiver at once; 8
	Receivers int           // with messages waiting, at once; 1024
	Bytes     int64         // of bodies waiting, all in all; 64 MiB
	Tries     int           // of a message that is not Once; 5
	Backoff   time.Duration // after the first failure; doubles; 100 ms
	Longest   time.Duration // backoff at most; 10 s
	Timeout   time.Duration // of one try; 5 s
	Protocol  Protocol      // over http: Auto
	Log       *slog.Logger  // nil: none
}

func (c *Config) defaults() {
	c.Queue = cmp.Or(c.Queue, 256)
	c.Lanes = cmp.Or(c.Lanes, 8)
	c.Receivers = cmp.Or(c.Receivers, 1024)
	c.Bytes = cmp.Or(c.Bytes, 64<<20)
	c.Tries = cmp.Or(c.Tries, 5)
	c.Backoff = cmp.Or(c.Backoff, 100*time.Millisecond)
	c.Longest = cmp.Or(c.Longest, 10*time.Second)
	c.Timeout = cmp.Or(c.Timeout, 5*time.Second)
	c.Protocol = cmp.Or(c.Protocol, Auto)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
}

// Counters of a Sender since it began.
type Counters struct {
	Sent    uint64 `json:"sent"`    // messages that were taken (2xx)
	Retried uint64 `json:"retried"` // tries beyond a message's first
	Failed  uint64 `json:"failed"`  // messages given up, or handed back after their one try
	Refused uint64 `json:"refused"` // messages refused for good (3xx, 4xx), or denied
	Dropped uint64 `json:"dropped"` // messages never queued: no room
	Waiting int64  `json:"waiting"` // messages in queues, now
}

// A Sender sends messages while Run runs.
type Sender struct {
	config Config
	client *client
	seed   maphash.Seed

	sent, retried, failed, refused, dropped atomic.Uint64

	mu        sync.Mutex
	ctx       context.Context // of Run; nil before
	closed    bool
	receivers map[string]*receiver // with messages waiting, or known to fail
	waiting   int64
	bytes     int64
	lanes     sync.WaitGroup
}

// New makes a sender. Messages wait until Run.
func New(config Config) *Sender {
	config.defaults()
	return &Sender{config: config, client: newClient(config), seed: maphash.MakeSeed(), receivers: map[string]*receiver{}}
}

// Check says whether callbacks may go to a URI.
func (s *Sender) Check(uri string) error {
	_, err := s.config.Targets.Check(uri)
	return err
}

// Counters gives the counters as they are now.
func (s *Sender) Counters() Counters {
	s.mu.Lock()
	waiting := s.waiting
	s.mu.Unlock()
	return Counters{
		Sent: s.sent.Load(), Retried: s.retried.Load(), Failed: s.failed.Load(), Refused: s.refused.Load(),
		Dropped: s.dropped.Load(), Waiting: waiting,
	}
}

// Send queues a message; it never waits. When it fails, nothing was queued: ErrFull,
// ErrClosed, *Down, or the target is not allowed.
func (s *Sender) Send(m Message) error {
	u, err := s.config.Targets.Check(m.Target)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	err = s.queue(u, m)
	if err != nil {
		s.dropped.Add(1)
	}
	return err
}

// Ready says whether Send of a message would be taken now.
func (s *Sender) Ready(target, key string) error {
	u, err := s.config.Targets.Check(target)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _, err = s.place(u, key, true, 0)
	return err
}

func (s *Sender) queue(u *url.URL, m Message) error {
	r, index, err := s.place(u, m.Key, m.Once, int64(len(m.Body)))
	if err != nil {
		return err
	}
	if r == nil {
		r = &receiver{authority: authority(u), lanes: make([]lane, s.config.Lanes)}
		s.receivers[r.authority] = r
	}
	l := &r.lanes[index]
	l.queue = append(l.queue, waiting{m, u})
	r.waiting++
	s.waiting++
	s.bytes += int64(len(m.Body))
	if !l.running && s.ctx != nil {
		s.start(r, l)
	}
	return nil
}

// place finds the lane of a message: none yet (nil), or of a receiver. s.mu is held.
func (s *Sender) place(u *url.URL, key string, once bool, size int64) (*receiver, int, error) {
	if s.closed {
		return nil, 0, ErrClosed
	}
	if s.bytes+size > s.config.Bytes {
		return nil, 0, ErrFull
	}
	index := int(maphash.String(s.seed, key) % uint64(s.config.Lanes))
	r := s.receivers[authority(u)]
	if r == nil {
		if len(s.receivers) >= s.config.Receivers && !s.forget() {
			return nil, 0, ErrFull
		}
		return nil, index, nil
	}
	if now := time.Now(); once && now.Before(r.downUntil) {
		return nil, 0, &Down{Until: r.downUntil}
	}
	if r.waiting >= s.config.Queue {
		return nil, 0, ErrFull
	}
	return r, index, nil
}

// forget makes room by dropping what is known of a receiver without messages.
func (s *Sender) forget() bool {
	for name, r := range s.receivers {
		if r.idle() {
			delete(s.receivers, name)
			return true
		}
	}
	return false
}

// Run sends until ctx ends, and ends after the last try has.
func (s *Sender) Run(ctx context.Context) error {
	s.mu.Lock()
	if s.ctx != nil || s.closed {
		s.mu.Unlock()
		return errors.New("callback: the sender runs, or ran, already")
	}
	s.ctx = ctx
	for _, r := range s.receivers {
		for i := range r.lanes {
			if l := &r.lanes[i]; len(l.queue) > 0 {
				s.start(r, l)
			}
		}
	}
	s.mu.Unlock()
	<-ctx.Done()
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.lanes.Wait()
	s.client.close()
	return nil
}

func authority(u *url.URL) string { return u.Scheme + "://" + u.Host }
