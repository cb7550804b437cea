package simulate

import "math"

// The defaults of the Kubernetes HorizontalPodAutoscaler, by its documentation
// (https://kubernetes.io/docs/concepts/workloads/autoscaling/horizontal-pod-autoscale/,
// "Algorithm details" and "Default behavior"). The target is the 80% that
// autoscaling/v1 has for CPU
// (https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/horizontal-pod-autoscaler-v1/).
const (
	hpaSync      = 15  // seconds between two decisions
	hpaTolerance = 0.1 // of the ratio of the metric to its target
	hpaStable    = 300 // seconds of recommendations; the highest counts
	hpaTarget    = 0.8
	hpaPods      = 4 // added in a period, at least; otherwise as many as there are
	hpaPeriod    = 15
)

// An hpa scales on the rate per pod, an object metric with an average value. That is
// its best case: CPU use is at most 100%, so that it shows a burst as too small.
type hpa struct {
	target  float64
	advised []int // recommendations of the last hpaStable seconds, oldest first
	before  []int // replicas in each of the last hpaPeriod seconds
}

func newHPA(target float64) *hpa {
	if target == 0 {
		target = hpaTarget
	}
	return &hpa{target: target}
}

func (h *hpa) wanted(f *fleet) int {
	have := f.replicas()
	h.before = append(h.before, have)
	h.before = h.before[max(0, len(h.before)-hpaPeriod-1):]
	if f.second%hpaSync != 0 {
		return have
	}
	perPod := h.target * f.lean().Capacity
	rate := f.mean(hpaSync)
	want := have
	if have == 0 || math.Abs(rate/(perPod*float64(have))-1) > hpaTolerance {
		want = int(math.Ceil(rate / perPod))
	}
	h.advised = append(h.advised, want)
	h.advised = h.advised[max(0, len(h.advised)-hpaStable/hpaSync-1):]
	if want < have {
		for _, n := range h.advised {
			want = max(want, n)
		}
		want = min(want, have)
	}
	// The higher of the two default policies for scaling up counts.
	then := h.before[0]
	return min(want, max(2*then, then+hpaPods))
}
