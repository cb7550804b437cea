package rate

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"vitrine"
)

// Points are the trials that stand for three levels of load, as in NFV-VITAL's
// figure 2. Nil: no valid trial at that level.
type Points struct {
	Underload *vitrine.Outcome // nearest to half the rate of Capacity, below it
	Capacity  *vitrine.Outcome // the highest rate that passed or just missed, up to about the capacity
	Overload  *vitrine.Outcome // nearest to 5/4 of the capacity among the higher rates that failed
}

// At chooses the trials for the capacity that Estimate found in the history.
// Among several trials at the chosen rate, it takes the one with the median
// success ratio. When even the lowest rate failed, Capacity is a trial at that
// rate.
func At(history []vitrine.Outcome, capacity vitrine.Capacity) Points {
	t := tabulate(history)
	at, ok := t.operating(capacity)
	if !ok {
		return Points{}
	}
	pooled := t.pooled()
	under, over := -1, -1
	for k, rate := range t.rates {
		if k < at && (under < 0 || nearer(rate, t.rates[under], t.rates[at]/2)) {
			under = k
		}
		if k > at && pooled[k].ratio() < capacity.Threshold &&
			(over < 0 || nearer(rate, t.rates[over], capacity.Rate*5/4)) {
			over = k
		}
	}
	return Points{Underload: t.median(under), Capacity: t.median(at), Overload: t.median(over)}
}

func nearer(a, b, to float64) bool { return math.Abs(a-to) < math.Abs(b-to) }

// operating returns the column of the trials at capacity: the highest rate at or
// below the capacity that passed, or the lowest rate when none did. A search that
// aims at the capacity has trials right at it. Half of them miss the threshold
// slightly by chance, so a slight miss counts as a pass.
func (t table) operating(capacity vitrine.Capacity) (column int, ok bool) {
	const little = 0.02
	if len(t.rows) == 0 {
		return 0, false
	}
	for k, n := range t.pooled() {
		if t.rates[k] <= capacity.Rate*(1+little) && n.ratio() >= capacity.Threshold-little {
			column = k
		}
	}
	return column, true
}

// median returns the trial of the column with the median success ratio.
func (t table) median(column int) *vitrine.Outcome {
	trials := slices.Clone(t.cells[column])
	if len(trials) == 0 {
		return nil
	}
	slices.SortStableFunc(trials, func(a, b vitrine.Outcome) int {
		return cmp.Compare(a.SuccessRatio(), b.SuccessRatio())
	})
	return &trials[(len(trials)-1)/2]
}

// UseAtCapacity returns what share of its resources each component uses at the
// capacity: resource -> component -> share. It is the mean over the component's
// instances and over the valid trials at the highest rate at or below the
// capacity that passed (the lowest rate when none did). Overloaded trials do not
// count: there the use swings with the function's load control (NFV-VITAL,
// II.C.1).
//
// CPU and memory are 0..1 of the instance's flavor. The network has no such
// limit. There, a component counts with the bytes received and sent by its mean
// instance, as a share of the sum over all components. So shares add up to 1, and
// adding an instance lowers its component's share. Use that was not read, or has
// no limit, is absent.
func UseAtCapacity(history []vitrine.Outcome, capacity vitrine.Capacity) map[string]map[string]float64 {
	use := map[string]map[string]float64{}
	t := tabulate(history)
	at, ok := t.operating(capacity)
	if !ok {
		return use
	}
	for _, resource := range []string{vitrine.CPU, vitrine.Memory, vitrine.Network} {
		if shares := meanByComponent(t.cells[at], resource); len(shares) > 0 {
			use[resource] = shares
		}
	}
	if !normalise(use[vitrine.Network]) {
		delete(use, vitrine.Network)
	}
	return use
}

// meanByComponent returns the mean over each component's instances and trials.
func meanByComponent(trials []vitrine.Outcome, resource string) map[string]float64 {
	total, n := map[string]float64{}, map[string]float64{}
	for _, o := range trials {
		for _, instance := range slices.Sorted(maps.Keys(o.Use)) {
			u := o.Use[instance]
			if u.Component == vitrine.Generator {
				continue
			}
			if value, read := shareOf(u, resource); read {
				total[u.Component] += value
				n[u.Component]++
			}
		}
	}
	for component := range total {
		total[component] /= n[component]
	}
	return total
}

// shareOf returns the share of its limit that an instance used, or its bytes a
// second for the network; false: not read, or without a limit.
func shareOf(u vitrine.Use, resource string) (float64, bool) {
	switch {
	case resource == vitrine.CPU && u.CPU != nil && u.VCPUs > 0:
		return *u.CPU / u.VCPUs, true
	case resource == vitrine.Memory && u.Memory != nil && u.MemoryLimit > 0:
		return *u.Memory / float64(u.MemoryLimit), true
	case resource == vitrine.Network && u.RxBytes != nil && u.TxBytes != nil:
		return *u.RxBytes + *u.TxBytes, true
	}
	return 0, false
}

// normalise scales the values to a sum of 1; false: their sum is not positive.
func normalise(shares map[string]float64) bool {
	total := 0.0
	for _, component := range slices.Sorted(maps.Keys(shares)) {
		total += shares[component]
	}
	if total <= 0 {
		return false
	}
	for component := range shares {
		shares[component] /= total
	}
	return true
}
