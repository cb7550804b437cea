package papers

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"vitrine"
	"vitrine/measure"
	"vitrine/measure/delay"
	"vitrine/result"
	"vitrine/search/rate"
)

// Shares of the capacity.
const (
	near   = 0.7  // the best trial of a deployment below this rate does not show the use at capacity
	over   = 1.2  // trials at this rate and above are overloaded
	past   = 1.25 // the success ratio at this rate distinguishes a "flat" curve from a "sudden" fall
	double = 2.0  // the goodput at this rate shows what an overload costs
)

// A sized is a sizing with its valid trials.
type sized struct {
	where    string
	capacity vitrine.Capacity
	search   *result.Search            // nil: not on record
	repeats  map[int][]vitrine.Outcome // by deployment
}

// capacities reads the sizings of a campaign.
func (r *Readings) capacities(d *result.Data) error {
	if d.Summary == nil {
		return &vitrine.BadInput{File: d.Dir, Found: "a run that has not ended", Want: "continue it with vitrine reproduce --resume"}
	}
	r.turns = d.Summary.Interleaved
	for i, z := range d.Summary.Sizings {
		again := slices.ContainsFunc(d.Summary.Sizings[i+1:], func(later result.Sizing) bool { return later.Label() == z.Label() })
		if again || len(z.Capacities) == 0 {
			continue
		}
		x := sized{where: place(z, len(d.Manifest.Substrates)), capacity: z.Capacities[0], search: z.Search, repeats: deployments(z, d.Outcomes)}
		for _, c := range z.Capacities {
			r.capacity(x, c)
		}
		if x.capacity.Unmeasured() {
			continue
		}
		r.use(x)
		r.rates(x)
		if x.capacity.Censored == vitrine.CensoredNone { // a multiple of a bound says nothing about the capacity
			r.past(x)
			r.doubled(x)
		}
		if err := r.swings(x, d); err != nil {
			return err
		}
	}
	return nil
}

// deployments returns the valid trials of the sizing's last measurement, by deployment. Each measurement
// numbers its deployments from 1.
func deployments(z result.Sizing, all []vitrine.Outcome) map[int][]vitrine.Outcome {
	var own []vitrine.Outcome
	for _, o := range all {
		if o.Subject == z.Name && o.Substrate == z.Substrate && o.Options == z.Options {
			own = append(own, o)
		}
	}
	if z.Again {
		own = own[max(0, len(own)-z.Trials):] // Trials also counts invalid trials
	}
	repeats := map[int][]vitrine.Outcome{}
	for _, o := range own {
		if o.Valid {
			repeats[o.Repeat] = append(repeats[o.Repeat], o)
		}
	}
	return repeats
}

// place names a sizing in the readings: "bn1s-sp1m-hs1s/pinning=on". If the plan has several substrates,
// the name has the sizing's: "ep1o/docker".
func place(z result.Sizing, substrates int) string {
	name := z.Name
	if substrates > 1 {
		name += "/" + z.Substrate
	}
	if z.Options != "" {
		name += "/" + z.Options
	}
	return name
}

// put records a reading of the sizing. It marks the reading if a trial ran on emulated machines.
func (r *Readings) put(x sized, name string, v Reading) {
	for _, trials := range x.repeats {
		for _, o := range trials {
			v.Mark = cmp.Or(v.Mark, measure.Mark(o.Accelerator))
		}
	}
	r.of[x.where+" "+name] = v
}

// capacity reads the capacity at one threshold.
func (r *Readings) capacity(x sized, c vitrine.Capacity) {
	at := fmt.Sprintf("@%g", c.Threshold)
	if c.Unmeasured() {
		r.missing[x.where] = "no trial was valid"
		return
	}
	repeats := c.Deployments
	if repeats == 0 {
		repeats = len(x.repeats)
	}
	// The plans' workloads ask for the same confidence as intervals of repeats.
	reading := Reading{Interval: delay.Interval{Mean: c.Rate, Low: c.Low, High: c.High, Repeats: repeats, Confidence: delay.Confidence}}
	if c.Censored != vitrine.CensoredNone {
		reading.Bound = c.Censored
	}
	r.put(x, "capacity"+at, reading)
	if c.Single > 0 {
		r.put(x, "single"+at, Reading{Interval: withoutInterval(c.Single)})
	}
	if c.Deployments > 0 {
		r.put(x, "sd"+at, Reading{Interval: withoutInterval(c.SD)})
	}
}

