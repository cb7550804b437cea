package report

import (
	"fmt"
	"image/color"
	"math"
	"strings"

	xfnt "golang.org/x/image/font"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// A tone is a colour in the light and the dark theme. Figures are drawn in the light one. On the
// page, each tone becomes the CSS variable of its name, which has both colours.
type tone struct {
	name, light, dark string // light: unique
}

func (t tone) color() color.Color {
	var r, g, b uint8
	if _, err := fmt.Sscanf(t.light, "#%02X%02X%02X", &r, &g, &b); err != nil {
		panic("report: not a colour: " + t.light) // a constant of this file
	}
	return color.NRGBA{R: r, G: g, B: b, A: 0xff}
}

func card() tone  { return tone{"card", "#FFFFFF", "#171C24"} }
func ink() tone   { return tone{"ink", "#1F2933", "#E3E8EF"} }
func muted() tone { return tone{"muted", "#5B6775", "#9BA8B8"} }
func rule() tone  { return tone{"rule", "#B9C3CE", "#4A5766"} }
func band() tone  { return tone{"band", "#CBDDEE", "#24405C"} }
func grid() tone  { return tone{"grid", "#E7EBF0", "#29323D"} }

// markTone returns the tone of marks that a reader must not overlook.
func markTone() tone { return pick(componentTones(), 1) }

// componentTones returns tones that colour-blind readers can distinguish (after Okabe and Ito,
// 2008). The first three are blue, red and green, as in NFV-VITAL's figure 2.
func componentTones() []tone {
	return []tone{
		{"c0", "#0072B2", "#58ACE6"}, {"c1", "#D55E00", "#F39149"}, {"c2", "#009E73", "#43C9A0"},
		{"c3", "#B5609A", "#E093C8"}, {"c4", "#C98A00", "#F2BE57"}, {"c5", "#4BA3D4", "#93CFF2"},
		{"c6", "#7A7368", "#B8B0A3"},
	}
}

// sizeTones returns the tones for curves of sizes. Their hues differ from those of the components
// (after Tol's muted scheme, 2021). Marks also differ in shape.
func sizeTones() []tone {
	return []tone{
		{"s0", "#3B3FA0", "#9CA3FF"}, {"s1", "#CC6677", "#F093A2"}, {"s2", "#117733", "#54C07C"},
		{"s3", "#B8860B", "#E9BD4C"}, {"s4", "#882255", "#D67FAC"}, {"s5", "#2A9DB8", "#74D1E8"},
		{"s6", "#8A8D2C", "#CBCE6E"}, {"s7", "#6A5D7B", "#B6A8C9"},
	}
}

func tones() []tone {
	all := []tone{card(), ink(), muted(), rule(), grid(), band()}
	return append(append(all, componentTones()...), sizeTones()...)
}

func pick(tones []tone, i int) tone { return tones[i%len(tones)] }

// variables returns the tones as CSS declarations.
func variables(value func(tone) string) string {
	var b strings.Builder
	for _, t := range tones() {
		fmt.Fprintf(&b, "--%s:%s;", t.name, value(t))
	}
	return b.String()
}

func glyphs() []draw.GlyphDrawer {
	return []draw.GlyphDrawer{
		draw.CircleGlyph{}, draw.BoxGlyph{}, draw.PyramidGlyph{}, draw.RingGlyph{},
		draw.SquareGlyph{}, draw.TriangleGlyph{}, draw.CrossGlyph{}, draw.PlusGlyph{},
	}
}

// dashKinds is the number of different dashes.
const dashKinds = 4

func dashes(i int) []vg.Length {
	return [dashKinds][]vg.Length{nil, {7, 3}, {2, 2.5}, {9, 3, 2, 3}}[i%dashKinds]
}

func stroke(t tone, width vg.Length, dash ...vg.Length) draw.LineStyle {
	return draw.LineStyle{Color: t.color(), Width: width, Dashes: dash}
}

func sans(t tone, size vg.Length, bold bool) text.Style {
	f := font.Font{Typeface: "Liberation", Variant: "Sans", Size: size}
	if bold {
		f.Weight = xfnt.WeightBold
	}
	return text.Style{Color: t.color(), Font: f, Handler: plot.DefaultTextHandler, YAlign: text.YCenter}
}

// newPlot returns an empty plot in the house style: no box, light lines, ticks
// without marks.
func newPlot(x, y string) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.LineStyle = stroke(rule(), 0.8)
		a.Padding = 0
		a.Tick.Length = 3
		a.Tick.LineStyle = stroke(rule(), 0.8)
		label := sans(muted(), 11, false)
		label.XAlign, label.YAlign = a.Tick.Label.XAlign, a.Tick.Label.YAlign
		a.Tick.Label = label
		title := sans(muted(), 11.5, false)
		title.XAlign, title.YAlign = a.Label.TextStyle.XAlign, a.Label.TextStyle.YAlign
		a.Label.TextStyle = title
		a.Label.Padding = 5
		a.Tick.Marker = ticks{}
	}
	p.X.Label.Text, p.Y.Label.Text = x, y
	return p
}

// ticks places about six ticks at round numbers.
type ticks struct{}

func (ticks) Ticks(low, high float64) []plot.Tick {
	const about = 6
	span := high - low
	if !(span > 0) {
		return []plot.Tick{{Value: low, Label: shortest(low)}}
	}
	unit := math.Pow(10, math.Floor(math.Log10(span/about)))
	step := unit
	for _, round := range []float64{1, 2, 5, 10} {
		step = round * unit
		if span/step <= about {
			break
		}
	}
	var list []plot.Tick
	for i := math.Ceil(low / step); i*step <= high*(1+1e-9); i++ {
		list = append(list, plot.Tick{Value: i * step, Label: tidy(i * step)})
	}
	return list
}
