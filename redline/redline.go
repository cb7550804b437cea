// Package redline measures the capacity of one instance on live traffic. It shifts weight to
// the instance in steps, compares the instance with an objective, stops when the objective
// breaks or the CPU is nearly used up, and restores the weights.
//
// The shifted weights belong to a lease at all directors in front of the instances. The lease
// expires if this process dies. Package search/rate chooses the steps. The rate of a step is
// the rate that the directors observe, not the target of the step.
package redline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"vitrine"
	"vitrine/director/client"
)

// Options configure a measurement.
type Options struct {
	Directors []Director
	Names     []string // names of the directors, such as their addresses
	Type      string   // aggregate type
	Instance  string   // empty: the instance with the most weight; on a tie, the first in the director's list
	Flavor    string   // flavor of the instance, for the result; may be empty
	Beside    []string // types whose instances are all on the measured instance's host, to record their load
	Holder    string   // name of the lease's holder, for people
	Objective Objective

	Min       int           // fewest healthy other instances, at least 1
	MaxRate   float64       // highest rate, in transactions per second; 0: limited by Share only
	Increase  float64       // rate difference between steps, in transactions per second; 0: a tenth of the present rate
	Share     float64       // largest share of the type's traffic, above 0 and below 1
	Step      time.Duration // shortest measurement of a step
	MaxStep   time.Duration // longest measurement of a step
	Precision float64       // bound on the growth rate of the backlog, as a share of the rate of the step
	Holding   time.Duration // mean time that a call holds the instance; 0: measure it

	// CPU returns the mean CPU use of the instance between two times, in CPUs. ok is false if it
	// is not known. CPU may be nil.
	CPU      func(from, to time.Time) (cpus float64, ok bool)
	CPULimit float64 // CPU limit of the instance, in CPUs; 0: not known

	DryRun   bool
	Progress func(text string) // receives a line for each step; may be nil
}

// Defaults returns the default options. Directors, Names and Type have no default.
func Defaults() Options {
	return Options{
		Objective: Objective{Success: 0.99, Latency: 100 * time.Millisecond, Quantile: 0.99},
		Min:       1, Share: 0.9, Step: 10 * time.Second, MaxStep: 5 * time.Minute, Precision: 0.05,
	}
}

func (o *Options) check() error {
	if err := o.Objective.check(); err != nil {
		return err
	}
	switch {
	case len(o.Directors) == 0 || len(o.Names) != len(o.Directors):
		return bad("no director", "name all directors in front of the instances")
	case o.Min < 1:
		return bad(fmt.Sprintf("at least %d other healthy instances", o.Min), "want at least 1, because the others take over the traffic")
	case !(o.Share > 0 && o.Share < 1):
		return bad(fmt.Sprintf("share %g", o.Share), "want a share above 0 and below 1")
	case o.MaxRate < 0 || o.Increase < 0:
		return bad(fmt.Sprintf("rate %g, increase %g", o.MaxRate, o.Increase), "want positive rates")
	case o.Step < time.Second || o.MaxStep < o.Step:
		return bad(fmt.Sprintf("steps of %s to %s", o.Step, o.MaxStep), "want at least 1s, the shorter one first")
	case !(o.Precision > 0 && o.Precision <= 0.5):
		return bad(fmt.Sprintf("precision %g", o.Precision), "want a share above 0, at most 0.5")
	case o.Holding < 0:
		return bad(fmt.Sprintf("holding time %s", o.Holding), "want a positive time")
	}
	return nil
}

// A run is one measurement.
type run struct {
	Options
	watch
	result Result
	began  time.Time // has a reading of the monotonic clock, unlike result.Begun

	weight     float64       // weight of the instance at the rates of base; first, the one without the lease
	rest       float64       // sum of the weights of the other active instances
	transition time.Duration // transition time of the directors
	base       measured      // measurement at the present rate, with the latest rates of the traffic
	shifted    bool          // the lease has changed the weight of the instance
	ignored    int           // the last steps in a row whose traffic ignored the weight
}

// Run measures the capacity of an instance, and restores the base weights before it returns.
// Conditions of the traffic or of the instance, such as a fault, are verdicts in the Result. Run
// returns an error if the options are wrong, if the measurement could not begin, if ctx ended, or
// if it could not restore the weights. In the last case, the lease restores them when it expires.
func Run(ctx context.Context, o Options) (Result, error) {
	if err := o.check(); err != nil {
		return Result{}, err
	}
	r := &run{Options: o}
	r.watch = watch{
		fleet:     &fleet{directors: o.Directors, names: o.Names, typeName: o.Type, instance: o.Instance, beside: o.Beside},
		objective: o.Objective, min: o.Min, cpu: o.CPU, cpuLimit: o.CPULimit,
	}
	if err := r.survey(ctx); err != nil {
		return Result{}, err
	}
	r.began = time.Now()
	r.result = newResult(&r.Options, r.instance, r.began)
	if !o.DryRun {
		if err := r.acquire(ctx, o.Holder); err != nil {
			return Result{}, err
		}
	}
	err := r.climb(ctx)
	return r.result, r.end(ctx, err)
}

// survey chooses the instance, and checks that the measurement can begin.
func (r *run) survey(ctx context.Context) error {
	agree, err := r.agree(ctx)
	if err != nil {
		return fmt.Errorf("survey: %w", err)
	}
	if !agree {
		return errors.New("the directors' tables differ: their digests are not equal, or a change is pending")
	}
	status, err := r.directors[0].Status(ctx)
	if err != nil {
		return fmt.Errorf("survey: %w", err)
	}
	r.transition = time.Duration(status.Transition * float64(time.Second))
	for _, name := range append([]string{r.Type}, r.Beside...) {
		if !slices.Contains(status.Types, name) {
			return bad("no type "+name, "want one of "+strings.Join(status.Types, ", "))
		}
	}
	all, err := r.directors[0].Instances(ctx)
	if err != nil {
		return fmt.Errorf("survey: %w", err)
	}
	if err := r.choose(all); err != nil {
		return err
	}
	first, err := r.read(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("survey: %w", err)
	case first.trouble != "":
		return fmt.Errorf("instance %s cannot be measured: %s", r.instance, first.trouble)
	case first.healthy < r.Min:
		return fmt.Errorf("%d other healthy instances, want at least %d", first.healthy, r.Min)
	}
	r.all = []reading{first}
	return nil
}

// choose chooses the instance to measure, and sums up the weights of the others.
func (r *run) choose(all []client.Instance) error {
	var own *client.Instance
	for i := range all {
		in := &all[i]
		if in.Type != r.Type || in.State != vitrine.Active {
			continue
		}
		r.rest += in.Weight
		if in.Name == r.Instance || r.Instance == "" && (own == nil || in.Weight > own.Weight) {
			own = in
		}
	}
	if own == nil {
		return bad(strings.TrimSpace("no active instance "+r.Instance)+" of type "+r.Type, "see vitrine director instances list")
	}
	r.instance, r.weight = own.Name, own.Weight
	r.rest -= own.Weight
	return nil
}

func (r *run) note(format string, args ...any) {
	if r.Progress != nil {
		r.Progress(fmt.Sprintf(format, args...))
	}
}
