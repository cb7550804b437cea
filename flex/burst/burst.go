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
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"golang.org/x/sync/errgroup"

	"vitrine/director/client"
	"vitrine/flex"
	"vitrine/flex/simulate"
	"vitrine/internal/access"
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
	Plan
	addresses
	file   string
	http   *http.Client
	result Result
}

// Run runs the plan. Nothing of it is left afterwards.
func Run(ctx context.Context, p Plan) (_ Result, err error) {
	d := &day{Plan: p, http: &http.Client{Timeout: 5 * time.Second}, result: Result{Policy: p.Policy, Seconds: len(p.Load), Failed: map[string]int64{}}}
	if d.addresses, err = freeAddresses(ctx); err != nil {
		return d.result, err
	}
	if d.file, err = d.writeFiles(); err != nil {
		return d.result, err
	}
	log, err := os.Create(filepath.Join(p.Folder, "flex.log"))
	if err != nil {
		return d.result, err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	c := exec.CommandContext(ctx, p.Program, "flex", "run", d.file, "--policy", p.Policy)
	c.Stdout, c.Stderr = log, log
	c.Cancel, c.WaitDelay = func() error { return c.Process.Signal(syscall.SIGTERM) }, ending
	if err := c.Start(); err != nil {
		return d.result, err
	}
	if err := errors.Join(d.drive(ctx), d.end(ctx, c)); err != nil {
		return d.result, fmt.Errorf("policy %s, logs in %s: %w", p.Policy, p.Folder, err)
	}
	return d.result, d.readEvents()
}

// interrupted is the exit code of vitrine after a signal.
const interrupted = 130

// How long things may take on a busy host.
const (
	beginning = 3 * time.Minute // of director, store and first instances
	ending    = 2 * time.Minute // of everything
)

// drive lets the day begin when everything is up, offers its load and watches.
func (d *day) drive(ctx context.Context) error {
	if err := d.await(ctx); err != nil {
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

// await waits until instances serve, and none is on its way.
func (d *day) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, beginning)
	defer cancel()
	director, err := client.New(client.Access{URL: d.control})
	if err != nil {
		return err
	}
	for {
		s, err := d.status(ctx)
		if err == nil && len(s.Types) == 1 && len(s.Instances) > 0 && s.Types[0].Instances["active"] == len(s.Instances) {
			// An instance gets requests from the director's next epoch on.
			if at, err := director.Status(ctx); err == nil && !at.Pending {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("the instances do not get ready: %w", context.Cause(ctx)), err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// end ends the orchestrator with all that it runs.
func (d *day) end(ctx context.Context, c *exec.Cmd) error {
	_ = c.Process.Signal(syscall.SIGTERM) // an error means that it has ended
	timer := time.AfterFunc(ending, func() { _ = c.Process.Kill() })
	defer timer.Stop()
	err := c.Wait()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && (exit.ExitCode() == interrupted || ctx.Err() != nil) {
		err = nil
	}
	if err == nil {
		return nil
	}
	// What a killed orchestrator leaves goes on running.
	out, stop := exec.CommandContext(context.WithoutCancel(ctx), d.Program, "flex", "stop", d.file).CombinedOutput()
	if stop != nil {
		stop = fmt.Errorf("%w: %s", stop, out)
	}
	return errors.Join(fmt.Errorf("vitrine flex run: %w", err), stop)
}

// status asks the orchestrator.
func (d *day) status(ctx context.Context) (s flex.Status, err error) {
	c := access.Caller{Service: "the orchestrator", HTTP: d.http, Most: 1 << 24}
	return s, c.Call(ctx, http.MethodGet, "http://"+d.flex+"/v1/status", nil, &s)
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
	file, err := os.Open(filepath.Join(d.file+".flex", flex.EventsFile))
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
