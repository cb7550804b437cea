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
	"vitrine/testbed/quiet"
)

const (
	// overloadSlower is how many times the usual CPU time of a call shows a slower host. At 0.85 of a
	// capacity at success 0.9, the bottleneck has a twentieth to spare.
	overloadSlower = 1.05
	// overloadUsual is how many deployments must carry their calls, so that their median is usual.
	overloadUsual = 5
)

// errNotDriven is the error of a meter that may only read windows.
var errNotDriven = errors.New("the record lacks this window")

// isUnknown reports whether the error says that the windows of a record give no result.
func isUnknown(err error) bool {
	return errors.Is(err, errNotDriven) || errors.Is(err, quiet.ErrTooNoisy)
}

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
	rates := [][]string{{"flavor", "quota", "control", "calls/s", "deployments", "success", "lowest to highest", "goodput, calls/s", "backlog grew by, calls/s", "refused after admission"}}
	for _, flavor := range overloadFlavors() {
		if !slices.ContainsFunc(all, func(w window) bool { return w.Flavor == flavor }) {
			continue
		}
		f := recordedFlavor(flavor, all)
		text, err := f.origin()
		if err != nil {
			return "", err
		}
		lines, err := f.properties()
		if err != nil {
			return "", err
		}
		parts = append(parts, text)
		properties, rates = append(properties, lines...), append(append(rates, f.last.rates()...), f.recovery.rates()...)
	}
	if len(parts) == 0 {
		return notRun, nil
	}
	return strings.Join(append(parts, strings.TrimSpace(papers.Markdown(properties)), "<details><summary>Windows by rate</summary>",
		strings.TrimSpace(papers.Markdown(rates)), "</details>"), "\n\n"), nil
}

// An overloadRecord has the windows of one flavor. Its meters may have no window.
type overloadRecord struct {
	last     *overloadMeter   // of the last build, host and rules
	earlier  []*overloadMeter // the newest first
	recovery *overloadMeter   // recoveryPart, of its own last build
}

func recordedFlavor(flavor string, all []window) (r overloadRecord) {
	recovering := func(w window) bool { return w.Round == recoveryPart }
	apart := slices.DeleteFunc(slices.Clone(all), func(w window) bool { return !recovering(w) })
	meters := recordedMeters(flavor, slices.DeleteFunc(slices.Clone(all), recovering))
	return overloadRecord{last: meters[0], earlier: meters[1:], recovery: recordedMeters(flavor, apart)[0]}
}

// recordedMeters returns a meter for each build, host and rules with windows of the flavor, the newest
// first. They drive no window. Without windows, it returns one meter.
func recordedMeters(flavor string, all []window) (meters []*overloadMeter) {
	add := func(w window) {
		m := &overloadMeter{flavor: flavor, build: w.Build, host: w.Host, rules: w.overloadRules, progress: io.Discard,
			drive: func(context.Context, window) (window, error) { return window{}, errNotDriven }}
		for _, w := range all {
			m.take(w)
		}
		meters = append(meters, m)
	}
	for _, w := range slices.Backward(all) {
		if w.Flavor == flavor && !slices.ContainsFunc(meters, func(m *overloadMeter) bool { return m.fits(w) }) {
			add(w)
		}
	}
	if len(meters) == 0 {
		add(window{})
	}
	return meters
}

// origin returns sentences about the windows: their number, days, commits and hosts, why deployments
// missed their success, and what earlier builds reached.
func (r overloadRecord) origin() (string, error) {
	text := fmt.Sprintf("**%s**:", r.last.flavor)
	if m := r.last; len(m.done) > 0 {
		rounds, err := m.rounds()
		if err != nil {
			return "", err
		}
		text += fmt.Sprintf(" %d windows of %d s at %g of the flavor's quota or %g times that, %d at each rate of a search%s, %s, on %s.",
			len(m.done), overloadSeconds, overloadQuota, overloadMore, m.rules.Repeats, rounds, m.conditions(), m.hosts())
	}
	slowed, err := r.last.slowed()
	if err != nil {
		return "", err
	}
	earlier, err := earlierCounts(r.earlier)
	if err != nil {
		return "", err
	}
	text += slowed + earlier
	if m := r.recovery; len(m.done) > 0 {
		text += fmt.Sprintf(" `recovery` and `admitted`: %d windows, %s, on %s.", len(m.done), m.conditions(), m.hosts())
	}
	return text, nil
}

// rounds returns a phrase about how often the capacity was measured again, and beside what.
func (m *overloadMeter) rounds() (string, error) {
	switch {
	case m.rules.Rounds == 0:
		return "", nil
	case m.rules.Turns == 0:
		return fmt.Sprintf(", the capacity measured again beside each comparison and in %d rounds of deployments below it", m.rules.Rounds), nil
	}
	_, void, err := m.fresh(context.Background(), freshBelow)
	if err != nil && !isUnknown(err) {
		return "", err
	}
	text := fmt.Sprintf(", each comparison made %d times in turns, and %d rounds of deployments below and above the capacity in turns with a search for it",
		m.rules.Turns, m.rules.Rounds)
	if void > 0 {
		text += fmt.Sprintf(" (%d other rounds do not count, because the capacity changed by more than %g%%)", void, 100*overloadSame)
	}
	return text, nil
}

