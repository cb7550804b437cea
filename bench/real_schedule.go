package main

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"vitrine/search/rate"
	"vitrine/testbed/quiet"
)

// blocksMissed is how many consecutive blocks may miss the capacity.
const blocksMissed = 3

// noLimit is the time limit of a bench that measures everything that is missing.
const noLimit = time.Duration(math.MaxInt64)

// A realCounts says how much is measured. readRealCounts reads it from the environment.
type realCounts struct {
	Runs        int           // of the adaptive search
	Between     int           // number of runs between two blocks
	Deployments int           // fresh deployments at each rate of a block
	Window      time.Duration // least window of a block's trial
	Precision   float64       // requested from the searches
	Estimate    float64       // centre of the first block; 0: a pilot run finds it
	Slowdown    float64       // limit of what neighbours may slow a trial; see quiet.Guard
	Awake       bool          // keep idle CPUs polling; see quiet.KeepAwake
	For         time.Duration // time limit: begin nothing that would end later; 0: measure nothing
}

// readRealCounts reads RUNS, BETWEEN, DEPLOYMENTS, WINDOW, PRECISION, ESTIMATE, SLOWDOWN, AWAKE and FOR.
func readRealCounts(getenv func(string) string) (c realCounts, err error) {
	c = realCounts{Runs: 20, Between: 4, Deployments: 2, Window: 20 * time.Second, Precision: 0.3, Slowdown: quiet.StrictSlowdown, Awake: true, For: noLimit}
	for name, to := range map[string]*int{"RUNS": &c.Runs, "BETWEEN": &c.Between, "DEPLOYMENTS": &c.Deployments} {
		if text := getenv(name); text != "" {
			if *to, err = strconv.Atoi(text); err != nil || *to < 1 {
				return c, fmt.Errorf("%s %q: want a positive number", name, text)
			}
		}
	}
	if c.Window, err = readTime(getenv, "WINDOW", time.Second, c.Window); err != nil {
		return c, err
	}
	if c.For, err = readTime(getenv, "FOR", 0, c.For); err != nil {
		return c, err
	}
	for name, to := range map[string]*float64{"PRECISION": &c.Precision, "ESTIMATE": &c.Estimate, "SLOWDOWN": &c.Slowdown} {
		if text := getenv(name); text != "" {
			if *to, err = strconv.ParseFloat(text, 64); err != nil || !(*to > 0) || math.IsInf(*to, 0) || name == "PRECISION" && *to >= 1 {
				return c, fmt.Errorf("%s %q: want a positive number, a precision below 1", name, text)
			}
		}
	}
	switch text := getenv("AWAKE"); text {
	case "":
	case "on", "off":
		c.Awake = text == "on"
	default:
		return c, fmt.Errorf("AWAKE %q: want on or off", text)
	}
	return c, nil
}

