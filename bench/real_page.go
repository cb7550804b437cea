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
// next to them, and the coverage over all plans. Without such runs, it returns notRun.
func realSection(root string) (string, error) {
	var parts []string
	var newest []judged // the runs of the newest plan of each function
	functions := realFunctions()
	every := make([][]judged, len(functions)) // the runs of all plans of each function
	for i, f := range functions {
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
			every[i] = append(every[i], ours...)
			last = ours
		}
		newest = append(newest, last...)
	}
	if len(parts) == 0 {
		return notRun, nil
	}
	return strings.Join(append(parts,
		fmt.Sprintf("Over the newest plan of each function, %s. p is the probability of so few, if each interval held with %g; the aim is p %s.",
			coverageText(newest), truthConfidence, truthAim),
		"Over all plans, by the limit for neighbours. Pairs are of runs of one plan on one host.",
		strings.TrimSpace(papers.Markdown(limitGrid(every)))), "\n\n"), nil
}

// limit returns how much neighbours might slow a trial of the record.
func (r realRecord) limit() float64 { return cmp.Or(r.Slowdown, firstSlowdown) }

// limitGrid returns the headings, and for each limit for neighbours a line of each function and a
// line of all functions. every has the runs of each of realFunctions.
func limitGrid(every [][]judged) [][]string {
	lines := [][]string{{"limit", "function", "intervals that hold", "p", "pairs that exclude each other", "the same of successive runs"}}
	text := func(j judged) string { return fmt.Sprint(j.limit()) }
	for _, limit := range distinct(slices.Concat(every...), text) {
		var pooled []judged
		for i, f := range realFunctions() {
			own := slices.DeleteFunc(slices.Clone(every[i]), func(j judged) bool { return text(j) != limit })
			if len(own) > 0 {
				lines = append(lines, limitLine(limit, f.Name, own))
			}
			pooled = append(pooled, own...)
		}
		lines = append(lines, limitLine(limit, "all", pooled))
	}
	return lines
}

func limitLine(limit, function string, runs []judged) []string {
	held := countRuns(runs, judged.covered)
	all, successive := disjoint(runs)
	return []string{limit, function, fmt.Sprintf("%d of %d", held, len(runs)),
		fmt.Sprintf("%.2g", queue.TooFew(held, len(runs), truthConfidence)), shareText(all), shareText(successive)}
}

// shareText returns how many of the values are true.
func shareText(all []bool) string {
	return fmt.Sprintf("%d of %d", countRuns(all, func(b bool) bool { return b }), len(all))
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
	text := fmt.Sprintf("**%s**, `%s`, trials that neighbours slowed by at most %g%s, %s: %s, %d with the error of the blocks.",
		b.function.Name, b.function.Sizing, runs[0].limit(), keptAwake(runs[0].Awake), runs.origin(), coverageText(ours), countRuns(ours, judged.agrees))
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
		neighbours := "runs"
		if len(hosts) > 1 {
			neighbours = fmt.Sprintf("the %d runs on host %d", len(onHost(ours, host)), i+1)
		}
		text += fmt.Sprintf(" The blocks next to %s find %s; together %.4g [%.4g, %.4g], over %d deployments.",
			neighbours, rates(each), whole.Rate, whole.Low, whole.High, whole.Deployments)
	}
	found := withCapacity(ours)
	return text + spreadText(found) + b.peersText() + costText(runs, found)
}

// spreadText returns sentences about the errors and the cost of runs that found a capacity.
func spreadText(found []judged) string {
	sd := runToRun(found)
	if math.IsNaN(sd) {
		return ""
	}
	differences := values(found, judged.difference)
	return fmt.Sprintf(" Standard deviation between runs%s: %.1f%%; their intervals state %.1f%%. Differences: %+.1f%% to %+.1f%%, median %+.1f%%. Medians: %s.",
		onOneHost(hostsOf(found)), 100*sd, 100*median(values(found, judged.statedSD)), 100*math.Expm1(slices.Min(differences)),
		100*math.Expm1(slices.Max(differences)), 100*math.Expm1(median(differences)), mediansText(found))
}

// mediansText returns the median error and cost of runs that found a capacity.
func mediansText(found []judged) string {
	return fmt.Sprintf("error %.3f, %.0f s of load, %.0f s in all",
		median(values(found, judged.error)), median(values(found, judged.load)), median(values(found, judged.wall)))
}

// peersText returns a sentence about the runs of our mlr at each precision.
func (b *realBench) peersText() (text string) {
	for _, search := range []string{rate.MLR, mlrDefault} {
		runs, _ := b.judge(search)
		if found := withCapacity(runs); len(found) > 0 {
			text += fmt.Sprintf(" %s: %d of %d intervals hold; medians: %s.", search, countRuns(runs, judged.covered), len(runs), mediansText(found))
		}
	}
	return text
}

// costText returns sentences about the CPU time of a call: how it follows the speed of the host, and
// how the capacities follow it.
func costText(runs realRecords, found []judged) (text string) {
	if s, ok := runs.sensitivity(); ok {
		text += fmt.Sprintf(" In the runs the host ran at %.2f of its best speed (%.2f to %.2f), and the CPU time of a call grew as the power %.1f of how much longer the fixed work took.",
			s.mean, s.slowest, s.fastest, s.power)
	}
	if e, ok := effectOfCosts(found); ok {
		at := "At"
		if len(hostsOf(found)) > 1 {
			at = "On each host, at"
		}
		text += fmt.Sprintf(" %s %g to %g times the mean capacity a call cost %.2f to %.2f of the CPU time in the median run, and the capacity followed the power %.1f of that (correlation %.2f).",
			at, costFrom, costTo, e.least, e.most, e.power, e.correlation)
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
	switch len(hosts) {
	case 0:
		return text
	case 1:
		return text + ", on " + hosts[0]
	}
	return text + fmt.Sprintf(", on %d hosts (%s)", len(hosts), strings.Join(hosts, "; "))
}

// grid returns the headings, and a line for each run between blocks.
func (b *realBench) grid() [][]string {
	lines := [][]string{{"search", "run", "capacity", "95% interval", "blocks", "difference", "CPU per call", "holds it", "trials", "load", "in all"}}
	ours, _ := b.judge(rate.Adaptive)
	hosts := hostsOf(ours)
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
			number := fmt.Sprint(j.Number)
			if at := slices.Index(hosts, j.host()); at >= 0 && len(hosts) > 1 {
				number += fmt.Sprintf(" (host %d)", at+1)
			}
			cpu := ""
			if costs != nil && !math.IsNaN(costs[i]) {
				cpu = fmt.Sprintf("%+.1f%%", 100*(costs[i]-1))
			}
			lines = append(lines, []string{
				search, number, fmt.Sprintf("%.4g", j.Capacity.Rate), fmt.Sprintf("%.4g to %.4g", j.Capacity.Low, j.Capacity.High),
				fmt.Sprintf("%.4g", j.beside.Rate), fmt.Sprintf("%+.1f%%", 100*math.Expm1(j.difference())), cpu, holds,
				fmt.Sprint(len(j.Trials)), fmt.Sprintf("%.0f s", j.Load), fmt.Sprintf("%.0f s", j.Wall),
			})
		}
	}
	return lines
}
