package flex

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// TestALowerCapacityStartsNothing restarts with a lower capacity in the file. The instances carry the load,
// so none may start in the first second, in which the rate is not known.
func TestALowerCapacityStartsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "    min: 3\n")
		r.director.rate = 10
		r.run(30 * time.Second)
		starts := len(r.runner.starts)
		r.edit("rate: 20", "rate: 10")
		r.restart()
		r.run(8 * time.Second)
		if n := len(r.runner.starts); n != starts || starts != 3 {
			t.Errorf("got %d starts, then %d more after the edit, want 3 and 0: %+v", starts, n-starts, r.Events())
		}
	})
}

// TestASizeThatLeavesTheFileKeepsItsCapacity restarts with another size in the file. The instances of the old
// size must count for what they carried, or a new one would get nearly all traffic. A state file of an
// earlier version has no capacities: then the least one in the file counts.
func TestASizeThatLeavesTheFileKeepsItsCapacity(t *testing.T) {
	for name, want := range map[string]float64{"this version": 20, "an earlier version": 50} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, "    min: 2\n")
				r.run(10 * time.Second)
				r.edit("{size: bn1s-sp1s-hs1s-hm1s, rate: 20}", "{size: bn1s-sp2s-hs1s-hm1s, rate: 50}")
				if path := filepath.Join(r.File.State, StateFile); name != "this version" {
					text, err := os.ReadFile(path)
					if err == nil {
						err = os.WriteFile(path, bytes.ReplaceAll(text, []byte(`"capacity":20,"address"`), []byte(`"address"`)), 0o600)
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				r.restart()
				r.run(5 * time.Second)
				for name, in := range r.director.all {
					if in.Weight != want {
						t.Errorf("%s has weight %g, want %g", name, in.Weight, want)
					}
				}
				s := r.Status().Types[0]
				if usable := 0.9 * 2 * want; s.Capacity != 2*want || s.Memory.Capacity != usable {
					t.Errorf("got capacity %g, of which the policy uses %g, want %g and %g", s.Capacity, s.Memory.Capacity, 2*want, usable)
				}
				if err := r.Drain("registration-1"); err != nil {
					t.Fatal(err)
				}
				r.run(10 * time.Second)
				if got := r.director.all["registration-3"]; got == nil || got.Weight != 50 {
					t.Errorf("the replacement is %+v, want it with weight 50", got)
				}
			})
		})
	}
}
