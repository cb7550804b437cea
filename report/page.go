package report

import (
	"cmp"
	_ "embed" // the page's template
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"vitrine"
	"vitrine/result"
	"vitrine/search/rate"
)

//go:embed page.html
var pageTemplate string

// A page is what the template shows.
type page struct {
	Title     string
	Unit      string
	Several   bool
	Mark      string // of every table; see set.mark
	Sure      string // of every interval; see set.sure
	Headings  []heading
	Figures   map[string][]*figure
	Frontier  frontierView
	Predicted predictionView
	Demand    demandView
	Searches  []searchView
	Times     []timeView
	Table     capacityTable
	Pairs     []Pair
	Sections  []sectionView // of runs that measured something other than capacities
	Load      bool          // there are runs that measured capacities
	Runs      []runView
}

// A heading sums up what one run found.
type heading struct {
	Run, VNF, When string
	Optimal        string
	Size           string // resources of the optimal sizing, and where it ran
	Capacity       string
	Unit           string
	Interval       string
	Bottleneck     string
	BottleneckUse  string
	BottleneckTone string
	Why            string
	Stopped        string
}

// A timeView is a size's figure over time.
type timeView struct {
	Figure *figure
	Name   string
	Open   bool
}

// A runView is the part of the page about one run.
type runView struct {
	Name     string
	Warnings []string
	Path     []pathView
	Trials   trialTable
	Facts    []fact
	Isolated []string // what was not isolated
	Specs    []result.Spec
}

type pathView struct {
	Step       int // 0: the search's end
	Sizing     string
	Capacity   string
	Interval   string
	Predicted  string // before it was measured; empty: it was not predicted
	Bottleneck string
	Tone       string
	Why        string
	Optimal    bool
}

// A fact is one line of provenance.
type fact struct{ Name, Value string }

// page writes the whole page. If files is set, the page links to the figures'
// files.
func (s *set) page(w io.Writer, figures []*figure, files bool) error {
	p := page{
		Unit: s.unit, Several: len(s.runs) > 1, Table: s.capacityTable(), Pairs: s.pairs(),
		Figures: map[string][]*figure{}, Mark: s.mark(), Sure: s.sure(),
	}
	names := make([]string, len(s.runs))
	for i, r := range s.runs {
		p.Load = p.Load || !r.measured()
		names[i] = r.vnf()
		p.Headings = append(p.Headings, s.heading(r))
		p.Runs = append(p.Runs, s.runView(r))
	}
	p.Title = strings.Join(slices.Compact(names), ", ")
	for _, f := range figures {
		f.Linked = files
		switch {
		case f.subject == nil:
			p.Figures[f.section] = append(p.Figures[f.section], f)
		case f.section == sectionSearch:
			p.Searches = append(p.Searches, s.searchView(f))
		default:
			p.Times = append(p.Times, timeView{Figure: f, Name: f.subject.name, Open: f.subject.optimal() || len(s.subjects()) == 1})
		}
	}
	p.Sections = s.sectionViews(p.Figures)
	p.Frontier = s.frontierView(p.Figures[sectionFrontier])
	p.Predicted = s.predictionView(p.Figures[sectionPrediction])
	p.Demand = s.demandView(p.Figures[sectionDemand])
	return WritePage(w, pageTemplate, template.FuncMap{
		"number": number, "shortest": shortest, "bytes": byteCount, "percent": percent,
		"ratio": s.ratio, "ms": latencyText, "seconds": func(d time.Duration) string { return shortest(d.Seconds()) },
		"rest": rest,
	}, p)
}

// figures returns all figures of the page, in its order.
func (s *set) figures() []*figure {
	all := s.sectionFigures()
	if len(s.subjects()) > 0 {
		all = append(all, s.successFigures()...)
		all = append(all, s.capacityFigures()...)
		all = append(all, s.frontierFigures()...)
		all = append(all, s.predictionFigures()...)
		all = append(all, s.useFigures()...)
		all = append(all, s.demandFigures()...)
		s.replaySearches()
		all = append(all, s.searchFigures()...)
		all = append(all, s.timeFigures()...)
	}
	taken := map[string]int{}
	mark := s.mark()
	for _, f := range all { // names may differ only in characters that file names cannot have
		f.Mark = mark
		taken[f.Name]++
		if n := taken[f.Name]; n > 1 {
			f.Name += fmt.Sprintf("-%d", n)
		}
	}
	return all
}