// use reads the quantities at capacity. It takes the highest rate that
// each deployment carried, unless that rate is far below the capacity.
func (r *Readings) use(x sized) {
	values := map[string][]float64{}
	for _, trials := range x.each() {
		at := -1
		for i, o := range trials {
			if x.carried(o) && o.Rate >= near*x.capacity.Rate {
				at = i
			}
		}
		if at < 0 {
			continue
		}
		for name, value := range quantities(trials[at]) {
			values[name] = append(values[name], value)
		}
	}
	r.putEach(x, values)
}

// carried reports whether the sizing carried the trial's rate. A short trial above the capacity may answer all of
// its calls while the backlog grows, so the search adaptive must find the trial steady too.
func (x sized) carried(o vitrine.Outcome) bool {
	if x.search == nil || x.search.Name != rate.Adaptive {
		return o.SuccessRatio() >= x.capacity.Threshold
	}
	j := rate.Judge(o, x.search.Precision)
	return j.Steady && j.Success >= x.capacity.Threshold
}

// quantities reads one trial. "goodput" is the calls a second that succeeded. "percall.bono" is
// the CPU time of a call in milliseconds, "percall.all" its sum over all components. "cpu.bono" is the
// utilization of a component, "cpu.beside.bono" the highest of any component except bono.
// "latency.p50" and "latency.p99" are quantiles over the calls that succeeded, in milliseconds.
// "answered" is how many seconds passed from the first call that was due until all were answered or
// had failed.
func quantities(o vitrine.Outcome) map[string]float64 {
	found := map[string]float64{"goodput": goodputOf(o)}
	for name, ms := range perCall(o) {
		found["percall."+name] = ms
	}
	used := utilization(o)
	for name, u := range used {
		found["cpu."+name] = u
		most := 0.0
		for other, v := range used {
			if other != name {
				most = max(most, v)
			}
		}
		found["cpu.beside."+name] = most
	}
	if o.Succeeded > 0 {
		found["latency.p50"], found["latency.p99"] = o.Latency.P50, o.Latency.P99
	}
	if o.Answered > 0 {
		found["answered"] = o.Answered.Seconds()
	}
	return found
}

// each returns the trials of each deployment, sorted by rate, in the order of the
// deployments.
func (x sized) each() [][]vitrine.Outcome {
	var list [][]vitrine.Outcome
	for _, repeat := range slices.Sorted(maps.Keys(x.repeats)) {
		trials := slices.Clone(x.repeats[repeat])
		slices.SortStableFunc(trials, func(a, b vitrine.Outcome) int { return cmp.Compare(a.Rate, b.Rate) })
		list = append(list, trials)
	}
	return list
}

// utilization returns the CPU that each component's instances used, as a share of
// their limits. It leaves out the generator and instances without a limit.
func utilization(o vitrine.Outcome) map[string]float64 {
	used, given := map[string]float64{}, map[string]float64{}
	for _, u := range o.Use {
		if u.Component != vitrine.Generator && u.CPU != nil && u.VCPUs > 0 {
			used[u.Component] += *u.CPU
			given[u.Component] += u.VCPUs
		}
	}
	for name := range used {
		used[name] /= given[name]
	}
	return used
}

// together is the name, in place of a component's, of the sum over all components.
const together = "all"

// perCall returns the CPU time that a call cost each component's instances, and all
// of them together, in milliseconds. A cost that is not known is left out.
func perCall(o vitrine.Outcome) map[string]float64 {
	cost, seconds := map[string]float64{}, o.CPUPerCall()
	for _, name := range slices.Sorted(maps.Keys(seconds)) {
		cost[name] = 1000 * seconds[name]
		cost[together] += cost[name]
	}
	maps.DeleteFunc(cost, func(_ string, ms float64) bool { return math.IsNaN(ms) })
	return cost
}

