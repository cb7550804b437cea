package report

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"vitrine"
	"vitrine/result"
	"vitrine/search/rate"
)

// A set holds the runs of one report.
type set struct {
	runs       []*run
	unit       string
	thresholds []float64 // of the first run
	components []string  // names, in the deployments' order, which decides their colours
}

// A run is one run with its name among the others.
type run struct {
	*result.Data
	set      *set
	name     string
	subjects []*subject
}

// A subject is one sizing on one substrate with one set of options in one run. It
// has a capacity.
type subject struct {
	run                *run
	name               string // unique in the report
	sizing             string
	variant            string // substrate, options and run, as far as they differ in the report
	substrate, options string
	outcomes           []vitrine.Outcome

	summary    *result.Sizing     // nil: the run did not finish it
	entries    []*result.Sizing   // one per measurement; summary is the last whose search ended
	trace      []tried            // set by set.replaySearches
	capacities []vitrine.Capacity // one per threshold of the run, then those that at added
}

// newSet groups the trials of runs by what was measured.
func newSet(datas []*result.Data) (*set, error) {
	s := &set{}
	for i, name := range runNames(datas) {
		r := &run{Data: datas[i], set: s, name: name}
		s.runs = append(s.runs, r)
		if i == 0 {
			s.unit, s.thresholds = r.unit(), r.thresholds()
		}
		if r.unit() != s.unit {
			return nil, fmt.Errorf("%s is measured in %s and %s in %s: runs with different units cannot be compared",
				s.runs[0].name, s.unit, r.name, r.unit())
		}
		r.group()
		s.addComponents(r)
	}
	s.nameSubjects()
	return s, nil
}

// runNames returns the part of each folder's path that is needed to distinguish the runs.
func runNames(datas []*result.Data) []string {
	names := make([]string, len(datas))
	for depth := 1; depth <= 16; depth++ {
		seen := map[string]bool{}
		for i, d := range datas {
			parts := strings.Split(filepath.ToSlash(filepath.Clean(d.Dir)), "/")
			names[i] = plain(strings.Join(parts[max(0, len(parts)-depth):], "/"))
			seen[names[i]] = true
		}
		if len(seen) == len(datas) {
			return names
		}
	}
	for i := range names { // the user may name a folder twice
		names[i] = fmt.Sprintf("%s (%d)", names[i], i+1)
	}
	return names
}

// plain returns the text as one printable line, for figures.
func plain(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	return strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return '?'
		}
		return c
	}, text)
}

func (r *run) unit() string {
	if r.Summary != nil && r.Summary.Unit != "" {
		return r.Summary.Unit
	}
	return cmp.Or(r.Manifest.Unit, "calls/s")
}

// thresholds returns the run's thresholds, descending; 0.9 by default.
func (r *run) thresholds() []float64 {
	switch {
	case r.Summary != nil && len(r.Summary.Thresholds) > 0:
		return r.Summary.Thresholds
	case len(r.Manifest.Thresholds) > 0:
		return r.Manifest.Thresholds
	}
	return []float64{0.9}
}

// group makes a subject of every sizing, in the order of measuring. It also makes subjects of the
// summary's sizings without trials.
func (r *run) group() {
	if r.measured() { // its trials have no sizing
		return
	}
	type id struct{ substrate, options, sizing string }
	at := map[id]*subject{}
	get := func(x id) *subject {
		s, ok := at[x]
		if !ok {
			s = &subject{run: r, sizing: x.sizing, substrate: x.substrate, options: x.options}
			at[x] = s
			r.subjects = append(r.subjects, s)
		}
		return s
	}
	for _, o := range r.Outcomes {
		s := get(id{o.Substrate, o.Options, o.Subject})
		s.outcomes = append(s.outcomes, o)
	}
	if r.Summary != nil {
		for i := range r.Summary.Sizings {
			z := &r.Summary.Sizings[i]
			s := get(id{z.Substrate, z.Options, z.Name})
			s.entries = append(s.entries, z)
			if s.summary == nil || z.Unfinished == "" {
				s.summary = z
			}
		}
	}
	for _, s := range r.subjects {
		s.capacities = s.known()
	}
}

// known returns the capacities from the summary or, if the run did not finish the
// size, an estimate from its trials.
func (s *subject) known() []vitrine.Capacity {
	switch {
	case s.summary == nil:
		return s.estimate(s.run.thresholds()...)
	case len(s.summary.Capacities) > 0:
		return slices.Clone(s.summary.Capacities)
	}
	return []vitrine.Capacity{s.summary.Capacity}
}

func (s *subject) estimate(thresholds ...float64) []vitrine.Capacity {
	return rate.Estimate(vitrine.Undisturbed(s.outcomes), rate.Config{Thresholds: thresholds, Seed: s.run.Manifest.Seed})
}

// at returns the capacity at a threshold. If only another run of the report has the threshold, at
// estimates the capacity from this run's trials.
func (s *subject) at(threshold float64) vitrine.Capacity {
	for _, c := range s.capacities {
		if c.Threshold == threshold {
			return c
		}
	}
	c := s.estimate(threshold)[0]
	s.capacities = append(s.capacities, c)
	return c
}

