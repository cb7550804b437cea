package main

import (
	"context"
	"fmt"
	"math"
	"slices"

	"vitrine/reference/ims/overload"
)

// A capacitySearch finds the highest rate whose mean success over fresh deployments is 0.9 in steady
// windows. It interpolates between two rates one step apart: one passes and one fails.
type capacitySearch struct {
	mode  string
	quota float64

	rate                    float64 // of the next windows
	low, high               float64 // the highest rate that passed and the lowest that failed; 0: none
	lowSuccess, highSuccess float64
	at                      []window // at low
	capacity                float64  // 0: not found yet
}

func newCapacitySearch(mode string, quota, rate float64) *capacitySearch {
	return &capacitySearch{mode: mode, quota: quota, rate: math.Round(rate)}
}

// take continues the search with the windows at its rate.
func (s *capacitySearch) take(all []window) error {
	success, steady := sumUp(all)
	if success >= overloadSuccess && steady {
		s.low, s.lowSuccess, s.at = s.rate, success, all
	} else {
		s.high, s.highSuccess = s.rate, success
	}
	switch {
	case s.low == 0:
		s.rate = math.Floor(s.rate / overloadStep)
	case s.high == 0:
		s.rate = math.Ceil(s.rate * overloadStep)
	case s.highSuccess >= overloadSuccess: // it fails because its backlog grows
		s.capacity = s.low
	default:
		share := (s.lowSuccess - overloadSuccess) / (s.lowSuccess - s.highSuccess)
		s.capacity = s.low + share*(s.high-s.low)
	}
	if s.rate < 1 {
		return fmt.Errorf("with --overload %s and %g of its quota, the IMS carries nothing", s.mode, s.quota)
	}
	return nil
}

// A batch is a number of windows of one load.
type batch struct {
	want window // without results
	n    int
	got  []window
}

// inTurns drives searches to their ends, and batches. In each turn it drives a window of each search and
// one of a batch. So a host that becomes slower makes all of them slower.
func (m *overloadMeter) inTurns(ctx context.Context, searches []*capacitySearch, batches []*batch) (err error) {
	for open := slices.Clone(searches); len(open) > 0; {
		all := make([][]window, len(open))
		for n := range m.rules.Repeats {
			for i, s := range open {
				if all[i], err = m.windows(ctx, s.mode, s.quota, s.rate, n+1); err != nil {
					return err
				}
			}
			if _, err := m.next(ctx, batches); err != nil {
				return err
			}
		}
		for i, s := range open {
			if err := s.take(all[i]); err != nil {
				return err
			}
		}
		open = slices.DeleteFunc(open, func(s *capacitySearch) bool { return s.capacity > 0 })
	}
	for more := true; more && err == nil; {
		more, err = m.next(ctx, batches)
	}
	return err
}

// next drives a window of the batch that has the fewest. more is false if all batches are complete.
func (m *overloadMeter) next(ctx context.Context, batches []*batch) (more bool, err error) {
	var least *batch
	for _, b := range batches {
		if len(b.got) < b.n && (least == nil || len(b.got) < len(least.got)) {
			least = b
		}
	}
	if least == nil {
		return false, nil
	}
	least.got, err = m.collect(ctx, least.want, len(least.got)+1)
	return true, err
}

// beside drives n windows at each multiple of the capacity that is known, in a round, in turns with a search
// for the capacity. By rules without turns there is neither a round nor a search. got is in the order of loads.
func (m *overloadMeter) beside(ctx context.Context, round string, known *capacitySearch, loads []float64, n int) (found *capacitySearch, got [][]window, err error) {
	found = known
	var searches []*capacitySearch
	if m.rules.Turns > 0 {
		m.round = round
		found = newCapacitySearch(overload.Graceful, overloadQuota, known.capacity)
		searches = append(searches, found)
	}
	var batches []*batch
	for _, load := range loads {
		batches = append(batches, &batch{want: m.want(overload.Graceful, overloadQuota, load*known.capacity), n: n})
	}
	if err := m.inTurns(ctx, searches, batches); err != nil {
		return nil, nil, err
	}
	for _, b := range batches {
		got = append(got, b.got)
	}
	return found, got, nil
}

// search searches for a capacity alone.
func (m *overloadMeter) search(ctx context.Context, mode string, quota, rate float64) (*capacitySearch, error) {
	s := newCapacitySearch(mode, quota, rate)
	return s, m.inTurns(ctx, []*capacitySearch{s}, nil)
}

// capacity searches from an estimate.
func (m *overloadMeter) capacity(ctx context.Context, mode string, quota float64) (*capacitySearch, error) {
	rate, err := m.start(ctx, mode, quota)
	if err != nil {
		return nil, err
	}
	return m.search(ctx, mode, quota, rate)
}

// start estimates the capacity from a single overloaded window.
func (m *overloadMeter) start(ctx context.Context, mode string, quota float64) (float64, error) {
	for rate := 1.2 * quota * overloadGuess[m.flavor]; ; rate *= 1.5 {
		probe, err := m.windows(ctx, mode, quota, rate, 1)
		if err != nil {
			return 0, err
		}
		if probe[0].Success < overloadSuccess {
			return probe[0].Goodput / overloadSuccess, nil
		}
	}
}

// again begins a round of windows and searches for the capacity in it, by rules without turns.
func (m *overloadMeter) again(ctx context.Context, round string, known *capacitySearch) (*capacitySearch, error) {
	if m.rules.Rounds == 0 {
		return known, nil
	}
	m.round = round
	return m.search(ctx, overload.Graceful, overloadQuota, known.capacity)
}

// sumUp returns the mean success of the windows, and whether their calls in flight are steady on
// average.
func sumUp(all []window) (success float64, steady bool) {
	var growth float64
	for _, w := range all {
		success += w.Success / float64(len(all))
		growth += w.Growth / float64(len(all))
	}
	return success, growth < overloadSteady
}

// carried returns the calls per second that the deployments carried on average: the goodput less the
// growth of the backlog.
func carried(all []window) float64 {
	var sum float64
	for _, w := range all {
		sum += w.Goodput - w.Growth*w.Rate
	}
	return sum / float64(len(all))
}
