package monitor

import (
	"fmt"
	"math"
	"sort"
	"time"

	"vitrine"
)

// history holds an instance's samples, because the window of Use is known only afterwards.
type history struct {
	vantage vitrine.Vantage
	samples []sample
	gauge   float64 // memory at the newest sample
}

// A sample holds counters. Memory is a counter here too: its integral over time in bytes x ns. So
// the mean over a window is a difference for every metric.
type sample struct {
	at    time.Duration
	total [kept]float64
}

// remember adds the newest sample to the history.
func (s *subject) remember() {
	h := &s.use
	next := sample{at: s.at, total: [kept]float64(s.total[:kept])}
	if n := len(h.samples); n > 0 {
		before := h.samples[n-1]
		next.total[memory] = before.total[memory] + (h.gauge+s.total[memory])/2*float64(s.at-before.at)
	} else {
		next.total[memory] *= 0 // 0, or NaN if missing
	}
	h.gauge = s.total[memory]
	h.samples = append(h.samples, next)
}

// Use returns the mean use of each instance from one time to another. Counters at the edges are
// interpolated between samples. If the window is only partly sampled, Use returns the mean over the
// sampled part. A metric is missing if more than a tenth of the window and more than two intervals
// were not sampled.
func (m *Monitor) Use(from, to time.Time) map[string]vitrine.Use {
	m.mu.Lock()
	defer m.mu.Unlock()
	uses := make(map[string]vitrine.Use, len(m.instances))
	for _, s := range m.instances {
		uses[s.use.vantage.Instance] = s.over(from.Sub(m.began), to.Sub(m.began), m.interval)
	}
	return uses
}

func (s *subject) over(from, to, interval time.Duration) vitrine.Use {
	v := s.use.vantage
	use := vitrine.Use{Component: v.Component, VCPUs: v.VCPUs, MemoryLimit: v.Memory, Missing: map[string]string{}}
	for _, field := range []struct {
		metric metric
		scale  float64 // from counter per ns
		into   **float64
	}{
		{cpu, 1, &use.CPU},
		{memory, 1, &use.Memory},
		{rx, 1e9, &use.RxBytes},
		{tx, 1e9, &use.TxBytes},
		{throttled, 1, &use.Throttled},
	} {
		mean, covered := s.use.mean(field.metric, from, to)
		if lost := to - from - covered; covered <= 0 || lost > max(2*interval, (to-from)/10) {
			use.Missing[names[field.metric]] = s.missingReason(field.metric, covered, to-from)
			continue
		}
		*field.into = new(mean * field.scale)
	}
	return use
}

func (s *subject) missingReason(m metric, covered, window time.Duration) string {
	switch why := s.why[m]; {
	case covered <= 0 && why != "":
		return why
	case covered <= 0:
		return "no samples in the window"
	case why == "":
		why = "watching began late or ended early"
		fallthrough
	default:
		return fmt.Sprintf("%s: sampled for %.1f of %.1f s", why, covered.Seconds(), window.Seconds())
	}
}

// mean returns the counter's mean growth per ns over the sampled part of the window, and the length
// of that part.
func (h *history) mean(m metric, from, to time.Duration) (mean float64, covered time.Duration) {
	// A lost metric stays lost, so the samples that have it come first.
	n := sort.Search(len(h.samples), func(i int) bool { return math.IsNaN(h.samples[i].total[m]) })
	there := h.samples[:n]
	if n < 2 {
		return 0, 0
	}
	from, to = max(from, there[0].at), min(to, there[n-1].at)
	if from >= to {
		return 0, 0
	}
	return (counterAt(there, m, to) - counterAt(there, m, from)) / float64(to-from), to - from
}

// counterAt returns the counter at a time within the samples, by interpolation.
func counterAt(samples []sample, m metric, at time.Duration) float64 {
	i := sort.Search(len(samples), func(i int) bool { return samples[i].at >= at })
	after := samples[i]
	if after.at == at || i == 0 {
		return after.total[m]
	}
	before := samples[i-1]
	share := float64(at-before.at) / float64(after.at-before.at)
	return before.total[m] + share*(after.total[m]-before.total[m])
}
