package size

import (
	"math"
	"math/rand/v2"
	"slices"
)

const (
	chains  = 4   // each from its own start
	settle  = 200 // sweeps of a chain before its draws count
	kept    = 75  // draws kept of each chain
	between = 3   // sweeps from one kept draw to the next

	limitTries = 3 // fresh limits of threads that a sweep tries
)

// Parameters of the whole function. threshold says how far the capacity lies from
// where the bottleneck saturates: a success ratio of 0.9 is reached a little
// beyond, load control sets in before. other is a limit that no component shows.
const (
	thresholdSpread = 0.15
	otherMiddle     = 3.0 // in logarithms above the highest capacity seen
	otherSpread     = 1.0
)

// A draw is one sample of the posterior.
type draw struct {
	demands   []demand // by place
	threshold float64  // in standard deviations
	other     float64  // in standard deviations
}

// A posterior samples the posterior distribution given the evidence, by
// Metropolis steps on one parameter after another (Gelman et al., Bayesian Data
// Analysis, 3rd edition, section 11.3).
type posterior struct {
	evidence
	costings []costing
	used     [][]int  // by place: the cells that were measured
	loads    [][]line // by place and cell: the sum of its loads
	random   *rand.Rand

	draw
	carried        [][]float64 // by place and cell, for the used ones: logarithm of what it carries
	loadLikelihood []float64   // by place: log-likelihood of its loads
	others         []float64   // by measured size: what the places allow without the one being moved
	before         []float64   // carried of the place being moved, before the move
	steps          map[int]*step
	adapt          bool
}

// A step is how far a parameter is moved, learned from how often moves are
// accepted.
type step struct{ size float64 }

func newPosterior(e evidence, seed uint64) *posterior {
	p := &posterior{evidence: e, random: rand.New(rand.NewPCG(seed, uint64(len(e.sizes))))}
	for i, at := range e.places {
		p.costings = append(p.costings, costing{place: at, work: e.work(i), priors: priors()})
		var used []int
		loads := make([]line, len(at.cells))
		for _, s := range e.sizes {
			if !slices.Contains(used, s.cells[i]) {
				used = append(used, s.cells[i])
			}
			loads[s.cells[i]].add(s.lines[i])
		}
		p.used, p.loads = append(p.used, used), append(p.loads, loads)
	}
	return p
}

// work returns a first guess of the logarithm of a component's demand: from its
// loads, or else as if it were the bottleneck.
func (e evidence) work(place int) float64 {
	sum, n := 0.0, 0.0
	for _, s := range e.sizes {
		at := e.places[place].cells[s.cells[place]]
		guess := math.Log(at.vcpus) - s.capacity
		if l := s.lines[place]; l.xy > 0 {
			guess = math.Log(l.xy / l.xx)
		}
		sum += guess + math.Log(float64(at.count))/2
		n++
	}
	return sum / max(n, 1)
}

// draws samples all chains, one after another.
func (p *posterior) draws() []draw {
	var all []draw
	for range chains {
		p.begin()
		for range settle {
			p.sweep()
		}
		p.adapt = false
		for range kept {
			for range between {
				p.sweep()
			}
			all = append(all, p.clone())
		}
	}
	return all
}

// begin starts a chain at random parameters from the prior, but near the demand
// that the loads show.
func (p *posterior) begin() {
	p.draw = draw{}
	p.steps, p.adapt = map[int]*step{}, true
	p.carried, p.loadLikelihood = nil, make([]float64, len(p.costings))
	for i, c := range p.costings {
		d := demand{counts: make([]float64, c.largest()+1), cells: make([]float64, len(c.cells))}
		for k := range params {
			d.z[k] = p.random.NormFloat64()
		}
		d.z[pWork] *= 0.1
		p.demands = append(p.demands, d)
		p.carried = append(p.carried, make([]float64, len(c.cells)))
		p.price(i)
	}
}

// price computes what the measured cells of a place carry, and the log-likelihood
// of its loads.
func (p *posterior) price(place int) {
	c, d := &p.costings[place], &p.demands[place]
	p.loadLikelihood[place] = 0
	for _, i := range p.used[place] {
		r := c.rate(d, c.cells[i])
		p.carried[place][i] = r.carries() + cellSpread*d.cells[i]
		p.loadLikelihood[place] += r.logLikelihood(&p.loads[place][i])
	}
}

// Keys of the steps of a place: its parameters, its counts, its cells.
const (
	firstCount = 1 << 8
	firstCell  = 1 << 20
	nextPlace  = 1 << 40
)

