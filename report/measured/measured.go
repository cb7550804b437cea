// Package measured shows the capacities that vitrine flex has measured on live traffic as one
// self-contained page.
package measured

import (
	"bytes"
	_ "embed" // the page's template
	"fmt"
	"html/template"
	"maps"
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
	t, err := template.New("page").Parse(pageTemplate)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = t.Execute(&b, struct {
		Title    string
		Sections []section
		Style    template.CSS
		Script   template.JS
	}{title, sections, report.Style(), report.Script()})
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
	unit, of := axis(last.Sub(first))
	x := func(at time.Time) float64 { return float64(at.Sub(first)) / float64(unit) }
	panel := report.Panel{Y: "transactions/s"}
	lines := map[string][]report.Place{}
	for i := range history {
		m := &history[i]
		at := x(m.At)
		lines[m.Size] = append(lines[m.Size], report.Place{X: at, Y: m.Before}, report.Place{X: at, Y: m.After})
		if m.Found() {
			panel.Points = append(panel.Points, report.Point{Place: report.Place{X: at, Y: m.Rate}, Low: m.Low, High: max(m.High, m.Rate), Tip: m.String()})
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

// axis returns the unit of the time axis and its name.
func axis(length time.Duration) (unit time.Duration, name string) {
	switch {
	case length <= 3*time.Hour:
		return time.Minute, "minutes"
	case length <= 72*time.Hour:
		return time.Hour, "hours"
	}
	return 24 * time.Hour, "days"
}
