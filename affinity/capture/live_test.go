package capture

import (
	"testing"
	"time"

	"vitrine/internal/tap"
)

// TestTheBacklogIsReadAfterTheEnd: frames that waited at the end of a capture are read, however long that
// takes. If the clock was set back, reading still ends.
func TestTheBacklogIsReadAfterTheEnd(t *testing.T) {
	const frames, size = 10, 100
	end := time.Now().Add(-time.Hour)
	l := &Live{stopped: end, until: end.UnixNano(), backlog: frames * size}
	isLate := func(after time.Duration) bool {
		l.frame = tap.Frame{Bytes: make([]byte, size), At: end.Add(after).UnixNano()}
		return l.isLate()
	}
	for n := range frames {
		if isLate(-time.Second) {
			t.Fatalf("frame %d of %d is not read", n, frames)
		}
	}
	if !isLate(-time.Second) {
		t.Error("reading does not end")
	}
	l.backlog = frames * size
	if !isLate(time.Nanosecond) {
		t.Error("a frame after the end is read")
	}
}
