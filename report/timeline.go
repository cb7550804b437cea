package report

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"regexp"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"vitrine"
	"vitrine/result"
	"vitrine/search/rate"
)

// A moment is one trial over time, at one of three levels of load.
type moment struct {
	level   string // "underload", "capacity", "overload"
	outcome *vitrine.Outcome
	why     string // why outcome is nil, or has no samples
	series  []series
}

// A series is the CPU of one instance over the window.
type series struct {
	instance, component string
	given               float64     // CPUs that count as 100%
	quota               bool        // given is its quota
	points              plotter.XYs // seconds, percent
}

// timeFigures returns figures of success and CPU over time at underload, capacity
// and overload (NFV-VITAL's figure 2), one per size.
func (s *set) timeFigures() []*figure {
	var figures []*figure
	for _, x := range s.subjects() {
		points := rate.At(x.outcomes, x.capacity())
		moments := []moment{
			{level: "underload", outcome: points.Underload, why: "no valid trial below the capacity"},
			{level: "capacity", outcome: points.Capacity, why: "no valid trial"},
			{level: "overload", outcome: points.Overload, why: "no valid trial that failed above the capacity"},
		}
		for i := range moments {
			x.sample(&moments[i])
		}
		figures = append(figures, &figure{
			Name: "time-" + slug(x.name), title: x.name + " over time", section: sectionTime, subject: x,
			width: figureWidth, height: 500,
			alt: fmt.Sprintf("Calls that succeeded in each second, and CPU of every instance, during one trial of %s at underload, at capacity and at overload.", x.name),
			Caption: "One trial at each level of load; of several trials, the one with the median success. Above: the calls due in each second, and those of them that succeeded. " +
				cpuCaption(moments),
			draw: func(c draw.Canvas, t *tips) error { return s.drawTime(c, t, moments) },
		})
	}
	return figures
}

var notSlug = regexp.MustCompile(`[^A-Za-z0-9.=_-]+`)

// slug turns a name into a file name.
func slug(name string) string {
	return strings.Trim(notSlug.ReplaceAllString(name, "-"), "-.")
}

// cpuCaption explains the percentages of the lower plots.
func cpuCaption(moments []moment) string {
	quota, free, generator := false, false, false
	for _, m := range moments {
		for _, x := range m.series {
			quota = quota || x.quota
			free = free || !x.quota && !x.ofGenerator()
			generator = generator || x.ofGenerator()
		}
	}
	text := "Below: CPU of every instance, one colour per component"
	switch {
	case quota && free:
		text += ", as a share of the instance's quota, or of one CPU if it has no limit."
	case quota:
		text += ", as a share of the instance's quota."
	case free:
		text += ", as a share of one CPU, because the instances have no limit."
	default:
		text += "."
	}
	if quota {
		text += " At 100%, the dashed line, an instance uses its whole quota. A short sample can be slightly higher, because the quota applies to whole periods."
	}
	if generator {
		text += " The thin grey line is the load generator, as a share of the CPUs reserved for it, because it has no quota."
	}
	return text
}

// cpuLabel is a short form of cpuCaption.
func cpuLabel(moments []moment) string {
	for _, m := range moments {
		if slices.ContainsFunc(m.series, func(x series) bool { return x.quota }) {
			return "CPU, % of its quota"
		}
	}
	return "CPU, % of one CPU"
}

// ofGenerator reports whether the series is of the load generator.
func (x series) ofGenerator() bool { return x.instance == vitrine.Generator }

// newSeries returns a series without points. Its 100% is the instance's quota. For the generator
// it is the CPUs reserved for it, and otherwise one CPU.
func (s *subject) newSeries(instance string, use vitrine.Use) series {
	x := series{instance: instance, component: use.Component, given: 1}
	switch {
	case use.VCPUs > 0:
		x.given, x.quota = use.VCPUs, true
	case x.ofGenerator():
		x.given = max(1, float64(len(s.run.Manifest.CPUs.Generator)))
	}
	return x
}

// label returns the series' name. If 100% is not the quota, it adds what 100% means.
func (x series) label(name string) string {
	if x.quota {
		return name
	}
	return fmt.Sprintf("%s (of %s CPU)", name, tidy(x.given))
}