// ownEstimate reports whether the last search has its own estimate of the capacity.
func (s *subject) ownEstimate() bool {
	if len(s.entries) == 0 {
		return false
	}
	search, _ := s.searcher(len(s.entries) - 1)
	_, own := search.(rate.Estimator)
	return own
}

// notEnded stands for the interval of a size whose capacity is a mere estimate.
const notEnded = "no interval: the search did not end"

// unsearched returns why the capacity at the threshold cannot be compared: the search did not end,
// or at estimates the capacity from trials that the search chose for other thresholds, and that
// rate.Estimate does not fit. It is empty if the capacity can be compared.
func (s *subject) unsearched(threshold float64) string {
	if s.summary == nil || s.summary.Unfinished != "" { // without an entry, the run goes on or was killed
		return notEnded
	}
	searched := s.run.thresholds()
	if slices.Contains(searched, threshold) || !s.ownEstimate() {
		return ""
	}
	ratios := make([]string, len(searched))
	for i, t := range searched {
		ratios[i] = shortest(t)
	}
	return "no interval: searched at success ratio " + strings.Join(ratios, " and ")
}

// intervalAt formats the interval at a threshold, or says why there is none.
func (s *subject) intervalAt(threshold float64) string {
	return cmp.Or(s.unsearched(threshold), intervalText(s.at(threshold)))
}

// kinds describes the kinds of the subject's deployments at a capacity, as kindsText does, with the
// subject's name.
func (s *subject) kinds(c vitrine.Capacity) string {
	text := kindsText(c, s.run.set.unit)
	if text == "" {
		return ""
	}
	return fmt.Sprintf("%s: deployments at success ratio %s: %s", s.name, shortest(c.Threshold), text)
}

// capacity returns the capacity at the report's first threshold.
func (s *subject) capacity() vitrine.Capacity { return s.at(s.run.set.thresholds[0]) }

// isComparable reports whether that capacity was measured, and by trials that were chosen for it.
func (s *subject) isComparable() bool {
	c := s.capacity()
	return !c.Unmeasured() && s.unsearched(c.Threshold) == ""
}

// optimal reports whether the run's summary names this subject the best.
func (s *subject) optimal() bool {
	return s.summary != nil && slices.Contains(s.entries, s.run.Summary.Best())
}

// addComponents appends the run's components that earlier runs did not name.
func (s *set) addComponents(r *run) {
	add := func(name string) {
		if name != "" && !slices.Contains(s.components, name) {
			s.components = append(s.components, name)
		}
	}
	for _, c := range r.Manifest.Components {
		add(c.Name)
	}
	var others []string
	for _, subject := range r.subjects {
		if subject.summary != nil {
			for name := range subject.summary.Utilization {
				others = append(others, name)
			}
		}
		for _, o := range subject.outcomes {
			for instance, u := range o.Use {
				if instance != vitrine.Generator {
					others = append(others, u.Component)
				}
			}
		}
	}
	slices.Sort(others)
	for _, name := range others {
		add(name)
	}
}

// rank returns the component's place among the report's components. Unknown components come last.
func (s *set) rank(component string) int {
	if i := slices.Index(s.components, component); i >= 0 {
		return i
	}
	return len(s.components)
}

// nameSubjects names each subject by its sizing and its variant.
func (s *set) nameSubjects() {
	for _, x := range s.subjects() {
		x.variant = s.variant(x.run, x.substrate, x.options)
		x.name = named(x.sizing, x.variant)
	}
}

// variant returns the substrate, options and run of a subject, as far as these
// differ in the report.
func (s *set) variant(r *run, substrate, options string) string {
	substrates, choices := map[string]bool{}, map[string]bool{}
	for _, x := range s.subjects() {
		substrates[x.substrate], choices[x.options] = true, true
	}
	var parts []string
	if len(substrates) > 1 {
		parts = append(parts, substrate)
	}
	if len(choices) > 1 {
		parts = append(parts, options)
	}
	if len(s.runs) > 1 {
		parts = append(parts, r.name)
	}
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), ", ")
}

func named(sizing, variant string) string {
	if variant == "" {
		return sizing
	}
	return sizing + " (" + variant + ")"
}

// subjects returns the subjects of all runs.
func (s *set) subjects() []*subject {
	var all []*subject
	for _, r := range s.runs {
		all = append(all, r.subjects...)
	}
	return all
}

// ranked returns the subjects, the highest capacity first. Subjects of equal capacity stay in the
// order of measuring.
func (s *set) ranked() []*subject {
	all := s.subjects()
	slices.SortStableFunc(all, func(a, b *subject) int { return cmp.Compare(b.rankedBy(), a.rankedBy()) })
	return all
}

// rankedBy returns the capacity at the report's first threshold, as rankedAt does.
func (s *subject) rankedBy() float64 { return s.rankedAt(s.run.set.thresholds[0]) }

// rankedAt returns the capacity at a threshold. If even the lowest rate failed, or if the capacity
// cannot be compared, it returns 0.
func (s *subject) rankedAt(threshold float64) float64 {
	c := s.at(threshold)
	switch {
	case c.Unmeasured() || s.unsearched(threshold) != "":
		return 0
	case c.Censored == vitrine.CensoredBelow:
		return c.Low
	}
	return c.Rate
}
