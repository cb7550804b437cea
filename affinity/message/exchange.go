package message

import "vitrine/internal/fifo"

// exchangeSize is the memory of an exchange, in bytes.
const exchangeSize = 224

// exchanges keeps recent requests, to find their answers and retransmissions.
type exchanges struct {
	open    map[uint64]exchange
	order   fifo.Queue[opening]
	limit   int
	timeout int64
	given   uint64 // requests evicted before the timeout, without an answer
}

// An exchange is a request with its answers.
type exchange struct {
	id      uint64
	at      int64
	hash    uint64 // of the request's transmission
	name    string
	answers [3]answer // the last ones
	count   uint32    // of answers
	rings   uint8     // further timeouts to keep it for, because it got a provisional answer
}

// ringing is how many timeouts more than other requests one with a provisional answer is kept
// for. A call may ring for minutes (RFC 3261 section 16.6, timer C).
const ringing = 3

type answer struct{ id, hash uint64 }

type opening struct {
	key uint64
	at  int64
}

func (x *exchanges) init(limit int, timeout int64) {
	x.open, x.limit, x.timeout = map[uint64]exchange{}, max(limit, 16), timeout
}

// A part says what a message does to an exchange.
type part uint8

const (
	alone  part = iota // it is in no exchange
	opens              // a request
	closes             // an answer
	rings              // a provisional answer: the final one may come minutes later
	only               // the only answer: the exchange is over
)

// settle finds the exchange of a message, and sets Answers, and Kind for a retransmission.
// The message has its ID already. For an answer, settle returns the name of its request.
func (x *exchanges) settle(s *slot) (request string) {
	m := &s.m
	x.expire(m.Time)
	switch s.part {
	case opens:
		if e, ok := x.open[s.key]; ok && s.hash != 0 && e.hash == s.hash {
			m.Kind, m.Answers = Repeat, e.id
			return ""
		}
		x.put(s.key, exchange{id: m.ID, at: m.Time, hash: s.hash, name: m.Name})
	case closes, rings, only:
		key := s.key
		e, ok := x.open[key]
		if !ok && s.other != 0 {
			key = s.other
			e, ok = x.open[key]
		}
		if !ok {
			return ""
		}
		e.rings = min(e.rings, 1) // the final answer may be sent again
		if s.part == rings {
			e.rings = ringing
		}
		for _, a := range e.answers[:min(e.count, uint32(len(e.answers)))] {
			if s.hash != 0 && a.hash == s.hash {
				m.Kind, m.Answers = Repeat, a.id
				x.open[key] = e
				return e.name
			}
		}
		m.Answers = e.id
		if s.part == only && s.hash == 0 { // no retransmission can follow
			delete(x.open, key)
			return e.name
		}
		e.answers[e.count%uint32(len(e.answers))] = answer{m.ID, s.hash}
		e.count++
		x.open[key] = e
		return e.name
	}
	return ""
}

func (x *exchanges) put(key uint64, e exchange) {
	for x.order.Len() >= x.limit {
		x.forget(true)
	}
	x.open[key] = e
	x.order.Push(opening{key, e.at})
}

// expire forgets old requests. A clock that jumps back must not keep them for ever.
func (x *exchanges) expire(now int64) {
	for x.order.Len() > 0 {
		if age := now - x.order.Front().at; -x.timeout <= age && age <= x.timeout {
			return
		}
		x.forget(false)
	}
}

// forget removes the oldest request, unless a newer one has taken over its key. Without need
// of room, it keeps a request that rings for another timeout.
func (x *exchanges) forget(early bool) {
	oldest := x.order.Pop()
	e, ok := x.open[oldest.key]
	if !ok || e.at != oldest.at {
		return
	}
	if e.rings > 0 && !early {
		e.rings--
		e.at += x.timeout
		x.open[oldest.key] = e
		x.order.Push(opening{oldest.key, e.at})
		return
	}
	if early && e.count == 0 {
		x.given++
	}
	delete(x.open, oldest.key)
}