// sample reads the CPU of the instances inside the trial's window.
func (s *subject) sample(m *moment) {
	if m.outcome == nil {
		return
	}
	end := m.outcome.Duration.Seconds()
	at := map[string]int{}
	unread := ""
	err := s.run.Usage(m.outcome.Key, func(x result.Sample) error {
		use, known := m.outcome.Use[x.Instance]
		if x.Component == result.HostComponent || !known || x.Time < 0 || x.Time > end {
			return nil
		}
		if x.CPU == nil {
			unread = cmp.Or(unread, x.Missing)
			return nil
		}
		i, ok := at[x.Instance]
		if !ok {
			i = len(m.series)
			at[x.Instance] = i
			m.series = append(m.series, s.newSeries(x.Instance, use))
		}
		y := &m.series[i]
		y.points = append(y.points, plotter.XY{X: x.Time, Y: *x.CPU / y.given * 100})
		return nil
	})
	switch {
	case errors.Is(err, fs.ErrNotExist):
		m.why = "no samples were kept of this trial"
	case err != nil:
		m.why = "samples not readable: " + err.Error()
	case !m.watched():
		m.why = "CPU was not read"
		if unread != "" {
			m.why += ": " + unread
		}
	}
	m.why = plain(m.why)
	slices.SortFunc(m.series, func(a, b series) int { return cmp.Compare(a.instance, b.instance) })
	for i := range m.series {
		m.series[i].points = thin(m.series[i].points)
	}
}

// thin averages points, so that a line has no more points than a reader can see.
func thin(points plotter.XYs) plotter.XYs {
	const most = 120
	per := (len(points) + most - 1) / most
	if per <= 1 {
		return points
	}
	thinned := make(plotter.XYs, 0, most)
	for part := range slices.Chunk(points, per) {
		var mean plotter.XY
		for _, p := range part {
			mean.X += p.X / float64(len(part))
			mean.Y += p.Y / float64(len(part))
		}
		thinned = append(thinned, mean)
	}
	return thinned
}

func (s *set) drawTime(c draw.Canvas, t *tips, moments []moment) error {
	c = withLegend(c, s.timeKeys(moments))
	plots := [][]*plot.Plot{make([]*plot.Plot, len(moments)), make([]*plot.Plot, len(moments))}
	mostCalls, mostCPU, end := 1.0, 100.0, 1.0
	for _, m := range moments {
		mostCalls, mostCPU = max(mostCalls, m.mostCalls()), max(mostCPU, m.mostCPU())
		if m.outcome != nil {
			end = max(end, m.outcome.Duration.Seconds())
		}
	}
	for i, m := range moments {
		calls, cpu := newPlot("", ""), newPlot("seconds", "")
		calls.Y.Min, calls.Y.Max = 0, mostCalls*1.05
		cpu.Y.Min, cpu.Y.Max = 0, mostCPU*1.05
		if i == 0 {
			calls.Y.Label.Text, cpu.Y.Label.Text = s.unit, cpuLabel(moments)
		}
		for _, p := range []*plot.Plot{calls, cpu} {
			p.X.Min, p.X.Max = 0, end
			p.Add(thinGrid(false, true))
		}
		if err := errors.Join(s.addCalls(calls, m), s.addCPU(cpu, m)); err != nil {
			return err
		}
		plots[0][i], plots[1][i] = calls, cpu
	}
	tiles := draw.Tiles{Rows: 2, Cols: len(moments), PadX: 14, PadY: 14, PadTop: 26}
	for j, row := range plot.Align(plots, tiles, c) {
		for i, canvas := range row {
			plots[j][i].Draw(canvas)
			if j == 0 {
				area := plots[j][i].DataCanvas(canvas)
				s.headline(area, moments[i], t)
			}
		}
	}
	return nil
}

// headline names a column above its upper plot.
func (s *set) headline(area draw.Canvas, m moment, t *tips) {
	style := sans(ink(), 12, false)
	style.YAlign = draw.YBottom
	at := vg.Point{X: area.Min.X, Y: area.Max.Y + 9}
	what := m.level
	if m.outcome != nil {
		what += fmt.Sprintf(": %s %s, ratio %s", number(m.outcome.Rate), s.unit, s.ratio(*m.outcome))
		t.add(at.X, at.Y+4, "trial %d, repeat %d", m.outcome.Seq, m.outcome.Repeat)
	}
	area.FillText(style, at, what)
}

// calls returns the calls due, and those of them that succeeded, per second. The last second of the
// window may be incomplete, so each count is divided by the length of its part.
func (m moment) calls() (due, succeeded plotter.XYs) {
	if m.outcome == nil {
		return nil, nil
	}
	for i, x := range m.outcome.Seconds {
		begin, end := float64(i), min(float64(i+1), m.outcome.Duration.Seconds())
		if end <= begin {
			break
		}
		a, b := float64(x.Scheduled)/(end-begin), float64(x.Succeeded)/(end-begin)
		due = append(due, plotter.XY{X: begin, Y: a}, plotter.XY{X: end, Y: a})
		succeeded = append(succeeded, plotter.XY{X: begin, Y: b}, plotter.XY{X: end, Y: b})
	}
	return due, succeeded
}

