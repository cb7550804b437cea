package queue

// A request is the next request of a call: when it arrives, and when the call
// began.
type request struct{ at, since float64 }

// A line holds requests in the order of their arrival.
type line struct {
	requests []request
	head     int
}

func (l *line) empty() bool { return l.head == len(l.requests) }

// peek returns the first request; there must be one.
func (l *line) peek() request { return l.requests[l.head] }

func (l *line) push(r request) {
	if l.empty() {
		l.requests, l.head = l.requests[:0], 0
	}
	if len(l.requests) == cap(l.requests) && l.head > len(l.requests)/2 {
		l.requests = append(l.requests[:0], l.requests[l.head:]...)
		l.head = 0
	}
	l.requests = append(l.requests, r)
}

// offerMany offers calls of three requests until end, and then serves the
// requests that calls still send. Answers come in the order of the requests. So
// each stage is a separate line, and the earliest head is next.
func (d *deployment) offerMany(w *window, rate, end float64) {
	a := d.arrivals(rate)
	for a.at < end || !d.second.empty() || !d.third.empty() {
		random := d.random.Uint64()
		next, from := a.at, (*line)(nil)
		onward := &d.second
		since := next
		if a.at >= end {
			next = infinite
		}
		if !d.second.empty() && d.second.peek().at < next {
			from, onward = &d.second, &d.third
			next, since = from.peek().at, from.peek().since
		}
		if !d.third.empty() && d.third.peek().at < next {
			from, onward = &d.third, nil
			next, since = from.peek().at, from.peek().since
		}
		if from == nil {
			a.next(random >> 32)
		} else {
			from.head++
		}
		d.step(w, request{next, since}, onward, random)
	}
}

// infinite is later than any call.
const infinite = 1e300

// step serves one request. onward is the line of the call's next request; nil:
// this is the last one.
func (d *deployment) step(w *window, r request, onward *line, random uint64) {
	done, accepted := d.serve(r.at, random, w.end)
	limit := r.since + d.Timeout
	switch {
	case done > limit:
		w.add(r.since, limit, late)
	case !accepted:
		w.add(r.since, done, refused)
	case onward == nil:
		w.add(r.since, done, succeeded)
	default:
		onward.push(request{done + d.Think, r.since})
	}
}
