package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"vitrine"
	"vitrine/flex/burst"
	"vitrine/internal/cgroup"
	"vitrine/load/sipp"
	"vitrine/testbed/quiet"
)

const (
	agreeAbout     = "about an hour"
	agreeInstances = 3   // the measured instance, and two that share the load with it
	agreeVCPUs     = 0.2 // of each of an instance's two members
	agreeBase      = 0.6 // offered rate of an instance, as a share of the capacity that characterize found
	agreeIncrease  = 0.1 // of the rate between two steps of redline, as a share of the same capacity
	agreeStep      = 5 * time.Second
	agreeMaxStep   = 20 * time.Second
	agreePrecision = 0.15 // of both measurements
	agreeSeconds   = 100  // seconds of load for one measurement
	agreeTries     = 3    // attempts of redline to find an interval on a noisy host
	agreeReact     = 4.0  // seconds from a fault to no new work: two for the guard's window, two for the weights
)

// A capacityFound is a capacity with its interval, in transactions/s.
type capacityFound struct{ rate, low, high float64 }

// An agreeRound holds the two measurements of one round, and the effect of redline on the calls.
type agreeRound struct {
	redline, characterize capacityFound
	calls, lost           int64   // of the load during redline
	broken                float64 // longest time for which the measured instance broke the objective, in seconds
}

// ratio returns the capacity by redline over that by characterize. low and high are the least and
// greatest ratio that the two intervals allow.
func (r *agreeRound) ratio() (ratio, low, high float64) {
	a, b := r.redline, r.characterize
	return a.rate / b.rate, a.low / b.high, a.high / b.low
}

// redlineAgrees measures an instance of the reference IMS twice, with the same calls and objective.
// redline measures it behind a director, under a steady load by SIPp. characterize measures a
// deployment of the same instance. At the end, the bench stops an instance while redline measures
// it.
func redlineAgrees(ctx context.Context, dir string, progress io.Writer) (rows []Row, err error) {
	if _, err := cgroup.Detect(); err != nil {
		return nil, err
	}
	if _, err := sipp.Version(ctx); err != nil {
		return nil, err
	}
	limit, err := readTime(os.Getenv, "FOR", 0, noLimit)
	if err != nil {
		return nil, err
	}
	awake, err := quiet.KeepAwake()
	switch {
	case err == nil:
		defer func() { err = errors.Join(err, awake.Close()) }()
	case errors.As(err, new(*vitrine.Unsupported)):
		fmt.Fprintln(progress, "  idle CPUs halt, so the capacity may drift:", err)
	default:
		return nil, err
	}
	s, err := newAgreeSite(ctx, dir, progress)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.system.End(context.WithoutCancel(ctx))) }()
	fmt.Fprintf(progress, "  %d rounds, %s; FOR=5m begins no round after that time\n", minRounds, agreeAbout)
	began := time.Now()
	pilot, err := s.characterize(ctx)
	if err != nil {
		return nil, err
	}
	s.expected = pilot.rate
	more := func() bool { return time.Since(began) < limit }
	rounds, failed := agreeRounds(more, func(characterizeFirst bool) (agreeRound, error) { return s.round(ctx, characterizeFirst) }, progress)
	if rows, err = agreeRows(rounds); failed != nil || err != nil {
		return rows, errors.Join(failed, err)
	}
	took, err := s.fault(ctx)
	if err != nil {
		return rows, fmt.Errorf("with a fault: %w", err)
	}
	return append(rows, faultRow(took)), nil
}

// agreeRounds measures up to minRounds rounds, but at least one, while more is true. If a round fails,
// it returns those before it with the error.
func agreeRounds(more func() bool, round func(characterizeFirst bool) (agreeRound, error), progress io.Writer) (rounds []agreeRound, err error) {
	for len(rounds) == 0 || len(rounds) < minRounds && more() {
		r, err := round(len(rounds)%2 == 1)
		if err != nil {
			return rounds, fmt.Errorf("round %d: %w", len(rounds)+1, err)
		}
		rounds = append(rounds, r)
		ratio, low, high := r.ratio()
		fmt.Fprintf(progress, "  round %d: redline %.4g/s (%.4g to %.4g), characterize %.4g/s (%.4g to %.4g), ratio %.3g (%.3g to %.3g), %d of %d calls lost, the objective broken for at most %.2g s\n",
			len(rounds), r.redline.rate, r.redline.low, r.redline.high, r.characterize.rate, r.characterize.low, r.characterize.high, ratio, low, high, r.lost, r.calls, r.broken)
	}
	return rounds, nil
}

// round makes both measurements. The caller alternates the order, so that a drift of the host
// favours neither.
func (s *agreeSite) round(ctx context.Context, characterizeFirst bool) (r agreeRound, err error) {
	if characterizeFirst {
		if r.characterize, err = s.characterize(ctx); err != nil {
			return r, err
		}
	}
	if err := s.redline(ctx, &r); err != nil || characterizeFirst {
		return r, err
	}
	r.characterize, err = s.characterize(ctx)
	return r, err
}

// agreeRows returns two rows with the ratio, for its lower and its upper bound, and rows about lost
// calls and the broken objective. Without rounds it returns no rows.
func agreeRows(rounds []agreeRound) ([]Row, error) {
	if len(rounds) == 0 {
		return nil, nil
	}
	var capacities Pairs
	var broken []float64
	var calls, lost int64
	for i := range rounds {
		r := &rounds[i]
		capacities.Ours, capacities.Theirs = append(capacities.Ours, r.redline.rate), append(capacities.Theirs, r.characterize.rate)
		broken = append(broken, r.broken/agreeStep.Seconds())
		calls, lost = calls+r.calls, lost+r.lost
	}
	against := fmt.Sprintf("characterize of the same instance, calls and objective (p99 %s, success %g)", burst.Bound, burst.Success)
	least, err := capacities.row("redline/agrees", "transactions/s", against, ">= 0.85")
	if err != nil {
		return nil, err
	}
	most, err := capacities.row("redline/agrees/at-most", "transactions/s", against, "<= 1.15")
	if err != nil {
		return nil, err
	}
	longest := slices.Max(broken)
	return []Row{
		least, most,
		newRow("redline/agrees/lost", "calls", "all calls while redline measured", "<= 0", float64(lost), float64(calls), float64(lost)/float64(calls), nil, len(rounds)),
		newRow("redline/agrees/broken", "s, the longest time with the objective broken", "the shortest step", "<= 1",
			longest*agreeStep.Seconds(), agreeStep.Seconds(), longest, broken, len(rounds)),
	}, nil
}

// faultRow returns the row about the seconds from the fault to no new work.
func faultRow(took float64) Row {
	return newRow("redline/agrees/fault", "s from a fault to no new work", "the guard's 2 s, and 2 s", "<= 1", took, agreeReact, took/agreeReact, nil, 1)
}
