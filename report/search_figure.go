package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// manyfold is the ratio of a search's highest rate to its capacity above which
// the scale is logarithmic. On a linear scale, the interesting part would be a
// line at the bottom.
const manyfold = 4

// searchFigures returns a figure for each size: its trials in the order in which the search chose
// them, and the estimate of the capacity after each trial.
func (s *set) searchFigures() []*figure {
	var figures []*figure
	for _, x := range s.subjects() {
		if len(x.trace) == 0 {
			continue
		}
		capacity := x.capacity()
		figures = append(figures, &figure{
			Name: "search-" + slug(x.name), title: "Search for the capacity of " + x.name, section: sectionSearch, subject: x,
			width: figureWidth, height: 400,
			alt: fmt.Sprintf("The %d trials of %s in the order in which they were chosen, with the interval of the capacity after each; in the end %s %s, %s. The table below has the same numbers.",
				len(x.trace), x.name, capacityText(capacity), s.unit, x.intervalAt(capacity.Threshold)),
			Caption: s.searchCaption(x),
			draw:    func(c draw.Canvas, t *tips) error { return s.drawSearch(c, t, x) },
		})
	}
	return figures
}

func (s *set) searchCaption(x *subject) string {
	estimate := fmt.Sprintf("the line is the capacity by the trials so far, and the band is its %sinterval. "+
		"The search chose the next rate from these.", s.sure())
	if why := x.unsearched(s.thresholds[0]); why != "" {
		estimate = fmt.Sprintf("the line is an estimate of the capacity by the trials so far, and the band is its spread (%s).", why)
	}
	parts := []string{fmt.Sprintf("Each mark is a trial at its offered rate. A trial passes with a success ratio of at least %s. "+
		"From one trial to the next, %s", shortest(s.thresholds[0]), estimate)}
	if slices.ContainsFunc(x.trace, func(t tried) bool { return t.judged != nil }) {
		parts = append(parts, "A trial that meets the ratio while its backlog may grow is not steady. The trial does not pass, and the search extends it.")
	}
	if low, high := x.windows(); high > low {
		parts = append(parts, fmt.Sprintf("The larger a mark, the longer its trial (%s to %s s).", shortest(low), shortest(high)))
	}
	if slices.ContainsFunc(x.trace, func(t tried) bool { return t.again }) {
		parts = append(parts, "Where the band ends, the size was measured again, without the earlier trials.")
	}
	return strings.Join(parts, " ")
}

// windows returns the shortest and the longest trial, in seconds.
func (s *subject) windows() (low, high float64) {
	low = math.Inf(1)
	for _, t := range s.trace {
		low, high = min(low, t.Duration.Seconds()), max(high, t.Duration.Seconds())
	}
	return low, high
}

func (s *set) drawSearch(c draw.Canvas, t *tips, x *subject) error {
	p := newPlot("trial", "offered rate, "+s.unit)
	p.X.Min, p.X.Max = 0.5, float64(len(x.trace))+1
	p.X.Tick.Marker = wholeTicks{}
	low, high := math.Inf(1), 0.0
	for _, y := range x.trace {
		low, high = min(low, y.Rate), max(high, y.Rate)
	}
	p.Y.Min, p.Y.Max = 0, max(high*1.06, 1e-9)
	if capacity := x.capacity().Rate; low > 0 && capacity > 0 && high/capacity > manyfold {
		p.Y.Min, p.Y.Max = min(low, capacity)/1.25, high*1.25
		p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, powers{}
	}
	trail := &trailPlotter{set: s, subject: x, tips: t}
	p.Add(bandPlotter{trail}, thinGrid(true, true), trail)
	p.Draw(withLegend(c, trail.keys()))
	return nil
}

// A trailPlotter draws a search's trials and the estimate after each.
type trailPlotter struct {
	set     *set
	subject *subject
	tips    *tips
}

// A bandPlotter draws the band, under the grid.
type bandPlotter struct{ *trailPlotter }

func (b bandPlotter) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	var above, below []vg.Point // outlines of one piece, because separate pieces would show seams
	piece := func() {
		slices.Reverse(below)
		c.FillPolygon(band().color(), append(above, below...))
		above, below = nil, nil
	}
	end := math.Inf(1)
	for _, s := range b.spans() {
		if s.from > end {
			piece()
		}
		low, high := s.after.Bounds()
		bottom, top := y(clamp(low, p)), y(clamp(high, p))
		above = append(above, vg.Point{X: x(s.from), Y: top}, vg.Point{X: x(s.to), Y: top})
		below = append(below, vg.Point{X: x(s.from), Y: bottom}, vg.Point{X: x(s.to), Y: bottom})
		end = s.to
	}
	if len(above) > 0 {
		piece()
	}
}

// clamp limits a rate to the range of the plot.
func clamp(rate float64, p *plot.Plot) float64 { return min(max(rate, p.Y.Min), p.Y.Max) }

