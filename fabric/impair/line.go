package impair

import (
	"math"
	"math/rand/v2"
)

// A fate says whether and in which order a link delivers a packet.
type fate uint8

const (
	kept      fate = iota // it leaves after all earlier kept packets
	overtakes             // it leaves before some earlier packets
	lost                  // by chance
	dropped               // at the tail of the queue
)

// A line decides the fate of each packet in one direction, and when it leaves. It
// keeps no packet and reads no clock. Whether the n-th packet is lost depends on the
// seed and n alone, so that a run can be repeated.
type line struct {
	link             Link
	loss, vary, skip *rand.Rand
	perByte          float64 // nanoseconds; 0: no rate
	queue            float64 // its length, in nanoseconds at the rate
	free             float64 // when all bytes so far have been sent at the rate
	last             int64   // when the latest kept packet leaves
}

// newLine makes a line from a link that was checked.
func newLine(link Link, seed uint64) *line {
	l := &line{
		link: link,
		loss: rand.New(rand.NewPCG(seed, 1)), vary: rand.New(rand.NewPCG(seed, 2)), skip: rand.New(rand.NewPCG(seed, 3)),
		free: math.Inf(-1), last: math.MinInt64,
	}
	if link.Rate > 0 {
		l.perByte = 8e9 / float64(link.Rate)
		l.queue = float64(link.Queue) * l.perByte
	}
	return l
}

// offer returns what becomes of a packet of so many bytes that arrives at the
// time at, and when it leaves. Times are nanoseconds of one clock, and arrivals
// must not go back. Kept packets leave in the order of their arrival, and so do
// overtaking packets among themselves.
func (l *line) offer(at int64, bytes int) (leaves int64, what fate) {
	if l.link.Loss > 0 && l.loss.Float64() < l.link.Loss {
		return 0, lost
	}
	through := float64(at)
	if l.perByte > 0 {
		free := max(l.free, through) + float64(bytes)*l.perByte
		if free-through > l.queue {
			return 0, dropped
		}
		l.free, through = free, free
	}
	if l.link.Reorder > 0 && l.skip.Float64() < l.link.Reorder {
		return int64(through), overtakes
	}
	delay := float64(l.link.Delay)
	if l.link.Jitter > 0 {
		delay += float64(l.link.Jitter) * (2*l.vary.Float64() - 1)
	}
	l.last = max(l.last, int64(through+delay))
	return l.last, kept
}
