package rate

import (
	"math"
	"slices"
	"sort"
)

// A belief is how probable it is that the capacity for one threshold lies at
// each rate, given the trials.
//
// It rests on little: near its capacity the logarithm of a function's success
// ratio falls about straight over the logarithm of the rate, with a slope that
// is not known (1 where goodput stays, 2 where it falls as 1/rate, far more
// where it breaks down), and below it is what it is without much load. The
// farther from the capacity, the less a trial is believed to lie on that line;
// and any trial may lie off it but for being on the right side of the threshold.
// How far off is learned from the trials too.
type belief struct {
	x, mass  []float64 // logarithms of rates, ascending and evenly spaced; how probable each is
	slope    float64   // expected
	wander   float64   // expected standard deviation of the capacity from trial to trial
	bend     float64   // expected deviation from the line, as a share of the way from the threshold
	narrowly float64   // standard deviation of the capacity if deployments did not differ
}

// A misfit is one way in which trials lie off the line.
type misfit struct{ wander, bend, weight float64 }

const (
	coarse = 60  // rates of the first look
	fine   = 120 // and of the second, at what is left
	beyond = 0.7 // how far beyond the range the capacity may lie, as a logarithm
	ignore = 1e-5
)

// A believer makes beliefs of the trials of one sizing.
type believer struct {
	cfg    Config
	trials []evidence
	best   float64 // success ratio without much load

	row         []int // of the deployment of each trial
	deployments int
}

func newBeliever(cfg Config, trials []evidence, best float64) believer {
	b := believer{cfg: cfg, trials: trials, best: best, deployments: 1}
	at := map[int]int{}
	for _, e := range trials {
		r, seen := at[e.repeat]
		if !seen && cfg.Repeat > 1 {
			r = len(at)
			at[e.repeat] = r
			b.deployments = len(at)
		}
		b.row = append(b.row, r)
	}
	return b
}

func slopes() (slopes, weights []float64) {
	const breaks = 0.01 // for functions that break down
	for s := 0.5; s < 40; s *= 1.5 {
		w := breaks + math.Exp(-math.Pow(math.Log(s/1.5), 2)/(2*0.8*0.8))
		slopes, weights = append(slopes, s), append(weights, w)
	}
	return slopes, weights
}

func misfits() []misfit {
	return []misfit{{0.003, 0.04, 0.55}, {0.01, 0.12, 0.33}, {0.03, 0.35, 0.12}}
}

// deviations are those of deployments from each other that may be.
func deviations() []misfit {
	return []misfit{{wander: 0, weight: 0.3}, {wander: 0.01, weight: 0.3}, {wander: 0.03, weight: 0.25}, {wander: 0.08, weight: 0.15}}
}

// believe looks at the whole range, and then closer at what is left of it.
func (b believer) believe(threshold float64) belief {
	b = b.local(threshold)
	low, high := math.Log(b.cfg.Min)-beyond, math.Log(b.cfg.Max)+beyond
	look := b.look(threshold, low, high, coarse)
	low, high = look.support()
	return b.look(threshold, low, high, fine)
}

// local leaves out short trials far from where the threshold was seen to be
// crossed: they say little of it, and what they say may mislead.
func (b believer) local(threshold float64) believer {
	const far = 0.22 // as a difference of logarithms
	low, high := math.Inf(1), math.Inf(-1)
	for _, e := range b.trials {
		if e.crosses(threshold) {
			low, high = min(low, e.x), max(high, e.x)
		}
	}
	if low > high {
		return b
	}
	var near []evidence
	for _, e := range b.trials {
		if e.window >= fewest || e.x > low-far && e.x < high+far {
			near = append(near, e)
		}
	}
	return newBeliever(b.cfg, near, b.best)
}

// support is where the capacity may lie at all.
func (b belief) support() (low, high float64) {
	from, to := 0, len(b.x)-1
	for from < to && b.mass[from] < ignore {
		from++
	}
	for to > from && b.mass[to] < ignore {
		to--
	}
	return b.x[max(from-1, 0)], b.x[min(to+1, len(b.x)-1)]
}

