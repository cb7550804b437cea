package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"vitrine"
)

const (
	mostUntried = 300 // predicted sizes that a figure and a table show
	mostBars    = 60  // predicted sizes whose intervals remain readable in the figure
)

// An untried size was predicted but not measured.
type untried struct {
	vitrine.SizeProfile
	variant string
	name    string // unique in the report
}

// untried returns the sizes that the runs' profiles predict and that have no
// trial, the highest capacity first. It skips runs whose profile is for another
// threshold than the report's first. If there are more than mostUntried, it
// returns those that carry the most for their vCPUs. all is the number of such
// sizes.
func (s *set) untried() (shown []untried, all int) {
	for _, r := range s.runs {
		if r.Profile == nil || !r.sameThreshold() {
			continue
		}
		for _, setting := range r.Profile.Settings {
			for _, z := range setting.Sizes {
				if z.Source != vitrine.SourcePredicted || r.has(setting, z.Sizing) {
					continue
				}
				variant := s.variant(r, setting.Substrate, setting.Options)
				shown = append(shown, untried{z, variant, named(z.Sizing, variant)})
			}
		}
	}
	all = len(shown)
	byCapacity := func(a, b untried) int { return cmp.Or(cmp.Compare(b.Rate, a.Rate), cmp.Compare(a.VCPUs, b.VCPUs)) }
	slices.SortStableFunc(shown, byCapacity)
	if all <= mostUntried {
		return shown, all
	}
	rank, better := make([]int, all), map[float64]int{} // rank of each size among those with equal vCPUs
	order := make([]int, all)
	for i, u := range shown {
		rank[i], order[i] = better[u.VCPUs], i
		better[u.VCPUs]++
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(rank[a], rank[b]) })
	kept := make([]untried, 0, mostUntried)
	for _, i := range order[:mostUntried] {
		kept = append(kept, shown[i])
	}
	slices.SortStableFunc(kept, byCapacity)
	return kept, all
}

// has reports whether the run measured the setting's sizing.
func (r *run) has(setting vitrine.Setting, sizing string) bool {
	return slices.ContainsFunc(r.subjects, func(x *subject) bool {
		return x.sizing == sizing && x.substrate == setting.Substrate && x.options == setting.Options && x.summary != nil
	})
}

// variantSizes holds the sizes of one variant; the measured ones ascend by vCPUs.
type variantSizes struct {
	variant   string
	measured  []*subject
	predicted []untried
}

// sizesByVariant returns the sizes with known vCPUs by variant, in the order of the
// report.
func (s *set) sizesByVariant() []*variantSizes {
	var variants []string
	var all []*variantSizes
	get := func(variant string) *variantSizes {
		i := index(&variants, variant)
		if i == len(all) {
			all = append(all, &variantSizes{variant: variant})
		}
		return all[i]
	}
	for _, x := range s.subjects() {
		if x.summary != nil && x.summary.VCPUs > 0 && x.isComparable() {
			f := get(x.variant)
			f.measured = append(f.measured, x)
		}
	}
	shown, _ := s.untried()
	for _, u := range shown {
		f := get(u.variant)
		f.predicted = append(f.predicted, u)
	}
	for _, f := range all {
		slices.SortStableFunc(f.measured, func(a, b *subject) int { return cmp.Compare(a.summary.VCPUs, b.summary.VCPUs) })
	}
	return all
}

// best returns the measured sizes that carry more than every size with as many vCPUs or fewer.
func (f *variantSizes) best() []*subject {
	var list []*subject
	for _, x := range f.measured {
		c := x.capacity()
		if c.Censored == vitrine.CensoredBelow {
			continue // its capacity is not known
		}
		n := len(list)
		switch {
		case n == 0:
			list = append(list, x)
		case c.Rate <= list[n-1].capacity().Rate:
		case x.summary.VCPUs == list[n-1].summary.VCPUs:
			list[n-1] = x
		default:
			list = append(list, x)
		}
	}
	return list
}

// frontierFigures returns a figure of the capacity of sizes against their vCPUs, or none if there
// is only one size to show.
func (s *set) frontierFigures() []*figure {
	variants := s.sizesByVariant()
	measured, predicted := 0, 0
	var names []string
	for _, f := range variants {
		measured, predicted = measured+len(f.measured), predicted+len(f.predicted)
		for _, x := range f.best() {
			names = append(names, fmt.Sprintf("%s carries %s %s with %s vCPUs", x.name, capacityText(x.capacity()), s.unit, tidy(x.summary.VCPUs)))
		}
	}
	if measured+predicted < 2 || measured == 0 {
		return nil
	}
	return []*figure{{
		Name: "frontier", title: "Capacity against vCPUs", section: sectionFrontier, width: figureWidth, height: 470,
		alt:     "Capacity of every size against its vCPUs. Sizes that carry more than every size with as many vCPUs or fewer: " + strings.Join(names, "; ") + ".",
		Caption: s.frontierCaption(predicted),
		draw:    func(c draw.Canvas, t *tips) error { return s.drawFrontier(c, t, variants) },
	}}
}

