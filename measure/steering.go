package measure

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"vitrine"
	"vitrine/internal/netns"
	"vitrine/trial"
)

// How the CPU of the kernel's receive work is asked for, beside its number.
const (
	OwnCPU     = "auto" // one of its own, where there is one
	SendingCPU = "none" // where virtual links hand packets over by themselves
)

// A Steering is the CPU that does the kernel's receive work: those of sender,
// receiver and kernel are to be three.
type Steering struct {
	On  bool   // it is CPU; else that of who sends
	CPU int    //
	Why string // it is no CPU of its own; empty: it is
}

// Steer chooses the CPU, of those of sender and receiver, and leaves them the
// others. One that is not theirs is a *vitrine.BadInput.
func Steer(asked string, cpus trial.CPUs) (Steering, trial.CPUs, error) {
	sender, receiver := cpus.Generator[0], cpus.Function[0]
	spare := slices.Concat(cpus.Generator[1:], cpus.Function[1:])
	cpu, err := strconv.Atoi(asked)
	switch {
	case asked == SendingCPU:
		return Steering{Why: "it was not asked for"}, cpus, nil
	case asked == OwnCPU && len(spare) == 0:
		return Steering{Why: fmt.Sprintf("beside CPU %d of the sender and CPU %d of the receiver there is none", sender, receiver)}, cpus, nil
	case asked == OwnCPU:
		cpu = spare[len(spare)-1]
	case err == nil && cpu == sender:
		return Steering{On: true, CPU: cpu, Why: "it is the sender's too"}, cpus, nil
	case err == nil && cpu == receiver:
		return Steering{On: true, CPU: cpu, Why: "it is the receiver's too"}, cpus, nil
	case err != nil || !slices.Contains(spare, cpu):
		return Steering{}, cpus, &vitrine.BadInput{File: "--kernel-cpu", Found: fmt.Sprintf("%q", asked),
			Want: fmt.Sprintf("want auto, none, or one of CPUs %v, which are the measurement's", slices.Concat(cpus.Generator, cpus.Function))}
	}
	without := func(list []int) []int {
		return slices.DeleteFunc(slices.Clone(list), func(c int) bool { return c == cpu })
	}
	return Steering{On: true, CPU: cpu}, trial.CPUs{Function: without(cpus.Function), Generator: without(cpus.Generator)}, nil
}

// String says where the kernel's receive work is done.
func (s Steering) String() string {
	text := "on the sender's CPU, where virtual links hand packets over"
	if s.On {
		text = fmt.Sprintf("on CPU %d, by receive packet steering", s.CPU)
	}
	if s.Why != "" {
		text += "; could not be isolated: " + s.Why
	}
	return text
}

// steer has the receive work of both ports done where it was asked for; of a
// stream whose CPU time is counted, on the CPUs that are counted, the sender's and
// the receiver's. What comes of it is among the facts of the ports.
func (s *site) steer(counted bool) {
	on := s.config.Steering
	switch {
	case !on.On:
	case counted:
		on = Steering{Why: "the CPU time of the sender's and the receiver's CPUs is counted"}
	case s.dialed():
		on = Steering{Why: "the interface is the host's own"}
	}
	for _, p := range []*place{s.sender, s.receiver} {
		p.facts.Receiving = on.String()
		switch {
		case !s.config.Steering.On || s.dialed():
			continue
		case p != s.sender && foreignKernel(s.where.Substrate):
			p.facts.Receiving = "in the guest; could not be isolated: its kernel is its own"
			continue
		}
		if err := netns.Do(p.instance.NetNS(), func() error { return on.set(p.endpoint.Interface) }); err != nil {
			p.facts.Receiving = Steering{Why: err.Error()}.String()
		}
	}
}

// set has the kernel do the receive work of an interface, in the thread's network
// namespace, so (Linux, Documentation/networking/scaling.rst, "RPS").
func (s Steering) set(link string) error {
	return netns.Sysfs(func(sysfs string) error {
		queues, err := filepath.Glob(filepath.Join(sysfs, "class/net", link, "queues/rx-*/rps_cpus"))
		if err != nil || len(queues) == 0 {
			return fmt.Errorf("the kernel has no receive packet steering for %s (CONFIG_RPS)", link)
		}
		for _, queue := range queues {
			if err := os.WriteFile(queue, []byte(s.mask()), 0); err != nil {
				return fmt.Errorf("steer what %s receives to CPU %d: %w", link, s.CPU, errors.Unwrap(err))
			}
		}
		return nil
	})
}

// mask is the set of the CPU, or of none, as sysfs has it: 32 bits at a time, in
// hexadecimal, the highest first.
func (s Steering) mask() string {
	if !s.On {
		return "0"
	}
	return strconv.FormatUint(1<<(s.CPU%32), 16) + strings.Repeat(",00000000", s.CPU/32)
}
