package qemu

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"vitrine"
	"vitrine/internal/hosttest"
	"vitrine/substrate/substratetest"
)

// TestQemuGuestRunsProcessSubstrate runs the tests of package process in a machine, because
// the machine has cgroup version 2 and the host may have version 1.
func TestQemuGuestRunsProcessSubstrate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	binary, program := hosttest.BuiltTests(t, "vitrine/substrate/process"), substratetest.Build(t)
	s, run := newSubstrate(t, func(c *Config) { c.Files = []string{program} })
	spec := smallSpec(t, run, "sprout-1")
	spec.Memory = defaultMemory
	in := create(t, s, spec)
	outFile := filepath.Join(dir, "output")
	err := in.Run(t.Context(), vitrine.Command{
		Args: []string{binary, "-test.v", "-test.run=^TestProcessSubstrate$", "-test.count=1"},
		Env:  []string{substratetest.BuiltAs(program)}, Stdout: outFile,
	})
	text := read(t, outFile)
	t.Logf("in the machine:\n%s", text)
	if err != nil {
		t.Error(err)
	}
	for _, name := range []string{"Quota", "MemoryLimit", "Affinity", "Vantage", "StopEndsFamily", "KilledRun"} {
		if !strings.Contains(text, "--- PASS: TestProcessSubstrate/"+name+" ") {
			t.Errorf("%s did not pass", name)
		}
	}
	// All cgroups of the tests were of version 2.
	if !regexp.MustCompile(`CgroupV2:/sys/fs/cgroup/\S*vitrine/\S+ CgroupCPUAcct: CgroupCPU: CgroupMemory: `).MatchString(text) {
		t.Error("the vantage does not use cgroup v2")
	}
}
