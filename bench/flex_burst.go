package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"text/tabwriter"

	"vitrine/flex/burst"
	"vitrine/flex/policy"
	"vitrine/flex/simulate"
	"vitrine/internal/cgroup"
	"vitrine/internal/hosttest"
)

// burstFile stores every day, so that an interrupted bench can resume. Days of another build of the
// program or of another length are ignored.
const burstFile = "bench-flex-burst.jsonl"

// burstDay is the environment variable with the length of a day in seconds.
const burstDay = "VITRINE_BURST_SECONDS"

const (
	burstSeconds = 3600  // default length of a day, at which the burst has its real length
	burstPeak    = 150.0 // peak of simulate.Day in transactions/s; the burst reaches two thirds of it, 100/s
	burstMax     = 8     // instances; Knative's rules need them for the burst, at 70% of an instance's capacity
	burstFixed   = 5     // instances of the fixed policy; enough for the burst, which a real operator could not foresee
	burstReact   = 2.0   // seconds to notice a burst and decide; the rest of the lag is the start of instances
)

// burstPolicies returns our policy, and then the policies to compare with it.
func burstPolicies() []string {
	return []string{policy.Flex, fmt.Sprintf("fixed=%d", burstFixed), "hpa", "knative"}
}

// A burstRecord is the result of one day.
type burstRecord struct {
	Build string `json:"build"` // hash of the program
	burst.Result
}

// flexBurst runs a day with a burst under each policy, one after the other. The instances are
// aggregates of the reference IMS.
func flexBurst(ctx context.Context, dir string, progress io.Writer) ([]Row, error) {
	if _, err := cgroup.Detect(); err != nil {
		return nil, err
	}
	seconds, err := burstLength(os.Getenv(burstDay))
	if err != nil {
		return nil, err
	}
	program := filepath.Join(dir, "vitrine")
	if err := hosttest.Build(ctx, program, hosttest.Product); err != nil {
		return nil, err
	}
	build, err := buildID(program)
	if err != nil {
		return nil, err
	}
	done, err := readBursts(burstFile, build, seconds)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(progress, "  a day of %d s takes %d s here: the slow change of the load is %.3g times as fast; windows, starts and drains are not\n",
		86400, seconds, 86400/float64(seconds))
	for _, name := range burstPolicies() {
		if _, ok := done[name]; ok {
			continue
		}
		folder := filepath.Join(dir, name)
		if err := os.Mkdir(folder, 0o700); err != nil {
			return nil, err
		}
		r, err := burst.Run(ctx, burst.Plan{Program: program, Folder: folder, Policy: name, Load: simulate.Day(seconds, burstPeak), Max: burstMax})
		if err != nil {
			return nil, err
		}
		if err := appendLine(burstFile, burstRecord{build, r}); err != nil {
			return nil, err
		}
		done[name] = r
		fmt.Fprintf(progress, "  %s: %.0f instance-s, %d s over, lag %d s\n", name, r.InstanceSeconds, r.Over, r.Lag)
	}
	printBursts(progress, done)
	return burstRows(done)
}

// burstLength parses the length of a day in seconds. Empty text means burstSeconds.
func burstLength(text string) (int, error) {
	if text == "" {
		return burstSeconds, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 60 || n > 86400 {
		return 0, fmt.Errorf("%s is %q: want 60 to 86400 seconds", burstDay, text)
	}
	return n, nil
}

// readBursts returns the stored days of this build and length, by policy.
func readBursts(path, build string, seconds int) (map[string]burst.Result, error) {
	done := map[string]burst.Result{}
	return done, readLines(path, func(r burstRecord) {
		if r.Build == build && r.Seconds == seconds {
			done[r.Policy] = r.Result
		}
	})
}

// printBursts prints all figures, including those that no row can show as a ratio.
func printBursts(out io.Writer, done map[string]burst.Result) {
	t := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "  POLICY\tINSTANCE-S\tOVER\tLAG\tCALLS\tFAILED\tLOST BY SCALING\tSTARTS\tDRAINS\tMOST\tBOOT")
	for _, name := range burstPolicies() {
		r := done[name]
		fmt.Fprintf(t, "  %s\t%.0f\t%d s\t%d s\t%d\t%d\t%.0f\t%d\t%d\t%d\t%.1f s\n",
			name, r.InstanceSeconds, r.Over, r.Lag, r.Calls, r.FailedCalls(), r.Lost, r.Starts, r.Drains, r.Most, r.Boot)
	}
	_ = t.Flush() // progress is for people
}

// burstRows returns a row that compares our lag with its bound, and rows that compare our figures
// with those of each other policy. If the other figure is 0, the row has a reason and no ratio.
func burstRows(done map[string]burst.Result) (rows []Row, err error) {
	add := func(name, unit, against, aim string, a, b float64) {
		row := Row{Name: name, Unit: unit, Aim: aim, Reason: fmt.Sprintf("%g against %g is no ratio (%s)", a, b, against)}
		if b != 0 {
			var failed error
			row, failed = newRow(name, unit, against, aim, a, b, a/b, [2]float64{a / b, a / b}, 1)
			err = errors.Join(err, failed)
		}
		rows = append(rows, row)
	}
	ours := done[policy.Flex]
	add("flex/burst", "s from the burst to enough capacity", "2 s and the longest start", "<= 1", float64(ours.Lag), burstReact+math.Ceil(ours.Boot))
	for _, name := range slices.DeleteFunc(burstPolicies(), func(name string) bool { return name == policy.Flex }) {
		r := done[name]
		against := "the rules of " + name + ", running"
		add("flex/burst/instance-seconds/"+name, "instance-s a day", against, "<= 1", ours.InstanceSeconds, r.InstanceSeconds)
		add("flex/burst/over/"+name, "s over the objective", against, "", float64(ours.Over), float64(r.Over))
		add("flex/burst/lag/"+name, "s from the burst to enough capacity", against, "", float64(ours.Lag), float64(r.Lag))
	}
	return rows, err
}
