package report

import (
	"fmt"
	"html/template"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// A Panel is one plot of Lines.
type Panel struct {
	Title  string // empty: none
	Y      string // what its axis shows
	Lines  []Line
	Points []Point
	Marks  []Span // parts of the x axis to mark
}

// A Line is a curve of a panel.
type Line struct {
	Name string // in the legend, once for all panels
	Tone int    // index of a tone that colour-blind readers can distinguish; below 0: the tone of text
	At   []Place
}

// A Place is a position in a panel.
type Place struct{ X, Y float64 }

// A Point is a value with its interval and the text under the pointer.
type Point struct {
	Place
	Low, High float64 // High: +Inf if there is no upper bound
	Tip       string
}

// A Span is a marked part of the x axis, such as a time with a problem.
type Span struct{ From, To float64 }

const (
	panelHeight = 170 // points
	spanHeight  = 5
)

// Lines draws panels below each other, with a common x axis, for a page of WritePage. marks
// is the meaning of the panels' marks; alt is for readers who cannot see the figure.
func Lines(alt, x, marks string, panels []Panel) (template.HTML, error) {
	f := &figure{alt: alt, width: figureWidth, height: titleHeight + 40 + vg.Length(len(panels)*panelHeight)}
	f.draw = func(c draw.Canvas, t *tips) error { return drawPanels(c, t, x, marks, panels) }
	_, err := f.vector()
	return f.Inline, err
}

func drawPanels(c draw.Canvas, t *tips, x, marks string, panels []Panel) error {
	c = withLegend(c, panelKeys(marks, panels))
	rows := make([][]*plot.Plot, len(panels))
	for i := range panels {
		p, err := panels[i].plot(t)
		if err != nil {
			return err
		}
		rows[i] = []*plot.Plot{p}
	}
	rows[len(rows)-1][0].X.Label.Text = x
	low, high := rows[0][0].X.Min, rows[0][0].X.Max
	for _, row := range rows {
		low, high = min(low, row[0].X.Min), max(high, row[0].X.Max)
	}
	tiles := draw.Tiles{Rows: len(rows), Cols: 1, PadY: 26, PadTop: 18}
	for _, row := range rows {
		row[0].X.Min, row[0].X.Max = low, max(high, low+1)
	}
	for i, row := range plot.Align(rows, tiles, c) {
		rows[i][0].Draw(row[0])
		area := rows[i][0].DataCanvas(row[0])
		style := sans(ink(), 12, true)
		style.YAlign = draw.YBottom
		area.FillText(style, vg.Point{X: area.Min.X, Y: area.Max.Y + 5}, panels[i].Title)
	}
	return nil
}

// panelKeys returns the legend of all panels.
func panelKeys(marks string, panels []Panel) (keys []key) {
	var seen []string
	marked := false
	for _, p := range panels {
		marked = marked || len(p.Marks) > 0
		for _, l := range p.Lines {
			if !slices.Contains(seen, l.Name) {
				seen = append(seen, l.Name)
				keys = append(keys, lineKey(l.Name, l.tone(), 2, nil))
			}
		}
	}
	if marked {
		keys = append(keys, lineKey(marks, markTone(), spanHeight, nil))
	}
	return keys
}

func (l Line) tone() tone {
	if l.Tone < 0 {
		return ink()
	}
	// Marks use one of the tones, so lines must not.
	tones := slices.DeleteFunc(componentTones(), func(t tone) bool { return t == markTone() })
	return pick(tones, l.Tone)
}

func (p Panel) plot(t *tips) (*plot.Plot, error) {
	drawn := newPlot("", p.Y)
	drawn.Add(thinGrid(false, true))
	drawn.Y.Min, drawn.Y.Max = 0, 1
	for _, l := range p.Lines {
		points := make(plotter.XYs, len(l.At))
		for i, at := range l.At {
			points[i] = plotter.XY{X: at.X, Y: at.Y}
		}
		if len(points) == 0 {
			continue
		}
		line, err := newLine(l.tone(), 1.6, nil, points)
		if err != nil {
			return nil, fmt.Errorf("draw %s: %w", l.Name, err)
		}
		drawn.Add(line)
	}
	marks := &marksPlotter{tone: ink(), glyph: draw.CircleGlyph{}, tips: t}
	for _, at := range p.Points {
		marks.marks = append(marks.marks, spread{at.X, at.Y, at.Low, at.High, at.High > at.Low, at.Tip})
		drawn.X.Min, drawn.X.Max = min(drawn.X.Min, at.X), max(drawn.X.Max, at.X)
		top := at.High
		if math.IsInf(top, 1) {
			top = at.Y * 1.2 // room for the arrow
		}
		drawn.Y.Max = max(drawn.Y.Max, top)
	}
	drawn.Add(marks)
	drawn.Y.Max *= 1.05
	drawn.Add(spans(p.Marks))
	return drawn, nil
}

// spans draws bars at the bottom of a plot.
type spans []Span

// Plot implements plot.Plotter.
func (s spans) Plot(c draw.Canvas, p *plot.Plot) {
	x, _ := p.Transforms(&c)
	for _, span := range s {
		from := x(span.From)
		fillBar(c, markTone(), from, max(x(span.To), from+2), c.Min.Y+spanHeight/2, spanHeight/2)
	}
}
