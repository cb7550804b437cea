package rate

import (
	"math"

	"vitrine"
)

// An evidence is what one valid trial says of the function in the long run.
type evidence struct {
	rate, x   float64 // offered, and its logarithm
	repeat    int     // deployment
	window    float64 // seconds of the trial
	seconds   float64 // of those, the fair ones, on which the rest is based
	calls     float64 // scheduled in the fair seconds
	success   float64 // success ratio of the fair seconds
	low, high float64 // bounds of the logarithm of the success ratio in the long run
	variance  float64 // of that logarithm, for noise
	all       []count // the seconds of the trial
	from      int     // the first of them that is fair
	busy      float64 // CPU used of CPU given, of the busiest component; 0: not read

	hidden    float64 // calls that the function took in before its overload showed; 0: not seen
	shows     bool    // there was time for an overload to show
	recovered float64 // seconds at the start in which the function had not recovered
	after     bool    // an overload came before, and nothing since shows that it is over
	doubt     float64 // probability that it says nothing at all
	strained  bool    // an overload came before in the deployment, at whatever time
	unfair    bool    // an overload before it lingers in it
}

const (
	plainly   = 0.04 // a change of the success ratio within a trial that noise seldom makes
	intact    = 0.97 // of the best success ratio: a function that is not overloaded
	strained  = 0.8  // of the best success ratio: a function that is clearly overloaded
	fewest    = 4    // seconds of a trial in which a change can be told from noise
	emptyHalf = 0.5  // calls that stand for none, where a logarithm is wanted
)

// read makes the evidence of a valid outcome. best is the success ratio of the
// function without much load; after says that an overload came before.
func read(o vitrine.Outcome, best float64, after bool) evidence {
	e := evidence{rate: o.Rate, x: math.Log(o.Rate), repeat: o.Repeat, window: o.Duration.Seconds(), busy: mostCPU(o), after: after}
	seconds := make([]count, 0, len(o.Seconds))
	for _, s := range o.Seconds {
		if s.Scheduled > 0 {
			seconds = append(seconds, count{float64(s.Scheduled), float64(s.Succeeded)})
		}
	}
	if len(seconds) == 0 {
		seconds = append(seconds, count{float64(o.Scheduled), float64(o.Succeeded)})
	}
	e.all = seconds
	e.rest(e.choose(seconds, best, after))
	e.bound(seconds, best, after)
	e.question()
	return e
}

// question is how much the trial may be doubted: short ones may not see an
// overload, and those after an overload may suffer from that.
func (e *evidence) question() {
	const always, brief, before = 0.002, 0.05, 0.02
	e.doubt = always
	if e.window < fewest {
		e.doubt += brief / e.window
	}
	if e.after {
		e.doubt += before
	}
}

// choose is the first of the seconds that stand for the long run: those after a
// queue was full, and those after the function had recovered from an overload
// before.
func (e *evidence) choose(seconds []count, best float64, after bool) int {
	n := len(seconds)
	if n < fewest {
		e.shows = total(seconds).ratio() < intact*best
		return 0
	}
	c, first, later := step(seconds)
	switch {
	case c == 0:
	case first-later >= plainly && first >= intact*best && c+1 < n:
		rest := total(seconds[c+1:]).ratio() // the second of the change is neither
		e.shows = true
		for _, s := range seconds[:c+1] {
			e.hidden += s.succeeded - s.scheduled*rest
		}
		return c + 1
	case after && later-first >= plainly:
		e.recovered = e.window * float64(c) / float64(n)
		return c
	}
	// Filling up within the first second leaves only that one better.
	rest := total(seconds[1:]).ratio()
	e.shows = rest < intact*best
	if e.shows && seconds[0].ratio() > rest+plainly {
		e.hidden = seconds[0].succeeded - seconds[0].scheduled*rest
		return 1
	}
	return 0
}

// leadIn leaves out the first seconds of overloaded trials if over all of them
// these do better than the later ones. A queue fills slowly near the capacity,
// and how its filling shows in one trial is lost in the noise.
func leadIn(trials []evidence, best float64) {
	const (
		enough = 6     // seconds of a trial
		little = 0.015 // of the success ratio
		plain  = 1.5   // standard deviations
	)
	var excess [enough / 2]struct{ n, sum, squares float64 }
	for _, e := range trials {
		if len(e.all) < enough || !e.shows || e.recovered > 0 || e.success < strained*best {
			continue
		}
		later := total(e.all[enough/2:]).ratio()
		deviation := math.Sqrt(spread(e.all[enough/2:], later) / float64(len(e.all)-enough/2-1))
		for i := range excess {
			excess[i].n++
			excess[i].sum += e.all[i].ratio() - later
			excess[i].squares += deviation * deviation
		}
	}
	lead := 0
	for i, x := range excess {
		if x.n > 0 && i == lead && x.sum/x.n > max(little, plain*math.Sqrt(x.squares)/x.n) {
			lead++
		}
	}
	for i := range trials {
		e := &trials[i]
		if len(e.all) >= enough && e.shows && e.recovered == 0 && e.from < lead {
			e.rest(lead)
		}
	}
}

