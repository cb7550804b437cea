package trial

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/internal/thread"
	"vitrine/spec"
	"vitrine/substrate"
	"vitrine/testbed"
)

// AwakeVerb is the verb of this executable that runs Spin; its argument is the
// file.
const AwakeVerb = "keep-awake"

const (
	// lapFile is in the folder of what keeps a CPU awake.
	lapFile = "laps"
	// disturbed is the share of its best speed below which a CPU was not the
	// function's alone: what shares the machine, or a hypervisor that gives less,
	// slowed it. Undisturbed, it keeps within a tenth.
	disturbed = 0.8
	// leastLap is how much CPU time, in nanoseconds, a speed rests on at least.
	leastLap = 20e6
)

// A lap is what a spinning process did so far.
type lap struct {
	work uint64 // turns of its loop
	cpu  uint64 // nanoseconds of CPU time that they took
}

// Spin keeps the CPU it runs on from going idle until ctx is done, and takes
// no time that anyone else wants (SCHED_IDLE, sched(7)). It writes its lap into
// the file over and over.
func Spin(ctx context.Context, file string) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := thread.Idle(); err != nil {
		return err
	}
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer out.Close()
	var over atomic.Bool
	stop := context.AfterFunc(ctx, func() { over.Store(true) })
	defer stop()
	var done lap
	text := make([]byte, 16)
	for !over.Load() {
		const turns = 1 << 20 // about a millisecond
		work(turns)
		done.work += turns
		var now unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now); err != nil {
			return err
		}
		done.cpu = uint64(now.Nano())
		binary.LittleEndian.PutUint64(text, done.work)
		binary.LittleEndian.PutUint64(text[8:], done.cpu)
		if _, err := out.WriteAt(text, 0); err != nil {
			return err
		}
	}
	return nil
}

// work turns a loop that touches no memory, so that it takes no cache from the
// function.
func work(turns int) {
	x, y := uint64(1), uint64(2)
	for range turns {
		x = x*6364136223846793005 + 1442695040888963407
		y ^= y<<13 ^ x
	}
	runtime.KeepAlive(x + y)
}

// An awake is a process that keeps one of the function's CPUs awake.
type awake struct {
	*testbed.Instance
	cpu  int
	best float64 // turns a nanosecond, the most over a trial so far
}

// keepAwake puts a spinning process on each of the function's CPUs. What wakes
// an idle CPU (leaving the sleep state, and under a hypervisor a round trip to
// the host) is work that a busy function does not have, so that CPU per call
// would fall as the rate rises.
func (s *site) keepAwake(ctx context.Context) error {
	if !substrate.OutranksIdle(s.bed.Substrate()) {
		return &vitrine.Unsupported{
			What:    "keep_awake on substrate " + s.choice.Substrate,
			Missing: "what keeps the CPUs awake would compete with instances that are not in cgroups of ours",
			Do:      "use substrate " + spec.DefaultSubstrate + ", or turn keep_awake off",
		}
	}
	var specs []testbed.Spec
	for _, cpu := range s.CPUs.Function {
		name := "awake-" + strconv.Itoa(cpu)
		specs = append(specs, testbed.Spec{OnHost: true, Unwired: true, Spec: substrate.Spec{
			Name: name, Component: name, CPUs: []int{cpu}, Idle: true,
		}})
	}
	placed, err := s.bed.Place(ctx, s.Results.LogDir(), specs...)
	if err != nil {
		return err
	}
	for i, in := range placed.Instances {
		s.awake = append(s.awake, &awake{Instance: in, cpu: s.CPUs.Function[i]})
		if err := in.Start(ctx, vitrine.Command{
			Args: []string{s.Testbed.Self, AwakeVerb, s.awake[i].lapFile()},
			Env:  []string{"GOMAXPROCS=1"}, Dir: in.Dir,
		}); err != nil {
			return err
		}
	}
	return nil
}

func (a *awake) lapFile() string { return filepath.Join(a.Scratch(), lapFile) }

// asleep says which of the processes that keep CPUs awake has ended, if one has.
func (s *site) asleep() error {
	for _, in := range s.awake {
		if err := in.Ended(); err != nil {
			return fmt.Errorf("a CPU is not kept awake any more: %w", err)
		}
	}
	return nil
}

// laps reads what the spinning processes did so far; zero of one that has
// written nothing yet.
func (s *site) laps() []lap {
	laps := make([]lap, len(s.awake))
	for i, in := range s.awake {
		text, err := os.ReadFile(in.lapFile())
		if err == nil && len(text) == 16 {
			laps[i] = lap{binary.LittleEndian.Uint64(text), binary.LittleEndian.Uint64(text[8:])}
		}
	}
	return laps
}

// undisturbed says which of the function's CPUs was slowed since the laps were
// read, by the speed of the process that spins on it; nil: none that is known.
func (s *site) undisturbed(since []lap) error {
	for i, now := range s.laps() {
		in, cpu := s.awake[i], float64(now.cpu-since[i].cpu)
		if since[i].cpu == 0 || cpu < leastLap {
			continue
		}
		speed := float64(now.work-since[i].work) / cpu
		in.best = max(in.best, speed)
		if share := speed / in.best; share < disturbed {
			return fmt.Errorf("host: CPU %d ran at %.2f of its best speed: something else on the machine slowed it", in.cpu, share)
		}
	}
	return nil
}
