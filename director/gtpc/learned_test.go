package gtpc

import (
	"bytes"
	"testing"
	"time"
)

// TestLearnedKeepsWhatFits checks that no TEID is evicted while there is room, whatever the times
// of last use are. The times differ between workers that lag behind each other, and after a
// hand-over.
func TestLearnedKeepsWhatFits(t *testing.T) {
	for name, at := range map[string]func(i int) time.Duration{
		"later and later":     func(i int) time.Duration { return time.Duration(i) * time.Second },
		"earlier and earlier": func(i int) time.Duration { return time.Duration(100-i) * time.Second },
	} {
		t.Run(name, func(t *testing.T) {
			here, there := newLearned(ways, time.Hour), newLearned(ways, time.Hour) // one bucket
			for i := range ways {
				here.put(at(i), uint32(i+1), owner{key: uint64(i)})
			}
			var carried bytes.Buffer
			if err := here.carry(at(0), &carried); err != nil {
				t.Fatal(err)
			}
			if n, err := there.takeOver(&carried, nil, false); n != ways || err != nil {
				t.Fatalf("took over %d of %d learned TEIDs: %v", n, ways, err)
			}
			for which, l := range map[string]*learned{"here": here, "there": there} {
				for i := range ways {
					if o, ok := l.find(at(i), uint32(i+1)); !ok || o.key != uint64(i) {
						t.Errorf("%s TEID %d was not found", which, i+1)
					}
				}
			}
		})
	}
}

// TestHandOverOfAFullTable checks that no TEID is lost although no bucket has room. In other buckets than
// before, some would find no room.
func TestHandOverOfAFullTable(t *testing.T) {
	const limit = 1 << 10
	here, there := newLearned(limit, time.Hour), newLearned(limit, time.Hour)
	for i := range uint32(4 * limit) {
		here.put(time.Second, i+1, owner{key: uint64(i)})
	}
	var carried bytes.Buffer
	if err := here.carry(time.Second, &carried); err != nil {
		t.Fatal(err)
	}
	n, err := there.takeOver(&carried, nil, false)
	if was, is := here.len(time.Second), there.len(time.Second); err != nil || n != was || is != was {
		t.Errorf("took over %d TEIDs, and remember %d, want %d: %v", n, is, was, err)
	}
}
