// Package quiettest has a host for tests that is as noisy as a test wants.
package quiettest

import (
	"cmp"
	"context"
	"time"

	"vitrine"
	"vitrine/testbed/quiet"
)

// Reason is the reason of the disturbances of a Noise, unless Noise.Why is.
const Reason = "disturbed: a neighbour"

// A Noise disturbs the trials for which Disturbs is true, by their number from 0. It watches one trial at a
// time.
type Noise struct {
	Disturbs func(trial int) bool
	Why      string    // reason of the disturbances; empty: Reason
	Own      []float64 // CPUs that the run used, by trial; see quiet.Watch

	began time.Time
}

// Watch is a quiet.Watcher.
func (n *Noise) Watch(context.Context) (quiet.Watch, error) {
	n.began = time.Now()
	return n, nil
}

// End returns the time since Watch.
func (n *Noise) End(context.Context) (from, to time.Time, err error) { return n.began, time.Now(), nil }

// Judge reads half of the best speed during a disturbed trial, and otherwise the best speed.
func (n *Noise) Judge(own float64, _ ...vitrine.Vantage) (vitrine.HostReading, string) {
	n.Own = append(n.Own, own)
	if n.Disturbs(len(n.Own) - 1) {
		return vitrine.HostReading{Before: 1, During: 0.5, After: 1}, cmp.Or(n.Why, Reason)
	}
	return vitrine.HostReading{Before: 1, During: 1, After: 1}, ""
}
