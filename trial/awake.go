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
	"time"

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

// spunFile is a file in the folder of a process that keeps a CPU awake. It holds the
// CPU time of the process so far: nanoseconds in 8 bytes, little-endian.
const spunFile = "spun"

// Spin keeps the CPU that it runs on from going idle until ctx is done. It takes no
// time that anyone else wants (SCHED_IDLE, sched(7)). It writes its CPU time into the
// file again and again.
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
	text := make([]byte, 8)
	for !over.Load() {
		work(1 << 20) // about a millisecond
		var now unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now); err != nil {
			return err
		}
		binary.LittleEndian.PutUint64(text, uint64(now.Nano()))
		if _, err := out.WriteAt(text, 0); err != nil {
			return err
		}
	}
	return nil
}

// work runs a loop that touches no memory, so that it takes no cache from the
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
type awake struct{ *testbed.Instance }

// keepAwake puts a spinning process on each of the function's CPUs. Waking an idle
// CPU is work: it leaves the sleep state, which under a hypervisor takes a round trip
// to the host. A busy function does not have that work, so CPU per call would fall as
// the rate rises.
func (s *site) keepAwake(ctx context.Context) error {
	if !substrate.OutranksIdle(s.bed.Substrate()) {
		return &vitrine.Unsupported{
			What:    "keep_awake on substrate " + s.choice.Substrate,
			Missing: "cgroups of vitrine for its instances: the processes that keep the CPUs awake would compete with them",
			Do:      "use substrate " + spec.DefaultSubstrate + " with the privilege for cgroups, or turn keep_awake off",
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
	for _, in := range placed.Instances {
		a := awake{in}
		s.awake = append(s.awake, a)
		if err := in.Start(ctx, vitrine.Command{
			Args: []string{s.Testbed.Self, AwakeVerb, a.spunFile()},
			Env:  []string{"GOMAXPROCS=1"}, Dir: in.Dir,
		}); err != nil {
			return err
		}
	}
	return nil
}

func (a awake) spunFile() string { return filepath.Join(a.Scratch(), spunFile) }

// checkAwake returns an error if one of the processes that keep CPUs awake has ended.
func (s *site) checkAwake() error {
	for _, in := range s.awake {
		if err := in.Ended(); err != nil {
			return fmt.Errorf("a CPU is no longer kept awake: %w", err)
		}
	}
	return nil
}

// spun returns the CPU time of all spinning processes so far. A process that has
// written nothing yet counts as 0.
func (s *site) spun() (sum time.Duration) {
	for _, in := range s.awake {
		text, err := os.ReadFile(in.spunFile())
		if err == nil && len(text) == 8 {
			sum += time.Duration(binary.LittleEndian.Uint64(text))
		}
	}
	return sum
}