func (m moment) mostCalls() float64 {
	most := 0.0
	due, succeeded := m.calls()
	for i := range due {
		most = max(most, due[i].Y, succeeded[i].Y)
	}
	return most
}

func (m moment) mostCPU() float64 {
	most := 0.0
	for _, x := range m.series {
		for _, p := range x.points {
			most = max(most, p.Y)
		}
	}
	return most
}

// addCalls draws calls due and calls that succeeded.
func (s *set) addCalls(p *plot.Plot, m moment) error {
	if m.outcome == nil {
		writeNote(p, m.why)
		return nil
	}
	due, succeeded := m.calls()
	if len(due) == 0 {
		writeNote(p, "the generator reported no seconds")
		return nil
	}
	dueLine, err := newLine(muted(), 1.1, []vg.Length{6, 3}, due)
	if err != nil {
		return err
	}
	line, err := newLine(ink(), 1.7, nil, succeeded)
	if err != nil {
		return err
	}
	p.Add(dueLine, line)
	return nil
}

func (s *set) addCPU(p *plot.Plot, m moment) error {
	if m.outcome == nil {
		return nil // addCalls says why
	}
	if !m.watched() {
		writeNote(p, m.why)
	}
	if slices.ContainsFunc(m.series, func(x series) bool { return x.quota }) {
		all, err := newLine(rule(), 0.9, []vg.Length{6, 3}, plotter.XYs{{X: p.X.Min, Y: 100}, {X: p.X.Max, Y: 100}})
		if err != nil {
			return err
		}
		p.Add(all)
	}
	nth := map[string]int{}
	for _, x := range m.series {
		width, dash := vg.Length(1.4), s.seriesDash(x, nth[x.component])
		if x.ofGenerator() {
			width, dash = generatorWidth, nil
		}
		line, err := newLine(s.seriesTone(x), width, dash, x.points)
		if err != nil {
			return err
		}
		nth[x.component]++
		p.Add(line)
	}
	return nil
}

// generatorWidth is thin, because the generator matters only when it is the limit.
const generatorWidth = 0.8

func (s *set) seriesTone(x series) tone {
	if x.ofGenerator() {
		return muted()
	}
	return s.componentTone(x.component)
}

// seriesDash returns the dash of a component's nth instance. Components of one tone begin at different dashes.
func (s *set) seriesDash(x series, nth int) []vg.Length {
	return dashes(nth + s.rank(x.component)/len(componentTones()))
}

// watched reports whether the CPU of any of the function's instances was read.
func (m moment) watched() bool {
	return slices.ContainsFunc(m.series, func(x series) bool { return !x.ofGenerator() })
}

// writeNote writes a text into an empty plot, in at most four lines and an ellipsis.
func writeNote(p *plot.Plot, what string) {
	const width = 34
	var lines []string
	line := ""
	for _, word := range strings.Fields(what) {
		if line != "" && len(line)+len(word) >= width {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimSpace(line + " " + word)
	}
	lines = append(lines, line)
	if len(lines) > 4 {
		lines = append(lines[:4], "…")
	}
	var at plotter.XYs
	for i := range lines {
		at = append(at, plotter.XY{X: p.X.Min, Y: p.Y.Min + (p.Y.Max-p.Y.Min)*(0.6-0.1*float64(i))})
	}
	p.Add(labels(at, lines, sans(muted(), 11, false), vg.Point{X: 10}))
}

// timeKeys returns the legend: the lines of calls and every instance, or every
// component when there are too many instances to name.
func (s *set) timeKeys(moments []moment) []key {
	keys := []key{lineKey("due", muted(), 1.7, []vg.Length{6, 3}), lineKey("succeeded", ink(), 1.7, nil)}
	var all []series
	for _, m := range moments {
		for _, x := range m.series {
			if !slices.ContainsFunc(all, func(y series) bool { return y.instance == x.instance }) {
				all = append(all, x)
			}
		}
	}
	rank := func(x series) int {
		if x.ofGenerator() {
			return math.MaxInt
		}
		return s.rank(x.component)
	}
	slices.SortFunc(all, func(a, b series) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.instance, b.instance))
	})
	const most = 18
	nth := map[string]int{}
	for _, x := range all {
		n := nth[x.component]
		nth[x.component]++
		switch {
		case x.ofGenerator():
			keys = append(keys, lineKey(x.label(x.instance), muted(), generatorWidth, nil))
		case len(all) <= most:
			keys = append(keys, lineKey(x.label(x.instance), s.seriesTone(x), 1.7, s.seriesDash(x, n)))
		case n == 0:
			keys = append(keys, lineKey(x.label(x.component), s.seriesTone(x), 1.7, s.seriesDash(x, n)))
		}
	}
	return keys
}