// sweep moves every parameter once.
func (p *posterior) sweep() {
	for i := range p.demands {
		d := &p.demands[i]
		p.leaveOut(i)
		like := p.logLikelihood(i)
		for k := range params {
			like = p.move(i, k, &d.z[k], like, false)
		}
		for range limitTries {
			like = p.move(i, pThreads, &d.z[pThreads], like, true)
		}
		for _, c := range p.used[i] {
			like = p.move(i, firstCell+c, &d.cells[c], like, false)
			if n := p.places[i].cells[c].count; n > 1 {
				like = p.move(i, firstCount+n, &d.counts[n], like, false)
			}
		}
	}
	like := p.capacityLikelihood()
	for k, z := range []*float64{&p.threshold, &p.other} {
		like = p.moveShared(k, z, like)
	}
}

// move tries another value of one parameter of a place and returns the
// log-likelihood after that. The value is near the present one, or if fresh,
// drawn from the prior, because a limit of threads far from the present one may
// fit as well.
func (p *posterior) move(place, k int, z *float64, like float64, fresh bool) float64 {
	old := *z
	s := p.step(place*nextPlace + k)
	gain := -like
	if fresh {
		*z = p.random.NormFloat64()
	} else {
		*z += s.size * p.random.NormFloat64()
		gain += (old*old - *z**z) / 2
	}
	p.before = append(p.before[:0], p.carried[place]...)
	likelihood := p.loadLikelihood[place]
	p.price(place)
	now := p.logLikelihood(place)
	if p.accept(gain+now, s, fresh) {
		return now
	}
	*z = old
	copy(p.carried[place], p.before)
	p.loadLikelihood[place] = likelihood
	return like
}

// moveShared is like move for a parameter of the whole function.
func (p *posterior) moveShared(k int, z *float64, like float64) float64 {
	old := *z
	s := p.step(-1 - k)
	*z += s.size * p.random.NormFloat64()
	now := p.capacityLikelihood()
	if p.accept(now-like+(old*old-*z**z)/2, s, false) {
		return now
	}
	*z = old
	return like
}

func (p *posterior) step(key int) *step {
	s := p.steps[key]
	if s == nil {
		s = &step{size: 1}
		p.steps[key] = s
	}
	return s
}

// accept decides a Metropolis step. While the chain settles, it adapts the step's
// size until 44% are accepted, the best for one parameter at a time (Gelman et
// al., section 12.2).
func (p *posterior) accept(gain float64, s *step, fresh bool) bool {
	ok := gain >= 0 || p.random.Float64() < math.Exp(gain)
	if p.adapt && !fresh {
		const wanted, rate = 0.44, 0.15
		if ok {
			s.size *= math.Exp(rate * (1 - wanted))
		} else {
			s.size *= math.Exp(-rate * wanted)
		}
		s.size = min(s.size, 5)
	}
	return ok
}

// leaveOut computes what all places but one allow, which is constant while that
// place moves.
func (p *posterior) leaveOut(place int) {
	p.others = p.others[:0]
	for i := range p.sizes {
		p.others = append(p.others, p.limit(p.sizes[i].cells, place))
	}
}

// logLikelihood returns the log-likelihood of all that depends on the place.
func (p *posterior) logLikelihood(place int) float64 {
	like := p.loadLikelihood[place]
	shift := thresholdSpread * p.threshold
	for i := range p.sizes {
		s := &p.sizes[i]
		like += s.logLikelihood(min(p.others[i], shift+p.carried[place][s.cells[place]]))
	}
	return like
}

// capacityLikelihood returns the log-likelihood of the measured capacities.
func (p *posterior) capacityLikelihood() float64 {
	like := 0.0
	for i := range p.sizes {
		like += p.sizes[i].logLikelihood(p.limit(p.sizes[i].cells, none))
	}
	return like
}

// logLikelihood returns the log-likelihood of the measured capacity, up to a constant,
// when log is the logarithm of the true one. It uses Student's t with four
// degrees of freedom, which tolerates a few outliers.
func (o *observed) logLikelihood(log float64) float64 {
	miss := (log - o.capacity) / o.error
	if o.least && miss > 0 || o.most && miss < 0 {
		return 0
	}
	const freedom = 4
	return -(freedom + 1) / 2.0 * math.Log1p(miss*miss/freedom)
}

const none = -1

// limit returns the logarithm of the capacity under the present draw, leaving out
// one place.
func (p *posterior) limit(cells []int, without int) float64 {
	lowest := p.ceiling(&p.draw)
	shift := thresholdSpread * p.threshold
	for i, c := range cells {
		if i != without {
			lowest = min(lowest, shift+p.carried[i][c])
		}
	}
	return lowest
}

// ceiling returns the logarithm of the most that the function carries, whatever
// its components do.
func (e evidence) ceiling(d *draw) float64 {
	return math.Log(e.most) + otherMiddle + otherSpread*d.other
}

func (p *posterior) clone() draw {
	d := draw{threshold: p.threshold, other: p.other}
	for _, from := range p.demands {
		d.demands = append(d.demands, demand{z: from.z, counts: slices.Clone(from.counts), cells: slices.Clone(from.cells)})
	}
	return d
}