// atRates returns the quantities of each deployment at each rate that was offered, by name and
// rate, such as "goodput@600/s".
func (x sized) atRates() map[string][]float64 {
	values := map[string][]float64{}
	for _, trials := range x.each() {
		own := map[string][]float64{}
		for _, o := range trials {
			for name, value := range quantities(o) {
				name = fmt.Sprintf("%s@%g/s", name, o.Rate)
				own[name] = append(own[name], value)
			}
		}
		addMeans(values, own)
	}
	return values
}

// addMeans adds the mean of each of a deployment's readings. Several trials of one deployment count
// once, because they are not independent.
func addMeans(values, own map[string][]float64) {
	for name, list := range own {
		values[name] = append(values[name], mean(list))
	}
}

// rates reads the quantities at each rate that was offered, as means over deployments. Of the
// goodput, it also reads the least, the most, and the peak: a deployment's highest at any rate.
func (r *Readings) rates(x sized) {
	values := x.atRates()
	for _, trials := range x.each() {
		peak := 0.0
		for _, o := range trials {
			peak = max(peak, goodputOf(o))
		}
		values["goodput.peak"] = append(values["goodput.peak"], peak)
	}
	r.putEach(x, values)
	for name, list := range values {
		if strings.HasPrefix(name, "goodput@") {
			r.put(x, "least "+name, Reading{Interval: withoutInterval(slices.Min(list))})
			r.put(x, "most "+name, Reading{Interval: withoutInterval(slices.Max(list))})
		}
	}
}

// past reads the success ratio beyond the capacity. Each deployment was driven at
// several rates, up to that rate or until it failed.
func (r *Readings) past(x sized) {
	var values []float64
	for _, trials := range x.each() {
		if len(trials) < 2 || trials[0].Rate > x.capacity.Rate {
			continue
		}
		values = append(values, valueAt(trials, past*x.capacity.Rate, vitrine.Outcome.SuccessRatio))
	}
	r.putEach(x, map[string][]float64{fmt.Sprintf("success@%g", past): values})
}

// doubled reads the goodput at twice the capacity: the mean over the deployments that
// were driven at rates below and above it.
func (r *Readings) doubled(x sized) {
	rate := double * x.capacity.Rate
	var values []float64
	for _, trials := range x.each() {
		if trials[0].Rate <= rate && rate <= trials[len(trials)-1].Rate {
			values = append(values, valueAt(trials, rate, goodputOf))
		}
	}
	r.putEach(x, map[string][]float64{fmt.Sprintf("goodput@%gx", double): values})
}

// goodputOf returns the calls a second that succeeded.
func goodputOf(o vitrine.Outcome) float64 { return o.Rate * o.SuccessRatio() }

// valueAt interpolates a value between the trials' rates. Beyond the highest rate it is
// the value of the last trial, which ended the ramp.
func valueAt(trials []vitrine.Outcome, rate float64, value func(vitrine.Outcome) float64) float64 {
	for i := 1; i < len(trials); i++ {
		a, b := trials[i-1], trials[i]
		if b.Rate >= rate && b.Rate > a.Rate {
			share := max(0, (rate-a.Rate)/(b.Rate-a.Rate))
			return value(a) + share*(value(b)-value(a))
		}
	}
	return value(trials[len(trials)-1])
}

// putEach records the mean of each reading over the deployments. None of them can be
// negative, and no success ratio can be above 1, so their intervals end there. The values are in
// the order of the deployments. In a run in turns, a deployment is a turn. If a turn has no valid
// trial, the values of two sizings may be of different turns.
func (r *Readings) putEach(x sized, values map[string][]float64) {
	last := 0
	for repeat := range x.repeats {
		last = max(last, repeat)
	}
	for name, list := range values {
		i := delay.OfRepeats(list)
		if i.Repeats == 0 {
			continue
		}
		i.Low = max(i.Low, 0)
		if strings.HasPrefix(name, "success@") {
			i.High = min(i.High, 1)
		}
		reading := Reading{Interval: i}
		if r.turns && len(list) == last {
			reading.Turns = list
		}
		r.put(x, name, reading)
	}
}

// swingSeconds is the smallest number of seconds that show a swing.
const swingSeconds = 10

