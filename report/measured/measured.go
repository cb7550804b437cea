// Package measured shows the capacities that vitrine flex has measured on live traffic as one
// self-contained page.
package measured

import (
	"bytes"
	_ "embed" // the page's template
	"fmt"
	"html/template"
	"maps"
	"math"
	"slices"
	"time"

	"vitrine/flex"
	"vitrine/report"
)

//go:embed page.html
var pageTemplate string

// A section is the part of the page about one type.
type section struct {
	Name   string
	Figure template.HTML // empty: no measurements
	Rows   []row
}

type row struct{ At, Instance, Size, Reason, Found, Cost string }

// Page returns the page with the measurements of each type, oldest first. title names the
// orchestrator's file.
func Page(title string, all map[string][]flex.Measured) ([]byte, error) {
	var sections []section
	for _, name := range slices.Sorted(maps.Keys(all)) {
		s := section{Name: name}
		for i := range all[name] {
			s.Rows = append(s.Rows, newRow(&all[name][i]))
		}
		if len(s.Rows) > 0 {
			var err error
			if s.Figure, err = figure(all[name]); err != nil {
				return nil, fmt.Errorf("draw the capacity of %s: %w", name, err)
			}
		}
		sections = append(sections, s)
	}
	var b bytes.Buffer
	err := report.WritePage(&b, pageTemplate, nil, struct {
		Title    string
		Sections []section
	}{title, sections})
	return b.Bytes(), err
}

const minute = "2006-01-02 15:04"

func newRow(m *flex.Measured) row {
	r := row{At: m.At.UTC().Format(minute), Instance: m.Instance, Size: m.Size, Reason: m.Reason, Found: m.String(), Cost: "not known"}
	if m.Cost.Each > 0 {
		r.Cost = fmt.Sprintf("%.3g ms", 1000*m.Cost.Each)
	}
	return r
}

// figure plots the results over time, and the capacity that the policy used: one line for each size.
func figure(history []flex.Measured) (template.HTML, error) {
	first, last := history[0].At, history[len(history)-1].At
	unit, of := report.TimeAxis(last.Sub(first))
	x := func(at time.Time) float64 { return float64(at.Sub(first)) / float64(unit) }
	panel := report.Panel{Y: "transactions/s"}
	lines := map[string][]report.Place{}
	for i := range history {
		m := &history[i]
		at := x(m.At)
		lines[m.Size] = append(lines[m.Size], report.Place{X: at, Y: m.Before}, report.Place{X: at, Y: m.After})
		if m.Found() {
			high := max(m.High, m.Rate)
			if m.High == 0 {
				high = math.Inf(1)
			}
			panel.Points = append(panel.Points, report.Point{Place: report.Place{X: at, Y: m.Rate}, Low: m.Low, High: high, Tip: m.String()})
		} else {
			panel.Marks = append(panel.Marks, report.Span{From: at, To: at})
		}
	}
	for i, size := range slices.Sorted(maps.Keys(lines)) {
		at := lines[size]
		at = append(at, report.Place{X: x(last), Y: at[len(at)-1].Y})
		panel.Lines = append(panel.Lines, report.Line{Name: "in use for " + size, Tone: i, At: at})
	}
	return report.Lines("Capacity over time.", of+" since "+first.UTC().Format(minute)+" UTC", "nothing found", []report.Panel{panel})
}
