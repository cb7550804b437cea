package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"vitrine"
	"vitrine/search/rate"
	"vitrine/search/sim/queue"
	"vitrine/spec"
	"vitrine/testbed/quiet"
)

const (
	realFolder    = "bench/real" // raw results, one file per function
	realThreshold = 0.9
	realPeered    = 5 // MLRsearch runs once in this many runs
	noisyTries    = 3 // attempts, after the time limit, at the block that ends a session on a host that is too noisy
	noisyPause    = time.Minute
)

// A realFunction is a function of the catalog. Its true capacity is unknown.
type realFunction struct {
	Name, Folder, Workload, Sizing string

	// Duration of an ordinary trial; 0: the workload's. The search's long trials are three times
	// as long, and must show a small overload (docs/measuring.md).
	Duration time.Duration
}

func realFunctions() []realFunction {
	return []realFunction{
		{Name: "ims", Folder: "catalog/ims-reference", Workload: "workload.yaml", Sizing: "bn1s-sp1s-hs1s", Duration: 5 * time.Second},
		{Name: "kamailio", Folder: "catalog/ims-kamailio", Workload: "workload-sip.yaml", Sizing: "ed1s-rg1s", Duration: 7 * time.Second},
		{Name: "nginx", Folder: "catalog/nginx", Workload: "workload.yaml", Sizing: "ng1s"},
	}
}

func (f realFunction) file() string { return filepath.Join(realFolder, f.Name+".jsonl") }

// realBenches returns benches that compare the adaptive search on real functions with blocks of
// trials. Another estimator evaluates the blocks.
func realBenches() (all []bench) {
	for _, f := range realFunctions() {
		all = append(all, bench{"real/" + f.Name, inFolder(func(ctx context.Context, dir string, progress io.Writer) (rows []Row, err error) {
			counts, err := readRealCounts(os.Getenv)
			if err != nil {
				return nil, err
			}
			site := &realSite{function: f, counts: counts, dir: dir, progress: progress}
			defer func() { err = errors.Join(err, site.close()) }()
			b, err := newRealBench(f, counts, searchVersion(), site.drive, progress)
			if err != nil {
				return nil, err
			}
			b.from = sourceAt(ctx, time.Now())
			if err := b.measure(ctx); err != nil {
				return nil, err
			}
			return b.rows(), nil
		})})
	}
	return append(all, bench{"real/pooled", realPooled})
}

// The kinds of records.
const (
	realPilot = "pilot" // a run that finds the rates of the first block
	realBlock = "block"
	realRun   = "run"
)

// mlrDefault is our mlr search with its default precision.
const mlrDefault = "mlr by its default precision"

// firstSlowdown is the limit of the records that do not name theirs. It stays if the default changes.
const firstSlowdown = 0.45

// A realRecord is one block, run or pilot: one line of a function's file.
type realRecord struct {
	Plan    string // digest
	Version string // commit of this program
	Host    string // empty in records made before it was kept
	Session string // start time of the bench; only blocks and runs of one session are compared
	Began   time.Time
	Kind    string
	Search  string  `json:",omitempty"` // of a pilot or run
	Number  int     `json:",omitempty"` // of a run
	Centre  float64 `json:",omitempty"` // of a block: the estimate at the centre of its rates

	Slowdown float64 `json:",omitempty"` // limit of what neighbours may slow a trial; 0: firstSlowdown
	Awake    bool    `json:",omitempty"` // idle CPUs polled

	Trials    []realTrial
	Disturbed int               // trials that were repeated
	Load      float64           // seconds, of all windows
	Wall      float64           // seconds
	Capacity  *vitrine.Capacity `json:",omitempty"`
	Why       string            `json:",omitempty"` // why the search ended
}

// A realUnit is one measurement to make next. An empty kind means that nothing is left.
type realUnit struct {
	kind, search string
	number       int
}

func (u realUnit) String() string {
	if u.kind == realRun {
		return fmt.Sprintf("run %d of %s", u.number, u.search)
	}
	return u.kind
}

// A campaignRequest describes a campaign on the function's one size.
type campaignRequest struct {
	search    string  // empty: measure the block
	precision float64 // 0: the search's default
	block     *block
}

// A campaignResult is the result of a campaign.
type campaignResult struct {
	outcomes []vitrine.Outcome // including disturbed ones
	capacity *vitrine.Capacity // nil for a block
	why      string
	wall     time.Duration
}

// A realDrive runs a campaign.
type realDrive func(context.Context, campaignRequest) (campaignResult, error)

// A realBench holds the blocks and runs of one function.
type realBench struct {
	function realFunction
	counts   realCounts
	drive    realDrive
	progress io.Writer
	file     string
	plan     string
	from     source
	session  string
	began    time.Time
	all      realRecords // of this plan
	workload *spec.Workload
}

