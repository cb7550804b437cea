package tap

import "testing"

// TestFilterOfAnyIsShort makes the filter for a host with 3000 interfaces. The kernel refuses more
// than 4096 instructions, and kernels before Linux 6.8 far fewer.
func TestFilterOfAnyIsShort(t *testing.T) {
	all := []Interface{{Name: "lo", Index: 1, Loopback: true, Optional: true}}
	for i := range 3000 {
		all = append(all, Interface{Index: 2 + i, Optional: true})
	}
	if n := len(program(all)); n > 10 {
		t.Errorf("the filter has %d instructions, want at most 10", n)
	}
}
