package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// A Row is one figure. If this host cannot measure it, the pointers are nil and Reason says why.
type Row struct {
	Name    string      `json:"name"`             // "load/sip"
	Ours    *float64    `json:"ours"`             // median over the rounds or runs
	Theirs  *float64    `json:"theirs"`           // median over the rounds or runs
	Unit    string      `json:"unit"`             // of ours and theirs
	Against string      `json:"against"`          // description of theirs
	Ratio   *float64    `json:"ratio"`            // median of the rounds' ratios ours / theirs, or ratio of the medians (ratioOf)
	Aim     string      `json:"aim"`              // bound on the ratio: ">= 3", "<= 1.5"; empty: no aim, for information only
	Holds   *bool       `json:"holds"`            // whether the ratio meets the aim; nil: no aim
	Spread  *[2]float64 `json:"spread"`           // lowest and highest ratio of a round
	Rounds  int         `json:"rounds"`           // number of rounds, or of runs (ratioOf)
	Reason  string      `json:"reason,omitempty"` // why there is no figure
}

// minRounds is the least number of rounds for a useful median and spread.
const minRounds = 5

// A side measures one of the two compared things once, in the row's unit.
type side func(ctx context.Context) (float64, error)

// Pairs are the rounds of a comparison: Ours[i] and Theirs[i] were measured
// directly one after the other.
type Pairs struct{ Ours, Theirs []float64 }

func (p *Pairs) add(ours, theirs float64) {
	p.Ours, p.Theirs = append(p.Ours, ours), append(p.Theirs, theirs)
}

// interleave measures both sides alternately.
func interleave(ctx context.Context, rounds int, ours, theirs side, progress io.Writer) (Pairs, error) {
	all, err := runRounds(ctx, rounds, []side{ours, theirs}, progress)
	if err != nil {
		return Pairs{}, err
	}
	return Pairs{all[0], all[1]}, nil
}

// compareSides measures both sides alternately and returns the one row of the comparison.
func compareSides(ctx context.Context, rounds int, name, unit, against, aim string, ours, theirs side, progress io.Writer) ([]Row, error) {
	pairs, err := interleave(ctx, rounds, ours, theirs, progress)
	if err != nil {
		return nil, err
	}
	row, err := pairs.row(name, unit, against, aim)
	if err != nil {
		return nil, err
	}
	return []Row{row}, nil
}

// runRounds measures all sides in every round. The side that goes first rotates, so
// that a drift of the host favours no side. The first side is ours. runRounds
// returns, for each side, the value of each round.
func runRounds(ctx context.Context, rounds int, sides []side, progress io.Writer) ([][]float64, error) {
	all := make([][]float64, len(sides))
	for round := range rounds {
		got := make([]float64, len(sides))
		for i := range sides {
			i = (i + round) % len(sides)
			who := "ours"
			if i > 0 {
				who = "theirs"
			}
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			v, err := sides[i](ctx)
			if err != nil {
				return nil, fmt.Errorf("round %d: %s: %w", round+1, who, err)
			}
			got[i] = v
		}
		fmt.Fprintf(progress, "  round %d: ours %.4g", round+1, got[0])
		for i := range sides[1:] {
			fmt.Fprintf(progress, ", theirs %.4g, ratio %.3g", got[i+1], got[0]/got[i+1])
		}
		fmt.Fprintln(progress)
		for i, v := range got {
			all[i] = append(all[i], v)
		}
	}
	return all, nil
}

// row sums up the rounds. The ratio is the median of the rounds' ratios, not the ratio of the
// medians, because both sides of a round see the same host conditions.
func (p Pairs) row(name, unit, against, aim string) (Row, error) {
	if len(p.Ours) == 0 || len(p.Ours) != len(p.Theirs) {
		return Row{}, fmt.Errorf("%s: %d values of ours, but %d of theirs", name, len(p.Ours), len(p.Theirs))
	}
	ratios := make([]float64, len(p.Ours))
	for i := range ratios {
		ratios[i] = p.Ours[i] / p.Theirs[i]
		if math.IsNaN(ratios[i]) || math.IsInf(ratios[i], 0) {
			return Row{}, fmt.Errorf("%s: round %d: cannot divide %g by %g", name, i+1, p.Ours[i], p.Theirs[i])
		}
	}
	return newRow(name, unit, against, aim, median(p.Ours), median(p.Theirs), median(ratios), ratios, len(ratios)), nil
}