// searchVersion returns a string that changes with the behaviour of the adaptive
// search.
func searchVersion() (version string) {
	for _, stateful := range []bool{false, true} {
		kind := truthKind{precisions: truthPrecisions(), stateful: stateful}
		version += kind.version(queue.Refusal) + kind.version(queue.Luck)
	}
	return version
}

// newRealBench reads the records made with this version of the search.
func newRealBench(f realFunction, counts realCounts, search string, drive realDrive, progress io.Writer) (*realBench, error) {
	plan, err := f.digest(counts, search)
	if err != nil {
		return nil, err
	}
	b := &realBench{function: f, counts: counts, drive: drive, progress: progress, file: f.file(), plan: plan, began: time.Now()}
	b.session = b.began.UTC().Format(time.RFC3339)
	if b.workload, err = f.workload(counts); err != nil {
		return nil, err
	}
	return b, b.open()
}

// digest returns a hash of the function's files, of the method and of the search version. The
// numbers of runs and blocks are not part of it, so they may change within a plan.
func (f realFunction) digest(c realCounts, search string) (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, f, c.Window, c.Precision, c.Slowdown, c.Awake, blockFactors(), search)
	files, err := os.ReadDir(f.Folder)
	if err != nil {
		return "", err
	}
	for _, entry := range files {
		if entry.IsDir() || filepath.Ext(entry.Name()) == ".md" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(f.Folder, entry.Name()))
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s %d\n%s", entry.Name(), len(text), text)
	}
	return hex.EncodeToString(h.Sum(nil)[:6]), nil
}

// open reads the records of the plan. If nothing is to be measured and the plan has no records, open
// reads the records of the last plan.
func (b *realBench) open() error {
	every, err := readReal(b.file)
	if err != nil {
		return err
	}
	b.all = every.of(b.plan)
	if last := len(every) - 1; b.counts.For == 0 && len(b.all) == 0 && last >= 0 {
		b.plan = every[last].Plan
		b.all = every.of(b.plan)
		fmt.Fprintf(b.progress, "  %s: files, search or parameters have changed since; these are the records of plan %s\n", b.function.Name, b.plan)
	}
	return nil
}

// host returns the record's host. All records without one count as of one host.
func (r realRecord) host() string { return cmp.Or(r.Host, "a host") }

// realRecords are the records of a function's file.
type realRecords []realRecord

func readReal(name string) (realRecords, error) { return readLines[realRecord](name) }

// of returns the records of a plan.
func (all realRecords) of(plan string) realRecords {
	return slices.DeleteFunc(slices.Clone(all), func(r realRecord) bool { return r.Plan != plan })
}

func (b *realBench) keep(r realRecord) error {
	b.all = append(b.all, r)
	return appendLine(b.file, r)
}

// measure makes the missing measurements until none is left or the time limit allows no more. While
// the host is too noisy, it waits and tries again.
func (b *realBench) measure(ctx context.Context) error {
	b.announce()
	failed := 0 // attempts in a row
	for unit := b.next(); unit.kind != ""; unit = b.next() {
		record, err := b.do(ctx, unit)
		switch {
		case errors.Is(err, quiet.ErrTooNoisy):
			fmt.Fprintf(b.progress, "  %s: %v\n", unit, err)
			if failed++; failed >= noisyTries && time.Since(b.began) > b.counts.For {
				return nil
			}
			if err := pause(ctx, noisyPause); err != nil {
				return err
			}
			continue
		case err != nil:
			return fmt.Errorf("%s: %w", unit, err)
		}
		failed = 0
		if err := b.keep(record); err != nil {
			return err
		}
		b.describe(record)
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// do makes one measurement.
func (b *realBench) do(ctx context.Context, unit realUnit) (realRecord, error) {
	r := realRecord{Plan: b.plan, Version: b.from.Commit, Host: b.from.Host, Session: b.session, Began: time.Now().UTC(), Kind: unit.kind, Search: unit.search, Number: unit.number,
		Slowdown: b.counts.Slowdown, Awake: b.counts.Awake}
	asked := campaignRequest{search: unit.search, precision: b.counts.Precision}
	switch unit.search {
	case "":
		r.Centre = b.centre()
		asked.block = b.block(r.Centre, len(b.all))
	case mlrDefault:
		asked.search, asked.precision = rate.MLR, 0
	}
	got, err := b.drive(ctx, asked)
	if err != nil {
		return r, err
	}
	r.Capacity, r.Why, r.Wall, r.Load = got.capacity, got.why, got.wall.Seconds(), rate.LoadSeconds(got.outcomes)
	var kept []vitrine.Outcome
	for _, o := range got.outcomes {
		if o.Disturbed {
			r.Disturbed++
			continue
		}
		kept = append(kept, o)
		r.Trials = append(r.Trials, newRealTrial(o))
	}
	if asked.block != nil {
		r.Trials, _ = asked.block.walk(kept)
	}
	if unit.kind == realPilot && (got.capacity == nil || !(got.capacity.Rate > 0)) {
		return r, errors.New("the pilot found no capacity; set ESTIMATE to a rate near it")
	}
	return r, nil
}
