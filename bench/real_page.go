package main

import (
	"cmp"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"vitrine/papers"
	"vitrine/search/rate"
	"vitrine/search/sim/queue"
)

// realSection returns the page's section: for each function and each plan the runs that have blocks
// next to them. Without such runs, it returns notRun.
func realSection(root string) (string, error) {
	var parts []string
	var newest []judged // the runs of the newest plan of each function
	for _, f := range realFunctions() {
		var last []judged
		all, err := readReal(filepath.Join(root, f.file()))
		if err != nil {
			return "", err
		}
		for _, plan := range distinct(all, func(r realRecord) string { return r.Plan }) {
			b := &realBench{function: f, counts: realCounts{Runs: math.MaxInt}, all: all.of(plan)}
			ours, without := b.judge(rate.Adaptive)
			if len(ours) == 0 {
				continue
			}
			parts = append(parts, b.summary(ours, without), strings.TrimSpace(papers.Markdown(b.grid())))
			last = ours
		}
		newest = append(newest, last...)
	}
	if len(parts) == 0 {
		return notRun, nil
	}
	return strings.Join(append(parts, fmt.Sprintf("Over the newest plan of each function, %s. p is the probability of so few, if each interval held with %g; the aim is p %s.",
		coverageText(newest), truthConfidence, truthAim)), "\n\n"), nil
}

// coverageText returns how many intervals of the runs hold, and how likely so few are.
func coverageText(runs []judged) string {
	held := countRuns(runs, judged.covered)
	return fmt.Sprintf("%d of %d intervals hold the capacity of the blocks beside them (p %.2g)", held, len(runs), queue.TooFew(held, len(runs), truthConfidence))
}

// summary returns sentences about the runs of the adaptive search: their source, coverage, spread
// and cost.
func (b *realBench) summary(ours []judged, without int) string {
	var runs realRecords
	for _, j := range ours {
		runs = append(runs, j.realRecord)
	}
	limit := cmp.Or(runs[0].Slowdown, firstSlowdown)
	text := fmt.Sprintf("**%s**, `%s`, trials that neighbours slowed by at most %g%s, %s: %s, %d with the error of the blocks.",
		b.function.Name, b.function.Sizing, limit, keptAwake(runs[0].Awake), runs.origin(), coverageText(ours), countRuns(ours, judged.agrees))
	if without > 0 {
		text += fmt.Sprintf(" %d runs have no such blocks.", without)
	}
	if n := countRuns(ours, func(j judged) bool { return !j.between }); n > 0 {
		text += fmt.Sprintf(" Runs with a block on one side only, because the bench was stopped: %d.", n)
	}
	hosts := hostsOf(ours)
	for i, host := range hosts {
		trials, each := b.blocks(host)
		whole, _ := newReference(trials)
		where := ""
		if len(hosts) > 1 {
			where = fmt.Sprintf(" on host %d", i+1)
		}
		text += fmt.Sprintf(" The blocks next to runs%s find %s; together %.4g [%.4g, %.4g], over %d deployments.",
			where, rates(each), whole.Rate, whole.Low, whole.High, whole.Deployments)
	}
	found := slices.DeleteFunc(slices.Clone(ours), func(j judged) bool { return !j.found() })
	if sd := runToRun(found); !math.IsNaN(sd) {
		text += fmt.Sprintf(" Standard deviation between runs%s: %.1f%%; their intervals state %.1f%%. Medians: difference %+.1f%%, %.0f s of load, %.0f s in all.",
			onOneHost(hosts), 100*sd, 100*median(values(found, judged.statedSD)), 100*math.Expm1(median(values(found, judged.difference))),
			median(values(found, judged.load)), median(values(found, judged.wall)))
	}
	if s, ok := runs.sensitivity(); ok {
		text += fmt.Sprintf(" In the runs the host ran at %.2f of its best speed (%.2f to %.2f), and the CPU time of a call grew as the power %.1f of how much longer the fixed work took.",
			s.mean, s.slowest, s.fastest, s.power)
	}
	if e, ok := effectOfCosts(found); ok {
		text += fmt.Sprintf(" At %g to %g times the mean capacity a call cost %.2f to %.2f of the CPU time in the median run, and the capacity followed the power %.1f of that (correlation %.2f).",
			costFrom, costTo, e.least, e.most, e.power, e.correlation)
	}
	return text
}

// onOneHost returns what a standard deviation is restricted to if there are several hosts.
func onOneHost(hosts []string) string {
	if len(hosts) > 1 {
		return " of one host"
	}
	return ""
}

// rates returns the capacities of blocks.
func rates(each []reference) string {
	var all []string
	for _, r := range each {
		all = append(all, fmt.Sprintf("%.4g", r.Rate))
	}
	return strings.Join(all, ", ")
}

// origin returns the days, commits and hosts of the records.
func (all realRecords) origin() string {
	days := distinct(all, func(r realRecord) string { return r.Began.Format(time.DateOnly) })
	commits := distinct(all, func(r realRecord) string { return "`" + r.Version + "`" })
	hosts := distinct(all, func(r realRecord) string { return r.Host })
	text := fmt.Sprintf("%s, by commit %s", strings.Join(days, " and "), strings.Join(commits, ", "))
	if len(hosts) > 0 {
		text += ", on " + strings.Join(hosts, " and ")
	}
	return text
}

// grid returns the headings, and a line for each run between blocks.
func (b *realBench) grid() [][]string {
	lines := [][]string{{"search", "run", "capacity", "95% interval", "blocks", "difference", "CPU per call", "holds it", "trials", "load", "in all"}}
	for _, search := range []string{rate.Adaptive, rate.MLR, mlrDefault} {
		runs, _ := b.judge(search)
		var costs []float64
		if search == rate.Adaptive {
			costs = callCosts(runs)
		}
		for i, j := range runs {
			holds := "no"
			if j.covered() {
				holds = "yes"
			}
			cpu := ""
			if costs != nil && !math.IsNaN(costs[i]) {
				cpu = fmt.Sprintf("%+.1f%%", 100*(costs[i]-1))
			}
			lines = append(lines, []string{
				search, fmt.Sprint(j.Number), fmt.Sprintf("%.4g", j.Capacity.Rate), fmt.Sprintf("%.4g to %.4g", j.Capacity.Low, j.Capacity.High),
				fmt.Sprintf("%.4g", j.beside.Rate), fmt.Sprintf("%+.1f%%", 100*math.Expm1(j.difference())), cpu, holds,
				fmt.Sprint(len(j.Trials)), fmt.Sprintf("%.0f s", j.Load), fmt.Sprintf("%.0f s", j.Wall),
			})
		}
	}
	return lines
}
