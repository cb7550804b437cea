package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"vitrine/result"
)

// measured reports whether the run measured something other than capacities. It
// then has sections instead.
func (r *run) measured() bool { return len(r.Manifest.Measurement) > 0 }

// A sectionView is a section of such a run.
type sectionView struct {
	result.Section
	ID      string
	Run     string // empty: there is only one
	Figures []*figure
}

// sectionName returns the key of the figures of a section.
func sectionName(run int, name string) string { return fmt.Sprintf("measured-%d-%s", run, name) }

// sectionFigures returns the charts of all runs' sections.
func (s *set) sectionFigures() []*figure {
	var all []*figure
	for i, r := range s.runs {
		for _, x := range r.Sections {
			for _, chart := range x.Charts {
				all = append(all, chartFigure(chart, sectionName(i, x.Name)))
			}
		}
	}
	return all
}

func (s *set) sectionViews(figures map[string][]*figure) []sectionView {
	var list []sectionView
	for i, r := range s.runs {
		for _, x := range r.Sections {
			id := sectionName(i, x.Name)
			v := sectionView{Section: x, ID: id, Figures: figures[id]}
			if len(s.runs) > 1 {
				v.Run = r.name
			}
			list = append(list, v)
		}
	}
	return list
}

// chartFigure returns the figure of a chart. Each curve needs 18 points of height for its entry in the legend.
func chartFigure(chart result.Chart, section string) *figure {
	f := &figure{
		Name: "measured-" + chart.Name, title: chart.Title, Caption: chart.Caption, section: section,
		alt: chart.Title + "; the tables of this section have the same numbers.", width: figureWidth, height: vg.Length(max(430, titleHeight+40+18*len(chart.Curves))),
		draw: func(c draw.Canvas, t *tips) error { return drawCurves(c, t, chart) },
	}
	if len(chart.Curves) == 0 {
		f.height = vg.Length(titleHeight + 74 + 26*max(len(chart.Bars), 1))
		f.draw = func(c draw.Canvas, t *tips) error { return drawBars(c, t, chart) }
	}
	return f
}

func drawCurves(c draw.Canvas, t *tips, chart result.Chart) error {
	p := newPlot(chart.X, chart.Y)
	p.Add(thinGrid(true, true))
	right, top := 0.0, 0.0
	var keys []key
	for i, curve := range chart.Curves {
		x := &marksPlotter{tone: pick(sizeTones(), i), glyph: glyphs()[i%len(glyphs())], tips: t}
		points := make(plotter.XYs, len(curve.Points))
		for k, at := range curve.Points {
			points[k] = plotter.XY{X: at.X, Y: at.Y}
			tip := fmt.Sprintf("%s at %s: %s (%s to %s), %s", curve.Name, number(at.X), number(at.Y), number(at.Low), number(at.High), chart.Y)
			x.marks = append(x.marks, spread{at.X, at.Y, at.Low, at.High, at.High > at.Low, tip})
			right, top = max(right, at.X), max(top, at.Y, at.High)
		}
		thumbs := []plot.Thumbnailer{x}
		if len(points) > 0 {
			line, err := newLine(x.tone, 1.6, dashes(i/len(sizeTones())), points)
			if err != nil {
				return err
			}
			p.Add(line)
			thumbs = []plot.Thumbnailer{line, x}
		}
		p.Add(x)
		keys = append(keys, key{plain(curve.Name), thumbs})
	}
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, max(right, 1)*1.03, 0, max(top, 1e-3)*1.06
	p.Draw(withLegend(c, keys))
	return nil
}