func (s *set) frontierCaption(predicted int) string {
	text := fmt.Sprintf("Capacity at success ratio %s with its %sinterval, against the vCPUs of the scalable components. The line joins the measured sizes that carry "+
		"more than every size with as many vCPUs or fewer. A size below the line has no fewer vCPUs than another size that carries as much or more. Of sizes with equal vCPUs, only the highest is at its exact vCPUs; the others are to its right.", shortest(s.thresholds[0]), s.sure())
	if predicted == 0 {
		return text
	}
	text += " Hollow marks were not measured. A model of the components' CPU per call, fitted to the measured sizes, predicts them."
	if _, all := s.untried(); all > predicted {
		text += fmt.Sprintf(" Of %d such sizes the %d that carry the most for their vCPUs are shown.", all, predicted)
	}
	if predicted > mostBars {
		text += " There are too many to show their intervals."
	}
	return text
}

func (s *set) drawFrontier(c draw.Canvas, t *tips, variants []*variantSizes) error {
	p := newPlot("vCPUs", "capacity, "+s.unit)
	p.Add(thinGrid(true, true))
	most, top, predicted := 0.0, 0.0, 0
	for _, f := range variants {
		for _, x := range f.measured {
			most, top = max(most, x.summary.VCPUs), max(top, x.capacity().Rate, x.capacity().High)
		}
		for _, u := range f.predicted {
			most, top = max(most, u.VCPUs), max(top, u.Rate*1.1)
		}
		predicted += len(f.predicted)
	}
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, most*1.08, 0, top*1.08
	var keys []key
	marks := &frontierPlotter{set: s, tips: t, variants: variants, bars: predicted <= mostBars, aside: aside(variants)}
	for i, f := range variants {
		if len(f.measured) > 0 {
			label := "measured, with a line through the best"
			if f.variant != "" {
				label = f.variant
			}
			line := lineKey(label, marks.tone(i), 1.6, dashes(i))
			line.thumb = append(line.thumb, glyphThumb(marks.measured(i)))
			keys = append(keys, line)
		}
		if len(f.predicted) > 0 {
			keys = append(keys, markKey(strings.TrimSpace("predicted "+f.variant), marks.predicted(i)))
		}
	}
	if slices.ContainsFunc(s.subjects(), (*subject).optimal) {
		keys = append(keys, markKey("optimal", marks.optimal()))
	}
	p.Add(marks)
	p.Draw(withLegend(c, keys))
	return nil
}

// A frontierPlotter draws the marks of sizes, their intervals, and the names of the best sizes.
type frontierPlotter struct {
	set      *set
	tips     *tips
	variants []*variantSizes
	bars     bool // draw the intervals of predicted sizes too
	aside    map[*subject]vg.Length
}

// aside returns how far each measured size is moved to the right of its vCPUs. Otherwise the
// intervals of sizes with equal vCPUs would overlap.
func aside(variants []*variantSizes) map[*subject]vg.Length {
	const apart, most = 8, 48
	alike := map[float64][]*subject{}
	for _, f := range variants {
		for _, x := range f.measured {
			alike[x.summary.VCPUs] = append(alike[x.summary.VCPUs], x)
		}
	}
	shift := map[*subject]vg.Length{}
	for _, list := range alike {
		slices.SortStableFunc(list, func(a, b *subject) int { return cmp.Compare(b.capacity().Rate, a.capacity().Rate) })
		step := min(apart, most/float64(len(list)))
		for i, x := range list {
			shift[x] = vg.Length(step * float64(i))
		}
	}
	return shift
}

func (r *frontierPlotter) tone(i int) tone {
	if len(r.variants) == 1 {
		return componentTones()[0] // as in the figure of capacities
	}
	return pick(sizeTones(), i)
}

func (r *frontierPlotter) measured(i int) draw.GlyphStyle {
	return draw.GlyphStyle{Color: r.tone(i).color(), Radius: 4, Shape: draw.CircleGlyph{}}
}

func (r *frontierPlotter) predicted(i int) draw.GlyphStyle {
	return draw.GlyphStyle{Color: r.tone(i).color(), Radius: 3, Shape: draw.RingGlyph{}}
}

func (r *frontierPlotter) optimal() draw.GlyphStyle {
	return draw.GlyphStyle{Color: ink().color(), Radius: 7.5, Shape: draw.RingGlyph{}}
}

