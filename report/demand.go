package report

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/gonum/stat/distuv"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"vitrine"
	"vitrine/result"
	"vitrine/search/rate"
)

const (
	mostPanels   = 6 // sizes in one figure of CPU per call
	panelColumns = 3
)

// A demandView is the section of CPU per call.
type demandView struct {
	Threshold float64
	Figures   []*figure // the page shows the first; the others are folded
	Rows      []demandRow
	Notes     []string // components without a line, and why
}

// A demandRow is one component in one size.
type demandRow struct {
	Name      string
	Optimal   bool
	Tone      string
	Component string
	PerCall   measuredCell // ms
	Idle      measuredCell // CPUs
	R2        measuredCell
	R2Medians measuredCell
	Trials    int
}

// A panel is the CPU of each of a subject's components against the rate.
type panel struct {
	*subject
	lines []demandLine
}

// A demandLine is a component's trials and the line through them.
type demandLine struct {
	rate.Demand
	points plotter.XYs // succeeded per second, CPUs
}

// demands fits lines through the subject's trials that met the report's first
// threshold, in the order of the report's components. flat names the components whose
// line does not rise by more than chance.
func (s *subject) demands() (lines []demandLine, flat []string) {
	for _, d := range rate.Demands(s.outcomes, s.run.set.thresholds[0]) {
		line := demandLine{Demand: d}
		if !line.rises() {
			flat = append(flat, d.Component)
			continue
		}
		for i := range d.Rates {
			line.points = append(line.points, plotter.XY{X: d.Rates[i], Y: d.CPUs[i]})
		}
		lines = append(lines, line)
	}
	slices.SortStableFunc(lines, func(a, b demandLine) int {
		return cmp.Compare(s.run.set.rank(a.Component), s.run.set.rank(b.Component))
	})
	return lines, flat
}

// A CallCost is one component's CPU per call in one size.
type CallCost struct {
	Sizing    string  `json:"sizing"`
	Component string  `json:"component"`
	PerCall   float64 `json:"per_call"` // CPU-seconds
	Idle      float64 `json:"idle"`     // CPUs
}

// CallCosts returns what the page of a run shows under CPU per call, in the same order.
func CallCosts(d *result.Data) (all []CallCost, err error) {
	s, err := newSet([]*result.Data{d})
	if err != nil {
		return nil, err
	}
	for _, x := range s.ranked() {
		lines, _ := x.demands()
		for _, l := range lines {
			all = append(all, CallCost{x.name, l.Component, l.PerCall, l.Idle})
		}
	}
	return all, nil
}

// rises reports whether the one-sided 95% bound of the slope (Student's t) is above 0.
// Otherwise the work of a call is unknown.
func (l demandLine) rises() bool {
	freedom := float64(len(l.Rates) - 2)
	t := distuv.StudentsT{Sigma: 1, Nu: freedom}.Quantile(0.95)
	return l.PerCall > 0 && l.R2*freedom > t*t*(1-l.R2) // slope / its standard error = √(R² · freedom / (1 - R²))
}

// demandFigures returns figures of CPU against the accepted rate, with a panel
// per size, the highest capacity first. Sizes without any line have no panel.
func (s *set) demandFigures() []*figure {
	var panels []panel
	for _, x := range s.ranked() {
		if lines, _ := x.demands(); len(lines) > 0 {
			panels = append(panels, panel{x, lines})
		}
	}
	var figures []*figure
	for part := range slices.Chunk(panels, mostPanels) {
		names := make([]string, len(part))
		for i, x := range part {
			names[i] = x.name
		}
		rows := (len(part) + panelColumns - 1) / panelColumns
		figures = append(figures, &figure{
			Name: "demand", title: "CPU per call", section: sectionDemand, Shows: strings.Join(names, ", "),
			width: figureWidth, height: vg.Length(titleHeight + 60 + 235*rows),
			alt: "CPU of each component against the rate that succeeded, with its fitted line, for " + strings.Join(names, ", ") +
				"; the table below has the lines' numbers.",
			Caption: fmt.Sprintf("Each mark is a component in a valid trial with a success ratio of at least %s: the CPU of all its instances against the calls that succeeded per second. "+
				"The slope of a line is the work per call. Its value without load is idle work. A mark far from its line means that the component waits (timers, sleeps, queues) instead of working. "+
				"A trial in which one of the component's instances was at its CPU quota has no mark, because CPU does not show the load there.",
				shortest(s.thresholds[0])),
			draw: func(c draw.Canvas, t *tips) error { return s.drawDemand(c, t, part) },
		})
	}
	return numbered(figures)
}

