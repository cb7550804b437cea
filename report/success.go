package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"vitrine/search/rate"
)

// mostCurves is how many curves of one figure a reader can distinguish.
const mostCurves = 8

// A curve is what one subject carried at each rate.
type curve struct {
	*subject
	tone  tone
	glyph draw.GlyphDrawer
	dash  []vg.Length
	marks []mark
	fit   plotter.XYs
}

// A mark sums up the valid trials at one rate: calls that succeeded per second.
type mark struct {
	rate            float64
	mean, low, high float64
	repeats         int
}

// successFigures returns figures of success against offered rate (NFV-VITAL's
// figures 1, 3, 4 and 6), the highest capacities first, with variants of a sizing
// together.
func (s *set) successFigures() []*figure {
	var figures []*figure
	for _, part := range split(s.curves()) {
		figures = append(figures, s.successFigure(part))
	}
	return numbered(figures)
}

// split distributes curves over as few figures as possible, about equally full,
// and keeps the variants of one sizing together if they fit.
func split(curves []curve) [][]curve {
	parts := (len(curves) + mostCurves - 1) / mostCurves
	var figures [][]curve
	var current []curve
	for len(curves) > 0 {
		n := 1
		for n < len(curves) && n < mostCurves && curves[n].sizing == curves[0].sizing {
			n++
		}
		full := len(current)*parts >= len(curves)+len(current) || len(current)+n > mostCurves
		if len(current) > 0 && full {
			figures, current, parts = append(figures, current), nil, max(parts-1, 1)
		}
		current, curves = append(current, curves[:n]...), curves[n:]
	}
	if len(current) > 0 {
		figures = append(figures, current)
	}
	return figures
}

// curves returns the curves of all subjects with valid trials. Sizings differ in
// colour and mark, variants of one sizing in dash, and from the fifth on in mark too.
func (s *set) curves() []curve {
	best := map[string]float64{} // of a sizing's variants
	for _, x := range s.subjects() {
		best[x.sizing] = max(best[x.sizing], x.capacity().Rate)
	}
	ranked := s.subjects()
	slices.SortStableFunc(ranked, func(a, b *subject) int {
		return cmp.Or(cmp.Compare(best[b.sizing], best[a.sizing]), cmp.Compare(a.sizing, b.sizing))
	})
	var sizings, variants []string
	var curves []curve
	for _, x := range ranked {
		c := curve{subject: x, marks: x.marks()}
		if len(c.marks) == 0 {
			continue
		}
		sizing, variant := index(&sizings, x.sizing), index(&variants, x.variant)
		c.tone, c.dash = pick(sizeTones(), sizing), dashes(variant)
		c.glyph = glyphs()[(sizing+variant/dashKinds)%len(glyphs())]
		rates, ratios := rate.Fit(x.outcomes)
		for i, r := range rates {
			c.fit = append(c.fit, plotter.XY{X: r, Y: r * ratios[i]})
		}
		curves = append(curves, c)
	}
	return curves
}

// index returns the position of the name in the list, and appends it if it is
// missing.
func index(list *[]string, name string) int {
	if i := slices.Index(*list, name); i >= 0 {
		return i
	}
	*list = append(*list, name)
	return len(*list) - 1
}

// marks sums up the valid trials at each rate.
func (s *subject) marks() []mark {
	var marks []mark
	at := map[float64]int{}
	for _, o := range s.outcomes {
		if !o.Valid || o.Scheduled == 0 {
			continue
		}
		carried := o.SuccessRatio() * o.Rate
		i, ok := at[o.Rate]
		if !ok {
			i = len(marks)
			at[o.Rate] = i
			marks = append(marks, mark{rate: o.Rate, low: math.Inf(1), high: math.Inf(-1)})
		}
		m := &marks[i]
		m.mean = (m.mean*float64(m.repeats) + carried) / float64(m.repeats+1)
		m.low, m.high = min(m.low, carried), max(m.high, carried)
		m.repeats++
	}
	slices.SortFunc(marks, func(a, b mark) int { return cmp.Compare(a.rate, b.rate) })
	return marks
}