func (r *frontierPlotter) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	for i, f := range r.variants {
		for _, u := range f.predicted {
			at := vg.Point{X: x(u.VCPUs), Y: y(clamp(u.Rate, p))}
			if r.bars {
				r.bar(c, p, stroke(rule(), 1), at.X, u.Low, u.High)
			}
			c.DrawGlyph(r.predicted(i), at)
			r.tips.add(at.X, at.Y, "%s, predicted and not measured: %s %s, %sinterval %s to %s, with %s vCPUs",
				u.name, number(u.Rate), r.set.unit, r.set.sure(), number(u.Low), number(u.High), tidy(u.VCPUs))
		}
	}
	var placed []vg.Rectangle
	for i, f := range r.variants {
		best := f.best()
		var joined []vg.Point
		for _, m := range best {
			joined = append(joined, vg.Point{X: x(m.summary.VCPUs) + r.aside[m], Y: y(m.capacity().Rate)})
		}
		c.StrokeLines(stroke(r.tone(i), 1.6, dashes(i)...), joined)
		for _, m := range f.measured {
			capacity := m.capacity()
			at := vg.Point{X: x(m.summary.VCPUs) + r.aside[m], Y: y(clamp(capacity.Rate, p))}
			low, high := capacity.Bounds()
			r.bar(c, p, stroke(r.tone(i), 1.3), at.X, low, high)
			c.DrawGlyph(r.measured(i), at)
			if m.optimal() {
				c.DrawGlyph(r.optimal(), at)
			}
			if m.optimal() || slices.Contains(best, m) {
				placed = nameAt(c, at, m.name, m.optimal(), placed)
			}
			r.tips.add(at.X, at.Y, "%s, measured: %s %s, %sinterval %s, with %s vCPUs", m.name, capacityText(capacity), r.set.unit, r.set.sure(), intervalText(capacity), tidy(m.summary.VCPUs))
		}
	}
}

// bar draws an interval. An arrow at an end means that the interval is open there.
func (r *frontierPlotter) bar(c draw.Canvas, p *plot.Plot, line draw.LineStyle, at vg.Length, low, high float64) {
	_, y := p.Transforms(&c)
	bottom, top := y(clamp(low, p)), y(clamp(high, p))
	c.StrokeLine2(line, at, bottom, at, top)
	if high > p.Y.Max || math.IsInf(high, 1) {
		c.FillPolygon(line.Color, []vg.Point{{X: at - 3.5, Y: top - 5}, {X: at + 3.5, Y: top - 5}, {X: at, Y: top}})
		return
	}
	c.StrokeLine2(line, at-3, top, at+3, top)
	c.StrokeLine2(line, at-3, bottom, at+3, bottom)
}

// nameAt writes a name to the upper left of a point, or to its right if there is
// no room. It writes nothing if other names are in both places.
func nameAt(c draw.Canvas, at vg.Point, name string, bold bool, placed []vg.Rectangle) []vg.Rectangle {
	style := sans(ink(), 10.5, bold)
	width := style.Width(name)
	for _, from := range []vg.Point{{X: at.X - 10 - width, Y: at.Y + 9}, {X: at.X + 11, Y: at.Y - 8}} {
		box := vg.Rectangle{Min: vg.Point{X: from.X, Y: from.Y - 6}, Max: vg.Point{X: from.X + width, Y: from.Y + 6}}
		taken := slices.ContainsFunc(placed, func(o vg.Rectangle) bool {
			return box.Min.X < o.Max.X && o.Min.X < box.Max.X && box.Min.Y < o.Max.Y && o.Min.Y < box.Max.Y
		})
		if taken || box.Min.X < c.Min.X || box.Max.X > c.Max.X || box.Max.Y > c.Max.Y {
			continue
		}
		c.FillText(style, from, name)
		return append(placed, box)
	}
	return placed
}

// A frontierView is the section of capacity against vCPUs.
type frontierView struct {
	Figures  []*figure
	Variants bool
	Rows     []frontierRow // sizes that were predicted but not measured
	All      int           // number of such sizes, shown or not
}

type frontierRow struct {
	Name, Variant, VCPUs string
	Rate                 float64 // to sort by
	Capacity, Interval   string
	Bottleneck, Tone     string
}

func (s *set) frontierView(figures []*figure) frontierView {
	v := frontierView{Figures: figures}
	shown, all := s.untried()
	v.All = all
	for _, u := range shown {
		v.Variants = v.Variants || u.variant != ""
		v.Rows = append(v.Rows, frontierRow{
			Name: u.Sizing, Variant: u.variant, VCPUs: tidy(u.VCPUs), Rate: u.Rate, Capacity: number(u.Rate), Interval: number(u.Low) + " to " + number(u.High),
			Bottleneck: cmp.Or(u.Bottleneck, missing), Tone: s.componentTone(u.Bottleneck).name,
		})
	}
	return v
}
