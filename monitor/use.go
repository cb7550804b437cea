package monitor

import (
	"fmt"
	"math"
	"sort"
	"time"

	"vitrine"
)

// history holds an instance's samples, because the window of Use is only known after sampling.
type history struct {
	vantage vitrine.Vantage
	samples []sample
	gauge   float64 // memory at the newest sample
}

// A sample holds counters. Memory is a counter here too: its integral in bytes x ns over the time
// outside of gaps. So for every metric, the mean over a window is a difference of counters.
type sample struct {
	at    time.Duration
	gaps  time.Duration // total length of the gaps so far
	total [kept]float64
}

// The longest time between two samples that is not a gap: leastGap or gapIntervals intervals,
// whichever is longer, as documented at vitrine.Sampling.
const (
	leastGap     = 500 * time.Millisecond
	gapIntervals = 5
)

// remember adds the newest sample to the history. longest is the longest time that is not a gap.
func (s *subject) remember(longest time.Duration) {
	h := &s.use
	next := sample{at: s.at, total: [kept]float64(s.total[:kept])}
	if n := len(h.samples); n > 0 {
		before := h.samples[n-1]
		elapsed := s.at - before.at
		mean := (h.gauge + s.total[memory]) / 2
		next.gaps = before.gaps
		if elapsed > longest {
			next.gaps += elapsed
			elapsed = 0
		}
		next.total[memory] = before.total[memory] + mean*float64(elapsed)
	} else {
		next.total[memory] *= 0 // 0, or NaN if missing
	}
	h.gauge = s.total[memory]
	h.samples = append(h.samples, next)
}

// Use returns the mean use of each instance from one time to another. Counters at the edges are
// interpolated between samples, but not within a gap. If the window is only partly sampled, Use
// returns the mean over the sampled part. For memory the gaps are not sampled. The other metrics
// come from counters, so only a gap at an edge of the window is not sampled. A metric is missing if
// more than a tenth of the window and more than two intervals were not sampled.
func (m *Monitor) Use(from, to time.Time) map[string]vitrine.Use {
	m.mu.Lock()
	defer m.mu.Unlock()
	uses := make(map[string]vitrine.Use, len(m.instances))
	for _, s := range m.instances {
		uses[s.use.vantage.Instance] = s.over(from.Sub(m.began), to.Sub(m.began), m.interval, m.longest)
	}
	return uses
}

func (s *subject) over(from, to, interval, longest time.Duration) vitrine.Use {
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
		mean, covered := s.use.mean(field.metric, from, to, longest)
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
		why = "the monitor started late, was blocked or stopped early"
		fallthrough
	default:
		return fmt.Sprintf("%s: sampled for %.1f of %.1f s", why, covered.Seconds(), window.Seconds())
	}
}

// mean returns the counter's mean growth per ns over the sampled part of the window, and the length
// of that part.
func (h *history) mean(m metric, from, to, longest time.Duration) (mean float64, covered time.Duration) {
	// A lost metric stays lost, so the samples that have it come first.
	n := sort.Search(len(h.samples), func(i int) bool { return math.IsNaN(h.samples[i].total[m]) })
	there := h.samples[:n]
	if n < 2 {
		return 0, 0
	}
	from, to = max(from, there[0].at), min(to, there[n-1].at)
	if i := indexAt(there, from); i > 0 && i < n && there[i].at-there[i-1].at > longest {
		from = there[i].at
	}
	if i := indexAt(there, to); i > 0 && i < n && there[i].at > to && there[i].at-there[i-1].at > longest {
		to = there[i-1].at
	}
	covered = to - from
	if m == memory && covered > 0 {
		covered -= there[indexAt(there, to)].gaps - there[indexAt(there, from)].gaps
	}
	if covered <= 0 {
		return 0, 0
	}
	return (counterAt(there, m, to) - counterAt(there, m, from)) / float64(covered), covered
}

// indexAt returns the index of the first sample at or after the time.
func indexAt(samples []sample, at time.Duration) int {
	return sort.Search(len(samples), func(i int) bool { return samples[i].at >= at })
}

// counterAt returns the counter at a time within the samples, by interpolation.
func counterAt(samples []sample, m metric, at time.Duration) float64 {
	i := indexAt(samples, at)
	after := samples[i]
	if after.at == at || i == 0 {
		return after.total[m]
	}
	before := samples[i-1]
	share := float64(at-before.at) / float64(after.at-before.at)
	return before.total[m] + share*(after.total[m]-before.total[m])
}

// Sampling returns how regularly the instances were sampled from one time to another. If there are
// several instances, it reports the one with the longest time without a sample.
func (m *Monitor) Sampling(from, to time.Time) vitrine.Sampling {
	m.mu.Lock()
	defer m.mu.Unlock()
	var worst vitrine.Sampling
	for _, s := range m.instances {
		if x := s.use.sampling(from.Sub(m.began), to.Sub(m.began), m.longest); x.Longest > worst.Longest {
			worst = x
		}
	}
	return worst
}

// sampling returns the longest time without a sample in the window, and the number of gaps in it.
func (h *history) sampling(from, to, longest time.Duration) (found vitrine.Sampling) {
	last := from
	look := func(at time.Duration) {
		found.Longest = max(found.Longest, (at - last).Seconds())
		if at-last > longest {
			found.Gaps++
		}
		last = at
	}
	for _, s := range h.samples[indexAt(h.samples, from):] {
		look(min(s.at, to))
		if s.at >= to {
			return found
		}
	}
	look(max(last, to))
	return found
}
