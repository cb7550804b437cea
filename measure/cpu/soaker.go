package cpu

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/internal/thread"
)

const (
	turns       = 4096 // iterations of the loop per lap: some microseconds
	calibration = 8000 // laps
	soakSize    = 16   // bytes of the file
)

// A Soaked is the progress of a soaker. Others used the time of the missed laps.
type Soaked struct {
	Laps uint64        // so far
	Lap  time.Duration // time of an undisturbed lap, in picoseconds, not nanoseconds: see lapUnit
}

// lapUnit is the number of picoseconds, the unit of Soaked.Lap, in a nanosecond.
const lapUnit = 1000

// Spent returns the time of the laps done since an earlier reading.
func (s Soaked) Spent(since Soaked) time.Duration {
	return time.Duration(float64(s.Laps-since.Laps) * float64(s.Lap) / lapUnit)
}

// RunSoak is `vitrine reference soak`. Until the context ends it uses all CPU time that
// no other process wants (SCHED_IDLE, sched(7)), and keeps its progress in a file. The
// caller pins it to one CPU.
func RunSoak(ctx context.Context, args []string, _, stderr io.Writer) error {
	flags := pflag.NewFlagSet("soak", pflag.ContinueOnError)
	flags.SetOutput(stderr)
	path := flags.String("file", "", "file for the progress")
	err := flags.Parse(args)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return err
	case err != nil || *path == "" || flags.NArg() > 0:
		return &vitrine.BadInput{File: "vitrine reference soak", Found: fmt.Sprintf("%q", args), Want: "want --file NAME"}
	}
	// Nothing can preempt the loop below (GODEBUG=asyncpreemptoff=1), so the goroutine that ends
	// it needs a second P, even on a single CPU.
	runtime.GOMAXPROCS(2)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := thread.Name(thread.Soaker); err != nil {
		return err
	}
	if err := thread.Idle(); err != nil {
		return err
	}
	shared, err := share(*path)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Munmap(shared) }()
	var over atomic.Bool
	defer context.AfterFunc(ctx, func() { over.Store(true) })()
	laps := (*atomic.Uint64)(unsafe.Pointer(&shared[0]))
	(*atomic.Uint64)(unsafe.Pointer(&shared[8])).Store(calibrate())
	fmt.Fprintln(stderr, "ready")
	for !over.Load() {
		lap()
		laps.Add(1)
	}
	return nil
}

// share creates the file and maps it.
func share(path string) ([]byte, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := f.Truncate(soakSize); err != nil {
		return nil, err
	}
	shared, err := unix.Mmap(int(f.Fd()), 0, soakSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", path, err)
	}
	return shared, nil
}

// calibrate returns the time of an undisturbed lap in picoseconds: the mean of the
// fastest tenth, because a disturbance only adds to a lap.
func calibrate() uint64 {
	took := make([]time.Duration, calibration)
	for i := range took {
		before := time.Now()
		lap()
		took[i] = time.Since(before)
	}
	overhead := make([]time.Duration, calibration)
	for i := range overhead {
		before := time.Now()
		overhead[i] = time.Since(before)
	}
	slices.Sort(took)
	slices.Sort(overhead)
	fast := took[:calibration/10]
	var sum time.Duration
	for _, t := range fast {
		sum += t
	}
	return uint64(max(sum.Nanoseconds()*lapUnit/int64(len(fast))-overhead[calibration/20].Nanoseconds()*lapUnit, 1))
}

// lap runs a loop that accesses no memory, so that it does not evict others' cache
// lines.
func lap() {
	x, y := uint64(1), uint64(2)
	for range turns {
		x = x*6364136223846793005 + 1442695040888963407
		y ^= y<<13 ^ x
	}
	runtime.KeepAlive(x + y)
}

// ReadSoaked reads a soaker's file.
func ReadSoaked(path string) (Soaked, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return Soaked{}, fmt.Errorf("read a soaker's progress: %w", err)
	}
	if len(b) < soakSize || binary.NativeEndian.Uint64(b[8:]) == 0 {
		return Soaked{}, fmt.Errorf("read a soaker's progress: %s: it has not started", path)
	}
	return Soaked{Laps: binary.NativeEndian.Uint64(b), Lap: time.Duration(binary.NativeEndian.Uint64(b[8:]))}, nil
}
