package datagram

import (
	"net/netip"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"vitrine/internal/mmsg"
)

const (
	// vectors is the maximum number of parts of all messages in one queue.
	vectors = 8 * batch
	// patience is how long to wait for a full socket buffer, in milliseconds.
	patience = 10
)

// A Sender queues messages and sends them in batches. Only one goroutine may use it.
type Sender struct {
	queues []*queue // by listener
	length int      // of all queues together
	room   [batch][]byte
	count  *counts
	last   *refusal
}

// A queue holds the messages for one socket.
type queue struct {
	fd       int
	length   int
	used     int // vectors
	messages [batch]mmsg.Message
	vectors  [vectors]unix.Iovec
	names    [batch]mmsg.Name
}

// newSender returns a Sender without queues.
func newSender(listeners int, count *counts, last *refusal) *Sender {
	s := &Sender{queues: make([]*queue, listeners), count: count, last: last}
	room := make([]byte, batch*RoomSize)
	for i := range s.room {
		s.room[i] = room[i*RoomSize : i*RoomSize : (i+1)*RoomSize]
	}
	return s
}

// Room returns an empty slice for parts of the next message. Bytes appended to it are valid
// until the message is sent. An append past RoomSize bytes allocates.
func (s *Sender) Room() []byte { return s.room[s.length] }

// Send queues a message from the listener's address. The message is the concatenation of at
// most 64 parts. Send does not copy them, so they must not change until the message is
// sent: when a batch is full, or on Flush. The destination must have the address family of
// the listener.
func (s *Sender) Send(listener int, to netip.AddrPort, parts ...[]byte) {
	q := s.queues[listener]
	if q.used+len(parts) > vectors {
		q.flush(s.count, s.last) // the room of messages in other queues stays in use
	}
	first := q.used
	for _, part := range parts {
		if len(part) == 0 {
			continue
		}
		q.vectors[q.used] = mmsg.Vector(part)
		q.used++
	}
	m, name := &q.messages[q.length], &q.names[q.length]
	m.SetName(name, name.Put(to))
	m.SetVectors(q.vectors[first:q.used])
	q.length++
	if s.length++; s.length == batch {
		s.Flush()
	}
}

// Flush sends the queued messages. A worker calls it after each batch that it read.
func (s *Sender) Flush() {
	for _, q := range s.queues {
		if q.length > 0 {
			q.flush(s.count, s.last)
		}
	}
	s.length = 0
}

// flush sends the queue. It counts, notes and skips messages that the kernel refuses.
func (q *queue) flush(count *counts, last *refusal) {
	waited := false
	sent, refused, calls := 0, 0, 0
	for i := 0; i < q.length; {
		n, errno := mmsg.Send(q.fd, q.messages[i:q.length], unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
		calls++
		switch {
		case errno == 0:
			i += n
			sent += n
			waited = false
		case errno == unix.EAGAIN && !waited:
			waited = true // at most once per message, so that a dead link does not block for long
			_, _ = unix.Poll([]unix.PollFd{{Fd: int32(q.fd), Events: unix.POLLOUT}}, patience)
		default:
			last.set(q.names[i].AddrPort(), errno)
			i++
			refused++
		}
	}
	q.length, q.used = 0, 0
	count.sent.Add(uint64(sent))
	count.writes.Add(uint64(calls))
	if refused > 0 {
		count.unsent.Add(uint64(refused))
	}
}

// A refusal is the last one of a Group, whose workers and Senders share it.
type refusal struct {
	mu   sync.Mutex
	last Refusal
}

func (r *refusal) set(to netip.AddrPort, errno unix.Errno) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = Refusal{to, errno}
}

func (r *refusal) get() Refusal {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

// counts are the counters of one worker or one Sender. The padding keeps them out of the
// cache lines of other workers.
type counts struct {
	received, sent, unsent, reads, writes atomic.Uint64
	_                                     [88]byte
}
