package simulate

import "fmt"

// Compare replays the case under flex and under other policies, with names as in Against. All
// of them get the same mean rates and the same seed.
func Compare(c Case, against []string) ([]Result, error) {
	if len(c.Load) == 0 {
		return nil, fmt.Errorf("an empty load")
	}
	all := []Result{Flex(c)}
	for _, name := range against {
		r, err := Against(name, c)
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

// A Total adds up a scaler's results over many loads.
type Total struct {
	Result
	Loads int `json:"loads"`
	Fewer int `json:"fewer_seconds_over"` // loads with fewer seconds of a broken objective than flex
	Less  int `json:"less_instances"`     // loads with fewer instance-seconds than flex
	Both  int `json:"fewer_and_less"`     // loads that are both Fewer and Less
}

// Sweep compares flex and other policies on random loads with the given peak, and returns the
// totals of each. The case's seed is the first load's, and each next load has the next one.
func Sweep(c Case, loads int, peak float64, against []string) ([]Total, error) {
	var totals []Total
	first := c.Seed
	for i := range loads {
		c.Seed = first + uint64(i)
		c.Load = Random(c.Seed, peak)
		all, err := Compare(c, against)
		if err != nil {
			return nil, err
		}
		if totals == nil {
			totals = make([]Total, len(all))
		}
		for k := range all {
			totals[k].add(&all[k], &all[0])
		}
	}
	return totals, nil
}

func (t *Total) add(r, flex *Result) {
	t.Scaler = r.Scaler
	t.Loads++
	t.Seconds += r.Seconds
	t.InstanceSeconds += r.InstanceSeconds
	t.CPUSeconds += r.CPUSeconds
	t.Broken += r.Broken
	t.Arrived += r.Arrived
	t.Lost += r.Lost
	t.Starts += r.Starts
	t.Drains += r.Drains
	t.Undone += r.Undone
	t.Most = max(t.Most, r.Most)
	fewer, less := r.Broken < flex.Broken, r.InstanceSeconds < flex.InstanceSeconds
	count := func(n *int, yes bool) {
		if yes {
			*n++
		}
	}
	count(&t.Fewer, fewer)
	count(&t.Less, less)
	count(&t.Both, fewer && less)
}
