// Package burst runs aggregates of the reference IMS for real under a load that changes,
// while one of the policies of vitrine flex run decides how many there are: what package
// simulate does with a model.
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
)

// A Plan is one day under one policy.
type Plan struct {
	Program string        // vitrine
	Folder  string        // empty; for files and logs
	Policy  string        // as in vitrine flex run --policy
	Load    simulate.Load // transactions/s in each second
	Max     int           // instances
}

// What an instance is declared to carry, and what its calls owe.
const (
	Capacity = 20.0                   // transactions/s of an instance
	VCPUs    = 0.06                   // of each of an instance's two members
	PerCall  = 3                      // transactions: REGISTER, REGISTER with credentials, deregistration
	Bound    = 500 * time.Millisecond // on the 99th percentile of a transaction's latency; that of a call is PerCall times this
	Success  = 0.99                   // success ratio, at least
)

// A Result is how a policy did.
type Result struct {
	Policy          string           `json:"policy"`
	Seconds         int              `json:"seconds"`
	Over            int              `json:"seconds_over"`     // seconds of slices in which calls missed the objective
	InstanceSeconds float64          `json:"instance_seconds"` // from the order to the end
	Lag             int              `json:"lag"`              // longest time in which the active instances carried less than was offered, in seconds
	Calls           int64            `json:"calls"`
	Failed          map[string]int64 `json:"failed,omitempty"` // calls, by cause
	Lost            float64          `json:"lost"`             // transactions in flight when a draining instance was stopped
	Starts          int              `json:"starts"`
	Drains          int              `json:"drains"`
	Most            int              `json:"most"` // instances
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

// A Slice is one part of the day, with a generator of its own.
type Slice struct {
	Second    int     `json:"second"`
	Offered   float64 `json:"offered"`   // transactions/s
	Capacity  float64 `json:"capacity"`  // of the active instances, at the end of the slice
	Instances int     `json:"instances"` // at the end of the slice
	Success   float64 `json:"success"`   // of calls
	P99       float64 `json:"p99"`       // of calls, in seconds
	Over      bool    `json:"over"`
}

// A day is a Plan that runs.
type day struct {
	*System
	Plan
	result Result
}

// Run runs the plan. Nothing of it is left afterwards.
func Run(ctx context.Context, p Plan) (_ Result, err error) {
	d := &day{Plan: p, result: Result{Policy: p.Policy, Seconds: len(p.Load), Failed: map[string]int64{}}}
	if d.System, err = Start(ctx, SystemPlan{Program: p.Program, Folder: p.Folder, Policy: p.Policy, Max: p.Max, VCPUs: VCPUs}); err != nil {
		return d.result, err
	}
	if err := errors.Join(d.drive(ctx), d.End(ctx)); err != nil {
		return d.result, fmt.Errorf("policy %s, logs in %s: %w", p.Policy, p.Folder, err)
	}
	return d.result, d.readEvents()
}

// drive lets the day begin when everything is up and carries the first rate, offers its load and
// watches.
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
	reports, err := d.offer(gctx, start)
	if err = errors.Join(err, group.Wait()); err != nil {
		return err
	}
	return errors.Join(d.judge(reports), d.readLost(ctx))
}

// readLost reads how many transactions scaling lost.
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

// readEvents counts what the policy did.
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
