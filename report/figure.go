package report

import (
	"bytes"
	"fmt"
	"html"
	"html/template"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// A figure is drawn in three forms that look alike: in the page, as SVG and as
// PNG.
type figure struct {
	Name    string // of its files, without extension
	title   string // drawn at its top
	Caption string // explains the figure
	Shows   string // its sizes, if a section has several figures
	alt     string // text for readers who cannot see it
	width   vg.Length
	height  vg.Length
	draw    func(draw.Canvas, *tips) error
	Mark    string   // why it cannot be compared with others; empty: no reason
	section string   // of the page
	subject *subject // nil: the figure is about all subjects

	Linked bool          // the page links to its files
	Inline template.HTML // set by vector
}

// The sections of the page that have figures.
const (
	sectionSuccess    = "success"
	sectionCapacity   = "capacity"
	sectionFrontier   = "frontier"
	sectionPrediction = "prediction"
	sectionUse        = "use"
	sectionDemand     = "demand"
	sectionSearch     = "search"
	sectionTime       = "time"
)

const (
	figureWidth = 1000 // points; one is a pixel of the page at its full width
	pngDPI      = 144  // two pixels a point
	titleHeight = 30
)

// tips are the points of a figure that show a text under the pointer.
type tips struct{ at []tip }

type tip struct {
	x, y vg.Length // from the lower left corner
	text string
}

func (t *tips) add(x, y vg.Length, format string, args ...any) {
	t.at = append(t.at, tip{x, y, fmt.Sprintf(format, args...)})
}

// vector draws the figure as SVG and keeps a version for the page.
func (f *figure) vector() ([]byte, error) {
	canvas := vgsvg.New(f.width, f.height)
	var t tips
	if err := f.paint(draw.New(canvas), &t); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return nil, err
	}
	svg := bytes.Map(forXML, b.Bytes())
	svg = bytes.ReplaceAll(svg, []byte("font-family:Liberation Sans"), []byte("font-family:'Liberation Sans',Arial,Helvetica,'DejaVu Sans Condensed',sans-serif"))
	var err error
	f.Inline, err = f.forPage(string(svg), t)
	return svg, err
}

// forXML replaces characters that XML cannot hold, in names from outside.
func forXML(c rune) rune {
	if c < ' ' && c != '\n' && c != '\t' {
		return '?'
	}
	return c
}

// raster draws the figure as PNG.
func (f *figure) raster() ([]byte, error) {
	canvas := vgimg.NewWith(vgimg.UseWH(f.width, f.height), vgimg.UseDPI(pngDPI))
	if err := f.paint(draw.New(canvas), &tips{}); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	_, err := vgimg.PngCanvas{Canvas: canvas}.WriteTo(&b)
	return b.Bytes(), err
}

// paint draws the background, the title and the content below the title.
func (f *figure) paint(c draw.Canvas, t *tips) error {
	c.SetColor(card().color())
	c.Fill(c.Path())
	style := sans(ink(), 14, true)
	style.YAlign = draw.YTop
	c.FillText(style, vg.Point{X: c.Min.X + 12, Y: c.Max.Y - 10}, f.title)
	if f.Mark != "" { // only files need it here; on the page, the caption has it
		style = sans(markTone(), 11.5, true)
		style.XAlign, style.YAlign = draw.XRight, draw.YTop
		c.FillText(style, vg.Point{X: c.Max.X - 12, Y: c.Max.Y - 11}, f.Mark)
	}
	return f.draw(draw.Crop(c, 12, -12, 10, -titleHeight-8), t)
}

// forPage makes the SVG part of the page: colours become the page's variables,
// the width is the page's, and tips are added on top.
func (f *figure) forPage(svg string, t tips) (template.HTML, error) {
	_, body, found := strings.Cut(svg, "<svg ")
	_, body, closed := strings.Cut(body, ">\n")
	body, ended := strings.CutSuffix(strings.TrimSpace(body), "</svg>")
	if !found || !closed || !ended {
		return "", fmt.Errorf("the SVG does not have the expected form")
	}
	var b strings.Builder
	// The page has its own headings, so the figure's title is cut off.
	fmt.Fprintf(&b, `<svg viewBox="0 %v %v %v" role="img" aria-label="%s" xmlns="http://www.w3.org/2000/svg">`+"\n",
		titleHeight, f.width.Points(), f.height.Points()-titleHeight, html.EscapeString(plain(f.alt)))
	b.WriteString(string(Themed(body)))
	for _, tip := range t.at {
		fmt.Fprintf(&b, `<circle class="tip" cx="%.5g" cy="%.5g" r="8"><title>%s</title></circle>`+"\n",
			tip.x.Points(), (f.height - tip.y).Points(), html.EscapeString(plain(tip.text)))
	}
	b.WriteString("</svg>")
	return template.HTML(b.String()), nil
}

