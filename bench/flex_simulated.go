package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"vitrine/flex/decide"
	"vitrine/flex/simulate"
	"vitrine/papers"
)

// randomFile is the committed record of the random loads.
const randomFile = "bench/results/flex-random.json"

const (
	simulatedPeak     = 2000.0 // highest rate of the loads, in transactions/s
	simulatedLoads    = 100    // random loads
	simulatedHeadroom = 0.1
)

// simulatedPeers returns the scalers that the page compares with ours.
func simulatedPeers() []string { return []string{"fixed", "hpa", "hpa=0.9", "knative", "knative=0.9"} }

// simulatedCase returns the type that docs/flex.md describes, without a load.
func simulatedCase(headroom float64) simulate.Case {
	return simulate.Case{Type: decide.Type{
		Name: "registration", Min: 2, Max: 40, Headroom: headroom, Boot: 5 * time.Second,
		Objective: decide.Objective{P99: 100 * time.Millisecond, Success: 0.999},
		Flavors:   []decide.Flavor{{Name: "s", Capacity: 100, CPUs: 1}},
	}}
}

// A randomRecord holds the totals over the random loads, ours first.
type randomRecord struct {
	source
	Totals []simulate.Total `json:"totals"`
}

// flexSimulated simulates the random loads and replaces their record.
func flexSimulated(ctx context.Context, progress io.Writer) (rows []Row, err error) {
	totals, err := simulate.Sweep(simulatedCase(simulatedHeadroom), simulatedLoads, simulatedPeak, simulatedPeers())
	if err != nil {
		return nil, err
	}
	if err := writeRecord(randomFile, randomRecord{sourceAt(ctx, time.Now()), totals}); err != nil {
		return nil, err
	}
	fmt.Fprintf(progress, "  the totals over %d random loads are in %s\n", simulatedLoads, randomFile)
	for _, r := range totals[1:] {
		ours := totals[0].InstanceSeconds
		against := fmt.Sprintf("the rules of %s, simulated, with %d s over the objective against our %d", r.Scaler, r.Broken, totals[0].Broken)
		rows = append(rows, newRow("flex/simulated/"+r.Scaler, "instance-s", against, "", ours, r.InstanceSeconds, ours/r.InstanceSeconds, nil, r.Loads))
	}
	return rows, nil
}

// randomSection returns the page's section: the table of the random loads, or notRun.
func randomSection(root string) (string, error) {
	var r randomRecord
	if err := readRecord(filepath.Join(root, randomFile), &r); err != nil || len(r.Totals) == 0 {
		return notRun, err
	}
	grid := [][]string{{"scaler", "instance-s", "over", "lost", "starts", "undone", "fewer s over", "fewer instance-s", "both"}}
	for _, t := range r.Totals {
		grid = append(grid, []string{
			t.Scaler, fmt.Sprintf("%.0f", t.InstanceSeconds), fmt.Sprintf("%d s", t.Broken), fmt.Sprintf("%.0f", t.Lost),
			fmt.Sprint(t.Starts), fmt.Sprint(t.Undone), fmt.Sprint(t.Fewer), fmt.Sprint(t.Less), fmt.Sprint(t.Both),
		})
	}
	return fmt.Sprintf("%d loads, %s, by commit `%s`:\n\n", r.Totals[0].Loads, r.Date, r.Commit) + papers.Markdown(grid), nil
}

// shapesSection simulates the built-in loads and returns the page's section.
func shapesSection(string) (string, error) {
	grid := [][]string{{"load", "scaler", "instance-s", "over", "lost", "starts", "drains", "undone"}}
	var better []string
	for _, shape := range simulate.Shapes() {
		tight, spare := simulatedCase(0), simulatedCase(simulatedHeadroom)
		spare.Load, _ = simulate.Shape(shape, simulatedPeak)
		tight.Load = spare.Load
		all, err := simulate.Compare(spare, simulatedPeers())
		if err != nil {
			return "", err
		}
		all[0].Scaler = fmt.Sprintf("flex, %g", simulatedHeadroom)
		all = slices.Insert(all, 0, simulate.Flex(tight))
		all[0].Scaler = "flex, 0"
		for _, r := range all {
			grid = append(grid, []string{
				shape, r.Scaler, fmt.Sprintf("%.0f", r.InstanceSeconds), fmt.Sprintf("%d s", r.Broken), fmt.Sprintf("%.0f", r.Lost),
				fmt.Sprint(r.Starts), fmt.Sprint(r.Drains), fmt.Sprint(r.Undone),
			})
			if slices.ContainsFunc(all[:2], func(f simulate.Result) bool { return r.Broken < f.Broken && r.InstanceSeconds < f.InstanceSeconds }) {
				better = append(better, r.Scaler+" ("+shape+")")
			}
		}
	}
	if len(better) == 0 {
		better = []string{"none"}
	}
	return papers.Markdown(grid) + "\nWith both fewer seconds over the objective and fewer instance-seconds than one of the two `flex`: " + strings.Join(better, ", ") + ".\n", nil
}
