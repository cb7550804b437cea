package testbed

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestFunctionUsesFreeCores checks that the function's first CPUs are on cores of their own.
func TestFunctionUsesFreeCores(t *testing.T) {
	adjacent := func(cpu int) string { return fmt.Sprintf("%d-%d", cpu/2*2, cpu/2*2+1) }
	apart := func(cpu int) string { return fmt.Sprintf("%d,%d", cpu%4, cpu%4+4) }
	alone := func(cpu int) string { return fmt.Sprint(cpu) }
	for _, tt := range []struct {
		name             string
		core             func(cpu int) string // nil: the kernel does not show cores
		generator, given []int
		want             []int
	}{
		{"siblings are adjacent", adjacent, []int{0}, []int{1, 2, 3, 4, 5, 6, 7}, []int{2, 4, 6, 1, 3, 5, 7}},
		{"the generator has another CPU", adjacent, []int{3}, []int{0, 1, 2, 4, 5, 6, 7}, []int{0, 4, 6, 1, 2, 5, 7}},
		{"siblings are apart", apart, []int{0}, []int{1, 2, 3, 4, 5, 6, 7}, []int{1, 2, 3, 4, 5, 6, 7}},
		{"one thread per core", alone, []int{0}, []int{1, 2, 3}, []int{1, 2, 3}},
		{"no topology", nil, []int{0}, []int{1, 2, 3}, []int{1, 2, 3}},
	} {
		root := t.TempDir()
		for _, cpu := range tt.given {
			if tt.core == nil {
				break
			}
			dir := filepath.Join(root, fmt.Sprintf("sys/devices/system/cpu/cpu%d/topology", cpu))
			err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "thread_siblings_list"), []byte(tt.core(cpu)+"\n"), 0o600))
			if err != nil {
				t.Fatal(err)
			}
		}
		if got := byCore(root, tt.generator, tt.given); !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
		}
	}
}
