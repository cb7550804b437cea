package flex

import (
	_ "embed" // the page's template
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

//go:embed profile_page.html
var profilePage string

// A profileView is the section of the page about one type.
type profileView struct {
	Name   string
	Figure *profileFigure // nil: no measurements
	Rows   []profileRow
}

type profileRow struct{ At, Instance, Size, Reason, Found, Cost string }

// A profileFigure plots capacity over time, in SVG user units.
type profileFigure struct {
	Top, From, To string
	Lines         []string // polyline points of the capacity in use, in the order of sizes
	Marks         []profileMark
}

type profileMark struct {
	X, Y, Low, High string
	Found           bool
	Text            string
}

// The plot area, in SVG user units.
const (
	figureLeft, figureRight = 60.0, 880.0
	figureTop, figureBottom = 20.0, 210.0
)

const pageTime = "2006-01-02 15:04"

// WriteProfilePage writes a self-contained HTML page with the capacity history of each type.
func WriteProfilePage(w io.Writer, title string, all map[string][]Measured) error {
	t, err := template.New("profile").Parse(profilePage)
	if err != nil {
		return fmt.Errorf("read the page's template: %w", err)
	}
	var views []profileView
	for _, name := range slices.Sorted(maps.Keys(all)) {
		v := profileView{Name: name, Figure: newProfileFigure(all[name])}
		for i := range all[name] {
			v.Rows = append(v.Rows, newProfileRow(&all[name][i]))
		}
		views = append(views, v)
	}
	return t.Execute(w, struct {
		Title string
		Types []profileView
	}{title, views})
}

func newProfileRow(m *Measured) profileRow {
	r := profileRow{At: m.At.UTC().Format(pageTime), Instance: m.Instance, Size: m.Size, Reason: m.Reason, Found: m.String(), Cost: "not known"}
	if m.Cost.Each > 0 {
		r.Cost = fmt.Sprintf("%.3g ms", 1000*m.Cost.Each)
	}
	return r
}

func newProfileFigure(history []Measured) *profileFigure {
	if len(history) == 0 {
		return nil
	}
	from, to, top := history[0].At, history[len(history)-1].At, 0.0
	for _, m := range history {
		top = max(top, m.High, m.Rate, m.Before, m.After)
	}
	x := func(at time.Time) float64 {
		if !to.After(from) {
			return (figureLeft + figureRight) / 2
		}
		return figureLeft + (figureRight-figureLeft)*min(max(float64(at.Sub(from))/float64(to.Sub(from)), 0), 1)
	}
	y := func(rate float64) float64 {
		if top <= 0 {
			return figureBottom
		}
		return figureBottom - (figureBottom-figureTop)*rate/top
	}
	f := &profileFigure{Top: fmt.Sprintf("%.4g", top), From: from.UTC().Format(pageTime), To: to.UTC().Format(pageTime)}
	lines, counts := map[string]*strings.Builder{}, map[string]float64{}
	for i := range history {
		m := &history[i]
		high := m.High
		if high == 0 {
			high = top
		}
		f.Marks = append(f.Marks, profileMark{Found: m.found(), X: digits(x(m.At)), Y: digits(y(m.Rate)), Low: digits(y(m.Low)), High: digits(y(high)), Text: m.String()})
		if lines[m.Size] == nil {
			lines[m.Size] = &strings.Builder{}
			fmt.Fprintf(lines[m.Size], "%s,%s", digits(figureLeft), digits(y(m.Before)))
		}
		fmt.Fprintf(lines[m.Size], " %s,%s %s,%s", digits(x(m.At)), digits(y(m.Before)), digits(x(m.At)), digits(y(m.After)))
		counts[m.Size] = m.After
	}
	for _, size := range slices.Sorted(maps.Keys(lines)) {
		f.Lines = append(f.Lines, fmt.Sprintf("%s %s,%s", lines[size], digits(figureRight), digits(y(counts[size]))))
	}
	return f
}

func digits(v float64) string { return fmt.Sprintf("%.1f", v) }