// A span is the time for which an estimate was the latest: from the mark of its trial to the mark
// of the next trial with an estimate.
type span struct {
	tried
	from, to float64
}

// spans returns the spans of all estimates of the capacity.
func (r *trailPlotter) spans() []span {
	var all []span
	open := false
	for _, t := range r.subject.trace {
		at := float64(t.number)
		if open && (t.after != nil || t.again) {
			all[len(all)-1].to = at
			if t.again {
				all[len(all)-1].to -= 0.5
			}
			open = false
		}
		if t.after != nil && !t.after.Unmeasured() {
			all = append(all, span{t, at, at + 0.7})
			open = true
		}
	}
	return all
}

func (r *trailPlotter) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	dotted := stroke(rule(), 1, 1.5, 2.5)
	for _, t := range r.subject.trace {
		if t.fresh && t.number > 1 {
			at := x(float64(t.number) - 0.5)
			c.StrokeLine2(dotted, at, c.Min.Y, at, c.Max.Y)
		}
	}
	line := stroke(ink(), 1.4)
	var before *span
	for _, s := range r.spans() {
		level := y(clamp(s.after.Rate, p))
		if before != nil && before.to == s.from {
			c.StrokeLine2(line, x(s.from), y(clamp(before.after.Rate, p)), x(s.from), level)
		}
		c.StrokeLine2(line, x(s.from), level, x(s.to), level)
		before = &s
	}
	for _, t := range r.subject.trace {
		at := vg.Point{X: x(float64(t.number)), Y: y(clamp(t.Rate, p))}
		style := r.mark(t.verdict(r.set.thresholds[0]))
		style.Radius *= vg.Length(r.weight(t))
		c.DrawGlyph(style, at)
		r.tips.add(at.X, at.Y, "%s", r.tip(t))
	}
}

// weight scales a mark so that its area is proportional to its trial's time,
// within bounds.
func (r *trailPlotter) weight(t tried) float64 {
	_, longest := r.subject.windows()
	if longest <= 0 {
		return 1
	}
	return max(0.6, 1.35*math.Sqrt(t.Duration.Seconds()/longest))
}

// mark returns the mark of a verdict: a colour, and a shape that colour-blind readers can
// distinguish.
func (r *trailPlotter) mark(v verdict) draw.GlyphStyle {
	tones := componentTones()
	switch v {
	case passed:
		return draw.GlyphStyle{Color: tones[2].color(), Radius: 3.6, Shape: draw.CircleGlyph{}}
	case unsteady:
		return draw.GlyphStyle{Color: tones[2].color(), Radius: 3.6, Shape: draw.RingGlyph{}}
	case failed:
		return draw.GlyphStyle{Color: tones[1].color(), Radius: 3.8, Shape: draw.PyramidGlyph{}}
	}
	return draw.GlyphStyle{Color: muted().color(), Radius: 3.6, Shape: draw.CrossGlyph{}}
}

func (r *trailPlotter) tip(t tried) string {
	parts := []string{fmt.Sprintf("trial %d: %s %s for %s s, %s", t.number, number(t.Rate), r.set.unit, shortest(t.Duration.Seconds()), t.verdict(r.set.thresholds[0]))}
	if t.Scheduled > 0 {
		parts[0] += ", ratio " + r.set.ratio(t.Outcome)
	}
	if t.judged != nil {
		parts[0] += ", judged as " + t.judgedText(r.set.thresholds)
	}
	if t.why != "" {
		parts = append(parts, "chosen: "+t.why)
	}
	if t.after != nil {
		parts = append(parts, "capacity then "+Known(*t.after))
	}
	return strings.Join(parts, "; ")
}

func (r *trailPlotter) keys() []key {
	interval := r.set.sure() + "interval so far"
	if r.subject.unsearched(r.set.thresholds[0]) != "" {
		interval = "spread of the estimate"
	}
	keys := []key{lineKey(interval, band(), 9, nil), lineKey("capacity so far", ink(), 1.4, nil)}
	counts := map[verdict]int{}
	redeployed := false
	for _, t := range r.subject.trace {
		counts[t.verdict(r.set.thresholds[0])]++
		redeployed = redeployed || t.fresh && t.number > 1
	}
	for _, v := range verdicts() {
		if counts[v] > 0 {
			keys = append(keys, markKey(fmt.Sprintf("%s (%d)", v, counts[v]), r.mark(v)))
		}
	}
	if redeployed {
		keys = append(keys, lineKey("fresh deployment", rule(), 1, []vg.Length{1.5, 2.5}))
	}
	return keys
}

// wholeTicks places ticks at whole numbers.
type wholeTicks struct{}

func (wholeTicks) Ticks(low, high float64) []plot.Tick {
	var whole []plot.Tick
	for _, t := range (ticks{}).Ticks(low, high) {
		if t.Value == math.Trunc(t.Value) {
			whole = append(whole, t)
		}
	}
	return whole
}
