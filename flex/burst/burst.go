// Package burst runs real aggregates of the reference IMS under a changing load, while a
// policy of vitrine flex run scales them. Package simulate does the same with a model.
package burst

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"golang.org/x/sync/errgroup"

	"vitrine/flex"
	"vitrine/flex/simulate"
	"vitrine/load"
)

// A Plan describes a run: one load (the day) under one policy.
type Plan struct {
	Program string        // path of the vitrine program
	Folder  string        // empty folder for files and logs
	Policy  string        // as in vitrine flex run --policy
	Load    simulate.Load // transactions/s in each second
	Rate    float64       // declared capacity of an instance, in transactions/s
	Max     int           // most instances
}

// Properties of an instance, and the objective of its calls.
const (
	// VCPUs is the CPU limit of each of the two members of an instance. At five times an instance's
	// capacity, the functions with the store use about 0.75 CPUs on any host: 2.5 times the use of the
	// Sprouts (docs/contain-ed.md, "The store"). So two CPUs suffice, also for director and generator.
	VCPUs   = 0.06
	PerCall = 3                      // transactions of a call: REGISTER, REGISTER with credentials, deregistration
	Bound   = 500 * time.Millisecond // bound on the 99th percentile of transaction latency; the bound for a call is PerCall times this
	Success = 0.99                   // lower bound on the success ratio
)

// A Result has the measurements of a run.
type Result struct {
	Policy          string           `json:"policy"`
	Seconds         int              `json:"seconds"`
	Over            int              `json:"seconds_over"`     // total length of the slices that missed the objective, in seconds
	InstanceSeconds float64          `json:"instance_seconds"` // sum over instances of the time from order to end
	Lag             int              `json:"lag"`              // longest time with less active capacity than offered load, in seconds
	Calls           int64            `json:"calls"`
	Failed          map[string]int64 `json:"failed,omitempty"` // failed calls, by cause
	Lost            float64          `json:"lost"`             // transactions in flight when a draining instance was stopped
	Starts          int              `json:"starts"`
	Drains          int              `json:"drains"`
	Most            int              `json:"most"` // most instances at a time
	Boot            float64          `json:"boot"` // the longest start, in seconds
	Slices          []Slice          `json:"slices"`
}

// FailedCalls returns how many calls failed.
func (r *Result) FailedCalls() (n int64) {
	for _, k := range r.Failed {
		n += k
	}
	return n
}

// A Slice is a part of the day with a constant rate, from its own generator.
type Slice struct {
	Second    int     `json:"second"`
	Offered   float64 `json:"offered"`   // transactions/s
	Capacity  float64 `json:"capacity"`  // capacity of the active instances at the end of the slice, in transactions/s
	Instances int     `json:"instances"` // at the end of the slice
	Success   float64 `json:"success"`   // success ratio of calls
	P99       float64 `json:"p99"`       // 99th percentile of call latency, in seconds
	Over      bool    `json:"over"`
}

// A day is a running Plan.
type day struct {
	*System
	Plan
	result Result
	short  int           // seconds in a row with less capacity than offered load, up to the last sample
	before time.Duration // time of the last sample, since the start of the day
}

func newDay(p Plan) *day {
	slices := make([]Slice, (len(p.Load)+sliceSeconds-1)/sliceSeconds)
	return &day{Plan: p, result: Result{Policy: p.Policy, Seconds: len(p.Load), Failed: map[string]int64{}, Slices: slices}}
}

// Run runs the plan, and ends all processes that it started.
func Run(ctx context.Context, p Plan) (_ Result, err error) {
	d := newDay(p)
	if d.System, err = Start(ctx, SystemPlan{Program: p.Program, Folder: p.Folder, Policy: p.Policy, Max: p.Max, Rate: p.Rate, VCPUs: VCPUs}); err != nil {
		return d.result, err
	}
	if err := errors.Join(d.drive(ctx), d.End(ctx)); err != nil {
		return d.result, fmt.Errorf("policy %s, logs in %s: %w", p.Policy, p.Folder, err)
	}
	return d.result, d.readEvents()
}

// drive waits until the system is up and carries the first rate. Then it offers the load of the
// day and records the system's status.
func (d *day) drive(ctx context.Context) error {
	if err := d.Await(ctx); err != nil {
		return err
	}
	if err := d.settle(ctx); err != nil {
		return err
	}
	group, gctx := errgroup.WithContext(ctx)
	start := time.Now()
	group.Go(func() error { return d.watch(gctx, start) })
	var reports []load.Report
	group.Go(func() (err error) {
		reports, err = d.offer(gctx, start)
		return err
	})
	if err := group.Wait(); err != nil {
		return err
	}
	return errors.Join(d.judge(reports), d.readLost(ctx))
}

// readLost reads the number of transactions lost by drain deadlines from the orchestrator's
// metrics.
func (d *day) readLost(ctx context.Context) error {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+d.flex+"/metrics", http.NoBody)
	if err != nil {
		return err
	}
	a, err := d.http.Do(q)
	if err != nil {
		return err
	}
	defer a.Body.Close() // read to its end
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(io.LimitReader(a.Body, 1<<24))
	if err != nil {
		return fmt.Errorf("read the orchestrator's metrics: %w", err)
	}
	for _, m := range families["vitrine_flex_lost_total"].GetMetric() {
		d.result.Lost += m.GetCounter().GetValue()
	}
	return nil
}

// readEvents counts the starts and drains in the orchestrator's event log.
func (d *day) readEvents() error {
	file, err := os.Open(filepath.Join(d.file()+".flex", flex.EventsFile))
	if err != nil {
		return err
	}
	defer file.Close() // opened for reading
	for lines := json.NewDecoder(file); ; {
		var e flex.Event
		switch err := lines.Decode(&e); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read the events: %w", err)
		case e.Kind == flex.EventStart:
			d.result.Starts++
		case e.Kind == flex.EventDrain:
			d.result.Drains++
		}
	}
}