// look weighs n rates. The product over the trials is taken per deployment, so
// that each may have a capacity of its own around the common one.
func (b believer) look(threshold, low, high float64, n int) belief {
	v := belief{x: make([]float64, n), mass: make([]float64, n)}
	for i := range v.x {
		v.x[i] = low + (high-low)*float64(i)/float64(n-1)
	}
	prior, same, spacing := b.prior(v.x), make([]float64, n), v.x[1]-v.x[0]
	slopes, weights := slopes()
	all := 0.0
	for si, slope := range slopes {
		for _, m := range misfits() {
			rows := b.rows(v.x, decline{math.Log(threshold), math.Log(b.best), slope, m})
			for _, d := range b.deviations() {
				sum := 0.0
				for i, p := range combine(rows, d.wander, spacing) {
					p *= prior[i] * weights[si] * m.weight * d.weight
					v.mass[i] += p
					sum += p
					if d.wander == 0 {
						same[i] += p
					}
				}
				all += sum
				v.slope += sum * slope
				v.wander += sum * m.wander
				v.bend += sum * m.bend
			}
		}
	}
	if all > 0 {
		v.slope, v.wander, v.bend = v.slope/all, v.wander/all, v.bend/all
	}
	toOne(v.mass)
	toOne(same)
	v.narrowly = deviation(v.x, same)
	return v
}

// A decline is what the success ratio is thought to be near the capacity, in
// logarithms.
type decline struct {
	threshold, best, slope float64
	misfit                 misfit
}

// deviations are those between deployments, if more than one is wanted: else
// the only one is taken for what it is.
func (b believer) deviations() []misfit {
	if b.cfg.Repeat < 2 {
		return []misfit{{weight: 1}}
	}
	return deviations()
}

func toOne(mass []float64) {
	sum := 0.0
	for _, p := range mass {
		sum += p
	}
	if sum <= 0 {
		for i := range mass {
			mass[i] = 1 / float64(len(mass))
		}
		return
	}
	for i := range mass {
		mass[i] /= sum
	}
}

// prior is the belief before any trial: every rate of the range alike on a
// logarithmic scale, a little for beyond, and more for where neighbours had it.
func (b believer) prior(x []float64) []float64 {
	const outside, trust = 0.3, 0.75
	low, high := math.Log(b.cfg.Min), math.Log(b.cfg.Max)
	p := make([]float64, len(x))
	for i := range x {
		p[i] = 1
		if x[i] < low || x[i] > high {
			p[i] = outside
		}
	}
	if from, to := b.cfg.Prior.Low, b.cfg.Prior.High; from > 0 && to >= from {
		middle := (math.Log(from) + math.Log(to)) / 2
		sd := max((math.Log(to)-math.Log(from))/4, 0.02)
		peak := trust / (1 - trust) * max(high-low, sd) / (sd * math.Sqrt(2*math.Pi))
		for i := range x {
			z := (x[i] - middle) / sd
			p[i] += peak * math.Exp(-z*z/2)
		}
	}
	b.useHint(x, p)
	return p
}

// useHint takes the CPU that the highest intact trial used for a hint of how
// much more there is to have: as much as overloaded trials used, or else all.
// It is no more than a hint: something else may be scarce, and what is used
// may not rise straight with the rate.
func (b believer) useHint(x, p []float64) {
	const least, sd, trust = 0.05, 0.15, 0.8
	at, full := -1, 0.0
	for i, e := range b.trials {
		switch {
		case e.busy < least:
		case e.success < strained*b.best:
			full = max(full, e.busy)
		case e.success >= intact*b.best && (at < 0 || e.x > b.trials[at].x):
			at = i
		}
	}
	if at < 0 {
		return
	}
	if full == 0 {
		full = 1
	}
	e := b.trials[at]
	middle := e.x + math.Log(max(full/e.busy, 1)) + 0.08
	for i := range x {
		z := (x[i] - middle) / sd
		p[i] *= (1 - trust) + trust*math.Exp(-z*z/2)/(sd*math.Sqrt(2*math.Pi))
	}
}

// rows are the likelihoods over the rates of the trials of each deployment.
func (b believer) rows(x []float64, d decline) [][]float64 {
	rows := make([][]float64, b.deployments)
	for r := range rows {
		rows[r] = make([]float64, len(x))
		for i := range x {
			rows[r][i] = 1
		}
	}
	for i := range b.trials {
		b.trials[i].weigh(rows[b.row[i]], x, d)
	}
	return rows
}