// swings reads how much success and CPU vary from second to second, and how unevenly
// a component's instances are used. It reads windows of at least swingSeconds, below
// ("@under") and beyond the capacity ("@over").
func (r *Readings) swings(x sized, d *result.Data) error {
	values := map[string][]float64{}
	for _, trials := range x.each() {
		own := map[string][]float64{}
		for _, o := range trials {
			at := "@over"
			switch {
			case len(o.Seconds) < swingSeconds || o.Rate > near*x.capacity.Rate && o.Rate < over*x.capacity.Rate:
				continue
			case o.Rate <= near*x.capacity.Rate:
				at = "@under"
			}
			found, err := swing(o, d)
			if err != nil {
				return err
			}
			for name, v := range found {
				own[name+at] = append(own[name+at], v)
			}
		}
		addMeans(values, own)
	}
	r.putEach(x, values)
	return nil
}

// swing reads one trial.
func swing(o vitrine.Outcome, d *result.Data) (map[string]float64, error) {
	found := map[string]float64{}
	var success []float64
	for _, s := range o.Seconds {
		if s.Scheduled > 0 {
			success = append(success, float64(s.Succeeded)/float64(s.Scheduled))
		}
	}
	found["success.swing"] = deviation(success)
	busiest, idlest, count := map[string]float64{}, map[string]float64{}, map[string]int{}
	for _, u := range o.Use {
		if u.CPU == nil || u.Component == vitrine.Generator {
			continue
		}
		if count[u.Component]++; count[u.Component] == 1 {
			idlest[u.Component] = *u.CPU
		}
		busiest[u.Component], idlest[u.Component] = max(busiest[u.Component], *u.CPU), min(idlest[u.Component], *u.CPU)
	}
	for name, n := range count {
		if n > 1 && idlest[name] > 0 {
			found["uneven."+name] = busiest[name] / idlest[name]
		}
	}
	cpu, err := cpuSeconds(o, d)
	for name, list := range cpu {
		if m := mean(list); m > 0 && len(list) >= swingSeconds {
			found["cpu.swing."+name] = deviation(list) / m
		}
	}
	return found, err
}

// A second shows the CPU use of an instance if samples of at most longestSample cover at least
// leastCovered of it. A longer sample ends a gap, and does not show what happened in each second.
const (
	longestSample = 0.5 // seconds
	leastCovered  = 0.5 // seconds
)

// cpuSeconds returns the CPU of each component in the seconds of the window, from the monitor's
// samples. It leaves out the incomplete last second, and seconds that do not show the CPU use of all
// instances of the component. It is empty when the trial has no samples.
func cpuSeconds(o vitrine.Outcome, d *result.Data) (map[string][]float64, error) {
	type instance struct {
		component    string
		before       float64   // time of the previous sample
		sum, covered []float64 // by second: CPU seconds, and seconds
	}
	whole := min(len(o.Seconds), int(o.Duration/time.Second))
	instances := map[string]*instance{}
	err := d.Usage(o.Key, func(s result.Sample) error {
		if s.CPU == nil || s.Component == result.HostComponent || s.Component == vitrine.Generator {
			return nil
		}
		x := instances[s.Instance]
		if x == nil {
			x = &instance{component: s.Component, before: math.Inf(-1), sum: make([]float64, whole), covered: make([]float64, whole)}
			instances[s.Instance] = x
		}
		length := s.Time - x.before
		x.before = s.Time
		if second := int(math.Floor(s.Time)); length <= longestSample && second >= 0 && second < whole {
			x.sum[second] += *s.CPU * length
			x.covered[second] += length
		}
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	seconds := map[string][]float64{}
	for second := range whole {
		used, gap := map[string]float64{}, map[string]bool{}
		for _, name := range slices.Sorted(maps.Keys(instances)) {
			x := instances[name]
			if x.covered[second] < leastCovered {
				gap[x.component] = true
				continue
			}
			used[x.component] += x.sum[second] / x.covered[second]
		}
		for component, cpu := range used {
			if !gap[component] {
				seconds[component] = append(seconds[component], cpu)
			}
		}
	}
	return seconds, nil
}

func mean(list []float64) float64 {
	var sum float64
	for _, v := range list {
		sum += v
	}
	return sum / float64(max(1, len(list)))
}

// deviation returns the standard deviation.
func deviation(list []float64) float64 {
	m, squares := mean(list), 0.0
	for _, v := range list {
		squares += (v - m) * (v - m)
	}
	return math.Sqrt(squares / float64(max(1, len(list)-1)))
}
