package main

import (
	"fmt"
	"slices"
	"strings"

	"vitrine"
	"vitrine/search/sim"
)

// recordedStages returns stages that replay the sizes of a run in turn, each with another seed. It
// omits sizes whose capacity is not inside the recorded rates, and prints the reason.
func (a *app) recordedStages(f simulateFlags, s simulation) ([]stage, simulation, error) {
	data, err := loadRun(f.trace)
	if err != nil {
		return nil, s, err
	}
	var usable []recordedSize
	for _, own := range sizesOf(data.Outcomes) {
		if why := own.check(f); why != "" {
			fmt.Fprintf(a.stderr, "%s is left out: %s\n", own.name, why)
			continue
		}
		usable = append(usable, own)
	}
	if len(usable) == 0 {
		return nil, s, &vitrine.BadInput{File: f.trace, Found: "no size of this run can be replayed",
			Want: "name a run that tried rates on both sides of its capacities, or another --threshold"}
	}
	var stages []stage
	for i := range f.functions {
		on, err := usable[i%len(usable)].stage(f, f.seed+uint64(i))
		if err != nil {
			return nil, s, err
		}
		stages = append(stages, on)
	}
	s.Unit = data.Manifest.Unit
	s.Functions = fmt.Sprintf("replays of %d sizes of %s", len(usable), data.Manifest.VNF)
	return stages, s, nil
}

// A recordedSize is the trials of one size with one combination of options.
type recordedSize struct {
	name   string
	trials []vitrine.Outcome
}

// sizesOf groups trials by substrate, options and size, in the order of their
// first trial.
func sizesOf(outcomes []vitrine.Outcome) []recordedSize {
	var sizes []recordedSize
	for _, o := range outcomes {
		name := strings.Join(strings.Fields(o.Substrate+" "+o.Options+" "+o.Subject), " ")
		i := slices.IndexFunc(sizes, func(s recordedSize) bool { return s.name == name })
		if i < 0 {
			i = len(sizes)
			sizes = append(sizes, recordedSize{name: name})
		}
		sizes[i].trials = append(sizes[i].trials, o)
	}
	return sizes
}

// stage builds a function from the trials. Its range is the recorded range, unless --range sets
// another.
func (r recordedSize) stage(f simulateFlags, seed uint64) (stage, error) {
	trace, err := sim.NewTrace(r.trials, seed)
	if err != nil {
		return stage{}, err
	}
	on := stage{name: r.name, subject: trace, sizing: trace.Sizings()[0]}
	on.low, on.high = trace.Range(on.sizing)
	if f.rates != nil {
		on.low, on.high = f.rates[0], f.rates[1]
	}
	return on, nil
}

// check returns why the size cannot be replayed, or "" if it can.
func (r recordedSize) check(f simulateFlags) string {
	on, err := r.stage(f, f.seed)
	if err != nil {
		return err.Error()
	}
	low, high := on.subject.(*sim.Trace).Range(on.sizing)
	switch truth := on.subject.Capacity(on.sizing, f.threshold); {
	case truth == 0:
		return fmt.Sprintf("even its lowest rate, %g, was below a success ratio of %g", low, f.threshold)
	case truth > high:
		return fmt.Sprintf("even its highest rate, %g, reached a success ratio of %g", high, f.threshold)
	case truth <= on.low || truth >= on.high:
		return fmt.Sprintf("its capacity of %.4g is not between the rates of --range", truth)
	}
	return ""
}
