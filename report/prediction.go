package report

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"vitrine"
	"vitrine/result"
)

// near is how close a prediction should be to its measurement, as a share of the measurement.
const near = 0.1

// A prediction compares the predicted capacity of a size, just before it was
// measured, with the measured one.
type prediction struct {
	*subject
	number    int // 1, 2, ... in the order of measuring
	vcpus     float64
	predicted vitrine.Capacity
	measured  vitrine.Capacity
}

// err returns the relative error of the prediction. The error is positive if the prediction was
// too high. It returns false if the measured capacity is not a number.
func (p prediction) err() (share float64, ok bool) {
	if p.measured.Censored != vitrine.CensoredNone || !(p.measured.Rate > 0) {
		return 0, false
	}
	return p.predicted.Rate/p.measured.Rate - 1, true
}

// within reports whether the measured capacity lies in the predicted interval. A capacity that was
// not enclosed may lie anywhere within its bounds.
func (p prediction) within() bool {
	low, high := p.measured.Rate, p.measured.Rate
	if p.measured.Censored != vitrine.CensoredNone {
		low, high = p.measured.Bounds()
	}
	return high >= p.predicted.Low && low <= p.predicted.High
}

// predictions returns the predictions of the runs' paths, in their order. It skips a size that was
// measured before, because its capacity was known and not predicted, and a size whose search did not end,
// because its capacity was not measured. It also skips runs whose first threshold is not the report's.
func (s *set) predictions() []prediction {
	var all []prediction
	for _, r := range s.runs {
		if r.Summary == nil || !r.sameThreshold() {
			continue
		}
		seen := map[*subject]bool{}
		for _, step := range r.Summary.Path {
			x := r.of(step)
			if x == nil || seen[x] {
				continue
			}
			seen[x] = true
			z := x.entries[0] // the first measurement
			if step.Predicted == nil || z.Unfinished != "" {
				continue
			}
			all = append(all, prediction{x, len(all) + 1, z.VCPUs, *step.Predicted, z.Capacity})
		}
	}
	return all
}

// sameThreshold reports whether the run's first threshold, for which it predicts capacities, is the
// report's.
func (r *run) sameThreshold() bool { return r.thresholds()[0] == r.set.thresholds[0] }

// otherPredictions says that the report leaves out the run's predictions, because they are for
// another threshold. It is empty if there are none, or if they are shown.
func (r *run) otherPredictions() string {
	predicts := func(x vitrine.Setting) bool {
		return slices.ContainsFunc(x.Sizes, func(z vitrine.SizeProfile) bool { return z.Source == vitrine.SourcePredicted })
	}
	if r.sameThreshold() || r.Profile == nil || !slices.ContainsFunc(r.Profile.Settings, predicts) {
		return ""
	}
	return fmt.Sprintf("predicted capacities are left out: they are at success ratio %s, and this page compares at %s",
		shortest(r.thresholds()[0]), shortest(r.set.thresholds[0]))
}

// of returns the subject that a step of the path measured; nil: none.
func (r *run) of(step result.Step) *subject {
	i := slices.IndexFunc(r.subjects, func(x *subject) bool {
		return x.summary != nil && x.sizing == step.Sizing &&
			(step.Substrate == "" || x.substrate == step.Substrate) && (step.Options == "" || x.options == step.Options)
	})
	if i < 0 {
		return nil
	}
	return r.subjects[i]
}

// A predictionView is the section of predictions.
type predictionView struct {
	Figures []*figure
	Rows    []predictionRow
	Summary string
}

type predictionRow struct {
	Number                      int
	Name, VCPUs                 string
	Optimal                     bool
	Predicted, PredictedBetween string
	Measured, MeasuredBetween   string
	Error                       measuredCell
	Within                      string
	PredictedSort, MeasuredSort float64
}

func (s *set) predictionView(figures []*figure) predictionView {
	v := predictionView{Figures: figures}
	all := s.predictions()
	for _, p := range all {
		r := predictionRow{
			Number: p.number, Name: p.name, VCPUs: tidy(p.vcpus), Optimal: p.optimal(), PredictedSort: p.predicted.Rate, MeasuredSort: p.measured.Rate,
			Predicted: number(p.predicted.Rate), PredictedBetween: number(p.predicted.Low) + " to " + number(p.predicted.High),
			Measured: capacityText(p.measured), MeasuredBetween: intervalText(p.measured), Error: cell(nil, ""), Within: missing,
		}
		if share, ok := p.err(); ok {
			r.Error = measuredCell{fmt.Sprintf("%+.1f%%", share*100), sortable(math.Abs(share))}
			r.Within = map[bool]string{true: "yes", false: "no"}[p.within()]
		}
		v.Rows = append(v.Rows, r)
	}
	v.Summary = accuracy(all)
	return v
}

