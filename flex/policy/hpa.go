package policy

import (
	"fmt"
	"math"
	"time"
)

// The defaults of the Kubernetes HorizontalPodAutoscaler, by its documentation
// (https://kubernetes.io/docs/concepts/workloads/autoscaling/horizontal-pod-autoscale/,
// "Algorithm details" and "Default behavior"). The target is the 80% that
// autoscaling/v1 has for CPU
// (https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/horizontal-pod-autoscaler-v1/).
const (
	hpaSync      = 15 * time.Second  // between two decisions
	hpaTolerance = 0.1               // of the ratio of the metric to its target
	hpaStable    = 300 * time.Second // of recommendations; the highest counts
	hpaTarget    = 0.8
	hpaPods      = 4 // added in a period, at least; otherwise as many as there are
	hpaPeriod    = 15 * time.Second
)

// An hpa scales on the rate per pod, an object metric with an average value. That is
// its best case: CPU use is at most 100%, so that it shows a burst as too small.
type hpa struct {
	target  float64
	synced  time.Time // the last decision
	advised window    // recommendations of the last hpaStable
	before  window    // pods in each of the last seconds of hpaPeriod
	want    int
	why     string
}

func newHPA(target float64) *hpa {
	if target == 0 {
		target = hpaTarget
	}
	return &hpa{target: target, why: "no rate is known yet"}
}

func (h *hpa) wanted(s *sight) (int, string) {
	h.before.add(s.now, float64(s.have), hpaPeriod)
	if !s.known || s.now.Sub(h.synced) < hpaSync && !s.now.Before(h.synced) {
		return h.want, h.why
	}
	h.synced = s.now
	perPod := h.target * s.each
	rate := s.rates.mean(s.now, hpaSync)
	want := s.have
	if s.have == 0 || math.Abs(rate/(perPod*float64(s.have))-1) > hpaTolerance {
		want = int(math.Ceil(rate / perPod))
	}
	advised := want
	h.advised.add(s.now, float64(want), hpaStable)
	if want < s.have {
		want = min(int(h.advised.most()), s.have)
	}
	// The higher of the two default policies for scaling up counts.
	then := int(h.before[0].value)
	h.want = min(want, max(2*then, then+hpaPods))
	h.why = fmt.Sprintf("%.4g/s in %v at %.4g/s a pod need %d pods; %d after tolerance, stabilization and pace", rate, hpaSync, perPod, advised, h.want)
	return h.want, h.why
}
