package queue

import (
	"math"
	"math/rand/v2"
	"time"

	"vitrine"
	"vitrine/search/sim"
)

// A deployment is a server with its state. Its worker takes requests in the order
// of their arrival, so that one pass over them is exact: a request begins when it
// has arrived and the previous one is done.
type deployment struct {
	*Server
	random rand.PCG
	unit   float64 // work of a mean request now
	first  float64 // the same without drift

	now    float64 // since the first deployment of the search
	free   float64 // when the worker is done with its backlog
	paused float64 // end of the worker's pause, in which it answers nobody

	period    float64 // index of the quota's period
	left      float64 // of this period's quota
	collect   float64 // work until the next collection
	collected int
	cold      float64
	stall     float64 // work until the next stall
	load      float64 // of about the last second, 0..1
	began     float64 // when the last request began

	second, third line
	busy          float64 // work of the window
}

// begin initializes the deployment to serve at a share of the server's rate.
func (d *deployment) begin(speed float64) {
	d.first = d.vcpus() / (d.Rate * speed * float64(d.Requests))
	d.unit = d.first
	d.left = d.Share * d.Period
	d.collect = d.Collect * d.uniform()
	d.stall = d.StallAfter * -math.Log1p(-d.uniform())
}

// uniform returns a random number in [0, 1).
func (d *deployment) uniform() float64 { return float64(d.random.Uint64()>>11) / (1 << 53) }

// Rest implements sim.Deployment: the worker continues with its backlog.
func (d *deployment) Rest(idle time.Duration) { d.now += idle.Seconds() }

// Run implements sim.Deployment. It follows the calls of the window to their
// ends, which may come after the window.
func (d *deployment) Run(t sim.Trial) vitrine.Outcome {
	w := newWindow(d.now+d.Warmup, t.Duration)
	d.busy = 0
	end := w.begin + t.Duration.Seconds()
	if d.Requests > 1 {
		d.offerMany(w, t.Rate, end)
	} else {
		d.offer(w, t.Rate, end)
	}
	d.now = end
	o := vitrine.Outcome{
		Key:      vitrine.Key{Attempt: t.Attempt, Substrate: "sim", Subject: t.Sizing.String(), Repeat: t.Repeat, Rate: t.Rate},
		Duration: t.Duration,
		Failed:   map[string]int64{},
		Seconds:  w.seconds,
		InFlight: w.inFlight(),
		Valid:    true,
	}
	for i := range o.Seconds {
		s := &o.Seconds[i]
		s.Offered = s.Scheduled
		s.Failed = s.Scheduled - s.Succeeded
		o.Scheduled += s.Scheduled
		o.Succeeded += s.Succeeded
	}
	o.Offered = o.Scheduled
	if w.late > 0 {
		o.Failed["timeout"] = w.late
	}
	if w.refused > 0 {
		o.Failed["503"] = w.refused
	}
	used := min(d.busy/t.Duration.Seconds(), d.vcpus())
	o.Use = map[string]vitrine.Use{"function-1": {Component: "function", CPU: &used, VCPUs: d.vcpus()}}
	return o
}

// arrivals generates the times of calls, one after the other.
type arrivals struct {
	at      float64
	begin   float64
	gap     float64 // mean
	count   float64
	poisson bool
}

func (d *deployment) arrivals(rate float64) arrivals {
	return arrivals{at: d.now, begin: d.now, gap: 1 / rate, poisson: d.Poisson}
}

// next moves on to the next call.
func (a *arrivals) next(random uint64) {
	if a.poisson {
		a.at += a.gap * float64(gaps[random%tableSize])
		return
	}
	a.count++
	a.at = a.begin + a.count*a.gap
}

// offer offers calls of one request until end.
func (d *deployment) offer(w *window, rate, end float64) {
	a := d.arrivals(rate)
	for a.at < end {
		random := d.random.Uint64()
		at := a.at
		a.next(random >> 32)
		done, accepted := d.serve(at, random, w.end)
		switch limit := at + d.Timeout; {
		case !accepted && d.Silent:
			w.add(at, limit, late)
		case !accepted:
			w.add(at, min(done, limit), refused)
		case done > limit:
			w.add(at, limit, late)
		default:
			w.add(at, done, succeeded)
		}
	}
}

// serve takes or refuses a request, and returns when it is answered. Work that
// begins before until counts as use of the window that ends then.
func (d *deployment) serve(at float64, random uint64, until float64) (done float64, accepted bool) {
	start := max(at, d.free)
	if start-at > d.Bound {
		work := d.unit * d.Refusal
		d.free = start + work/d.vcpus()
		if start < until {
			d.busy += work
		}
		return max(at, d.paused), false
	}
	if d.Drift != 0 {
		d.unit = d.first / d.drifted(at)
	}
	work := d.unit * float64(d.work[random%tableSize])
	if d.cold > 0 {
		work *= 1 + d.cold
		d.cold *= 1 - 1/d.Warming
	}
	if start < until {
		d.busy += work
	}
	d.free = d.finish(start, work)
	return d.free, true
}

// A fate is the result of a call.
type fate int

const (
	succeeded fate = iota
	refused
	late
)

// A window is what a trial's generator records.
type window struct {
	begin, end    float64
	seconds       []vitrine.Second
	changes       []int64 // of the calls in flight, from one entry of Outcome.InFlight to the next
	late, refused int64
}

func newWindow(begin float64, duration time.Duration) *window {
	return &window{
		begin: begin, end: begin + duration.Seconds(),
		seconds: make([]vitrine.Second, int(math.Ceil(duration.Seconds()))),
		changes: make([]int64, (duration+vitrine.InFlightEvery-1)/vitrine.InFlightEvery),
	}
}

// add records a call: when it was sent, and when its client had an answer or gave
// up.
func (w *window) add(at, done float64, what fate) {
	w.change(at, 1)
	w.change(done, -1)
	if at < w.begin {
		return
	}
	s := &w.seconds[min(int(at-w.begin), len(w.seconds)-1)]
	s.Scheduled++
	switch what {
	case succeeded:
		s.Succeeded++
	case refused:
		w.refused++
	case late:
		w.late++
	}
}

// change adds a call to the calls in flight, or removes it.
func (w *window) change(at float64, by int64) {
	const per = float64(time.Second / vitrine.InFlightEvery)
	k := 0
	if since := (at - w.begin) * per; since > 0 {
		k = int(since) + 1
	}
	if k < len(w.changes) {
		w.changes[k] += by
	}
}

// inFlight returns the running sum of the changes.
func (w *window) inFlight() []int64 {
	for k := 1; k < len(w.changes); k++ {
		w.changes[k] += w.changes[k-1]
	}
	return w.changes
}