// accuracy sums up how far predictions were from measurements.
func accuracy(all []prediction) string {
	var shares []float64
	within := 0
	for _, p := range all {
		if share, ok := p.err(); ok {
			shares = append(shares, math.Abs(share))
			if p.within() {
				within++
			}
		}
	}
	if len(shares) == 0 {
		return ""
	}
	slices.Sort(shares)
	n := len(shares)
	median := (shares[(n-1)/2] + shares[n/2]) / 2
	return fmt.Sprintf("Of %d predictions the median error is %.1f%% and the largest %.1f%%; the capacity of %d of %d sizes was in its predicted interval.",
		n, median*100, shares[n-1]*100, within, n)
}

// predictionFigures returns a figure of predicted against measured capacities.
func (s *set) predictionFigures() []*figure {
	all := s.predictions()
	all = slices.DeleteFunc(all, func(p prediction) bool { return p.measured.Unmeasured() })
	if len(all) == 0 {
		return nil
	}
	return []*figure{{
		Name: "prediction", title: "Predicted and then measured", section: sectionPrediction, width: figureWidth, height: 470,
		alt: "Measured against predicted capacity of every size that was predicted before it was measured; the table below has the same numbers. " + accuracy(all),
		Caption: fmt.Sprintf("Each mark is a size: the capacity that the search's model predicted before the size was measured, and the measured capacity, each with its %sinterval, "+
			"at success ratio %s. On the line both are equal; between the dotted lines the prediction is within 10%% of the measurement. The numbers are the order of measuring.", s.sure(), shortest(s.thresholds[0])),
		draw: func(c draw.Canvas, t *tips) error { return s.drawPredictions(c, t, all) },
	}}
}

func (s *set) drawPredictions(c draw.Canvas, t *tips, all []prediction) error {
	p := newPlot("predicted capacity, "+s.unit, "measured capacity, "+s.unit)
	p.Add(thinGrid(true, true))
	most := 0.0
	for _, x := range all {
		most = max(most, x.predicted.Rate*1.1, x.measured.Rate, x.measured.High)
	}
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, most*1.06, 0, most*1.06
	var keys []key
	for _, l := range []struct {
		slope float64 // of measured to predicted
		dash  []vg.Length
		label string
	}{{1, []vg.Length{6, 3}, "as predicted"}, {1 / (1 + near), []vg.Length{1.5, 2.5}, "within 10%"}, {1 / (1 - near), []vg.Length{1.5, 2.5}, ""}} {
		end := min(p.X.Max, p.Y.Max/l.slope)
		line, err := newLine(muted(), 1, l.dash, plotter.XYs{{}, {X: end, Y: end * l.slope}})
		if err != nil {
			return err
		}
		p.Add(line)
		if l.label != "" {
			keys = append(keys, key{l.label, []plot.Thumbnailer{line}})
		}
	}
	marks := &predictionPlotter{set: s, tips: t, all: all}
	p.Add(marks)
	keys = append(keys, markKey("measured inside its interval", marks.style(true)))
	if slices.ContainsFunc(all, func(p prediction) bool { return !p.within() }) {
		keys = append(keys, markKey("measured outside it", marks.style(false)))
	}
	p.Draw(withLegend(c, keys))
	return nil
}

// A predictionPlotter draws each size with its predicted and its measured
// interval.
type predictionPlotter struct {
	set  *set
	tips *tips
	all  []prediction
}

func (r *predictionPlotter) style(within bool) draw.GlyphStyle {
	tones := componentTones()
	if within {
		return draw.GlyphStyle{Color: tones[0].color(), Radius: 4, Shape: draw.CircleGlyph{}}
	}
	return draw.GlyphStyle{Color: tones[1].color(), Radius: 4.2, Shape: draw.PyramidGlyph{}}
}

func (r *predictionPlotter) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	var placed []vg.Rectangle
	for _, m := range r.all {
		at := vg.Point{X: x(min(m.predicted.Rate, p.X.Max)), Y: y(clamp(m.measured.Rate, p))}
		style := r.style(m.within())
		line := draw.LineStyle{Color: style.Color, Width: 1.1}
		low, high := m.measured.Bounds()
		c.StrokeLine2(line, at.X, y(clamp(low, p)), at.X, y(clamp(high, p)))
		c.StrokeLine2(line, x(min(m.predicted.Low, p.X.Max)), at.Y, x(min(m.predicted.High, p.X.Max)), at.Y)
		c.DrawGlyph(style, at)
		placed = nameAt(c, at, fmt.Sprint(m.number), m.optimal(), placed)
		text := ""
		if share, ok := m.err(); ok {
			text = fmt.Sprintf(", an error of %+.1f%%", share*100)
		}
		r.tips.add(at.X, at.Y, "%d. %s: predicted %s %s (%s to %s), measured %s (%s)%s", m.number, m.name, number(m.predicted.Rate), r.set.unit,
			number(m.predicted.Low), number(m.predicted.High), capacityText(m.measured), intervalText(m.measured), text)
	}
}
