package impair

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vitrine/fabric/fabrictest"
	"vitrine/internal/netns"
)

// TestImpairFreesRemovedLinks checks that an emulator frees the memory of removed links, although
// its automatic garbage collection is off.
func TestImpairFreesRemovedLinks(t *testing.T) {
	run := fabrictest.NewRun(t, t.TempDir()+"/runs")
	place := fabrictest.Place(t, run.ID, "sprout-1")
	runtime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	e, err := newEmulator(time.Now)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(e.bell)
	add := addition{Instance: "sprout-1", Outer: "lo", Inner: "lo", Link: Link{Delay: 20 * time.Millisecond, Way: Both}}
	var first uint64 // the heap with one link
	err = netns.Do(place, func() error {
		for range 20 {
			if _, err := e.do(order{Add: &add}); err != nil {
				return err
			}
			if first == 0 {
				first = heapSize()
			}
			if _, err := e.do(order{Remove: add.Instance}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if last := heapSize(); last > 2*first {
		t.Errorf("after 20 removed links the heap has %d bytes, with the first link it had %d", last, first)
	}
}

// heapSize returns the bytes of this process's objects, including garbage.
func heapSize() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
