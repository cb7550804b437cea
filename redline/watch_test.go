package redline

import (
	"testing"
	"testing/synctest"
)

// TestALongStepKeepsFewReadings checks that a step of a minute keeps only the readings that the guard
// looks at.
func TestALongStepKeepsFewReadings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(300, 2, three(160)...)
		o := w.options()
		watched := watch{
			fleet:     &fleet{directors: o.Directors, names: o.Names, typeName: o.Type, instance: o.Instance},
			objective: o.Objective, min: o.Min,
		}
		for range 240 {
			if _, err := watched.next(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		span := watched.last().own.At.Sub(watched.all[0].own.At)
		if least := guardTime + o.Objective.Latency; len(watched.all) > 20 || span < least {
			t.Errorf("got %d readings over %s, want at most 20, over at least %s", len(watched.all), span, least)
		}
	})
}
