package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// A Distribution holds the values of one figure, by contestant.
type Distribution struct {
	Axis   string // what the values are, with their unit
	Log    bool   // the axis is logarithmic
	Values [][]float64
}

// Distributions draws the cumulative distribution of each contestant's values, with one panel per
// Distribution side by side, in the format svg or png. Values that are not numbers count, but lie
// beyond the axis.
func Distributions(format, title string, contestants []string, panels []Distribution) ([]byte, error) {
	if len(contestants) == 0 || len(panels) == 0 {
		return nil, fmt.Errorf("draw %q: no distribution and no contestant", title)
	}
	f := &figure{title: title, alt: title, width: figureWidth, height: 340}
	f.draw = func(c draw.Canvas, _ *tips) error {
		var keys []key
		for i, name := range contestants {
			keys = append(keys, lineKey(name, pick(sizeTones(), i), 2, nil))
		}
		c = withLegend(c, keys)
		width := c.Size().X / vg.Length(len(panels))
		for i, panel := range panels {
			p, err := panel.plot()
			if err != nil {
				return err
			}
			left := width * vg.Length(i)
			p.Draw(draw.Crop(c, left+8, left+width-c.Size().X-8, 0, 0))
		}
		return nil
	}
	switch strings.ToLower(format) {
	case "svg":
		return f.vector()
	case "png":
		return f.raster()
	}
	return nil, fmt.Errorf("draw as %q: want svg or png", format)
}

func (d Distribution) plot() (*plot.Plot, error) {
	p := newPlot(d.Axis, "share of functions, %")
	p.Add(thinGrid(true, true))
	p.Y.Min, p.Y.Max = 0, 100
	low, high := d.bounds()
	if d.Log {
		p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, powers{}
	}
	for i, values := range d.Values {
		points := steps(values, low, high)
		if len(points) == 0 {
			continue
		}
		line, err := newLine(pick(sizeTones(), i), 2, nil, points)
		if err != nil {
			return nil, err
		}
		p.Add(line)
	}
	p.X.Min, p.X.Max = low, high
	return p, nil
}

// bounds returns limits that hold all numbers except the highest hundredth. Those few would leave
// no room for the others.
func (d Distribution) bounds() (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, values := range d.Values {
		var sorted []float64
		for _, v := range values {
			if !math.IsInf(v, 0) && !math.IsNaN(v) && (v > 0 || !d.Log) {
				sorted = append(sorted, v)
			}
		}
		if len(sorted) == 0 {
			continue
		}
		slices.Sort(sorted)
		low = min(low, sorted[0])
		high = max(high, sorted[(len(sorted)-1)*99/100])
	}
	switch {
	case math.IsInf(low, 1):
		return 1, 10
	case d.Log:
		return low / 1.2, high * 1.2
	case high <= 0:
		return 0, 1
	}
	return 0, high * 1.02
}

// steps returns, as points of a staircase between the bounds, the share of the values up to each
// value.
func steps(values []float64, low, high float64) plotter.XYs {
	sorted := slices.Clone(values)
	for i, v := range sorted {
		if math.IsNaN(v) { // slices.Sort would put a NaN first; it lies beyond the axis
			sorted[i] = math.Inf(1)
		}
	}
	slices.Sort(sorted)
	points := plotter.XYs{{X: low, Y: 0}}
	share := 0.0
	for i, v := range sorted {
		if v > high {
			break
		}
		v = max(v, low)
		points = append(points, plotter.XY{X: v, Y: share})
		share = 100 * float64(i+1) / float64(len(sorted))
		points = append(points, plotter.XY{X: v, Y: share})
	}
	return append(points, plotter.XY{X: high, Y: share})
}

// powers places ticks at 1, 2 and 5 times the powers of ten.
type powers struct{}

func (powers) Ticks(low, high float64) []plot.Tick {
	var list []plot.Tick
	for power := math.Pow(10, math.Floor(math.Log10(low))); power <= high; power *= 10 {
		for _, of := range []float64{1, 2, 5} {
			if v := of * power; v >= low && v <= high {
				list = append(list, plot.Tick{Value: v, Label: tidy(v)})
			}
		}
	}
	return list
}
