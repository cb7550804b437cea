package report

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"vitrine"
)

// mostRows is the most sizes in one figure of rows.
const mostRows = 40

// capacityFigures returns figures of every size's capacity with its interval, the highest first,
// which makes ties visible.
func (s *set) capacityFigures() []*figure {
	ranked := s.ranked()
	most := 0.0
	for _, x := range ranked {
		most = max(most, s.reach(x))
	}
	var figures []*figure
	for i := 0; i < len(ranked); i += mostRows {
		rows := ranked[i:min(i+mostRows, len(ranked))]
		f := &figure{
			Name: "capacity", title: "Capacity with " + s.sure() + "interval", section: sectionCapacity,
			width: figureWidth, height: vg.Length(titleHeight + 74 + 26*len(rows)),
			alt: "Capacity and its interval for every size; the table below has the same numbers.",
			Caption: fmt.Sprintf("Filled marks: success ratio at least %s; hollow: the lower thresholds. These trials do not distinguish sizes "+
				"whose bars overlap. An arrow means that the capacity was not enclosed and lies further that way.", shortest(s.thresholds[0])),
			draw: func(c draw.Canvas, t *tips) error { return s.drawCapacity(c, t, rows, most) },
		}
		if len(ranked) > mostRows {
			f.Name = fmt.Sprintf("capacity-%d", i/mostRows+1)
		}
		figures = append(figures, f)
	}
	return figures
}

// reach returns the highest finite number that the subject's row shows.
func (s *set) reach(x *subject) float64 {
	most := 0.0
	for _, threshold := range s.thresholds {
		c := x.at(threshold)
		most = max(most, c.Rate, c.High)
	}
	return most
}

func (s *set) drawCapacity(c draw.Canvas, t *tips, rows []*subject, most float64) error {
	p := newPlot("capacity, "+s.unit, "")
	p.X.Min, p.X.Max = 0, max(most, 1)*1.1
	nameSizes(p, rows)
	p.Add(thinGrid(true, false), &rangesPlotter{set: s, rows: rows, tips: t})
	p.Draw(c)
	return nil
}

// nameSizes gives each subject a row.
func nameSizes(p *plot.Plot, rows []*subject) {
	names := make([]string, len(rows))
	for i, x := range rows {
		names[i] = x.name
		if x.summary != nil {
			names[i] += fmt.Sprintf(" · %s CPU", tidy(x.summary.VCPUs))
		}
	}
	nameRows(p, names)
}

// nameRows gives each name a row, the first at the top.
func nameRows(p *plot.Plot, names []string) {
	rows := make(plot.ConstantTicks, len(names))
	for i, name := range names {
		rows[i] = plot.Tick{Value: rowAt(i, len(names)), Label: name}
	}
	p.Y.Tick.Marker = rows
	p.Y.Tick.Length = 0
	p.Y.Tick.Label.Color = ink().color()
	p.Y.Min, p.Y.Max = -0.6, float64(len(rows))-0.4
	p.Y.Width = 0
}

func rowAt(i, of int) float64 { return float64(of - 1 - i) }

// A rangesPlotter draws a row of intervals for each subject.
type rangesPlotter struct {
	set  *set
	rows []*subject
	tips *tips
}

func (r *rangesPlotter) Plot(c draw.Canvas, p *plot.Plot) {
	_, y := p.Transforms(&c)
	for i, x := range r.rows {
		level := y(rowAt(i, len(r.rows)))
		for k := len(r.set.thresholds) - 1; k >= 0; k-- {
			r.drawRange(c, p, x, x.at(r.set.thresholds[k]), level-vg.Length(k)*5, k > 0)
		}
	}
}

func (r *rangesPlotter) drawRange(c draw.Canvas, p *plot.Plot, s *subject, capacity vitrine.Capacity, y vg.Length, minor bool) {
	x, _ := p.Transforms(&c)
	paint, width, radius := componentTones()[0], vg.Length(3), vg.Length(4.5)
	var glyph draw.GlyphDrawer = draw.CircleGlyph{}
	if minor {
		paint, width, radius, glyph = muted(), 1.2, 3, draw.RingGlyph{}
	}
	why := s.unsearched(capacity.Threshold)
	if capacity.Unmeasured() {
		why = "not measured: no valid trial"
	}
	if why != "" {
		if !minor {
			c.FillText(sans(muted(), 11, false), vg.Point{X: x(0) + 6, Y: y}, why)
		}
		return
	}
	low, high := capacity.Bounds()
	left, right := x(low), x(min(high, p.X.Max))
	c.StrokeLine2(stroke(paint, width), left, y, right, y)
	switch {
	case math.IsInf(high, 1):
		arrow(c, paint, right, y, 7)
	case capacity.Censored == vitrine.CensoredBelow:
		arrow(c, paint, left, y, -7)
	}
	at := vg.Point{X: x(capacity.Rate), Y: y}
	c.DrawGlyph(draw.GlyphStyle{Color: card().color(), Radius: radius, Shape: draw.CircleGlyph{}}, at)
	c.DrawGlyph(draw.GlyphStyle{Color: paint.color(), Radius: radius, Shape: glyph}, at)
	r.tips.add(x(capacity.Rate), y, "%s: %s %s at success ratio %s, %sinterval %s", s.name, capacityText(capacity), r.set.unit, shortest(capacity.Threshold), r.set.sure(), intervalText(capacity))
}

