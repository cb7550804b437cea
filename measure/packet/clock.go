package packet

import (
	"time"

	"vitrine/internal/thread"
)

// A Clock converts the steady clock of this process to CLOCK_REALTIME. It uses the offset at the
// time when the Clock was created, so packets keep their times if the time of day is set. The
// kernel's stamps of arrivals change: see Sent.Steady.
type Clock struct {
	offset int64 // CLOCK_REALTIME - steady; ns
	width  int64 // between the steady readings around it: twice the largest error of offset; ns
}

// NewClock compares the two clocks.
func NewClock() Clock {
	var c Clock
	c.offset, c.width = c.compare()
	return c
}

// compare reads the time of day between two readings of the steady clock. It repeats this many
// times and uses the two readings that are closest together.
func (c Clock) compare() (offset, width int64) {
	width = 1 << 62
	for range 64 {
		before := thread.Nanotime()
		wall := time.Now().UnixNano()
		after := thread.Nanotime()
		if w := after - before; w < width {
			offset, width = wall-before-w/2, w
		}
	}
	return offset, width
}

// Now returns the time; ns.
//
//go:nosplit
func (c Clock) Now() int64 { return thread.Nanotime() + c.offset }

// Drift returns how far CLOCK_REALTIME has moved against the steady clock since the
// Clock was created, and the maximum error of this figure; ns.
func (c Clock) Drift() (drift, uncertain int64) {
	offset, width := c.compare()
	return offset - c.offset, (width + c.width) / 2
}
