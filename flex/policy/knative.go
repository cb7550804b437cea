package policy

import (
	"fmt"
	"math"
	"time"

	"vitrine"
)

// Defaults of the Knative Pod Autoscaler, from its documentation
// (https://knative.dev/docs/serving/autoscaling/kpa-specific/ for windows, panic mode
// and scale rates, https://knative.dev/docs/serving/autoscaling/concurrency/ for the
// target utilization).
const (
	kpaTick      = 2 * time.Second  // time between two decisions
	kpaStable    = 60 * time.Second // the stable window
	kpaPanic     = 6 * time.Second  // the panic window: 10% of the stable window
	kpaThreshold = 2                // panic at 200% of the ready pods
	kpaUp        = 1000             // max scale-up rate: factor of the ready pods per decision
	kpaDown      = 2                // max scale-down rate: divisor of the ready pods per decision
	kpaTarget    = 0.7              // utilization
)

// A kpa scales on requests per second. It does not scale to zero: the minimum of the type is
// its min-scale.
type kpa struct {
	target   float64
	ticked   time.Time // the last decision
	panicked bool
	since    time.Time // last time of a load over the threshold
	most     int       // most pods wanted in this panic
	want     int
	why      string
}

func newKPA(target float64) *kpa {
	if target == 0 {
		target = kpaTarget
	}
	return &kpa{target: target, why: "no rate is known yet"}
}

func (k *kpa) wanted(s *sight) (int, string) {
	if s.first { // more than one ready pod: begin in panic, as newAutoscaler in Knative does
		k.want = s.have
		k.panicked, k.since, k.most = s.active > 1, s.now, s.active
	}
	if !s.known || s.now.Sub(k.ticked) < kpaTick && !s.now.Before(k.ticked) {
		return k.want, k.why
	}
	k.ticked = s.now
	perPod := k.target * s.each
	ready := math.Max(1, float64(s.active))
	long, short := s.rates.mean(s.now, kpaStable), s.rates.mean(s.now, kpaPanic)
	bound := func(n float64) int {
		return int(math.Min(math.Max(n, math.Floor(ready/kpaDown)), math.Ceil(kpaUp*ready)))
	}
	stable, panicking := bound(math.Ceil(long/perPod)), bound(math.Ceil(short/perPod))
	switch over := math.Ceil(short/perPod)/ready >= kpaThreshold; {
	case over:
		k.panicked, k.since = true, s.now
	case k.panicked && s.now.Sub(k.since) > kpaStable:
		k.panicked, k.most = false, 0
	}
	k.want, k.why = stable, fmt.Sprintf("%s/s in %v at %s/s a pod need %d pods", vitrine.Digits(long), kpaStable, vitrine.Digits(perPod), stable)
	if k.panicked {
		// Panic mode never scales down.
		k.most = max(k.most, stable, panicking)
		k.want, k.why = k.most, fmt.Sprintf("in panic, %s/s in %v at %s/s a pod need %d pods; the most of this panic is %d", vitrine.Digits(short), kpaPanic, vitrine.Digits(perPod), panicking, k.most)
	}
	return max(k.want, 1), k.why
}
