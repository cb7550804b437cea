package main

import (
	"errors"
	"io"
	"strings"
	"testing"

	"vitrine"
	"vitrine/measure"
	"vitrine/result"
	"vitrine/testbed"
)

// TestRunResumesOnlyOnItsCPUs checks that a run can be resumed only on the CPUs on which it began.
// The way in which the kernel's CPU was chosen does not matter.
func TestRunResumesOnlyOnItsCPUs(t *testing.T) {
	begun := func(kernel string, generator int, function ...int) result.Manifest {
		steering, cpus, err := measure.ChooseKernelCPU(t.TempDir(), kernel, testbed.CPUs{Function: function, Generator: []int{generator}})
		if err != nil {
			t.Fatal(err)
		}
		return result.Manifest{Specs: []result.Spec{cpuSpec(cpus, steering)}}
	}
	m, two := begun(measure.OwnCPU, 0, 1, 2, 3), begun(measure.OwnCPU, 0, 1)
	if err := errors.Join(m.SameSpecs(begun(measure.OwnCPU, 0, 1, 2, 3)), two.SameSpecs(begun(measure.SendingCPU, 0, 1))); err != nil {
		t.Error(err)
	}
	for name, other := range map[string]result.Manifest{
		"the receiver's":  begun(measure.OwnCPU, 0, 1, 3),
		"the sender's":    begun(measure.OwnCPU, 1, 0, 2, 3),
		"the kernel's":    begun("2", 0, 1, 2, 3),
		"no separate CPU": begun(measure.SendingCPU, 0, 1, 2),
	} {
		if err := m.SameSpecs(other); err == nil || !strings.Contains(err.Error(), "sender on CPUs [0], receiver on CPUs [1 2]; ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzNetworkFlags checks that flags are either refused as bad input or give a
// valid plan.
func FuzzNetworkFlags(f *testing.F) {
	for _, seed := range []string{
		"--frames 64,1514 --count 1000", "--frames 64-1514", "--frames=", "--rate NaN", "--rate 1e9", "--rate -1", "--count -5",
		"--head 9223372036854775807", "--measure latency,latency --fabric auto", "--substrate process,,", "--repeat 1000 --count 4194304", "--tail 1 --head 1 --count 100",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		var flags networkFlags
		c := networkCommand(&flags)
		c.SetOut(io.Discard)
		c.SetErr(io.Discard)
		if c.ParseFlags(strings.Fields(line)) != nil {
			return
		}
		s, err := flags.settings(c.Flags().Changed("rate"))
		if err != nil {
			if !vitrine.IsBadInput(err) {
				t.Errorf("%q: got error %v, want bad input", line, err)
			}
			return
		}
		if flags.repeat > 50 { // more repeats only make the plan longer
			return
		}
		if _, err := measure.MakePlan(s, machines); err != nil {
			t.Errorf("%q is accepted but has no plan: %v", line, err)
		}
	})
}
