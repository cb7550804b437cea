package policy

import (
	"fmt"
	"math"
	"time"

	"vitrine"
)

// Defaults of the Kubernetes HorizontalPodAutoscaler, from its documentation
// (https://kubernetes.io/docs/concepts/workloads/autoscaling/horizontal-pod-autoscale/,
// "Algorithm details" and "Default behavior"). The target of 80% is the CPU default of
// autoscaling/v1
// (https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/horizontal-pod-autoscaler-v1/).
const (
	hpaSync      = 15 * time.Second  // time between two decisions
	hpaTolerance = 0.1               // no scaling while metric/target is within 1 ± this
	hpaStable    = 300 * time.Second // stabilization window of scaling down: its highest recommendation applies
	hpaTarget    = 0.8               // utilization
	hpaPods      = 4                 // most pods added in a period; or 100% of the pods, if that is more
	hpaPeriod    = 15 * time.Second
)

// An hpa scales on the rate per pod, an object metric with an average value. That is the best
// case for the HPA: CPU use saturates at 100%, so it would underestimate a burst.
type hpa struct {
	target  float64
	synced  time.Time // the last decision
	advised window    // recommendations within hpaStable
	before  window    // pods in each second within hpaPeriod
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
	if s.first { // the pods of the first second are a recommendation too: recordInitialRecommendation in Kubernetes
		h.want = s.have
		h.advised.add(s.now, float64(s.have), hpaStable)
	}
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
	// The default is the higher of two policies for scaling up: 100% or hpaPods per period.
	then := int(h.before[0].value)
	h.want = min(want, max(2*then, then+hpaPods))
	h.why = fmt.Sprintf("%s/s in %v at %s/s a pod need %d pods; %d after tolerance, stabilization and pace", vitrine.Digits(rate), hpaSync, vitrine.Digits(perPod), advised, h.want)
	return h.want, h.why
}
