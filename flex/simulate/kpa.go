package simulate

import "math"

// The defaults of the Knative Pod Autoscaler, by its documentation
// (https://knative.dev/docs/serving/autoscaling/kpa-specific/ for windows, panic mode
// and scale rates, https://knative.dev/docs/serving/autoscaling/concurrency/ for the
// target utilization).
const (
	kpaTick      = 2  // seconds between two decisions
	kpaStable    = 60 // seconds of the stable window
	kpaPanic     = 6  // seconds of the panic window: 10% of the stable window
	kpaThreshold = 2  // panic at 200% of the ready pods
	kpaUp        = 1000
	kpaDown      = 2
	kpaTarget    = 0.7
)

// A kpa scales on requests per second. Its last pods are never taken away: the
// type's minimum is its min-scale.
type kpa struct {
	target   float64
	panicked bool
	since    int // second in which the load was last over the threshold
	most     int // pods wanted in this panic
	want     int
}

func newKPA(target float64) *kpa {
	if target == 0 {
		target = kpaTarget
	}
	return &kpa{target: target}
}

func (k *kpa) wanted(f *fleet) int {
	if f.second%kpaTick != 0 {
		return max(k.want, 1)
	}
	perPod := k.target * f.lean().Capacity
	ready := math.Max(1, float64(f.active()))
	desired := func(window int) float64 { return math.Ceil(f.mean(window) / perPod) }
	bound := func(n float64) int {
		return int(math.Min(math.Max(n, math.Floor(ready/kpaDown)), math.Ceil(kpaUp*ready)))
	}
	stable, panicking := bound(desired(kpaStable)), bound(desired(kpaPanic))
	switch over := desired(kpaPanic)/ready >= kpaThreshold; {
	case over:
		k.panicked, k.since = true, f.second
	case k.panicked && f.second-k.since > kpaStable:
		k.panicked, k.most = false, 0
	}
	k.want = stable
	if k.panicked {
		// No scaling down in panic mode.
		k.most = max(k.most, stable, panicking)
		k.want = k.most
	}
	return k.want
}