// arrow draws an arrow head of the given length at the point; it points left when
// the length is negative.
func arrow(c draw.Canvas, t tone, x, y, length vg.Length) {
	half := vg.Length(math.Abs(float64(length))) * 0.7
	c.FillPolygon(t.color(), []vg.Point{{X: x, Y: y + half}, {X: x + length, Y: y}, {X: x, Y: y - half}})
}

const (
	barStep  = 13 // points from one component's bar to the next
	barWidth = 10
)

// useFigures returns figures of each component's use of its run's resource at capacity.
func (s *set) useFigures() []*figure {
	var rows []*subject
	for _, x := range s.ranked() {
		if x.summary != nil {
			rows = append(rows, x)
		}
	}
	if len(rows) == 0 {
		return nil
	}
	const most = 12
	var figures []*figure
	for part := range slices.Chunk(rows, most) {
		bars := max(1, len(s.shownComponents(part)))
		axis, what := useTexts(part)
		figures = append(figures, &figure{
			Name: "use", title: "Use per component at capacity", section: sectionUse,
			width: figureWidth, height: vg.Length(titleHeight + 74 + len(part)*(bars*barStep+16)),
			alt: "For every size, the use of each component at the size's capacity, in " + axis + "; the table of capacities names the bottlenecks.",
			Caption: what + ", in the trials at the highest rate that passed. " +
				"The bottleneck is marked: the next larger size must grow this component.",
			draw: func(c draw.Canvas, t *tips) error { return s.drawUse(c, t, part, axis) },
		})
	}
	return numbered(figures)
}

// traffic is the resource of runs that scale on the network.
const traffic = "Share of the traffic"

// resourceName returns the resource of the run's utilization, capitalized for the start of a sentence.
func (r *run) resourceName() string {
	switch r.resource() {
	case vitrine.Memory:
		return "Memory"
	case vitrine.Network:
		return traffic
	}
	return "CPU"
}

// resourceNames returns the resource of the sizes' utilization. Runs may scale on different ones.
func resourceNames(rows []*subject) string {
	name := rows[0].run.resourceName()
	for _, x := range rows {
		if x.run.resourceName() != name {
			return "The resource of each run's scale_on"
		}
	}
	return name
}

// useTexts returns the axis and the beginning of the caption of a figure of use. The network has no
// limit, so a component's use of it is a share of all traffic.
func useTexts(rows []*subject) (axis, caption string) {
	name := resourceNames(rows)
	if name == traffic {
		return "% of the traffic of all components", "Bytes that a component's mean instance received and sent, as a share of the sum over all components"
	}
	return "% of what it may use", name + " that a component's instances used, as a share of what they may use"
}

// shownComponents returns the components that are scalable or have a known use in any of the
// sizes.
func (s *set) shownComponents(rows []*subject) []string {
	scalable := map[string]bool{}
	for _, r := range s.runs {
		for _, c := range r.Manifest.Components {
			scalable[c.Name] = c.Scalable
		}
	}
	var names []string
	for _, name := range s.components {
		shown := scalable[name]
		for _, x := range rows {
			_, used := x.summary.Utilization[name]
			shown = shown || used
		}
		if shown {
			names = append(names, name)
		}
	}
	return names
}

func (s *set) drawUse(c draw.Canvas, t *tips, rows []*subject, axis string) error {
	p := newPlot(axis, "")
	p.X.Min, p.X.Max = 0, 100
	components := s.shownComponents(rows)
	for _, x := range rows {
		for _, u := range x.summary.Utilization {
			p.X.Max = max(p.X.Max, u*100*1.05)
		}
	}
	nameSizes(p, rows)
	bars := &barsPlotter{set: s, rows: rows, components: components, tips: t}
	p.Add(thinGrid(true, false), bars)
	var keys []key
	for _, name := range components {
		keys = append(keys, lineKey(name, s.componentTone(name), 8, nil))
	}
	p.Draw(withLegend(c, keys))
	return nil
}

// componentTone returns the same tone for a component wherever it is shown.
func (s *set) componentTone(name string) tone {
	if i := slices.Index(s.components, name); i >= 0 {
		return pick(componentTones(), i)
	}
	return muted()
}

// A barsPlotter draws one bar a component in each subject's row.
type barsPlotter struct {
	set        *set
	rows       []*subject
	components []string
	tips       *tips
}

func (b *barsPlotter) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	const half = barWidth / 2.0
	small := sans(muted(), 9.5, false)
	strong := sans(ink(), 9.5, true)
	for i, row := range b.rows {
		top := y(rowAt(i, len(b.rows))) + vg.Length(len(b.components))*barStep/2
		for k, name := range b.components {
			middle := top - (vg.Length(k)+0.5)*barStep
			used, ok := row.summary.Utilization[name]
			if !ok {
				c.FillText(small, vg.Point{X: x(0) + 5, Y: middle}, plain("not known: "+row.unread(name)))
				continue
			}
			fillBar(c, b.set.componentTone(name), x(0), x(used*100), middle, half)
			b.tips.add(x(used*100), middle, "%s, %s: %s", row.name, name, percent(used))
			if name == row.summary.Bottleneck {
				label, style, at := "bottleneck "+percent(used), strong, x(used*100)+5
				if at+style.Width(label) > c.Max.X {
					style.Color, at = card().color(), x(used*100)-5-style.Width(label)
				}
				c.FillText(style, vg.Point{X: at, Y: middle + 1}, label)
			}
		}
	}
}