// conditions returns a phrase about the windows' rules, days and commits.
func (m *overloadMeter) conditions() string {
	return fmt.Sprintf("host slower by at most %g%s, %s, by commit %s", m.rules.Slowdown, keptAwake(m.rules.Awake),
		m.list(func(w window) string { return w.Date }), m.list(func(w window) string { return "`" + w.Commit + "`" }))
}

func (m *overloadMeter) hosts() string { return m.list(func(w window) string { return w.Host }) }

// list returns the different texts of the windows.
func (m *overloadMeter) list(text func(window) string) string {
	return listed(m.done, text)
}

// earlierCounts returns a sentence about the fresh deployments below the capacity by earlier builds
// and rules, the oldest first.
func earlierCounts(meters []*overloadMeter) (string, error) {
	var all []string
	for _, m := range slices.Backward(meters) {
		rows, err := countBelow(context.Background(), m)
		if isUnknown(err) {
			continue
		}
		if err != nil {
			return "", err
		}
		all = append(all, fmt.Sprintf("%g of %g (%s)", *rows[0].Ours, *rows[0].Theirs, m.conditions()))
	}
	if len(all) == 0 {
		return "", nil
	}
	return " Earlier counts of `below`: " + strings.Join(all, "; ") + ".", nil
}

// slowed returns a sentence about the deployments below the capacity that missed their success: in
// how many the host was slower. Homestead shows it, because it is not the bottleneck and no refused
// call reaches it. The guard must have read a slower CPU too, because a call may cost more for
// another reason.
func (m *overloadMeter) slowed() (string, error) {
	all, _, err := m.fresh(context.Background(), freshBelow)
	if isUnknown(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	perCall := func(w window) float64 { return w.Quotas["homestead"] / w.Goodput }
	others := slices.DeleteFunc(slices.Clone(all), func(w window) bool { return w.Success < overloadCarried })
	if len(others) < overloadUsual {
		return "", nil
	}
	usual, speed := median(values(others, perCall)), median(values(others, func(w window) float64 { return w.Speed }))
	slow := countRuns(all, func(w window) bool {
		return w.Success < overloadCarried && perCall(w) > overloadSlower*usual && 0 < w.Speed && w.Speed < speed
	})
	if slow == 0 {
		return "", nil
	}
	return fmt.Sprintf(" In %d of the %d deployments that missed the success of %g below the capacity, a call cost Homestead over %.0f%% more CPU time than the median of the %d others, and the slowest CPU was slower than in their median: the host was slower.",
		slow, len(all)-len(others), overloadCarried, 100*(overloadSlower-1), len(others)), nil
}

// properties returns a line for each property, or one for a part that is not measured yet.
func (r overloadRecord) properties() (lines [][]string, err error) {
	for _, part := range overloadParts() {
		m := r.last
		if part.name == recoveryPart {
			m = r.recovery
		}
		rows, err := part.run(context.Background(), m)
		if err != nil && !isUnknown(err) {
			return nil, err
		}
		for _, row := range rows {
			measured, against, ratio := row.figures()
			lines = append(lines, []string{
				m.flavor, strings.TrimPrefix(row.Name, m.name("")), measured, against, ratio,
				fmt.Sprintf("%.3f to %.3f", row.Spread[0], row.Spread[1]), row.Aim, row.holds(),
			})
		}
		switch {
		case errors.Is(err, quiet.ErrTooNoisy):
			lines = append(lines, []string{m.flavor, part.name, "the host was too noisy", "", "", "", "", ""})
		case err != nil && len(m.done) == 0:
			lines = append(lines, []string{m.flavor, part.name, "not measured", "", "", "", "", ""})
		case err != nil:
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
		rate, refused := fmt.Sprint(w.Rate), "-"
		if w.After > 0 {
			rate += fmt.Sprintf(" after %g", w.After)
		}
		if some, requests := refusals(of); requests > 0 {
			refused = fmt.Sprintf("%g of %.0f", some, requests)
		}
		lines = append(lines, []string{
			m.flavor, fmt.Sprint(w.Quota), w.Mode, rate, fmt.Sprint(len(of)), fmt.Sprintf("%.3f", mean),
			fmt.Sprintf("%.3f to %.3f", slices.Min(success), slices.Max(success)), fmt.Sprintf("%.4g", mean*w.Rate),
			fmt.Sprintf("%.0f to %.0f", slices.Min(growth), slices.Max(growth)), refused,
		})
	}
	return lines
}

// compareLoads orders windows by quota, load control, rate and the overload before them.
func compareLoads(a, b window) int {
	return cmp.Or(cmp.Compare(a.Quota, b.Quota), cmp.Compare(a.Mode, b.Mode), cmp.Compare(a.Rate, b.Rate), cmp.Compare(a.After, b.After))
}
