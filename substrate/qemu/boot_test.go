package qemu

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"vitrine"
)

// TestQemuBootsWithoutItsQuota checks that a machine boots without its quota unless Boot is flavor.
// Once the machine is up, the quota must hold either way.
func TestQemuBootsWithoutItsQuota(t *testing.T) {
	t.Parallel()
	c := config(t, nil)
	c.Boot = "slow"
	if _, err := New(c); !vitrine.IsBadInput(err) {
		t.Errorf("boot slow: got error %v, want bad input", err)
	}
	throttled := map[string]int{}
	for _, boot := range []string{"", bootFlavor} {
		s, run := newSubstrate(t, func(c *Config) { c.Boot = boot })
		spec := smallSpec(t, run, "sprout-1")
		spec.VCPUs = 0.5
		in := create(t, s, spec)
		if _, err := in.boot(t.Context()); err != nil {
			t.Fatal(err)
		}
		v := in.Vantage()
		quota, n := quotaOf(t, v)
		if quota != "10000" { // microseconds per period of 20 ms
			t.Errorf("boot %q: got quota %s after the boot, want 10000", boot, quota)
		}
		throttled[boot] = n
		if err := in.Remove(t.Context()); err != nil {
			t.Error(err)
		}
	}
	t.Logf("throttled periods: %v", throttled)
	if throttled[""]*4 > throttled[bootFlavor] {
		t.Errorf("throttled in %d periods without the boot quota, in %d with it", throttled[""], throttled[bootFlavor])
	}
}

// quotaOf returns the quota that the kernel enforces, and the number of throttled periods.
func quotaOf(t *testing.T, v vitrine.Vantage) (quota string, throttled int) {
	t.Helper()
	dir, file := v.CgroupCPU, "cpu.cfs_quota_us"
	if v.CgroupV2 != "" {
		dir, file = v.CgroupV2, "cpu.max"
	}
	text, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		t.Fatal(err)
	}
	quota = strings.Fields(string(text))[0]
	if text, err = os.ReadFile(filepath.Join(dir, "cpu.stat")); err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "nr_throttled ")
	throttled, err = strconv.Atoi(strings.Fields(after)[0])
	if err != nil {
		t.Fatal(err)
	}
	return quota, throttled
}
