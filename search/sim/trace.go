package sim

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"vitrine"
)

// A Trace replays recorded trials: at any rate it draws runs of consecutive
// seconds from the trials at the two recorded rates around it. Above the highest
// rate the goodput stays; below the lowest rate the success ratio stays.
//
// The trials of one repeat come from the same recorded repeat, so that
// differences between deployments remain. A trace has no memory: it shows what an
// overload leaves behind only if that was recorded.
type Trace struct {
	sizings []vitrine.Sizing
	curves  map[string]*recorded
	seed    uint64
}

// recorded holds the trials of one sizing by rate, ascending.
type recorded struct {
	rates     []float64
	trials    [][]vitrine.Outcome
	ratios    []float64 // success at each rate, made monotonically falling
	shift     []float64 // ratios less the recorded ratio
	repeats   []int
	resources vitrine.Resources
}

// NewTrace makes a Trace of the valid trials among outcomes. They must be of one
// substrate and one choice of options, because a search cannot tell them apart. A
// sizing needs trials at two rates.
func NewTrace(outcomes []vitrine.Outcome, seed uint64) (*Trace, error) {
	t := &Trace{curves: map[string]*recorded{}, seed: seed}
	by := map[string][]vitrine.Outcome{}
	var names []string
	for _, o := range outcomes {
		if !o.Valid || o.Scheduled == 0 {
			continue
		}
		if _, seen := by[o.Subject]; !seen {
			names = append(names, o.Subject)
		}
		by[o.Subject] = append(by[o.Subject], o)
		first := by[names[0]][0]
		if o.Substrate != first.Substrate || o.Options != first.Options {
			return nil, fmt.Errorf("trials of %s %s and of %s %s: a trace is of one choice of options",
				first.Substrate, first.Options, o.Substrate, o.Options)
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("no valid trial among %d", len(outcomes))
	}
	for _, name := range names {
		sizing, err := vitrine.ParseSizing(name)
		if err != nil {
			return nil, fmt.Errorf("recorded trials: %w", err)
		}
		c := record(by[name])
		if len(c.rates) < 2 {
			return nil, fmt.Errorf("%s was tried at %g alone: a trace needs two rates of each sizing", name, c.rates[0])
		}
		t.sizings = append(t.sizings, sizing)
		t.curves[name] = c
	}
	return t, nil
}

func record(outcomes []vitrine.Outcome) *recorded {
	c := &recorded{}
	byRate := map[float64][]vitrine.Outcome{}
	for _, o := range outcomes {
		if len(byRate[o.Rate]) == 0 {
			c.rates = append(c.rates, o.Rate)
		}
		byRate[o.Rate] = append(byRate[o.Rate], o)
		if !slices.Contains(c.repeats, o.Repeat) {
			c.repeats = append(c.repeats, o.Repeat)
		}
	}
	slices.Sort(c.rates)
	slices.Sort(c.repeats)
	raw := make([]float64, len(c.rates))
	for i, rate := range c.rates {
		trials := byRate[rate]
		slices.SortStableFunc(trials, func(a, b vitrine.Outcome) int { return cmp.Compare(a.Repeat, b.Repeat) })
		c.trials = append(c.trials, trials)
		var scheduled, succeeded int64
		for _, o := range trials {
			scheduled += o.Scheduled
			succeeded += o.Succeeded
		}
		raw[i] = float64(succeeded) / float64(scheduled)
	}
	c.ratios = falling(raw)
	c.shift = make([]float64, len(raw))
	for i := range raw {
		c.shift[i] = c.ratios[i] - raw[i]
	}
	for _, u := range outcomes[0].Use {
		if u.Component != vitrine.Generator {
			c.resources.VCPUs += u.VCPUs
			c.resources.Memory += u.MemoryLimit
		}
	}
	return c
}

// falling returns the middle between the lowest value so far and the highest
// value to come.
func falling(raw []float64) []float64 {
	lowest, highest := slices.Clone(raw), slices.Clone(raw)
	for i := 1; i < len(raw); i++ {
		lowest[i] = min(lowest[i], lowest[i-1])
		j := len(raw) - 1 - i
		highest[j] = max(highest[j], highest[j+1])
	}
	middle := make([]float64, len(raw))
	for i := range raw {
		middle[i] = (lowest[i] + highest[i]) / 2
	}
	return middle
}

// Sizings returns the recorded sizings, in order of their first trial.
func (t *Trace) Sizings() []vitrine.Sizing { return slices.Clone(t.sizings) }

// Range returns the lowest and the highest rate recorded for the sizing; zeros:
// none.
func (t *Trace) Range(sizing vitrine.Sizing) (low, high float64) {
	c := t.curves[sizing.String()]
	if c == nil {
		return 0, 0
	}
	return c.rates[0], c.rates[len(c.rates)-1]
}

// Resources implements Subject: the resources given to the recorded instances.
func (t *Trace) Resources(sizing vitrine.Sizing) vitrine.Resources {
	if c := t.curves[sizing.String()]; c != nil {
		return c.resources
	}
	return vitrine.Resources{}
}

// Capacity implements Subject. It returns where the recorded success ratio,
// pooled over repeats and linear between rates, falls below the threshold. It is
// 0 when the ratio never reaches it, and for a sizing that was not recorded.
func (t *Trace) Capacity(sizing vitrine.Sizing, threshold float64) float64 {
	c := t.curves[sizing.String()]
	if c == nil || c.ratios[0] < threshold {
		return 0
	}
	last := len(c.rates) - 1
	if c.ratios[last] >= threshold {
		return c.rates[last] * c.ratios[last] / threshold
	}
	i := 0
	for c.ratios[i+1] >= threshold {
		i++
	}
	return c.rates[i] + (c.rates[i+1]-c.rates[i])*(c.ratios[i]-threshold)/(c.ratios[i]-c.ratios[i+1])
}

// Deploy implements Subject. A sizing that was not recorded carries nothing.
func (t *Trace) Deploy(sizing vitrine.Sizing, repeat int, _ time.Duration) Deployment {
	d := &replayed{seed: t.seed, curve: t.curves[sizing.String()]}
	if d.curve != nil {
		random := random(t.seed, Trial{Sizing: sizing, Repeat: repeat}, "deployment")
		d.repeat = d.curve.repeats[random.IntN(len(d.curve.repeats))]
	}
	return d
}

// A replayed is one recorded deployment of a sizing.
type replayed struct {
	seed   uint64
	curve  *recorded
	repeat int
}

// Rest implements Deployment.
func (d *replayed) Rest(time.Duration) {}

// Run implements Deployment.
func (d *replayed) Run(t Trial) vitrine.Outcome {
	random := random(d.seed, t, "trial")
	o := vitrine.Outcome{
		Key:      vitrine.Key{Attempt: t.Attempt, Substrate: "sim", Subject: t.Sizing.String(), Repeat: t.Repeat, Rate: t.Rate},
		Duration: t.Duration,
		Failed:   map[string]int64{},
		Valid:    true,
	}
	if d.curve == nil {
		o.Valid, o.Reason = false, "the trace has no trial of this sizing"
		return o
	}
	below, above, way := d.curve.around(t.Rate)
	low, high := d.draw(random, below), d.draw(random, above)
	scale := min(1, d.curve.rates[above]/t.Rate) // goodput stays beyond the highest rate
	for begin := 0.0; begin < t.Duration.Seconds(); begin++ {
		length := min(1, t.Duration.Seconds()-begin)
		ok := scale * ((1-way)*low.next() + way*high.next())
		o.Seconds = append(o.Seconds, settled(random, t.Rate*length, ok))
	}
	total(&o)
	o.Latency = between(low.trial.Latency, high.trial.Latency, way)
	o.Use = mix(low.trial.Use, high.trial.Use, way)
	return o
}

// around returns the two recorded rates around a rate, and how far it is between
// them, 0..1. Outside of all recorded rates, both are the nearest one.
func (c *recorded) around(rate float64) (below, above int, way float64) {
	above = slices.IndexFunc(c.rates, func(r float64) bool { return r >= rate })
	switch above {
	case -1:
		return len(c.rates) - 1, len(c.rates) - 1, 0
	case 0:
		return 0, 0, 0
	}
	below = above - 1
	return below, above, (rate - c.rates[below]) / (c.rates[above] - c.rates[below])
}

// A tape returns the success ratios of recorded seconds, one after another, and
// starts over at the end.
type tape struct {
	trial vitrine.Outcome
	at    int
	shift float64
}

// draw chooses a trial at the rate and the second to begin with. It prefers
// trials of the recorded repeat.
func (d *replayed) draw(random *rand.Rand, rate int) tape {
	var own []vitrine.Outcome
	for _, o := range d.curve.trials[rate] {
		if o.Repeat == d.repeat {
			own = append(own, o)
		}
	}
	if len(own) == 0 {
		own = d.curve.trials[rate]
	}
	t := tape{trial: own[random.IntN(len(own))], shift: d.curve.shift[rate]}
	t.at = random.IntN(max(1, len(t.trial.Seconds)))
	return t
}

func (t *tape) next() float64 {
	ok := t.trial.SuccessRatio()
	for range t.trial.Seconds {
		s := t.trial.Seconds[t.at]
		t.at = (t.at + 1) % len(t.trial.Seconds)
		if s.Scheduled > 0 {
			ok = float64(s.Succeeded) / float64(s.Scheduled)
			break
		}
	}
	return min(max(0, ok+t.shift), 1)
}

// settled returns a second with a known success ratio: the recorded second
// already has its random variation.
func settled(random *rand.Rand, scheduled, ok float64) vitrine.Second {
	n := whole(random, scheduled)
	succeeded := min(whole(random, float64(n)*ok), n)
	return vitrine.Second{Scheduled: n, Offered: n, Succeeded: succeeded, Failed: n - succeeded}
}

func between(a, b vitrine.Latency, way float64) vitrine.Latency {
	at := func(x, y float64) float64 { return x + way*(y-x) }
	return vitrine.Latency{P50: at(a.P50, b.P50), P95: at(a.P95, b.P95), P99: at(a.P99, b.P99)}
}

// mix interpolates between the use of two trials, for the instances that both
// have.
func mix(a, b map[string]vitrine.Use, way float64) map[string]vitrine.Use {
	at := func(x, y *float64) *float64 {
		if x == nil || y == nil {
			return nil
		}
		return new(*x + way*(*y-*x))
	}
	use := map[string]vitrine.Use{}
	for name, x := range a {
		y, both := b[name]
		if !both {
			continue
		}
		u := x
		u.CPU, u.Memory = at(x.CPU, y.CPU), at(x.Memory, y.Memory)
		u.RxBytes, u.TxBytes, u.Throttled = at(x.RxBytes, y.RxBytes), at(x.TxBytes, y.TxBytes), at(x.Throttled, y.Throttled)
		use[name] = u
	}
	return use
}
