package trial

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/spec"
	"vitrine/substrate"
)

// AwakeVerb is the verb of this executable that runs Spin.
const AwakeVerb = "keep-awake"

// Spin keeps the CPU it runs on from going idle until ctx is done, and takes
// no time that anyone else wants (SCHED_IDLE, sched(7)).
func Spin(ctx context.Context) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}, 0); err != nil {
		return fmt.Errorf("take the scheduling policy for idle time: %w", err)
	}
	var over atomic.Bool
	stop := context.AfterFunc(ctx, func() { over.Store(true) })
	defer stop()
	for !over.Load() {
	}
	return nil
}

// keepAwake puts a spinning process on each of the function's CPUs. What wakes
// an idle CPU (leaving the sleep state, and under a hypervisor a round trip to
// the host) is work that a busy function does not have, so that CPU per call
// would fall as the rate rises.
func (s *site) keepAwake(ctx context.Context, c *Config) error {
	if s.choice.Substrate != spec.DefaultSubstrate {
		return &vitrine.Unsupported{
			What:    "keep_awake on substrate " + s.choice.Substrate,
			Missing: "what keeps the CPUs awake would compete with instances that are not in cgroups of ours",
			Do:      "use substrate " + spec.DefaultSubstrate + ", or turn keep_awake off",
		}
	}
	for _, cpu := range c.CPUs.Function {
		name := "awake-" + strconv.Itoa(cpu)
		in := &instance{name: name, dir: c.Results.LogDir(name)}
		s.awake = append(s.awake, in)
		if err := in.createPlace(ctx, s.host, substrate.Spec{
			Run: c.RunID, Name: name, Component: name, CPUs: []int{cpu}, Idle: true, Dir: in.dir,
		}); err != nil {
			return err
		}
		if err := in.start(ctx, vitrine.Command{
			Args: []string{c.Backends.Self, AwakeVerb}, Env: []string{"GOMAXPROCS=1"}, Dir: in.dir,
		}); err != nil {
			return err
		}
	}
	return nil
}

// asleep says which of the processes that keep CPUs awake has ended, if one has.
func (s *site) asleep() error {
	for _, in := range s.awake {
		select {
		case <-in.process.Done():
			return fmt.Errorf("a CPU is not kept awake any more: %w", in.ended())
		default:
		}
	}
	return nil
}

func (s *site) sleep(ctx context.Context) error {
	var errs []error
	for _, in := range s.awake {
		errs = append(errs, in.remove(ctx, s.fabric))
	}
	return errors.Join(errs...)
}
