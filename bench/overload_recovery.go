package main

import (
	"context"
	"fmt"
	"math"
	"slices"

	"vitrine/reference/ims/overload"
)

// recoveryPart is the name of a part, and the round of all its windows. So the page can show it by
// another build than the rest.
const recoveryPart = "recovery"

const (
	recoveryAfter = 4    // times the capacity is the overload before a window
	recoveryRate  = 0.7  // of the capacity, in a window: a rate that every deployment carries, unlike that of `below`
	recoveryGap   = 0.25 // s; the window begins at most this long before or after the overload's end
)

// overloadRecovery measures on fresh deployments how soon all calls succeed again after an overload,
// and how many requests of calls that were admitted before are refused.
func overloadRecovery(ctx context.Context, m *overloadMeter) ([]Row, error) {
	m.round = recoveryPart
	defer func() { m.round = "" }()
	known, err := m.capacity(ctx, overload.Graceful, overloadQuota)
	if err != nil {
		return nil, err
	}
	want := m.want(overload.Graceful, overloadQuota, recoveryRate*known.capacity)
	want.After = math.Round(recoveryAfter * known.capacity)
	all, err := m.collect(ctx, want, m.rules.Repeats)
	if err != nil {
		return nil, err
	}
	each := values(all, recovery)
	longest := slices.Max(each)
	refused, requests := refusals(all)
	return []Row{
		newRow(m.name(recoveryPart), "s", fmt.Sprintf("second; the longest until success stays at %g, at %g of the capacity after %d times it", overloadCarried, recoveryRate, recoveryAfter),
			"<= 2", longest, 1, longest, each, len(each)),
		newRow(m.name("admitted"), "refused", "requests of admitted calls", "<= 0", refused, requests, refused/requests, nil, len(all)),
	}, nil
}

// recovery returns the time until the success of the calls due in each second is and stays at least
// overloadCarried, in whole seconds from the first call of the window.
func recovery(w window) float64 {
	n := len(w.Each)
	for n > 0 && w.Each[n-1] >= overloadCarried {
		n--
	}
	return float64(n)
}

// refusals returns the sums of the windows' admissions.
func refusals(all []window) (refused, requests float64) {
	for _, w := range all {
		refused += w.Admission.Refused
		requests += w.Admission.Requests
	}
	return refused, requests
}