func (s *set) drawDemand(c draw.Canvas, t *tips, panels []panel) error {
	c = withLegend(c, s.demandKeys(panels))
	mostRate, mostCPU := 0.0, 0.0 // all panels have one scale, so that slopes can be compared
	for _, x := range panels {
		for _, l := range x.lines {
			for _, p := range l.points {
				mostRate, mostCPU = max(mostRate, p.X), max(mostCPU, p.Y)
			}
		}
	}
	columns := min(panelColumns, len(panels))
	tiles := draw.Tiles{Rows: (len(panels) + columns - 1) / columns, Cols: columns, PadX: 16, PadY: 34, PadTop: 26}
	plots := make([][]*plot.Plot, tiles.Rows)
	for i := range plots {
		plots[i] = make([]*plot.Plot, columns)
	}
	for i, x := range panels {
		p := newPlot("", "")
		if i%columns == 0 {
			p.Y.Label.Text = "CPUs"
		}
		if i+columns >= len(panels) {
			p.X.Label.Text = "succeeded, " + s.unit
		}
		p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, mostRate*1.05, 0, max(mostCPU*1.08, 1e-3)
		p.Add(thinGrid(true, true))
		if err := s.addDemand(p, x); err != nil {
			return err
		}
		plots[i/columns][i%columns] = p
	}
	canvases := plot.Align(plots, tiles, c)
	for i, x := range panels {
		p, canvas := plots[i/columns][i%columns], canvases[i/columns][i%columns]
		p.Draw(canvas)
		s.labelPanel(p, p.DataCanvas(canvas), x, t)
	}
	return nil
}

// addDemand draws each component's marks and line. The line is dotted below the
// lowest rate that was measured.
func (s *set) addDemand(p *plot.Plot, x panel) error {
	for _, l := range x.lines {
		from, to := l.span()
		for _, part := range []struct {
			from, to float64
			width    vg.Length
			dash     []vg.Length
		}{{0, from, 1, []vg.Length{1.5, 2.5}}, {from, to, 1.7, nil}} {
			line, err := newLine(s.componentTone(l.Component), part.width, part.dash,
				plotter.XYs{{X: part.from, Y: l.at(part.from)}, {X: part.to, Y: l.at(part.to)}})
			if err != nil {
				return err
			}
			p.Add(line)
		}
		marks, err := plotter.NewScatter(l.points)
		if err != nil {
			return err
		}
		marks.GlyphStyle = s.demandMark(l.Component)
		p.Add(marks)
	}
	return nil
}

// demandMark returns the component's mark: its colour, and a shape that colour-blind readers can
// distinguish.
func (s *set) demandMark(component string) draw.GlyphStyle {
	return draw.GlyphStyle{Color: s.componentTone(component).color(), Radius: 2.8, Shape: glyphs()[s.rank(component)%len(glyphs())]}
}

// labelPanel writes the panel's name above it, and adds the numbers of its lines as
// tips.
func (s *set) labelPanel(p *plot.Plot, area draw.Canvas, x panel, t *tips) {
	style := sans(ink(), 12, false)
	style.YAlign = draw.YBottom
	name := []rune(x.name)
	for len(name) > 1 && style.Width(string(name)) > area.Size().X {
		name = append(name[:len(name)-2], '…')
	}
	area.FillText(style, vg.Point{X: area.Min.X, Y: area.Max.Y + 9}, string(name))
	px, py := p.Transforms(&area)
	for _, l := range x.lines {
		_, to := l.span()
		t.add(px(to), py(l.at(to)), "%s, %s: %s ms of CPU per call, idle %s CPU, R² %s, %d trials",
			x.name, l.Component, millis(l.PerCall), cpuText(l.Idle), l.fit(), len(l.Rates))
	}
}

// demandKeys returns the legend of the components that the panels show.
func (s *set) demandKeys(panels []panel) []key {
	shown := map[string]bool{}
	for _, x := range panels {
		for _, l := range x.lines {
			shown[l.Component] = true
		}
	}
	var keys []key
	for _, name := range s.components {
		if !shown[name] {
			continue
		}
		line := lineKey(name, s.componentTone(name), 1.7, nil)
		line.thumb = append(line.thumb, glyphThumb(s.demandMark(name)))
		keys = append(keys, line)
	}
	return keys
}

// at returns the line's CPUs at a rate.
func (l demandLine) at(rate float64) float64 { return l.Idle + l.PerCall*rate }

// span returns the lowest and the highest rate among the line's trials.
func (l demandLine) span() (low, high float64) {
	low = math.Inf(1)
	for _, p := range l.points {
		low, high = min(low, p.X), max(high, p.X)
	}
	return low, high
}

// fit returns R squared.
func (l demandLine) fit() string {
	return strconv.FormatFloat(l.R2, 'f', 3, 64)
}

// fitMedians returns R squared of the medians.
func (l demandLine) fitMedians() string {
	if math.IsNaN(l.R2Medians) {
		return missing
	}
	return strconv.FormatFloat(l.R2Medians, 'f', 3, 64)
}

