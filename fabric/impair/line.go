package impair

import (
	"math"
	"math/rand/v2"
)

// A fate is what becomes of a packet.
type fate uint8

const (
	kept      fate = iota // it leaves after those before it
	overtakes             // it leaves before some of them
	lost                  // by chance
	dropped               // at the tail of the queue
)

// A line decides what becomes of each packet in one direction, and when it
// leaves. It keeps no packet and reads no clock. The n-th packet's chance of loss
// depends on the seed and n alone, so that a run can be repeated.
type line struct {
	link                     Link
	loss, vary, skip         *rand.Rand
	bad                      bool    // the state of loss in bursts
	perByte                  float64 // nanoseconds; 0: no rate
	bucket                   float64 // nanoseconds at the rate
	queue                    float64 // nanoseconds at the rate
	covered                  float64 // when the rate has covered all bytes so far, less the bucket
	last                     int64   // when the latest packet that keeps order leaves
	span, mean, deviation    float64 // nanoseconds: of jitter
	shareLost, shareReorders float64
}

// newLine makes a line from a link that was checked.
func newLine(link Link, seed uint64) *line {
	l := &line{
		link: link,
		loss: rand.New(rand.NewPCG(seed, 1)), vary: rand.New(rand.NewPCG(seed, 2)), skip: rand.New(rand.NewPCG(seed, 3)),
		covered: math.Inf(-1), last: math.MinInt64,
		mean: float64(link.Delay), shareLost: link.Loss, shareReorders: link.Reorder,
	}
	if link.Rate > 0 {
		l.perByte = 8e9 / float64(link.Rate)
		l.bucket, l.queue = float64(link.Bucket)*l.perByte, float64(link.Queue)*l.perByte
	}
	if link.Distribution == Normal {
		l.deviation = float64(link.Jitter)
	} else {
		l.span = float64(link.Jitter)
	}
	return l
}

// offer is a packet of so many bytes that arrived then. It says what becomes of
// it and when it leaves; times are nanoseconds of one clock, and arrivals do not
// go back. Packets that are kept leave in the order of their arrival, and so do,
// among themselves, those that overtake.
func (l *line) offer(at int64, bytes int) (leaves int64, what fate) {
	if l.loses() {
		return 0, lost
	}
	through := float64(at)
	if l.perByte > 0 {
		// The token bucket as a time: what waits for tokens at t is what the rate
		// would cover between t and covered.
		covered := max(l.covered, through-l.bucket) + float64(bytes)*l.perByte
		if covered-through > l.queue {
			return 0, dropped
		}
		l.covered = covered
		through = max(through, covered)
	}
	if l.shareReorders > 0 && l.skip.Float64() < l.shareReorders {
		return int64(through), overtakes
	}
	l.last = max(l.last, int64(through+l.delay()))
	return l.last, kept
}

// loses draws whether the next packet is lost.
func (l *line) loses() bool {
	b := l.link.LossBursts
	if b == nil {
		return l.shareLost > 0 && l.loss.Float64() < l.shareLost
	}
	change, chance := l.loss.Float64(), l.loss.Float64()
	if l.bad {
		l.bad = change >= b.Leave
	} else {
		l.bad = change < b.Enter
	}
	if l.bad {
		return chance < b.bad()
	}
	return chance < b.Good
}

// delay draws the next packet's delay, in nanoseconds.
func (l *line) delay() float64 {
	switch {
	case len(l.link.delays) > 0:
		return l.mean + l.tabled()
	case l.deviation > 0:
		return max(0, l.mean+l.deviation*l.vary.NormFloat64())
	case l.span > 0:
		return l.mean + l.span*(2*l.vary.Float64()-1)
	}
	return l.mean
}

// tabled draws from the table, between its quantiles by straight lines.
func (l *line) tabled() float64 {
	at := l.vary.Float64() * float64(len(l.link.delays)-1)
	i := int(at)
	low := float64(l.link.delays[i])
	if i+1 == len(l.link.delays) {
		return low
	}
	return low + (at-float64(i))*(float64(l.link.delays[i+1])-low)
}
