package rate

import (
	"fmt"
	"math"
)

// An mlrSeeker works on one goal, target by target.
type mlrSeeker struct {
	run       *mlrRun
	goal      int
	targets   []mlrTarget // the first is the current one
	low, high int         // the bounds that the current target begins with; -1: none
	next      int         // width of the next step outwards
}

// A nomination is the trial that a seeker wants next.
type nomination struct {
	by     *mlrSeeker
	rate   int
	width  int  // at which the whole search works from then on; 0: as before
	up     bool // looks for an upper bound
	down   bool // looks for a lower bound
	reason string
}

// before orders nominations: the lower rate first, then the longer trial, then
// the wider step.
func (n *nomination) before(o *nomination) bool {
	a, b := n.by.target().trial, o.by.target().trial
	switch {
	case n.rate != o.rate:
		return n.rate < o.rate
	case a != b:
		return a > b
	}
	return n.width > o.width
}

func (n *nomination) why() string {
	s := n.by
	return fmt.Sprintf("%s, within %.2g%% by %s (threshold %g)", n.reason,
		100*s.run.span(s.target().width), s.target().trial, s.run.cfg.Thresholds[s.goal])
}

func (s *mlrSeeker) target() mlrTarget { return s.targets[0] }

// aim begins a target: steps outwards start at twice its width, or at twice the
// distance of the known bounds.
func (s *mlrSeeker) aim() {
	s.next = s.target().width
	if s.low >= 0 && s.high >= 0 {
		s.next = max(s.next, s.high-s.low)
	}
	s.next *= mlrExpansion
}

// nominate returns the next trial for the goal; nil: the goal is reached.
func (s *mlrSeeker) nominate() *nomination {
	for {
		lo, hi := s.run.relevant(s.target())
		if n := s.want(lo, hi); n != nil {
			n.by = s
			return n
		}
		if len(s.targets) == 1 {
			return nil
		}
		s.targets = s.targets[1:]
		s.low, s.high = lo, hi
		s.aim()
	}
}

// want returns the trial that the current target needs; nil: none. First come the
// bounds that the target begins with, or only their middle when that is enough.
// Then come steps outwards to a missing bound, then rates between both bounds.
func (s *mlrSeeker) want(lo, hi int) *nomination {
	width := s.target().width
	if s.low >= 0 && s.high >= 0 && s.high-s.low > width && s.high-s.low <= 2*width {
		if i := s.run.split(s.low, s.high, width); s.worth(i, lo, hi) {
			return s.near(i, "between the bounds of the coarser target")
		}
	}
	switch {
	case s.low >= 0 && s.worth(s.low, lo, hi):
		return s.near(s.low, "does it pass?")
	case s.high >= 0 && s.worth(s.high, lo, hi):
		return s.near(s.high, "does it fail?")
	case lo < 0 && hi > 0:
		return s.down(hi-s.step(), lo, hi)
	case hi < 0 && lo >= 0 && lo < s.run.grid.top:
		return s.up(lo+s.step(), lo, hi)
	case lo >= 0 && hi >= 0 && hi-lo > width:
		return s.between(lo, hi)
	}
	return nil
}

// near nominates a rate next to the known bounds, and makes the next step
// outwards short again.
func (s *mlrSeeker) near(i int, reason string) *nomination {
	s.shorten(s.target().width)
	return &nomination{rate: i, width: s.target().width, reason: reason}
}

func (s *mlrSeeker) down(i, lo, hi int) *nomination {
	i, ok := s.run.keepApart(i, s.target().width, lo, hi)
	if !ok || !s.worth(i, lo, hi) {
		return nil
	}
	return &nomination{rate: i, width: s.step(), down: true,
		reason: fmt.Sprintf("lower, because %g did not pass", s.run.grid.rate(hi))}
}

func (s *mlrSeeker) up(i, lo, hi int) *nomination {
	i, ok := s.run.keepApart(i, s.target().width, lo, hi)
	if !ok || !s.worth(i, lo, hi) {
		return nil
	}
	return &nomination{rate: i, width: s.step(), up: true,
		reason: fmt.Sprintf("higher, because %g passed", s.run.grid.rate(lo))}
}

// between nominates a rate that splits the bounds, or a step outwards from the
// bounds that the target began with when that step is shorter.
func (s *mlrSeeker) between(lo, hi int) *nomination {
	middle := s.run.split(lo, hi, s.target().width)
	if s.high >= 0 && middle < s.high {
		if n := s.down(hi-s.step(), lo, hi); n != nil && n.rate > middle && n.rate < s.high {
			return n
		}
	}
	if s.low >= 0 && middle > s.low {
		if n := s.up(lo+s.step(), lo, hi); n != nil && n.rate < middle && n.rate > s.low {
			return n
		}
	}
	s.shorten(min(middle-lo, hi-middle))
	return &nomination{rate: middle, width: min(middle-lo, hi-middle), reason: fmt.Sprintf(
		"half-way, because %g passed and %g did not", s.run.grid.rate(lo), s.run.grid.rate(hi))}
}

// worth reports whether a trial at the rate could tell more about the target.
func (s *mlrSeeker) worth(i, lo, hi int) bool {
	return i > lo && (hi < 0 || i < hi) && (lo < 0 || hi < 0 || hi-lo > s.target().width)
}

// step returns the width of a step outwards: at least the width at which the
// search works for other goals.
func (s *mlrSeeker) step() int { return max(s.next, s.run.width) }

func (s *mlrSeeker) shorten(width int) {
	s.next = max(width, s.target().width) * mlrExpansion
}

// adjust doubles the step when the trial did not find the bound that it looked for.
func (s *mlrSeeker) adjust(n *nomination) {
	lo, hi := s.run.relevant(s.target())
	if n.up && lo == n.rate || n.down && hi == n.rate {
		s.next *= mlrExpansion
		s.run.width = s.next
	}
}

// span returns the width of so many grid steps, as a share of the upper rate.
func (r *mlrRun) span(width int) float64 {
	return -math.Expm1(-float64(width) * r.grid.ratio)
}
