package quiet

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// The fixed work of a burst. It uses no memory, so it takes no cache from the run. On a 2.6 GHz
// CPU a burst takes some 35 µs.
const (
	pieces     = 3 // an interrupt lengthens one piece; the shortest counts
	chainTurns = 4000
	wideTurns  = 3300
)

// A pace is the CPU time, in nanoseconds, of the two parts of the fixed work. In the chain, each
// operation waits for the result before it, so the chain shows the clock rate. The wide part keeps
// several execution units busy at once, so it also shows whether another hardware thread of the
// same core computes.
type pace struct{ chain, wide float64 }

// burst times the work once on the CPU of the calling thread, which must be locked to its
// goroutine. The CPU time excludes the time that the thread waits.
func burst() (pace, error) {
	var best pace
	for i := range pieces {
		begin, err := threadTime()
		if err != nil {
			return best, err
		}
		x := chain(chainTurns, uint64(begin))
		middle, err := threadTime()
		if err != nil {
			return best, err
		}
		x ^= wide(wideTurns, x)
		end, err := threadTime()
		if err != nil {
			return best, err
		}
		runtime.KeepAlive(x)
		took := pace{float64(middle - begin), float64(end - middle)}
		if i == 0 {
			best = took
		}
		best = pace{min(best.chain, took.chain), min(best.wide, took.wide)}
	}
	return best, nil
}

func threadTime() (int64, error) {
	var now unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now)
	return now.Nano(), err
}

// chain computes a chain of multiplications. The constants are Knuth's for MMIX.
//
//go:noinline
func chain(turns int, x uint64) uint64 {
	for range turns {
		x = x*6364136223846793005 + 1442695040888963407
	}
	return x
}

// wide computes three independent chains of multiplications beside five of additions.
//
//go:noinline
func wide(turns int, seed uint64) uint64 {
	a, b, c, d := seed, seed+1, seed+2, seed+3
	e, f, g, h := seed+4, seed+5, seed+6, seed+7
	for range turns {
		a = a*6364136223846793005 + 1
		b = b*6364136223846793005 + 3
		c = c*6364136223846793005 + 5
		e += f ^ 0x55
		f += g ^ 0x33
		g += h ^ 0x77
		h += d ^ 0x11
		d += e ^ 0x99
	}
	return a ^ b ^ c ^ d ^ e ^ f ^ g ^ h
}