func (r *run) vnf() string {
	if r.Summary != nil && r.Summary.VNF != "" {
		return r.Summary.VNF
	}
	return cmp.Or(r.Manifest.VNF, r.name)
}

// finished reports whether the search ended, by itself or because it was stopped.
func (r *run) finished() bool { return r.Summary != nil && r.Summary.StoppedBecause != "" }

// best returns the subject that the summary calls optimal; nil: none.
func (r *run) best() *subject {
	if i := slices.IndexFunc(r.subjects, (*subject).optimal); i >= 0 {
		return r.subjects[i]
	}
	return nil
}

func (s *set) heading(r *run) heading {
	h := heading{Run: r.name, VNF: r.vnf(), Unit: s.unit}
	if !r.Manifest.Started.IsZero() {
		h.When = r.Manifest.Started.Format("2 January 2006, 15:04 MST")
	}
	if r.measured() {
		if r.Manifest.Finished.IsZero() {
			h.Why = "The run is not finished. This page shows the measurements so far."
		}
		return h
	}
	if !r.finished() {
		h.Why = "The run is not finished. This page shows the measurements so far, without a verdict of the search."
		return h
	}
	h.Stopped = r.Summary.StoppedBecause
	x := r.best()
	if x == nil {
		h.Why = "The search did not find a best size."
		return h
	}
	h.Optimal, h.Why = x.sizing, r.Summary.Optimal.Why
	if r.Summary.Partial {
		h.Why = "The best so far, because the search did not end: " + h.Why
	}
	h.Size = sizeText(x.summary)
	h.Capacity, h.Interval = capacityText(x.capacity()), s.headingInterval(x)
	h.Bottleneck = x.summary.Bottleneck
	h.BottleneckTone = s.componentTone(h.Bottleneck).name
	if used, ok := x.summary.Utilization[h.Bottleneck]; ok {
		h.BottleneckUse = fmt.Sprintf("%s used at capacity: %s", r.resourceName(), percent(used))
	}
	return h
}

// headingInterval returns the interval of the best size's capacity, or why it has none, and what else
// is known of that capacity.
func (s *set) headingInterval(x *subject) string {
	c := x.capacity()
	text := fmt.Sprintf("%sinterval %s, at success ratio %s", s.sure(), intervalText(c), shortest(c.Threshold))
	if why := x.unsearched(c.Threshold); why != "" {
		text = fmt.Sprintf("an estimate at success ratio %s, %s", shortest(c.Threshold), why)
	}
	for _, more := range []string{censoredText(c, s.unit), deploymentsText(c, s.unit)} {
		if more != "" {
			text += "; " + more
		}
	}
	return text
}

// sizeText describes the resources of a size and where it ran.
func sizeText(z *result.Sizing) string {
	parts := []string{tidy(z.VCPUs) + " CPUs", byteCount(z.MemoryBytes), z.Substrate, z.Options}
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" || p == missing }), ", ")
}

func (s *set) runView(r *run) runView {
	v := runView{Name: r.name, Specs: r.Manifest.Specs, Isolated: r.Manifest.NotIsolated}
	v.Warnings = s.warnings(r)
	v.Facts = r.facts()
	if r.Summary != nil {
		v.Path = s.path(r)
	}
	v.Trials = r.trialTable()
	return v
}

// mark returns the runs whose figures cannot be compared with others, and why. It is empty if all
// figures can be compared. Every table and figure shows it.
func (s *set) mark() string {
	var which []string
	why := "" // all runs with a mark have the same reason
	for _, r := range s.runs {
		if w := r.Manifest.NotComparable(); w != "" {
			which, why = append(which, r.name), w
		}
	}
	switch len(which) {
	case 0:
		return ""
	case len(s.runs):
		return "not comparable: " + why
	}
	return "not comparable: " + strings.Join(which, ", ") + ": " + why
}

