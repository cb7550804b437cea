// Package queuetest simulates calls to a function behind an admission control, for tests. The
// function is one queue with one server, and the time is simulated.
package queuetest

import (
	"time"

	"vitrine/internal/fifo"
)

const (
	// requests is how many requests a call makes, one after another, as a registration that is
	// challenged twice.
	requests = 3
	// patience is how long a client waits for an answer. After that the client gives up the call,
	// but the function serves the request all the same.
	patience = 2 * time.Second
)

// A Control admits or refuses the requests of calls.
type Control interface {
	// Admit reports whether a request may enter the function. step is 1 for the first request of a
	// call.
	Admit(now time.Duration, step int) bool
	// Answered tells the control that the function has answered a request.
	Answered(now, latency time.Duration)
}

// A Server is a function behind a Control.
type Server struct {
	Control Control
	Service func(now time.Duration) time.Duration // service time of one request
	Now     time.Duration
	Counts

	free    time.Duration // when the queue will be empty
	waiting fifo.Queue[request]
}

// Counts are numbers of calls.
type Counts struct {
	Offered int
	Refused int // at the first request
	Broken  int // refused at a later request
	Done    int
}

// A request waits for its answer.
type request struct {
	arrived, answered time.Duration
	step              int
}

// Carries returns the service time of a function that carries a number of calls per second.
func Carries(capacity float64) func(time.Duration) time.Duration {
	return func(time.Duration) time.Duration { return time.Duration(float64(time.Second) / capacity / requests) }
}

// Drive offers calls at a rate per second for a time. Afterwards Counts has the calls of that time.
func (s *Server) Drive(rate float64, lasting time.Duration) {
	s.Counts = Counts{}
	gap := time.Duration(float64(time.Second) / rate)
	end := s.Now + lasting
	for next := s.Now; next < end; next += gap {
		s.until(next)
		s.Offered++
		s.send(next, 1)
	}
	s.until(end)
	s.Now = end
}

// send sends a request, which waits in the queue unless the control refuses it.
func (s *Server) send(now time.Duration, step int) {
	switch {
	case s.Control.Admit(now, step):
		s.free = max(s.free, now)
		s.free += s.Service(s.free)
		s.waiting.Push(request{now, s.free, step})
	case step == 1:
		s.Refused++
	default:
		s.Broken++
	}
}

// until answers the requests whose answers are due before end.
func (s *Server) until(end time.Duration) {
	for s.waiting.Len() > 0 && s.waiting.Front().answered < end {
		r := s.waiting.Pop()
		latency := r.answered - r.arrived
		s.Control.Answered(r.answered, latency)
		switch {
		case latency > patience:
		case r.step == requests:
			s.Done++
		default:
			s.send(r.answered, r.step+1)
		}
	}
}