func drawBars(c draw.Canvas, t *tips, chart result.Chart) error {
	p := newPlot(chart.Y, "")
	most := 0.0
	names := make([]string, len(chart.Bars))
	for i, b := range chart.Bars {
		names[i] = plain(b.Name)
		most = max(most, b.Whole, b.High)
	}
	nameRows(p, names)
	p.X.Min, p.X.Max = 0, max(most, 1e-3)*1.06
	p.Add(thinGrid(true, false), &chartBars{chart: chart, tips: t})
	if len(chart.Parts) == 0 {
		p.Draw(c)
		return nil
	}
	var keys []key
	for i, part := range append(slices.Clone(chart.Parts), "not split") {
		keys = append(keys, lineKey(plain(part), partTone(chart, i), 8, nil))
	}
	p.Draw(withLegend(c, keys))
	return nil
}

// partTone returns the tone of a bar's part; a bar that is not split has its own.
func partTone(chart result.Chart, i int) tone {
	if i >= len(chart.Parts) {
		return rule()
	}
	return pick(componentTones(), i)
}

// chartBars draws a row with a bar for each name.
type chartBars struct {
	chart result.Chart
	tips  *tips
}

func (b *chartBars) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	const half = 8
	for i, bar := range b.chart.Bars {
		middle := y(rowAt(i, len(b.chart.Bars)))
		from := 0.0
		box := func(to float64, t tone) {
			fillBar(c, t, x(from), x(to), middle, half)
			from = to
		}
		switch {
		case len(bar.Parts) > 0:
			for k, part := range bar.Parts {
				box(from+max(part, 0), partTone(b.chart, k))
			}
		case len(b.chart.Parts) > 0:
			box(max(bar.Whole, 0), partTone(b.chart, len(b.chart.Parts)))
		default:
			box(max(bar.Whole, 0), pick(componentTones(), 0))
		}
		if bar.High > bar.Low {
			line, low, high := stroke(ink(), 1.2), x(max(bar.Low, 0)), x(bar.High)
			c.StrokeLine2(line, low, middle, high, middle)
			c.StrokeLine2(line, low, middle-4, low, middle+4)
			c.StrokeLine2(line, high, middle-4, high, middle+4)
		}
		b.tips.add(x(bar.Whole), middle, "%s: %s", bar.Name, b.words(bar))
	}
}

func (b *chartBars) words(bar result.Bar) string {
	text := number(bar.Whole)
	if bar.High > bar.Low {
		text += fmt.Sprintf(" (%s to %s)", number(bar.Low), number(bar.High))
	}
	for i, part := range bar.Parts {
		if i < len(b.chart.Parts) {
			text += fmt.Sprintf(", %s %s", b.chart.Parts[i], number(part))
		}
	}
	return text
}

// sections writes the tables of a run for a terminal.
func (r *run) sections(w io.Writer) error {
	for _, x := range r.Sections {
		fmt.Fprintf(w, "%s\n", x.Title)
		for _, t := range x.Tables {
			if err := textTable(w, t); err != nil {
				return err
			}
		}
	}
	return nil
}

func textTable(w io.Writer, t result.Table) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for i, c := range t.Columns {
		fmt.Fprint(out, strings.Repeat("\t", min(i, 1)), c.Name)
	}
	fmt.Fprintln(out)
	for _, l := range t.Rows {
		cells := make([]string, 0, len(l.Cells)+1)
		for _, c := range l.Cells {
			text := c.Text
			if c.Note != "" {
				text += " (" + c.Note + ")"
			}
			cells = append(cells, text)
		}
		if l.Instead != "" {
			cells = append(cells, l.Instead)
		}
		if l.Mark != "" {
			cells[0] += " [not comparable: " + l.Mark + "]"
		}
		for i := range cells {
			cells[i] = strings.Join(strings.Fields(cells[i]), " ")
		}
		fmt.Fprintln(out, strings.Join(cells, "\t"))
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("writing a table: %w", err)
	}
	_, err := fmt.Fprintf(w, "  %s\n\n", t.Caption)
	return err
}

// rest returns the number of columns for which the line has no cell, at least 1.
func rest(columns []result.Column, l result.Line) int {
	return max(len(columns)-len(l.Cells), 1)
}
