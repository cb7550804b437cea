package chain

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"

	"vitrine/measure/delay"
)

// The values that are fitted against the length.
const (
	RoundTrip     = "round trip"       // the median of each stream
	RoundTripMean = "mean round trip"  // the mean of each stream, as in the paper
	RoundTripMin  = "least round trip" // minimum of all repeats: the path's own time, without disturbances by the host
	Variation     = "delay variation"  // the mean jitter of each stream (RFC 3550)
	leastFitted   = 3                  // lengths; a line through two points has no residuals
)

// A Fit is the least-squares line through the means of each length. Lengths are in
// hops, values in µs.
type Fit struct {
	Of        string         `json:"of"`
	Intercept float64        `json:"intercept_us"`
	PerHop    float64        `json:"per_hop_us"`
	Slope     delay.Interval `json:"per_hop_interval_us"` // of the repeats' own lines
	R2        float64        `json:"r_squared"`
	R2Each    delay.Interval `json:"r_squared_of_each"` // of the repeats' own lines
	Residuals []Residual     `json:"residuals"`
}

// A Residual is the measured value at a length minus the line's value.
type Residual struct {
	Length int            `json:"length"`
	Value  delay.Interval `json:"us"` // of repeats, each against the common line
}

// A series holds values by repeat and length; µs. NaN: no value.
type series struct {
	lengths []int
	values  [][]float64 // [repeat][index of length]
}

// fit returns the line. It returns false if there are fewer than three lengths.
func (s series) fit(of string) (Fit, bool) {
	var x, mean []float64
	for i, length := range s.lengths {
		if column := s.column(i); len(column) > 0 {
			x, mean = append(x, float64(length)), append(mean, stat.Mean(column, nil))
		}
	}
	if len(x) < leastFitted {
		return Fit{}, false
	}
	f := Fit{Of: of}
	f.Intercept, f.PerHop = stat.LinearRegression(x, mean, nil, false)
	f.R2 = stat.RSquared(x, mean, nil, f.Intercept, f.PerHop)
	if math.IsNaN(f.R2) { // all means are equal, and the line passes through them
		f.R2 = 1
	}
	slopes, squares := s.lines()
	f.Slope, f.R2Each = delay.OfRepeats(slopes), delay.OfRepeats(squares)
	f.Residuals = s.residuals(f)
	return f, true
}

// lines returns the slopes of the repeats' own lines, and R squared of the lines that
// have residuals.
func (s series) lines() (slopes, squares []float64) {
	for _, row := range s.values {
		var x, y []float64
		for i, v := range row {
			if !math.IsNaN(v) {
				x, y = append(x, float64(s.lengths[i])), append(y, v)
			}
		}
		if len(x) < 2 {
			continue
		}
		intercept, slope := stat.LinearRegression(x, y, nil, false)
		slopes = append(slopes, slope)
		if r2 := stat.RSquared(x, y, nil, intercept, slope); len(x) >= leastFitted && !math.IsNaN(r2) {
			squares = append(squares, r2)
		}
	}
	return slopes, squares
}

// residuals returns the residuals against the line of f, which may be of another series.
func (s series) residuals(f Fit) []Residual {
	var list []Residual
	for i, length := range s.lengths {
		column := s.column(i)
		if len(column) == 0 {
			continue
		}
		for k := range column {
			column[k] -= f.Intercept + f.PerHop*float64(length)
		}
		list = append(list, Residual{Length: length, Value: delay.OfRepeats(column)})
	}
	return list
}

// least returns the minimum over all repeats at each length, in the form of one repeat.
func (s series) least() series {
	row := make([]float64, len(s.lengths))
	for i := range row {
		row[i] = math.NaN()
		if column := s.column(i); len(column) > 0 {
			row[i] = slices.Min(column)
		}
	}
	return series{lengths: s.lengths, values: [][]float64{row}}
}

// column returns the repeats' values at a length.
func (s series) column(i int) []float64 {
	var column []float64
	for _, row := range s.values {
		if !math.IsNaN(row[i]) {
			column = append(column, row[i])
		}
	}
	return column
}

// A Finding is the measured effect of an injected delay.
type Finding struct {
	Of string `json:"of"`
	// Added is the time that the delay added to lengths that pass the hop, minus the time that it
	// added to other lengths. It is over the repeats, in µs.
	Added delay.Interval `json:"added_us"`
	// Residuals of the values with the delay, against the line without it.
	Residuals []Residual `json:"residuals"`
}

// findInjected compares the series with and without the delay, repeat by repeat, because
// the two sides of a repeat ran one after the other.
func findInjected(of string, hop int, without, with series) Finding {
	f := Finding{Of: of}
	var added []float64
	for repeat := range min(len(without.values), len(with.values)) {
		var past, before []float64
		for i, length := range without.lengths {
			d := with.values[repeat][i] - without.values[repeat][i]
			switch {
			case math.IsNaN(d):
			case length >= hop:
				past = append(past, d)
			default:
				before = append(before, d)
			}
		}
		if len(past) > 0 && len(before) > 0 {
			added = append(added, stat.Mean(past, nil)-stat.Mean(before, nil))
		}
	}
	f.Added = delay.OfRepeats(added)
	if line, ok := without.fit(of); ok {
		f.Residuals = with.residuals(line)
	}
	return f
}