// readTime returns the duration in an environment variable, or otherwise if the variable is empty.
// It refuses a duration below least.
func readTime(getenv func(string) string, name string, least, otherwise time.Duration) (time.Duration, error) {
	text := getenv(name)
	if text == "" {
		return otherwise, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < least {
		return 0, fmt.Errorf("%s %q: want a time such as 20s or 90m", name, text)
	}
	return d, nil
}

// next returns the next measurement. Each run lies between two blocks of the same
// session, so that the host has little time to change. A session begins and ends with a
// block.
func (b *realBench) next() realUnit {
	if unit := b.nextUnit(false); unit.kind == "" || b.hasTimeFor(unit) {
		return unit
	}
	return b.nextUnit(true)
}

// nextUnit returns the next measurement without regard to the time that is left. If over is true,
// no further run may begin.
func (b *realBench) nextUnit(over bool) realUnit {
	last, since, missed, piloted := "", 0, 0, b.counts.Estimate > 0
	for _, r := range b.all {
		piloted = piloted || b.onThisHost(r) && r.Kind != realRun
		if r.Session != b.session {
			continue
		}
		switch last = r.Kind; {
		case r.Kind == realBlock:
			since = 0
			if _, encloses := newReference(r.Trials); encloses {
				missed = 0
			} else {
				missed++
			}
		case r.Kind == realRun && r.Search == rate.Adaptive:
			since++
		}
	}
	missing := b.missing()
	block := realUnit{kind: realBlock}
	switch {
	case last == realRun && (over || missing.kind == ""):
		return block
	case !over && last == realBlock && missed > 0 && missed < blocksMissed:
		return block // around the last block's estimate
	case over || missing.kind == "":
		return realUnit{}
	case !piloted:
		return realUnit{kind: realPilot, search: rate.Adaptive}
	case last != realRun && last != realBlock:
		return block
	case since >= b.counts.Between && missing.search == rate.Adaptive:
		return block
	}
	return missing
}

// missing returns the first run that is not on record.
func (b *realBench) missing() realUnit {
	done := map[realUnit]bool{}
	for _, r := range b.all {
		done[realUnit{r.Kind, r.Search, r.Number}] = true
	}
	for n := 1; n <= b.counts.Runs; n++ {
		searches := []string{rate.Adaptive}
		if n%realPeered == 1 {
			searches = append(searches, rate.MLR, mlrDefault)
		}
		for _, search := range searches {
			if unit := (realUnit{realRun, search, n}); !done[unit] {
				return unit
			}
		}
	}
	return realUnit{}
}

// hasTimeFor reports whether the time limit allows the unit and the measurements that must follow
// it, such as a block after a run.
func (b *realBench) hasTimeFor(unit realUnit) bool {
	if b.counts.For == noLimit {
		return true
	}
	block := b.estimateDuration(realUnit{kind: realBlock})
	needed := b.estimateDuration(unit)
	if unit.kind != realBlock {
		needed += block
	}
	begun := slices.ContainsFunc(b.all, func(r realRecord) bool { return r.Session == b.session && r.Kind == realBlock })
	if !begun { // the first block is useless without a run and another block
		needed += b.estimateDuration(b.missing()) + block
	}
	return time.Since(b.began)+needed <= b.counts.For
}

// estimateDuration returns the mean duration of recorded units of the same kind. Without records,
// it estimates the duration from the plan.
func (b *realBench) estimateDuration(unit realUnit) time.Duration {
	sum, n := 0.0, 0.0
	for _, r := range b.all {
		if (r.Kind == realBlock) == (unit.kind == realBlock) && r.Search == unit.search {
			sum, n = sum+r.Wall, n+1
		}
	}
	if n > 0 {
		return time.Duration(sum / n * float64(time.Second))
	}
	const deploying = 3 * time.Second
	w := b.workload
	trial := w.Warmup + w.Settle + deploying
	switch unit.search {
	case "":
		trials := len(blockFactors()) * b.counts.Deployments
		return time.Duration(trials) * (trial + b.counts.Window*5/4) // a quarter more for extended windows
	case rate.Adaptive:
		trials := rate.NewAdaptive(b.config()).(rate.Planner).Trials()
		return time.Duration(trials) * (trial + 2*w.Duration)
	}
	return time.Duration(rate.NewMLR(b.config()).(rate.Planner).Trials()) * (trial + w.Duration)
}

// config returns approximately the configuration that a campaign gives the search.
func (b *realBench) config() rate.Config {
	w := b.workload
	return rate.Config{Min: w.Range.Min(), Max: w.Range.Max(), Duration: w.Duration, Repeat: w.Repeat, Thresholds: []float64{realThreshold},
		Precision: b.counts.Precision, Overhead: w.Warmup + w.Settle, Stateful: true, Seed: 1}
}

// announce prints the plan and its estimated total time.
func (b *realBench) announce() {
	done, blocks := 0, (b.counts.Runs+b.counts.Between-1)/b.counts.Between+1
	for _, r := range b.all {
		if r.Kind == realRun && r.Search == rate.Adaptive {
			done++
		}
	}
	block, run := b.estimateDuration(realUnit{kind: realBlock}), b.estimateDuration(realUnit{realRun, rate.Adaptive, 1})
	peers := b.estimateDuration(realUnit{realRun, rate.MLR, 1}) + b.estimateDuration(realUnit{realRun, mlrDefault, 1})
	rounds := (b.counts.Runs + realPeered - 1) / realPeered
	all := time.Duration(blocks)*block + time.Duration(b.counts.Runs)*run + time.Duration(rounds)*peers
	fmt.Fprintf(b.progress, "  %s: plan %s: %d runs (about %s each) with %d of mlr (%s a pair) and %d blocks of %d trials (%s each): about %s in all, without disturbed trials; %d runs are in %s\n",
		b.function.Name, b.plan, b.counts.Runs, run.Round(time.Second), 2*rounds, peers.Round(time.Second), blocks,
		len(blockFactors())*b.counts.Deployments, block.Round(time.Second), all.Round(time.Minute), done, b.file)
	if b.counts.For == 0 {
		fmt.Fprintf(b.progress, "  %s: nothing is measured, because FOR is 0\n", b.function.Name)
	}
}

// onThisHost reports whether a record was made on a host like this one. The capacity on another may be
// far away, so each host needs a pilot.
func (b *realBench) onThisHost(r realRecord) bool { return r.Host == b.from.Host }

// centre returns the centre of the next block's rates. It is the last centre on this host, unless
// the last block shows that the capacity is elsewhere.
func (b *realBench) centre() float64 {
	const away = 0.05
	for _, r := range slices.Backward(b.all) {
		switch {
		case !b.onThisHost(r):
		case r.Kind == realPilot:
			return cmp.Or(b.counts.Estimate, r.Capacity.Rate)
		case r.Kind == realBlock:
			if ref, _ := newReference(r.Trials); math.Abs(math.Log(ref.Rate/r.Centre)) > away {
				return ref.Rate
			}
			return r.Centre
		}
	}
	return b.counts.Estimate
}

// block returns the block around the centre. number determines the random order of its rates.
func (b *realBench) block(centre float64, number int) *block {
	var rates []float64
	for _, factor := range blockFactors() {
		for range b.counts.Deployments {
			rates = append(rates, fourDigits(factor*centre))
		}
	}
	random := rand.New(rand.NewPCG(uint64(number), referenceDraws))
	random.Shuffle(len(rates), func(i, k int) { rates[i], rates[k] = rates[k], rates[i] })
	return &block{rates: rates, window: b.counts.Window, precision: b.counts.Precision, threshold: realThreshold}
}

// fourDigits rounds a positive rate to four significant digits.
func fourDigits(r float64) float64 {
	digits := math.Pow(10, 3-math.Floor(math.Log10(r)))
	return math.Round(r*digits) / digits
}