// millis formats CPU-seconds as milliseconds, to three digits.
func millis(seconds float64) string {
	ms := seconds * 1000
	if math.Abs(ms) < 1e-6 {
		return "0"
	}
	digits := 2 - int(math.Floor(math.Log10(math.Abs(ms))))
	return strconv.FormatFloat(ms, 'f', min(max(digits, 0), 6), 64)
}

// sortable formats a number with enough digits to sort rows by.
func sortable(v float64) string {
	if math.IsNaN(v) {
		return ""
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}

// cpuText formats CPUs to a thousandth.
func cpuText(cpus float64) string {
	return strconv.FormatFloat(math.Round(cpus*1000)/1000+0, 'f', 3, 64) // + 0: no -0
}

// demandView returns a row for every line, the highest capacity first, and notes
// for components without a line.
func (s *set) demandView(figures []*figure) demandView {
	v := demandView{Threshold: s.thresholds[0], Figures: figures}
	var reasons []string
	without := map[string][]string{} // why -> what
	note := func(why, what string) {
		index(&reasons, why)
		without[why] = append(without[why], what)
	}
	for _, x := range s.ranked() {
		lines, flat := x.demands()
		for _, l := range lines {
			v.Rows = append(v.Rows, demandRow{
				Name: x.name, Optimal: x.optimal(), Tone: s.componentTone(l.Component).name, Component: l.Component, Trials: len(l.Rates),
				PerCall: measuredCell{millis(l.PerCall), sortable(l.PerCall)}, Idle: measuredCell{cpuText(l.Idle), sortable(l.Idle)},
				R2: measuredCell{l.fit(), sortable(l.R2)}, R2Medians: measuredCell{l.fitMedians(), sortable(l.R2Medians)},
			})
		}
		if len(lines)+len(flat) == 0 && x.cpuUnread("") == "" && x.atQuota("") == "" {
			note(s.tooFew(), x.name)
			continue
		}
		for _, name := range x.components() {
			switch {
			case slices.Contains(flat, name):
				note("CPU per call is not known, because the rates of the trials are too close to tell it from chance", x.name+" "+name)
			case !slices.ContainsFunc(lines, func(l demandLine) bool { return l.Component == name }):
				note(cmp.Or(x.cpuUnread(name), x.atQuota(name), s.tooFew()), x.name+" "+name)
			}
		}
	}
	for _, why := range reasons {
		v.Notes = append(v.Notes, fmt.Sprintf("%s: %s.", why, strings.Join(without[why], ", ")))
	}
	return v
}

func (s *set) tooFew() string {
	return fmt.Sprintf("Too few valid trials with a success ratio of at least %s, or too few different rates among them, to draw a line through", shortest(s.thresholds[0]))
}

// components returns the components of the function that the subject's trials
// name.
func (s *subject) components() []string {
	var names []string
	for _, o := range s.outcomes {
		for _, u := range o.Use {
			if u.Component != vitrine.Generator {
				index(&names, u.Component)
			}
		}
	}
	slices.Sort(names)
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(s.run.set.rank(a), s.run.set.rank(b)) })
	return names
}

// cpuUnread returns why the CPU of a component is unknown in a trial that a line would use; ""
// stands for any component. The result is empty if the CPU is known in all of these trials.
func (s *subject) cpuUnread(component string) string {
	for _, o := range s.outcomes {
		if !o.Valid || o.SuccessRatio() < s.run.set.thresholds[0] {
			continue
		}
		for _, instance := range slices.Sorted(maps.Keys(o.Use)) {
			if u := o.Use[instance]; u.CPU == nil && u.Component != vitrine.Generator && (component == "" || u.Component == component) {
				return "CPU was not read (" + cmp.Or(u.Missing[vitrine.CPU], "no reason given") + ")"
			}
		}
	}
	return ""
}

// fullQuota is the share of its quota at which an instance counts as at its quota, as in
// rate.Demands.
const fullQuota = 0.9

// atQuota returns in how many of the trials that a line could use an instance of the component was
// at its quota; "" stands for any component. rate.Demands leaves out these trials. The result is
// empty if there are none.
func (s *subject) atQuota(component string) string {
	full, all := 0, 0
	for _, o := range s.outcomes {
		if !o.Valid || o.SuccessRatio() < s.run.set.thresholds[0] {
			continue
		}
		all++
		for _, u := range o.Use {
			if u.Component != vitrine.Generator && (component == "" || u.Component == component) &&
				u.CPU != nil && u.VCPUs > 0 && *u.CPU >= fullQuota*u.VCPUs {
				full++
				break
			}
		}
	}
	if full == 0 {
		return ""
	}
	return fmt.Sprintf("At its CPU quota in %d of the %d valid trials with a success ratio of at least %s, which leaves too few to draw a line through",
		full, all, shortest(s.run.set.thresholds[0]))
}