// step is where the success ratio changes most; 0: nowhere, for the change is
// not clear beside how the seconds before and after it differ.
func step(seconds []count) (at int, first, later float64) {
	const plain = 5 // standard deviations
	least := math.Inf(1)
	for c := 1; c < len(seconds); c++ {
		a, b := total(seconds[:c]).ratio(), total(seconds[c:]).ratio()
		if left := spread(seconds[:c], a) + spread(seconds[c:], b); left < least {
			at, first, later, least = c, a, b, left
		}
	}
	n, c := float64(len(seconds)), float64(at)
	if math.Abs(first-later) < plain*math.Sqrt(least/(n-2)*(1/c+1/(n-c))) {
		return 0, 0, 0
	}
	return at, first, later
}

func total(seconds []count) count {
	var sum count
	for _, s := range seconds {
		sum.scheduled += s.scheduled
		sum.succeeded += s.succeeded
	}
	return sum
}

func spread(seconds []count, around float64) float64 {
	sum := 0.0
	for _, s := range seconds {
		sum += (s.ratio() - around) * (s.ratio() - around)
	}
	return sum
}

// rest bases the evidence on the seconds from one on.
func (e *evidence) rest(from int) {
	fair := e.all[from:]
	all := total(fair)
	e.from, e.calls = from, all.scheduled
	e.success = max(all.succeeded, emptyHalf) / all.scheduled
	e.low, e.high = math.Log(e.success), math.Log(e.success)
	e.seconds = e.window * float64(len(fair)) / float64(len(e.all))
}

// steadily says that the trial may tell how seconds differ by noise alone: it
// was not so overloaded, and not so short, that they differ for other reasons.
func (e *evidence) steadily(best float64) bool {
	const least = 0.7
	return e.window >= fewest && e.success >= least*best
}

// steady is how the later seconds deviate, those at the start being of another
// kind where a queue fills.
func (e *evidence) steady() series {
	const start = 0.3 // of the trial
	from := max(e.from, int(start*float64(len(e.all))))
	later := e.all[from:]
	mean := max(total(later).succeeded, emptyHalf) / total(later).scheduled
	var s series
	if len(later) < 2 { // one says nothing of how they differ
		return s
	}
	for _, c := range later {
		s.deviation = append(s.deviation, c.ratio()/mean-1)
		s.white = append(s.white, drawing(mean, c.scheduled))
	}
	return s
}

// drawing is the variance of the logarithm of a success ratio for the calls
// being so few: each succeeds or does not.
func drawing(success, calls float64) float64 {
	p := min(max(success, emptyHalf/calls), 1-emptyHalf/calls)
	return (1 - p) / (p * calls)
}

// crosses says that the trial was about at the capacity for the threshold, and
// long enough to tell.
func (e *evidence) crosses(threshold float64) bool {
	const little = 0.06 // of the success, as a logarithm
	return e.shows && e.window >= fewest && math.Abs(math.Log(e.success/threshold)) < little
}

// bound widens what a trial says where it was too short to tell: success that
// falls at its end may fall on, and where it rises it may rise on.
func (e *evidence) bound(seconds []count, best float64, after bool) {
	n := len(seconds)
	if n < 2 {
		return
	}
	first, last := seconds[0].ratio(), seconds[n-1].ratio()
	short := n < fewest
	switch {
	case e.recovered > 0 && e.seconds < 2:
		e.high = math.Log(best)
	case short && after && last-first >= plainly:
		e.low, e.high = math.Log(max(last, e.success)), math.Log(best)
		e.recovered = e.window / 2
	case short && first-last >= plainly && first >= intact*best:
		e.low = math.Log(max(last-(first-last), emptyHalf/e.calls))
	case !short && e.hidden == 0 && total(seconds[:n-1]).ratio() >= intact*best && first-last >= 2*plainly:
		e.low = math.Log(max(last-(first-last), emptyHalf/e.calls))
	}
}

// mostCPU is the CPU used of the CPU given by the component that uses most.
func mostCPU(o vitrine.Outcome) float64 {
	most := 0.0
	for _, share := range meanByComponent([]vitrine.Outcome{o}, vitrine.CPU) {
		most = max(most, share)
	}
	return most
}

// absorb lowers what trials say in which the queue could hide the overload. A
// function that was seen to take in so many calls before its overload showed
// may have done so in every trial in which nothing showed.
func absorb(trials []evidence, best float64) {
	hidden := 0.0
	for _, e := range trials {
		hidden = max(hidden, e.hidden)
	}
	if hidden == 0 {
		return
	}
	for i := range trials {
		e := &trials[i]
		if e.hidden == 0 && (e.window < fewest || e.success >= intact*best) && e.recovered == 0 {
			e.low = min(e.low, math.Log(max(e.success-hidden/e.calls, emptyHalf/e.calls)))
		}
	}
}
