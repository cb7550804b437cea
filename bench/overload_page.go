package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"vitrine/papers"
)

// overloadSlower is how many times the usual CPU time of a call shows a slower host. At
// overloadBelow of a capacity at success 0.9, the bottleneck has a twentieth to spare.
const overloadSlower = 1.05

// errNotDriven is the error of a meter that may only read windows.
var errNotDriven = errors.New("the record lacks this window")

// overloadSection returns the page's section: for each flavor the properties and the windows of the
// build that was measured last. Without windows, it returns notRun.
func overloadSection(root string) (string, error) {
	file := filepath.Join(root, overloadFile)
	all, err := readLines[window](file)
	if err != nil {
		return "", err
	}
	var parts []string
	properties := [][]string{{"flavor", "property", "measured", "compared with", "ratio", "lowest to highest", "aim", "met"}}
	rates := [][]string{{"flavor", "quota", "control", "calls/s", "deployments", "success", "lowest to highest", "goodput, calls/s", "backlog grew by, calls/s"}}
	for _, flavor := range overloadFlavors() {
		m := recordedMeter(flavor, all)
		if len(m.done) == 0 {
			continue
		}
		lines, err := m.properties()
		if err != nil {
			return "", err
		}
		slowed, err := m.slowed()
		if err != nil {
			return "", err
		}
		parts = append(parts, m.origin()+slowed)
		properties, rates = append(properties, lines...), append(rates, m.rates()...)
	}
	if len(parts) == 0 {
		return notRun, nil
	}
	return strings.Join(append(parts, strings.TrimSpace(papers.Markdown(properties)), "<details><summary>Windows by rate</summary>",
		strings.TrimSpace(papers.Markdown(rates)), "</details>"), "\n\n"), nil
}

// recordedMeter returns a meter of the flavor's windows that were recorded last with one build, on
// one host and by the same rules. It drives no window.
func recordedMeter(flavor string, all []window) *overloadMeter {
	m := &overloadMeter{flavor: flavor, progress: io.Discard, drive: func(context.Context, window) (window, error) { return window{}, errNotDriven }}
	for _, w := range all {
		if w.Flavor == flavor {
			m.build, m.host, m.rules = w.Build, w.Host, w.overloadRules
		}
	}
	for _, w := range all {
		m.take(w)
	}
	return m
}

// origin returns a sentence about the windows' number, days, commits and hosts.
func (m *overloadMeter) origin() string {
	list := func(text func(window) string) string { return strings.Join(distinct(m.done, text), " and ") }
	rounds := ""
	if m.rules.Rounds > 0 {
		rounds = fmt.Sprintf(", the capacity measured again beside each comparison and in %d rounds of deployments below it", m.rules.Rounds)
	}
	return fmt.Sprintf("**%s**: %d windows of %d s at %g of the flavor's quota or %g times that, %d at each rate of a search%s, host slower by at most %g%s, %s, by commit %s, on %s.",
		m.flavor, len(m.done), overloadSeconds, overloadQuota, overloadMore, m.rules.Repeats, rounds, m.rules.Slowdown, keptAwake(m.rules.Awake), list(func(w window) string { return w.Date }),
		list(func(w window) string { return "`" + w.Commit + "`" }), list(func(w window) string { return w.Host }))
}

// slowed returns a sentence about the deployments below the capacity that missed their success: in
// how many the host was slower. Homestead shows it, because it is not the bottleneck and no refused
// call reaches it.
func (m *overloadMeter) slowed() (string, error) {
	all, err := m.fresh(context.Background(), "below", overloadBelow, m.rules.Rounds)
	if errors.Is(err, errNotDriven) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	perCall := func(w window) float64 { return w.Quotas["homestead"] / w.Goodput }
	carried := slices.DeleteFunc(slices.Clone(all), func(w window) bool { return w.Success < overloadCarried })
	missed := len(all) - len(carried)
	if missed == 0 || len(carried) == 0 {
		return "", nil
	}
	usual := median(values(carried, perCall))
	slow := countRuns(all, func(w window) bool { return w.Success < overloadCarried && perCall(w) > overloadSlower*usual })
	return fmt.Sprintf(" In %d of the %d deployments that missed the success of %g below the capacity, a call cost Homestead over %.0f%% more CPU time than the median of the others: the host was slower.",
		slow, missed, overloadCarried, 100*(overloadSlower-1)), nil
}

// properties returns a line for each property, or one that says that its part is not measured yet.
func (m *overloadMeter) properties() (lines [][]string, err error) {
	for _, part := range overloadParts() {
		rows, err := part.run(context.Background(), m)
		if err != nil && !errors.Is(err, errNotDriven) {
			return nil, err
		}
		for _, r := range rows {
			lines = append(lines, []string{
				m.flavor, strings.TrimPrefix(r.Name, m.name("")), fmt.Sprintf("%.4g %s", *r.Ours, r.Unit), fmt.Sprintf("%.4g, %s", *r.Theirs, r.Against),
				fmt.Sprintf("%.3f", *r.Ratio), fmt.Sprintf("%.3f to %.3f", r.Spread[0], r.Spread[1]), r.Aim, r.holds(),
			})
		}
		if err != nil {
			lines = append(lines, []string{m.flavor, part.name, "not measured to the end", "", "", "", "", ""})
		}
	}
	return lines, nil
}

// rates returns a line for each rate of each quota and control.
func (m *overloadMeter) rates() (lines [][]string) {
	sorted := slices.SortedFunc(slices.Values(m.done), compareLoads)
	for _, w := range slices.CompactFunc(sorted, func(a, b window) bool { return compareLoads(a, b) == 0 }) {
		of := m.at(w)
		success := values(of, func(w window) float64 { return w.Success })
		growth := values(of, func(w window) float64 { return w.Growth * w.Rate })
		mean, _ := sumUp(of)
		lines = append(lines, []string{
			m.flavor, fmt.Sprint(w.Quota), w.Mode, fmt.Sprint(w.Rate), fmt.Sprint(len(of)), fmt.Sprintf("%.3f", mean),
			fmt.Sprintf("%.3f to %.3f", slices.Min(success), slices.Max(success)), fmt.Sprintf("%.4g", mean*w.Rate),
			fmt.Sprintf("%.0f to %.0f", slices.Min(growth), slices.Max(growth)),
		})
	}
	return lines
}

// compareLoads orders windows by quota, load control and rate.
func compareLoads(a, b window) int {
	return cmp.Or(cmp.Compare(a.Quota, b.Quota), cmp.Compare(a.Mode, b.Mode), cmp.Compare(a.Rate, b.Rate))
}
