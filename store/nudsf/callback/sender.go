// Package callback sends notifications to the URIs that consumers gave. Each receiver has its own
// bounded queues, so a slow or dead receiver costs others neither memory nor time.
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

// Errors of Send and of Message.Done.
var (
	ErrFull   = errors.New("callback: the receiver's queue is full")
	ErrClosed = errors.New("callback: the sender has ended")
	ErrLate   = errors.New("callback: not sent before its deadline")
)

// A Down is the error of a message to a receiver that has just failed.
type Down struct{ Until time.Time }

func (e *Down) Error() string {
	return fmt.Sprintf("callback: the receiver is not answering; next try at %s", e.Until.Format(time.RFC3339))
}

// A Refused is the error of a message that the receiver answered with a final status: another try
// would not change it.
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
	Key             string    // messages with the same key to one receiver are sent in order
	Deadline        time.Time // do not send after it; zero: none
	Once            bool      // only one try; Send fails with *Down while the receiver is known to fail

	// Done is called once with the outcome unless Send failed: nil, *Refused, *Denied, ErrLate,
	// ErrClosed, or the error of the last try. May be nil.
	Done func(error)
}

// messageBytes is the approximate memory of a queued message without its texts.
const messageBytes = 512

// held returns about how many bytes of memory a queued message takes.
func (m *Message) held() int64 {
	return int64(messageBytes + len(m.Target) + len(m.ContentLocation) + len(m.Body) + len(m.Key))
}

// receiverShare is the divisor of Config.Bytes for one receiver, so that a dead receiver leaves room to
// the others.
const receiverShare = 4

// Config of a Sender. Zero values mean the defaults.
type Config struct {
	Targets   Targets
	Queue     int           // messages queued or being sent per receiver; 256
	Lanes     int           // messages being sent to a receiver at the same time; 8
	Receivers int           // receivers with messages, at the same time; 1024
	Bytes     int64         // bytes of all queued messages; 64 MiB. One receiver's take at most a quarter of it
	Tries     int           // tries of a message that is not Once; 5
	Backoff   time.Duration // wait after the first failure; doubles; 100 ms
	Longest   time.Duration // longest backoff; 10 s
	Timeout   time.Duration // timeout of one try; 5 s
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
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
}

// Counters are the counts since the Sender was created.
type Counters struct {
	Sent    uint64 `json:"sent"`    // messages that the receiver accepted (2xx)
	Retried uint64 `json:"retried"` // tries after a message's first
	Failed  uint64 `json:"failed"`  // messages given up after their last try
	Refused uint64 `json:"refused"` // messages refused with a final status (3xx, 4xx), or denied
	Dropped uint64 `json:"dropped"` // messages not queued: no room, receiver down, or sender ended
	Waiting int64  `json:"waiting"` // messages queued or being sent, now
}

// A Sender sends messages while Run runs.
type Sender struct {
	config Config
	client *client
	seed   maphash.Seed

	sent, retried, failed, refused, dropped atomic.Uint64

	mu        sync.Mutex
	ctx       context.Context // the context of Run; nil before
	closed    bool
	receivers map[string]*receiver // receivers with messages, or known to fail
	waiting   int64
	bytes     int64
	lanes     sync.WaitGroup
}

// New returns a sender. Messages wait until Run.
func New(config Config) *Sender {
	config.defaults()
	return &Sender{config: config, client: newClient(config), seed: maphash.MakeSeed(), receivers: map[string]*receiver{}}
}

// Check returns an error unless callbacks may go to the URI.
func (s *Sender) Check(uri string) error {
	_, err := s.config.Targets.Check(uri)
	return err
}

// Counters returns the current counters.
func (s *Sender) Counters() Counters {
	s.mu.Lock()
	waiting := s.waiting
	s.mu.Unlock()
	return Counters{
		Sent: s.sent.Load(), Retried: s.retried.Load(), Failed: s.failed.Load(), Refused: s.refused.Load(),
		Dropped: s.dropped.Load(), Waiting: waiting,
	}
}

// Send queues a message. It never blocks. If it fails, nothing was queued: ErrFull, ErrClosed,
// *Down, or the target is not allowed.
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

// Ready returns the error that Send of a message with a body of size bytes would return now. It counts
// only the body, so Send may still fail.
func (s *Sender) Ready(target string, once bool, size int) error {
	u, err := s.config.Targets.Check(target)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _, err = s.place(u, "", once, int64(messageBytes+size)) // the key selects the lane, and any lane has room if the receiver has
	return err
}

func (s *Sender) queue(u *url.URL, m Message) error {
	r, index, err := s.place(u, m.Key, m.Once, m.held())
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
	r.bytes += m.held()
	s.waiting++
	s.bytes += m.held()
	if !l.running && s.ctx != nil {
		s.start(r, l)
	}
	return nil
}

// place finds the receiver and lane of a message. The receiver is nil if it has no messages yet.
// The caller holds s.mu.
func (s *Sender) place(u *url.URL, key string, once bool, size int64) (*receiver, int, error) {
	if s.closed {
		return nil, 0, ErrClosed
	}
	most := s.config.Bytes / receiverShare
	if s.bytes+size > s.config.Bytes || size > most {
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
	if r.waiting >= s.config.Queue || r.bytes+size > most {
		return nil, 0, ErrFull
	}
	return r, index, nil
}

// forget drops a receiver without messages to make room, and reports whether it found one. It drops
// the receiver whose backoff ends first, because a dropped receiver counts as up again.
func (s *Sender) forget() bool {
	var first *receiver
	for _, r := range s.receivers {
		if r.idle() && (first == nil || r.downUntil.Before(first.downUntil)) {
			first = r
		}
	}
	if first == nil {
		return false
	}
	delete(s.receivers, first.authority)
	return true
}

// Run sends until ctx ends and returns after the last try has ended. It may be called once.
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
