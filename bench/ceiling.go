package main

import (
	"context"
	"fmt"
	"math"
	"time"
)

const (
	lossAllowed  = 0.001       // share of the sent messages
	queueAllowed = 0.02        // share of the sent messages that may arrive after the trial: a large receive buffer must not count as rate
	rateTrial    = time.Second // duration of a trial
	rateWidth    = 1.02        // the search ends when the failed rate is within this factor of the passed rate
	rateStep     = 1.15        // factor between rates, until one has passed and one has failed
	lowestShare  = 1e-4        // share of the load tool's own ceiling, below which the search fails
	rateAttempts = 2           // trials that must fail before a rate fails, because noise only lowers the result
	loadAttempts = 4           // attempts of the load tool to keep to the rate
)

// A ceiling is the highest rate that passed, in messages per second. limited is
// true if the load tool could not send faster; then the device's own ceiling is
// unknown.
type ceiling struct {
	rate    float64
	limited bool
}

// findCeiling finds the highest rate with a loss of at most lossAllowed and a queue of at most queueAllowed. It starts from the rate
// that arrives under overload, steps until one rate has passed and one has failed, and then
// bisects. most is the load tool's own ceiling.
func findCeiling(ctx context.Context, send func(rate float64, lasting time.Duration) (flood, error), most float64) (ceiling, error) {
	f, err := send(most, rateTrial)
	if err != nil {
		return ceiling{}, err
	}
	at := math.Max(f.arrived/f.took.Seconds(), most*lowestShare)
	var passed ceiling
	for failed, behind := 0.0, false; ; {
		if err := ctx.Err(); err != nil {
			return ceiling{}, err
		}
		ok, late, err := passes(send, at)
		switch {
		case err != nil:
			return ceiling{}, err
		case ok:
			passed.rate = at
		default:
			failed, behind = at, late
		}
		switch {
		case failed == 0 && passed.rate >= most:
			return ceiling{passed.rate, true}, nil
		case failed == 0:
			at = math.Min(passed.rate*rateStep, most)
		case passed.rate == 0 && failed < most*lowestShare:
			return ceiling{}, fmt.Errorf("more than %g of the messages are lost, or %g late, even at %.0f messages/s", lossAllowed, queueAllowed, failed)
		case passed.rate == 0:
			at = failed / rateStep
		case failed < passed.rate*rateWidth:
			return ceiling{passed.rate, behind}, nil
		default:
			at = math.Sqrt(passed.rate * failed)
		}
	}
}

// passes reports whether the rate passes. behind is true if the rate fails
// because the load tool could not keep to it.
func passes(send func(float64, time.Duration) (flood, error), rate float64) (ok, behind bool, err error) {
	for failed, late := 0, 0; failed < rateAttempts && late < loadAttempts; {
		f, err := send(rate, rateTrial)
		switch behind = f.behind(rateTrial); {
		case err != nil:
			return false, false, err
		case f.arrived > f.sent:
			return false, false, fmt.Errorf("at %.0f messages/s, %.0f messages arrived but only %.0f were sent", rate, f.arrived, f.sent)
		case behind:
			late++
		case f.loss() <= lossAllowed && f.queued() <= queueAllowed:
			return true, false, nil
		default:
			failed++
		}
	}
	return false, behind, nil
}
