package main

import (
	"context"
	"fmt"
	"math"

	"vitrine/reference/ims/overload"
	"vitrine/testbed/quiet"
)

const (
	overloadFresh = 30   // fresh deployments at each load
	overloadSame  = 0.03 // the share by which the capacity may change in a round; on a host that stays as it is, two searches differ by about 0.01
	overloadTries = 3    // times the rounds that a bench may need until enough count
)

// A freshLoad is a load that fresh deployments must carry, or must not carry.
type freshLoad struct {
	name    string
	load    float64 // relative to the capacity
	success float64 // from which a deployment counts
	aim     string
	earlier int // rounds by rules without turns; 0: overloadRules.Rounds
}

// Indexes of freshLoads.
const (
	freshBelow = iota
	freshAbove
)

func freshLoads() []freshLoad {
	return []freshLoad{
		freshBelow: {name: "below", load: 0.85, success: overloadCarried, aim: ">= 0.96"},
		freshAbove: {name: "above", load: 1.25, success: 0.95, aim: "<= 0", earlier: 1},
	}
}

// countBelow and countAbove count the fresh deployments that succeed below and above the capacity.
func countBelow(ctx context.Context, m *overloadMeter) ([]Row, error) {
	return m.count(ctx, freshBelow)
}
func countAbove(ctx context.Context, m *overloadMeter) ([]Row, error) {
	return m.count(ctx, freshAbove)
}

// count returns the row of one of the freshLoads.
func (m *overloadMeter) count(ctx context.Context, at int) ([]Row, error) {
	f := freshLoads()[at]
	all, _, err := m.fresh(ctx, at)
	if err != nil {
		return nil, err
	}
	reached, total := 0.0, float64(len(all))
	for _, w := range all {
		if w.Success >= f.success {
			reached++
		}
	}
	return []Row{newRow(m.name(f.name), "deployments", fmt.Sprintf("all, at %g of the capacity; success from %g on counts", f.load, f.success), f.aim,
		reached, total, reached/total, values(all, func(w window) float64 { return w.Success }), len(all))}, nil
}

// fresh returns overloadFresh windows at one of the freshLoads, and how many rounds do not count.
func (m *overloadMeter) fresh(ctx context.Context, at int) (all []window, void int, err error) {
	known, err := m.capacity(ctx, overload.Graceful, overloadQuota)
	if err != nil {
		return nil, 0, err
	}
	defer func() { m.round = "" }()
	if m.rules.Turns == 0 {
		all, err = m.freshAfter(ctx, known, freshLoads()[at])
		return all, 0, err
	}
	loads := values(freshLoads(), func(f freshLoad) float64 { return f.load })
	for i := 1; len(all) < overloadFresh; i++ {
		if i > overloadTries*m.rules.Rounds {
			return nil, void, fmt.Errorf("%w: the capacity changed by more than %g%% in %d of %d rounds", quiet.ErrTooNoisy, 100*overloadSame, void, i-1)
		}
		found, got, err := m.beside(ctx, fmt.Sprintf("fresh-%d", i), known, loads, overloadFresh/m.rules.Rounds)
		if err != nil {
			return nil, void, err
		}
		if math.Abs(found.capacity/known.capacity-1) <= overloadSame {
			all = append(all, got[at]...)
		} else {
			void++
		}
		known = found
	}
	return all, void, nil
}

// freshAfter drives rounds of windows at one load, each after a search for the capacity, by rules without turns.
func (m *overloadMeter) freshAfter(ctx context.Context, known *capacitySearch, f freshLoad) (all []window, err error) {
	rounds := f.earlier
	if rounds == 0 {
		rounds = max(m.rules.Rounds, 1)
	}
	for i := range rounds {
		if known, err = m.again(ctx, fmt.Sprintf("%s-%d", f.name, i+1), known); err != nil {
			return nil, err
		}
		some, err := m.windows(ctx, overload.Graceful, overloadQuota, f.load*known.capacity, overloadFresh/rounds)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}