// newRow returns the row of one ratio. The spread is over ratios; nil: over the ratio alone.
func newRow(name, unit, against, aim string, ours, theirs, ratio float64, ratios []float64, rounds int) Row {
	if len(ratios) == 0 {
		ratios = []float64{ratio}
	}
	row := Row{
		Name: name, Unit: unit, Against: against, Aim: aim, Ours: &ours, Theirs: &theirs, Ratio: &ratio,
		Spread: &[2]float64{slices.Min(ratios), slices.Max(ratios)}, Rounds: rounds,
	}
	if aim != "" {
		row.Holds = new(meets(ratio, aim))
	}
	return row
}

// unless returns the row, which misses its aim if something else got worse.
func (r Row) unless(worse bool) Row {
	if worse && r.Holds != nil {
		r.Holds = new(false)
	}
	return r
}

// countRuns returns the number of runs for which holds is true.
func countRuns[T any](runs []T, holds func(T) bool) (n int) {
	for _, r := range runs {
		if holds(r) {
			n++
		}
	}
	return n
}

// values returns a figure of each run.
func values[T any](runs []T, figure func(T) float64) (all []float64) {
	for _, r := range runs {
		all = append(all, figure(r))
	}
	return all
}

// median returns the median of a non-empty list. It does not change the list.
func median(values []float64) float64 {
	s := slices.Sorted(slices.Values(values))
	mid := len(s) / 2
	if len(s)%2 == 1 {
		return s[mid]
	}
	return (s[mid-1] + s[mid]) / 2
}

// meets reports whether the ratio meets an aim such as ">= 3" or "<= 1.5". It panics at any other aim,
// because aims are constants of this program.
func meets(ratio float64, aim string) bool {
	op, text, _ := strings.Cut(aim, " ")
	bound, err := strconv.ParseFloat(text, 64)
	switch {
	case err == nil && op == "<=":
		return ratio <= bound
	case err == nil && op == ">=":
		return ratio >= bound
	}
	panic(fmt.Sprintf("aim %q: want <= or >= and a number", aim))
}

// holds says whether the ratio meets the aim: yes, no, or "-" without an aim.
func (r Row) holds() string {
	if r.Holds == nil {
		return "-"
	}
	return map[bool]string{true: "yes", false: "no"}[*r.Holds]
}

// figures returns what the row measured, what with, and the ratio, for a page. The row must have a ratio.
func (r Row) figures() (measured, against, ratio string) {
	return fmt.Sprintf("%.4g %s", *r.Ours, r.Unit), fmt.Sprintf("%.4g, %s", *r.Theirs, r.Against), fmt.Sprintf("%.3f", *r.Ratio)
}

func printTable(out io.Writer, rows []Row) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tOURS\tTHEIRS\tUNIT\tRATIO\tSPREAD\tROUNDS\tAIM\tHOLDS\tAGAINST")
	for _, r := range rows {
		if r.Ratio == nil {
			fmt.Fprintf(w, "%s\t-\t-\t%s\t-\t-\t-\t%s\t-\t%s\n", r.Name, r.Unit, r.Aim, r.Reason)
			continue
		}
		fmt.Fprintf(w, "%s\t%.4g\t%.4g\t%s\t%.3g\t%.3g..%.3g\t%d\t%s\t%s\t%s\n", r.Name, *r.Ours, *r.Theirs,
			r.Unit, *r.Ratio, r.Spread[0], r.Spread[1], r.Rounds, r.Aim, r.holds(), r.Against)
	}
	w.Flush()
}

// keptAwake returns the end of a phrase about the host, which says whether its idle CPUs polled.
func keptAwake(awake bool) string {
	if awake {
		return ", CPUs kept awake"
	}
	return ""
}
