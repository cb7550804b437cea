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
	"strings"
	"text/tabwriter"
	"time"

	"vitrine/flex/burst"
	"vitrine/flex/policy"
	"vitrine/flex/simulate"
	"vitrine/internal/cgroup"
	"vitrine/papers"
)

// burstFile stores every day.
const burstFile = "bench/results/flex-burst.jsonl"

// Environment variables of the bench.
const (
	burstDay   = "VITRINE_BURST_SECONDS" // length of a day; empty: burstSeconds
	burstPeers = "VITRINE_BURST_PEERS"   // policies to compare with ours, separated by spaces; empty: all
)

const (
	burstSeconds = 3600 // default length of a day, at which the burst has its real length
	burstPeak    = 7.5  // peak of simulate.Day, in rates of an instance; the burst reaches two thirds of it, five rates
	burstMax     = 8    // instances; Knative's rules need them for the burst, at 70% of an instance's rate
	burstFixed   = 5    // instances of the fixed policy; enough for the burst, which a real operator could not foresee
	burstReact   = 2.0  // seconds to notice a burst and decide; the rest of the lag is the start of instances
)

// burstWorkload finds the capacity of an instance within the objective, in about five minutes. A search
// by bisection takes a bounded number of trials: 15, or a few more if deployments differ.
const burstWorkload = `generator: sip
parameters: {scenario: reg-dereg, arrivals: poisson, timeout: %s}
unit: calls/s
range: [3, 300]
search: bisect
duration: 10s
warmup: 2s
settle: 1s
repeat: 3
thresholds: [%.4f]
`

// allBurstPeers returns the policies to compare with ours.
func allBurstPeers() []string { return []string{"hpa", "knative", fmt.Sprintf("fixed=%d", burstFixed)} }

// A burstRecord is the result of one day.
type burstRecord struct {
	source
	Setting burstSetting `json:"setting"`
	burst.Result
}

// A burstSetting says which days are compared: those of one program on one host that did not restart
// in between, with one rate.
type burstSetting struct {
	Build string  `json:"build"` // hash of the program
	Boot  string  `json:"boot"`  // the kernel's ID of the boot
	Rate  float64 `json:"rate"`  // declared capacity of an instance, in transactions/s
}

// newBurstSetting returns the setting of days that are measured now, without the rate.
func newBurstSetting(program string) (s burstSetting, err error) {
	if s.Build, err = buildID(program); err != nil {
		return s, err
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	s.Boot = strings.TrimSpace(string(boot))
	return s, err
}

// flexBurst runs a day with a burst under each policy, one after the other. The instances are
// aggregates of the reference IMS. A day that is on record is not run again.
func flexBurst(ctx context.Context, dir string, progress io.Writer) ([]Row, error) {
	if _, err := cgroup.Detect(); err != nil {
		return nil, err
	}
	seconds, err := burstLength(os.Getenv(burstDay))
	if err != nil {
		return nil, err
	}
	peers, err := chosenBurstPeers(os.Getenv(burstPeers))
	if err != nil {
		return nil, err
	}
	program, err := product(ctx, dir)
	if err != nil {
		return nil, err
	}
	setting, err := newBurstSetting(program)
	if err != nil {
		return nil, err
	}
	all, err := readBursts(burstFile)
	if err != nil {
		return nil, err
	}
	if setting.Rate = all.rate(setting); setting.Rate == 0 {
		if setting.Rate, err = measureBurstRate(ctx, program, dir, progress); err != nil {
			return nil, err
		}
	}
	fmt.Fprintf(progress, "  an instance has a rate of %g transactions/s\n", setting.Rate)
	fmt.Fprintf(progress, "  a day of %d s takes %d s here: the slow change of the load is %.3g times as fast; windows, starts and drains are not\n",
		86400, seconds, 86400/float64(seconds))
	for _, name := range append([]string{policy.Flex}, peers...) {
		if all.of(setting, seconds).day(name) != nil {
			continue
		}
		r, err := runBurst(ctx, program, filepath.Join(dir, name), name, seconds, setting)
		if err != nil {
			return nil, err
		}
		all = append(all, r)
		fmt.Fprintf(progress, "  %s: %.0f instance-s, %d s over, lag %d s\n", name, r.InstanceSeconds, r.Over, r.Lag)
	}
	all.of(setting, seconds).print(progress)
	return all.of(setting, seconds).rows()
}

// measureBurstRate returns the rate to declare for an instance. The measured deployment uses the store
// and the shared functions of a system, as the instances of a day do.
func measureBurstRate(ctx context.Context, program, dir string, progress io.Writer) (rate float64, err error) {
	folder, workload := filepath.Join(dir, "rate"), filepath.Join(dir, "workload.yaml")
	if err := os.Mkdir(folder, 0o700); err != nil {
		return 0, err
	}
	if err := os.WriteFile(workload, fmt.Appendf(nil, burstWorkload, burst.Bound, callSuccess()), 0o600); err != nil {
		return 0, err
	}
	fmt.Fprintln(progress, "  measures the capacity of an instance, about 5 minutes")
	s, err := burst.Start(ctx, burst.SystemPlan{Program: program, Folder: folder, Policy: "fixed=1", Max: 1, Rate: 1, VCPUs: burst.VCPUs})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.End(context.WithoutCancel(ctx))) }()
	if err := s.Await(ctx); err != nil {
		return 0, err
	}
	found, err := characterize(ctx, s, workload, filepath.Join(dir, "characterized"))
	if err != nil {
		return 0, err
	}
	fmt.Fprintf(progress, "  it carries %.4g transactions/s (%.4g to %.4g)\n", found.rate, found.low, found.high)
	return declaredRate(found)
}

