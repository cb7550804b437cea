package sim_test

import (
	"math"
	"testing"
	"time"

	"vitrine"
	"vitrine/search/rate"
	"vitrine/search/sim"
)

func TestJudge(t *testing.T) {
	m := sim.Measurement{
		Measured: vitrine.Measured{Capacities: []vitrine.Capacity{{Threshold: 0.9, Rate: 110, Low: 99, High: 121}}},
		History:  make([]vitrine.Outcome, 3),
		Steps:    []rate.Step{{Restart: true}, {}, {}, {Done: true, Why: "enough"}},
		Load:     30 * time.Second, Wall: 45 * time.Second,
	}
	s := sim.Judge(m, 100)
	if s.Trials != 3 || s.Restarts != 1 || s.Load != 30 || s.Wall != 45 || !s.Covered || s.Why != "enough" ||
		math.Abs(s.Error-math.Log(1.1)) > 1e-12 || math.Abs(s.Width-0.2) > 1e-12 {
		t.Errorf("%+v", s)
	}
	if s = sim.Judge(m, 125); s.Covered {
		t.Errorf("%+v", s)
	}
	m.Capacities[0] = vitrine.Capacity{}
	if s = sim.Judge(m, 100); !math.IsInf(s.Error, 1) || s.Covered {
		t.Errorf("nothing found: %+v", s)
	}
	if s = sim.JudgeBounds(90, 110, 100, 5, time.Minute, time.Hour); !s.Covered || s.Load != 60 || math.Abs(s.Found.Rate-math.Sqrt(9900)) > 1e-9 {
		t.Errorf("%+v", s)
	}
}

func TestScoresAddUp(t *testing.T) {
	scores := sim.Scores{{Error: 0.1, Covered: true}, {Error: 0.3}, {Error: 0.2, Covered: true}, {Error: math.Inf(1), Covered: true}}
	if c := scores.Coverage(); c != 0.75 {
		t.Errorf("coverage %g", c)
	}
	if q := scores.Quantile(0.5, sim.Error); q != 0.2 {
		t.Errorf("median error %g", q)
	}
	if q := scores.Quantile(0.9, sim.Error); !math.IsInf(q, 1) {
		t.Errorf("90th percentile %g", q)
	}
}
