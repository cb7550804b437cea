package report

import (
	"fmt"
	"math"

	"vitrine"
)

// noticeable is the difference between two host speeds from which the texts mention it. The default
// limit for a disturbed trial allows much more.
const noticeable = 0.05

// A HostSpeed is the speed of the host during valid trials: of each trial's slowest CPU, as a share
// of its best. Neighbours on the machine lower it.
type HostSpeed struct {
	Mean    float64 `json:"mean"`
	Lowest  float64 `json:"lowest"`
	Highest float64 `json:"highest"`
}

// hostSpeed returns the host's speed during the outcomes; nil: no valid trial was watched.
func hostSpeed(outcomes []vitrine.Outcome) *HostSpeed {
	s, n := HostSpeed{Lowest: math.Inf(1)}, 0.0
	for _, o := range outcomes {
		if !o.Valid || o.Host == nil || o.Host.During == 0 {
			continue
		}
		n++
		s.Mean += o.Host.During
		s.Lowest, s.Highest = min(s.Lowest, o.Host.During), max(s.Highest, o.Host.During)
	}
	if n == 0 {
		return nil
	}
	s.Mean /= n
	return &s
}

func (s *HostSpeed) String() string {
	if s == nil {
		return missing
	}
	return fmt.Sprintf("%.2f (%.2f to %.2f)", s.Mean, s.Lowest, s.Highest)
}

// slowed says what neighbours did during the outcomes, and what that means for the capacity. It is
// empty if the host was fast all the time, or if nobody watched.
func slowed(outcomes []vitrine.Outcome) string {
	s := hostSpeed(outcomes)
	if s == nil || s.Lowest > 1-noticeable {
		return ""
	}
	return fmt.Sprintf("%s of its best in these trials; with quieter or busier neighbours the capacity may differ by as much or more (--slowdown)", s)
}