// declaredRate returns the lower bound of a capacity, as a whole number. It fails if the bound says
// little: with a rate far below the capacity, no policy breaks the objective.
func declaredRate(f capacityFound) (float64, error) {
	rate := math.Floor(f.low)
	if rate < f.rate/2 {
		return 0, fmt.Errorf("an instance carries %.4g to %.4g transactions/s: this interval is too wide, so start the bench again", f.low, f.high)
	}
	return rate, nil
}

// runBurst runs a day under a policy and appends it to burstFile.
func runBurst(ctx context.Context, program, folder, name string, seconds int, s burstSetting) (record burstRecord, err error) {
	if err := os.Mkdir(folder, 0o700); err != nil {
		return record, err
	}
	plan := burst.Plan{Program: program, Folder: folder, Policy: name, Load: simulate.Day(seconds, burstPeak*s.Rate), Rate: s.Rate, Max: burstMax}
	r, err := burst.Run(ctx, plan)
	if err != nil {
		return record, err
	}
	r.Slices = nil
	record = burstRecord{sourceAt(ctx, time.Now()), s, r}
	return record, appendLine(burstFile, record)
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

// chosenBurstPeers parses the policies to compare with ours. Empty text means all.
func chosenBurstPeers(text string) ([]string, error) {
	if text == "" {
		return allBurstPeers(), nil
	}
	chosen := strings.Fields(text)
	for _, name := range chosen {
		if !slices.Contains(allBurstPeers(), name) {
			return nil, fmt.Errorf("%s has %q: want some of %s", burstPeers, name, strings.Join(allBurstPeers(), " "))
		}
	}
	return chosen, nil
}

// burstRecords are days, the oldest first.
type burstRecords []burstRecord

func readBursts(path string) (burstRecords, error) { return readLines[burstRecord](path) }

// of returns the days of a setting and a length.
func (all burstRecords) of(s burstSetting, seconds int) burstRecords {
	return slices.DeleteFunc(slices.Clone(all), func(r burstRecord) bool { return r.Setting != s || r.Seconds != seconds })
}

// rate returns the rate of the first day with the program and the boot of a setting, or 0 if there is none.
// All later days have the same rate, whenever they run.
func (all burstRecords) rate(s burstSetting) float64 {
	for _, r := range all {
		if r.Setting.Build == s.Build && r.Setting.Boot == s.Boot {
			return r.Setting.Rate
		}
	}
	return 0
}

// day returns the day of a policy, or nil. The days have one setting and one length.
func (all burstRecords) day(name string) *burstRecord {
	i := slices.IndexFunc(all, func(r burstRecord) bool { return r.Policy == name })
	if i < 0 {
		return nil
	}
	return &all[i]
}

// print prints all figures, including those that no row can show as a ratio.
func (all burstRecords) print(out io.Writer) {
	t := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	for _, line := range all.grid() {
		fmt.Fprintln(t, "  "+strings.Join(line, "\t"))
	}
	_ = t.Flush() // progress is for people
}

// grid returns the headings, and a line for each day.
func (all burstRecords) grid() [][]string {
	lines := [][]string{{"policy", "instance-seconds", "over", "lag", "calls", "failed", "lost by scaling", "starts", "drains", "most", "longest start"}}
	for _, r := range all {
		lines = append(lines, []string{
			r.Policy, fmt.Sprintf("%.0f", r.InstanceSeconds), fmt.Sprintf("%d s", r.Over), fmt.Sprintf("%d s", r.Lag), fmt.Sprint(r.Calls), fmt.Sprint(r.FailedCalls()),
			fmt.Sprintf("%.0f", r.Lost), fmt.Sprint(r.Starts), fmt.Sprint(r.Drains), fmt.Sprint(r.Most), fmt.Sprintf("%.1f s", r.Boot),
		})
	}
	return lines
}

// rows returns a row that compares our lag with its bound, a row about what our scaling lost, and rows
// that compare our figures with those of each other policy. If the other figure is 0, the row has a
// reason and no ratio.
// The days have one setting and one length.
func (all burstRecords) rows() (rows []Row, err error) {
	add := func(name, unit, against, aim string, a, b float64, worse bool) {
		row := Row{Name: name, Unit: unit, Aim: aim, Reason: fmt.Sprintf("%g against %g is no ratio (%s)", a, b, against)}
		if b != 0 {
			row = newRow(name, unit, against, aim, a, b, a/b, nil, 1)
		}
		rows = append(rows, row.unless(worse))
	}
	ours := all.day(policy.Flex)
	if ours == nil {
		return nil, errors.New("no day under our policy")
	}
	add("flex/burst", "s from the burst to enough capacity", "2 s and the longest start", "<= 1", float64(ours.Lag), burstReact+math.Ceil(ours.Boot), false)
	add("flex/burst/lost", "transactions lost by scaling", "all transactions of the day", "<= 0", ours.Lost, float64(burst.PerCall*ours.Calls), false)
	for _, r := range all {
		if r.Policy == policy.Flex {
			continue
		}
		against := "the rules of " + r.Policy + ", running"
		add("flex/burst/instance-seconds/"+r.Policy, "instance-s a day", against, "<= 1", ours.InstanceSeconds, r.InstanceSeconds, ours.Over > r.Over)
		add("flex/burst/over/"+r.Policy, "s over the objective", against, "", float64(ours.Over), float64(r.Over), false)
		add("flex/burst/lag/"+r.Policy, "s from the burst to enough capacity", against, "", float64(ours.Lag), float64(r.Lag), false)
	}
	return rows, nil
}

// burstSection returns the page's section: a table of the full days for each setting, or notRun.
func burstSection(root string) (string, error) {
	all, err := readBursts(filepath.Join(root, burstFile))
	if err != nil {
		return "", err
	}
	var parts []string
	var seen []burstSetting
	for _, r := range all {
		if r.Seconds != burstSeconds || slices.Contains(seen, r.Setting) {
			continue
		}
		seen = append(seen, r.Setting)
		days := all.of(r.Setting, burstSeconds)
		about := fmt.Sprintf("Days of %s, on %s, commit `%s`, with a rate of %g/s:", r.Date, r.Host, r.Commit, r.Setting.Rate)
		parts = append(parts, about, strings.TrimSpace(papers.Markdown(days.grid())))
	}
	if len(parts) == 0 {
		return notRun, nil
	}
	return strings.Join(parts, "\n\n"), nil
}