// weigh multiplies the row by how likely the trial is for a capacity at each x.
func (e *evidence) weigh(row, x []float64, d decline) {
	const (
		aside   = 0.2  // share of trials that lie off the line, but on their side of the threshold
		within  = 0.1  // and how far above them, as a logarithm, the capacity then is
		depth   = 3.0  // how far down success may be, as a logarithm
		least   = 1e-6 // of a variance
		reaches = 40.0 // what is this unlikely, in standard deviations squared, is left out
	)
	room := max(d.best-d.threshold, 0.02)
	wander := d.slope * d.slope * d.misfit.wander * d.misfit.wander
	side := math.Sqrt(e.variance + least)
	passes := aside * normal((e.high-d.threshold)/side) / (room + side)
	fails := aside * normal((d.threshold-e.low)/side) / depth
	for i, c := range x {
		f := d.threshold - d.slope*(e.x-c)
		spread := e.variance + least
		if f > d.best {
			f = d.best
		} else {
			spread += wander
		}
		off := d.misfit.bend * (f - d.threshold)
		spread += off * off
		p := e.doubt / depth
		if e.x >= c {
			p += fails
		} else {
			p += passes * math.Exp(-(c-e.x)/within)
		}
		miss := max(0, f-e.high, e.low-f)
		if q := miss * miss / spread; q < reaches {
			p += math.Exp(-q/2) / max(math.Sqrt(2*math.Pi*spread), e.high-e.low)
		}
		row[i] *= p
	}
}

// normal is the cumulative standard normal distribution.
func normal(z float64) float64 { return math.Erfc(-z/math.Sqrt2) / 2 }

// combine multiplies the deployments' likelihoods, each blurred by how far its
// capacity may lie from the common one.
func combine(rows [][]float64, sd, spacing float64) []float64 {
	var all []float64
	kernel := kernel(sd, spacing)
	for _, row := range rows {
		if len(kernel) > 1 {
			row = blur(row, kernel)
		}
		if all == nil {
			all = slices.Clone(row)
			continue
		}
		for i := range all {
			all[i] *= row[i]
		}
	}
	return all
}

// kernel is one half of a normal distribution in steps of spacing.
func kernel(sd, spacing float64) []float64 {
	if sd < spacing/2 {
		return nil
	}
	half := make([]float64, 1+int(math.Ceil(3*sd/spacing)))
	sum := 0.0
	for i := range half {
		z := float64(i) * spacing / sd
		half[i] = math.Exp(-z * z / 2)
		sum += half[i]
		if i > 0 {
			sum += half[i]
		}
	}
	for i := range half {
		half[i] /= sum
	}
	return half
}

// blur convolves; beyond its ends the row stays as it is there.
func blur(row, half []float64) []float64 {
	out := make([]float64, len(row))
	for i := range row {
		sum := half[0] * row[i]
		for j := 1; j < len(half); j++ {
			sum += half[j] * (row[max(i-j, 0)] + row[min(i+j, len(row)-1)])
		}
		out[i] = sum
	}
	return out
}

// quantile is the logarithm of the rate below which the capacity lies with the
// probability p.
func (b belief) quantile(p float64) float64 {
	cumulative := make([]float64, len(b.mass))
	sum := 0.0
	for i, m := range b.mass {
		sum += m
		cumulative[i] = sum
	}
	i := sort.SearchFloat64s(cumulative, p*sum)
	if i >= len(b.x) {
		return b.x[len(b.x)-1]
	}
	before := cumulative[i] - b.mass[i]
	half := (b.x[1] - b.x[0]) / 2
	way := (p*sum - before) / max(b.mass[i], math.SmallestNonzeroFloat64)
	return b.x[i] - half + 2*half*way
}

// deviation is the standard deviation.
func deviation(x, mass []float64) float64 {
	mean, square := 0.0, 0.0
	for i, m := range mass {
		mean += m * x[i]
	}
	for i, m := range mass {
		square += m * (x[i] - mean) * (x[i] - mean)
	}
	return math.Sqrt(square)
}