// A key is one entry of a legend.
type key struct {
	label string
	thumb []plot.Thumbnailer
}

// withLegend draws the legend on the right and returns the rest of the canvas.
func withLegend(c draw.Canvas, keys []key) draw.Canvas {
	l := plot.NewLegend()
	l.TextStyle = sans(ink(), 11.5, false)
	l.TextStyle.YAlign = draw.YBottom
	l.Left, l.Top = true, true
	l.ThumbnailWidth = 22
	l.Padding = 7
	for _, k := range keys {
		l.Add(k.label, k.thumb...)
	}
	width := l.Rectangle(c).Size().X + 10
	l.Draw(draw.Crop(c, c.Size().X-width, 0, 0, -8))
	return draw.Crop(c, 0, -width-18, 0, 0)
}

// lineKey returns a legend entry for a line.
func lineKey(label string, t tone, width vg.Length, dash []vg.Length) key {
	return key{label, []plot.Thumbnailer{&plotter.Line{LineStyle: stroke(t, width, dash...)}}}
}

func markKey(label string, style draw.GlyphStyle) key {
	return key{label, []plot.Thumbnailer{glyphThumb(style)}}
}

// A glyphThumb is a mark in a legend.
type glyphThumb draw.GlyphStyle

// Thumbnail implements plot.Thumbnailer.
func (g glyphThumb) Thumbnail(c *draw.Canvas) { c.DrawGlyph(draw.GlyphStyle(g), c.Center()) }

// numbered numbers the figures that show parts of the same data.
func numbered(figures []*figure) []*figure {
	for i, f := range figures {
		if len(figures) > 1 {
			f.Name += fmt.Sprintf("-%d", i+1)
			f.title += fmt.Sprintf(" (%d of %d)", i+1, len(figures))
		}
	}
	return figures
}

// newLine returns a line through points, in a tone.
func newLine(t tone, width vg.Length, dash []vg.Length, points plotter.XYs) (*plotter.Line, error) {
	line, err := plotter.NewLine(points)
	if err != nil {
		return nil, err
	}
	line.LineStyle = stroke(t, width, dash...)
	return line, nil
}

// A spread is a value with its interval, and the tip of its mark.
type spread struct {
	x, y, low, high float64 // high: +Inf if there is no upper bound, which an arrow shows
	bar             bool    // the interval is drawn
	tip             string
}

// A marksPlotter draws marks with bars for their intervals.
type marksPlotter struct {
	tone  tone
	glyph draw.GlyphDrawer
	tips  *tips
	marks []spread
}

func (m *marksPlotter) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	for _, at := range m.marks {
		px, py := x(at.x), y(at.y)
		if at.bar {
			bar, low, high := stroke(m.tone, 1.1), y(max(at.low, p.Y.Min)), y(min(at.high, p.Y.Max))
			c.StrokeLine2(bar, px, low, px, high)
			c.StrokeLine2(bar, px-3, low, px+3, low)
			if math.IsInf(at.high, 1) {
				c.FillPolygon(m.tone.color(), []vg.Point{{X: px - 4, Y: high - 7}, {X: px, Y: high}, {X: px + 4, Y: high - 7}})
			} else {
				c.StrokeLine2(bar, px-3, high, px+3, high)
			}
		}
		c.DrawGlyph(m.style(), vg.Point{X: px, Y: py})
		m.tips.add(px, py, "%s", at.tip)
	}
}

func (m *marksPlotter) style() draw.GlyphStyle {
	return draw.GlyphStyle{Color: m.tone.color(), Radius: 3.6, Shape: m.glyph}
}

// Thumbnail draws the mark in the legend.
func (m *marksPlotter) Thumbnail(c *draw.Canvas) { c.DrawGlyph(m.style(), c.Center()) }

// fillBar draws a bar between two positions.
func fillBar(c draw.Canvas, t tone, from, to, middle, half vg.Length) {
	c.FillPolygon(t.color(), []vg.Point{{X: from, Y: middle + half}, {X: to, Y: middle + half}, {X: to, Y: middle - half}, {X: from, Y: middle - half}})
}

// labels returns texts at points of a plot, which leaves room for them.
func labels(at plotter.XYs, texts []string, style draw.TextStyle, offset vg.Point) *plotter.Labels {
	return &plotter.Labels{XYs: at, Labels: texts, TextStyle: slices.Repeat([]draw.TextStyle{style}, len(texts)), Offset: offset}
}

// thinGrid returns light lines at the ticks of the given axes.
func thinGrid(x, y bool) *plotter.Grid {
	g := plotter.NewGrid()
	g.Horizontal, g.Vertical = stroke(grid(), 0.8), stroke(grid(), 0.8)
	if !x {
		g.Vertical.Color = nil
	}
	if !y {
		g.Horizontal.Color = nil
	}
	return g
}