func (s *set) successFigure(curves []curve) *figure {
	names := make([]string, len(curves))
	for i, c := range curves {
		names[i] = fmt.Sprintf("%s carries %s %s", c.name, capacityText(c.capacity()), s.unit)
	}
	thresholds := make([]string, len(s.thresholds))
	for i, t := range s.thresholds {
		thresholds[i] = shortest(t)
	}
	line, capacity := "the decreasing fit that gives the capacity", "A size's capacity is where its curve crosses a dotted line; the legend has the capacity for "
	if slices.ContainsFunc(curves, func(c curve) bool { return c.ownEstimate() }) {
		line, capacity = "a decreasing fit through all trials", "The search has its own estimate of the capacity, which may lie beside the line; the legend has the capacity for "
	}
	return &figure{
		Name: "success", title: "Success against offered rate", section: sectionSuccess, width: figureWidth, height: 470,
		alt: "Success rate against offered rate, one curve per size: " + strings.Join(names, "; ") + ".",
		Caption: fmt.Sprintf("Each mark is the mean of the valid trials at that rate, and its bar their lowest and highest. The line is %s. "+
			"On the dashed line all calls succeed; on the dotted lines the success ratio is %s. %s%s.",
			line, strings.Join(thresholds, " and "), capacity, thresholds[0]),
		draw: func(c draw.Canvas, t *tips) error { return s.drawSuccess(c, t, curves) },
	}
}

func (s *set) drawSuccess(c draw.Canvas, t *tips, curves []curve) error {
	p := newPlot("offered rate (ICR), "+s.unit, "success rate (SCR), "+s.unit)
	p.Add(thinGrid(true, true))
	most, top := 0.0, 0.0
	for _, x := range curves {
		for _, m := range x.marks {
			most, top = max(most, m.rate), max(top, m.high)
		}
	}
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, most*1.03, 0, top*1.06
	if err := s.addReferences(p); err != nil {
		return err
	}
	keys := []key{{label: "capacity at " + shortest(s.thresholds[0])}}
	for _, x := range curves {
		line, err := newLine(x.tone, 1.8, x.dash, x.fit)
		if err != nil {
			return err
		}
		points := &marksPlotter{tone: x.tone, glyph: x.glyph, tips: t, marks: x.spreads()}
		p.Add(line, points)
		keys = append(keys, key{fmt.Sprintf("%s: %s", x.name, capacityText(x.capacity())), []plot.Thumbnailer{line, points}})
	}
	p.Draw(withLegend(c, keys))
	return nil
}

// spreads returns the curve's marks as they are drawn.
func (c curve) spreads() []spread {
	list := make([]spread, len(c.marks))
	for i, m := range c.marks {
		repeats := ""
		if m.repeats > 1 {
			repeats = fmt.Sprintf(" (%s to %s in %d repeats)", number(m.low), number(m.high), m.repeats)
		}
		tip := fmt.Sprintf("%s at %s %s: %s succeed%s, ratio %s", c.name, number(m.rate), c.run.set.unit, number(m.mean), repeats,
			RatioText(m.mean/m.rate, c.run.set.thresholds))
		list[i] = spread{m.rate, m.mean, m.low, m.high, m.repeats > 1, tip}
	}
	return list
}

// addReferences adds the lines of full success and of the thresholds, up to the
// edge of the plot.
func (s *set) addReferences(p *plot.Plot) error {
	add := func(ratio float64, label string, dash []vg.Length) error {
		end := plotter.XY{X: p.X.Max, Y: p.X.Max * ratio}
		offset, above := vg.Point{X: 4}, end.Y > p.Y.Max
		if above {
			end = plotter.XY{X: p.Y.Max / ratio, Y: p.Y.Max}
			offset = vg.Point{X: 4, Y: 7}
		}
		line, err := newLine(muted(), 0.9, dash, plotter.XYs{{X: 0, Y: 0}, end})
		if err != nil {
			return err
		}
		style := sans(muted(), 10.5, false)
		if above {
			style.XAlign = draw.XRight
		}
		p.Add(line, labels(plotter.XYs{end}, []string{label}, style, offset))
		return nil
	}
	if err := add(1, "SCR = ICR", []vg.Length{6, 3}); err != nil {
		return err
	}
	for _, threshold := range s.thresholds {
		if threshold <= 0 || threshold >= 1 {
			continue
		}
		if err := add(threshold, shortest(threshold), []vg.Length{1.5, 2.5}); err != nil {
			return err
		}
	}
	return nil
}
