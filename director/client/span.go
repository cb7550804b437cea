package client

import (
	"time"

	"vitrine/director/latency"
)

// The outcomes that count as failures of an instance. A declined transaction, such as one
// that is challenged, is no failure, and neither is an INVITE that rings (proceeding).
var failures = [...]string{"failed", "busy", "unanswered"}

// A Reading holds the counts of an instance at a time, added up over directors side by side.
type Reading struct {
	At       time.Time
	Begun    uint64 // transactions
	InFlight uint64 // transactions
	Waiting  uint64 // of those in flight, the ones that are not proceeding
	Dialogs  int64  // now
	parts    map[source]Instance
}

// A source identifies the counts that one director has of one instance.
type source struct {
	director, instance string
	number             int // among those without a known director
}

// Read adds up the counts that several directors report of one instance, or of several. The
// Reading keeps their maps and histograms.
func Read(at time.Time, all ...Instance) Reading {
	r := Reading{At: at, parts: make(map[source]Instance, len(all))}
	for i := range all {
		in := &all[i]
		r.Begun += in.Transactions
		r.InFlight += in.InFlight
		r.Waiting += in.InFlight - min(in.InFlight, in.Proceeding)
		r.Dialogs += in.Dialogs
		from := source{director: in.director, instance: in.Name}
		for r.has(from) {
			from.number++
		}
		r.parts[from] = *in
	}
	return r
}

func (r *Reading) has(from source) bool {
	_, ok := r.parts[from]
	return ok
}

// Overdue returns a lower bound on the number of transactions that wait for a response and began no later
// than an earlier reading: those that wait now, without those that have begun since. It is 0 if the counts
// began anew between the readings.
func (r Reading) Overdue(before Reading) uint64 {
	if r.Begun < before.Begun {
		return 0
	}
	return r.Waiting - min(r.Waiting, r.Begun-before.Begun)
}

// A Span is what happened between two readings of the same directors.
type Span struct {
	Duration     time.Duration
	Begun        uint64            // transactions
	Ended        map[string]uint64 // transactions, by outcome
	Latencies    latency.Histogram // as Instance.Latencies
	InFlight     uint64            // transactions, at the end
	DialogsBegun uint64
	Dialogs      int64 // at the end
}

// Since returns what happened since an earlier reading, by the directors that had the instance in
// both. A director's count that is below its earlier one counts from 0, because the director has
// started again without its counts.
func (r Reading) Since(before Reading) Span {
	since := func(now, was uint64) uint64 {
		if now < was {
			return now
		}
		return now - was
	}
	s := Span{Duration: r.At.Sub(before.At), Ended: map[string]uint64{}, InFlight: r.InFlight, Dialogs: r.Dialogs}
	for from, now := range r.parts {
		was, had := before.parts[from]
		if !had {
			continue
		}
		s.Begun += since(now.Transactions, was.Transactions)
		s.DialogsBegun += since(now.DialogsBegun, was.DialogsBegun)
		for outcome, n := range now.Ended {
			s.Ended[outcome] += since(n, was.Ended[outcome])
		}
		s.Latencies.Merge(now.Latencies.Since(was.Latencies))
	}
	return s
}

// Rate returns the transactions begun per second.
func (s Span) Rate() float64 {
	if s.Duration <= 0 {
		return 0
	}
	return float64(s.Begun) / s.Duration.Seconds()
}

// Completed returns how many transactions ended.
func (s Span) Completed() (n uint64) {
	for _, ended := range s.Ended {
		n += ended
	}
	return n
}

// Failures returns how many transactions ended with a 5xx answer or unanswered.
func (s Span) Failures() (n uint64) {
	for _, outcome := range failures {
		n += s.Ended[outcome]
	}
	return n
}

// Success returns the share of the ended transactions that were no failures, 0..1; 1 if none
// ended.
func (s Span) Success() float64 {
	ended := s.Completed()
	if ended == 0 {
		return 1
	}
	return float64(ended-s.Failures()) / float64(ended)
}

// Quantile returns the latency that a share q of the transactions with a latency, 0..1, does
// not exceed; 0 if there are none.
func (s Span) Quantile(q float64) time.Duration { return s.Latencies.Quantile(q) }
