// Package replay shows the result of vitrine flex simulate as one self-contained page. The page
// compares the policies, and lists the actions of each policy with their reasons.
package replay

import (
	"bytes"
	_ "embed" // the page's template
	"fmt"
	"html/template"
	"strconv"
	"time"

	"vitrine"
	"vitrine/flex/decide"
	"vitrine/flex/simulate"
	"vitrine/report"
)

// points is the approximate number of points of a curve in the page. A reader could not
// distinguish more.
const points = 800

// mostActs bounds the rows of a policy's table.
const mostActs = 500

// Prepare makes the simulation of a case keep the data that the page shows.
func Prepare(c *simulate.Case) {
	c.Every, c.Acts = (len(c.Load)+points-1)/points, true
}

//go:embed page.html
var pageTemplate string

// A page is what the template shows.
type page struct {
	simulate.Case
	Load      string
	Seconds   int
	Peak      float64
	Objective string
	Truth     string
	Results   []simulate.Result
	Acts      []acts
	Capacity  template.HTML
	Instances template.HTML
	Over      template.HTML
}

// An acts has the actions of one policy.
type acts struct {
	Policy string
	All    int
	Shown  []simulate.Act
}

// Page returns the page of a case that Prepare has prepared, with the results of all
// policies. load is the name of the load.
func Page(load string, c simulate.Case, all []simulate.Result) ([]byte, error) {
	if c.Boot == 0 {
		c.Boot = c.Type.Boot
	}
	if c.Boot == 0 {
		c.Boot = decide.DefaultBoot
	}
	p := page{
		Case: c, Load: load, Seconds: len(c.Load), Peak: c.Load.Peak(), Objective: objective(c.Type.Objective), Results: all,
	}
	if c.Truth > 0 && c.Truth != 1 {
		p.Truth = vitrine.Digits(c.Truth)
	}
	for _, r := range all {
		if n := len(r.Acts); n > 0 {
			p.Acts = append(p.Acts, acts{r.Scaler, n, r.Acts[:min(n, mostActs)]})
		}
	}
	if err := p.draw(); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err := report.WritePage(&b, pageTemplate, template.FuncMap{
		"number": vitrine.Digits, "whole": func(v float64) string { return strconv.FormatFloat(v, 'f', 0, 64) },
	}, p)
	return b.Bytes(), err
}

// objective describes an objective in a sentence.
func objective(o decide.Objective) string {
	switch {
	case o.P99 > 0 && o.Success > 0:
		return fmt.Sprintf("The objective is a 99th percentile of at most %v and a success ratio of at least %s.", o.P99, vitrine.Digits(o.Success))
	case o.P99 > 0:
		return fmt.Sprintf("The objective is a 99th percentile of at most %v without any refused work.", o.P99)
	case o.Success > 0:
		return fmt.Sprintf("The objective is a success ratio of at least %s, and no work may wait for longer than the queue allows.", vitrine.Digits(o.Success))
	}
	return "There is no objective, except that no work may be refused."
}

// draw draws the figures.
func (p *page) draw() (err error) {
	length, of := report.TimeAxis(time.Duration(p.Seconds) * time.Second)
	unit := length.Seconds()
	capacity := make([]report.Panel, len(p.Results))
	instances, over := report.Panel{Y: "instances"}, report.Panel{Y: "seconds"}
	for i, r := range p.Results {
		line := func(y func(simulate.Point) float64) []report.Place {
			at := make([]report.Place, len(r.Curve))
			for k, x := range r.Curve {
				at[k] = report.Place{X: float64(x.Second) / unit, Y: y(x)}
			}
			return at
		}
		capacity[i] = report.Panel{Title: r.Scaler, Y: "transactions/s", Marks: marks(r.Curve, unit), Lines: []report.Line{
			{Name: "capacity", Tone: 0, At: line(func(x simulate.Point) float64 { return x.Capacity })},
			{Name: "load", Tone: -1, At: line(func(x simulate.Point) float64 { return x.Rate })},
		}}
		instances.Lines = append(instances.Lines, report.Line{Name: r.Scaler, Tone: i, At: line(func(x simulate.Point) float64 { return float64(x.Exist) })})
		over.Lines = append(over.Lines, report.Line{Name: r.Scaler, Tone: i, At: line(func(x simulate.Point) float64 { return float64(x.Over) })})
	}
	if p.Capacity, err = report.Lines("Load and capacity over time, one plot for each policy.", of, "over", capacity); err != nil {
		return err
	}
	if p.Instances, err = report.Lines("Instances over time, one line for each policy.", of, "", []report.Panel{instances}); err != nil {
		return err
	}
	p.Over, err = report.Lines("Seconds over the objective so far, one line for each policy.", of, "", []report.Panel{over})
	return err
}

// marks returns the parts of a curve during which the objective is missed.
func marks(curve []simulate.Point, unit float64) (all []report.Span) {
	before := simulate.Point{}
	for _, x := range curve {
		if x.Over > before.Over {
			from, to := float64(before.Second)/unit, float64(x.Second)/unit
			if n := len(all); n > 0 && all[n-1].To == from {
				all[n-1].To = to
			} else {
				all = append(all, report.Span{From: from, To: to})
			}
		}
		before = x
	}
	return all
}
