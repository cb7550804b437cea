package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"vitrine/flex/decide"
	"vitrine/flex/simulate"
)

// The decision that is measured, and how long it may take.
const (
	flexLimit     = 10.0 // ms
	flexInstances = 10_000
	flexTypes     = 20
)

// flexView returns a view of flexInstances active instances of flexTypes types. Each instance gets
// 95 of the 100 transactions/s that its flavor carries.
func flexView() decide.View {
	v := decide.View{Now: time.Unix(1_800_000_000, 0)}
	for i := range flexTypes {
		v.Types = append(v.Types, decide.TypeView{Known: true, Rate: 95 * flexInstances / flexTypes, Type: decide.Type{
			Name: fmt.Sprintf("type-%02d", i), Min: 1, Max: flexInstances,
			Objective: decide.Objective{P99: 100 * time.Millisecond, Success: 0.99},
			Flavors:   []decide.Flavor{{Name: "s", Capacity: 100, CPUs: 1}},
		}})
	}
	for i := range flexInstances {
		v.Instances = append(v.Instances, decide.Instance{Name: fmt.Sprintf("i-%d", i), Type: v.Types[i%flexTypes].Name, Flavor: "s",
			State: decide.Active, Since: v.Now, Known: true, Rate: 95, InFlight: i % 7, Success: 1, CPU: 0.7, CPUKnown: true})
	}
	return v
}

// flexDecide compares the slowest of 100 decisions over flexInstances instances with flexLimit. 64
// earlier decisions, one for each simulated second, fill the memory.
func flexDecide(ctx context.Context, progress io.Writer) ([]Row, error) {
	v := flexView()
	var memory decide.Memory
	second := func(at int) float64 {
		v.Now = v.Now.Add(time.Second)
		for i := range v.Types {
			v.Types[i].Rate = 95*flexInstances/flexTypes + float64((at*31+i*17)%400-200)
		}
		begin := time.Now()
		decide.Decide(v, &memory)
		return float64(time.Since(begin)) / float64(time.Millisecond)
	}
	for i := range 64 {
		second(i)
	}
	ours := func(context.Context) (float64, error) {
		var all []float64
		for i := range 100 {
			all = append(all, second(i))
		}
		return slices.Max(all), nil
	}
	limit := func(context.Context) (float64, error) { return flexLimit, nil }
	return compareSides(ctx, minRounds, "flex/decide", "ms, the slowest of 100", "the limit for 10,000 instances", "<= 1", ours, limit, progress)
}

// flexInstanceSeconds compares the instance-seconds of flex and of other scalers on random loads,
// in the simulator. Each load is one round.
func flexInstanceSeconds(ctx context.Context, progress io.Writer) ([]Row, error) {
	var rows []Row
	for _, peer := range []string{"hpa", "knative"} {
		var pairs Pairs
		ours, theirs := 0, 0 // seconds over the objective
		for seed := range uint64(20) {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			c := simulate.Case{Seed: seed, Load: simulate.Random(seed, 2000), Boot: 5 * time.Second, Type: flexView().Types[0].Type}
			c.Type.Min, c.Type.Max, c.Type.Headroom = 2, 100, 0.1
			all, err := simulate.Compare(c, []string{peer})
			if err != nil {
				return nil, err
			}
			fmt.Fprintf(progress, "  load %d: flex %.0f instance-s, %d s over; %s %.0f, %d\n", seed+1,
				all[0].InstanceSeconds, all[0].Broken, peer, all[1].InstanceSeconds, all[1].Broken)
			pairs.Ours = append(pairs.Ours, all[0].InstanceSeconds)
			pairs.Theirs = append(pairs.Theirs, all[1].InstanceSeconds)
			ours, theirs = ours+all[0].Broken, theirs+all[1].Broken
		}
		against := fmt.Sprintf("the rules of %s, simulated, with %d s over the objective against our %d", peer, theirs, ours)
		row, err := pairs.row("flex/instance-seconds/"+peer, "instance-s an hour", against, "<= 1")
		if err != nil {
			return nil, err
		}
		rows = append(rows, row.unless(ours > theirs))
	}
	return rows, nil
}