// warnings returns what a reader must know before they trust the numbers.
func (s *set) warnings(r *run) []string {
	list := slices.Clone(r.Warnings)
	list = append(list, r.invalid()...)
	list = append(list, r.ended()...)
	list = append(list, r.heldUp()...)
	for _, why := range []string{r.late(), r.differences(), r.oneDeployment(), r.otherPredictions()} {
		if why != "" {
			list = append(list, why)
		}
	}
	for _, x := range r.subjects {
		open := map[string][]string{} // why -> thresholds
		for _, c := range x.capacities {
			if why := censoredText(c, s.unit); why != "" {
				open[why] = append(open[why], shortest(c.Threshold))
			}
			if kinds := x.kinds(c); kinds != "" {
				list = append(list, kinds)
			}
		}
		for _, why := range slices.Sorted(maps.Keys(open)) {
			list = append(list, fmt.Sprintf("%s: the capacity at success ratio %s was not enclosed: %s", x.name, strings.Join(open[why], " and "), why))
		}
	}
	for _, what := range slices.Sorted(maps.Keys(r.Manifest.Unsupported)) {
		list = append(list, fmt.Sprintf("%s was left out: %s", what, r.Manifest.Unsupported[what]))
	}
	return list
}

// invalid returns how many trials are invalid, by reason. Of many reasons it
// names only the most frequent.
func (r *run) invalid() []string {
	counts := map[string]int{}
	for _, o := range r.Outcomes {
		if !o.Valid {
			counts[cmp.Or(o.Reason, "no reason given")]++
		}
	}
	const most = 6
	var list []string
	rest := 0
	reasons := slices.SortedStableFunc(slices.Values(slices.Sorted(maps.Keys(counts))), func(a, b string) int { return counts[b] - counts[a] })
	for i, reason := range reasons {
		if i >= most {
			rest += counts[reason]
			continue
		}
		list = append(list, fmt.Sprintf("%s invalid and left out of every estimate: %s", trials(counts[reason]), reason))
	}
	if rest > 0 {
		list = append(list, fmt.Sprintf("%s invalid for other reasons; the table of trials has them", trials(rest)))
	}
	return list
}

func trials(n int) string {
	if n == 1 {
		return "1 trial is"
	}
	return fmt.Sprintf("%d trials are", n)
}

func (s *set) path(r *run) []pathView {
	var path []pathView
	step, ratio := 0, ""
	if !r.sameThreshold() {
		ratio = ", at success ratio " + shortest(r.thresholds()[0])
	}
	measured := map[*subject]int{}
	for _, p := range r.Summary.Path {
		v := pathView{Sizing: p.Sizing, Why: p.Why}
		if p.Sizing != "" {
			step++
			v.Step = step
			v.Sizing = strings.TrimSpace(result.Label(p.Substrate, p.Options, p.Sizing))
		}
		if x := r.of(p); x != nil {
			z := x.entries[min(measured[x], len(x.entries)-1)]
			measured[x]++
			v.Capacity, v.Interval = capacityText(z.Capacity), intervalText(z.Capacity)
			if z.Unfinished != "" {
				v.Interval = notEnded
			}
			v.Interval += ratio
			v.Bottleneck = z.Bottleneck
			v.Tone = s.componentTone(z.Bottleneck).name
			v.Optimal = z == r.Summary.Best()
		}
		if c := p.Predicted; c != nil {
			v.Predicted = fmt.Sprintf("%s, %s", number(c.Rate), intervalText(*c)) + ratio
		}
		path = append(path, v)
	}
	return path
}

// unread returns why a component's use at capacity is not known.
func (s *subject) unread(component string) string {
	p := rate.At(s.outcomes, s.capacity())
	if p.Capacity == nil {
		return "no valid trial"
	}
	seen := false
	for _, instance := range slices.Sorted(maps.Keys(p.Capacity.Use)) {
		u := p.Capacity.Use[instance]
		if u.Component != component {
			continue
		}
		seen = true
		if why := u.Missing[s.run.resource()]; why != "" {
			return why
		}
		if u.CPU != nil && u.VCPUs <= 0 && s.run.resource() == vitrine.CPU {
			return "it has no limit"
		}
	}
	if !seen {
		return "it was not monitored"
	}
	return "it was not read"
}

func (r *run) resource() string {
	if r.Summary != nil && r.Summary.ScaleOn != "" {
		return r.Summary.ScaleOn
	}
	return vitrine.CPU
}
