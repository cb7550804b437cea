package unikernel

import (
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"

	"vitrine"
	"vitrine/fabric/fabrictest"
	"vitrine/image"
	packed "vitrine/image/unikernel"
	"vitrine/internal/hosttest"
	"vitrine/internal/runstate"
	"vitrine/substrate/qemu/machine"
	"vitrine/substrate/substratetest"
)

// prober is shared, so that all tests probe once.
var prober machine.Prober

func config(t *testing.T, run *runstate.Run) Config {
	t.Helper()
	cache, err := image.FindCache("", os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	return Config{Run: run, Environ: os.Environ(), Cache: cache, Prober: &prober}
}

func TestUnikernelSubstrate(t *testing.T) {
	kernel(t)
	substratetest.Run(t, open)
}

// TestEmulationNeedsNoKernel checks that a host that can build no kernel can run kernels of others.
func TestEmulationNeedsNoKernel(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	c := Config{Accelerator: machine.TCG, Cache: image.Cache{Dir: t.TempDir()}, Prober: new(machine.Prober), Logger: slog.New(slog.DiscardHandler)}
	if got, err := (&Substrate{config: c}).Accelerator(t.Context()); got != machine.TCG || err != nil {
		t.Errorf("got %q, error %v", got, err)
	}
}

// needs skips the test if a program is missing.
func needs(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Skip(&vitrine.Unsupported{What: "a unikernel for this test", Missing: "the program " + program, Do: "run .ci/install"})
	}
}

// kernel builds the kernel in the shared cache if it is missing, so that the build does not
// count against a test's time limit.
func kernel(t *testing.T) packed.Base {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	base, err := packed.Builder{Cache: config(t, nil).Cache, Logger: log}.Base(t.Context())
	hosttest.Need(t, err)
	return base
}

func open(t *testing.T, root string) substratetest.Harness {
	t.Helper()
	s, run := substrateOf(t, root, func(*Config) {})
	return substratetest.Harness{Substrate: s, Run: run, Machine: &substratetest.Machine{
		Memory: 64 << 20, Extra: machine.OverheadMemory, Quota: 0.5, Single: true,
		Processes: func(mark string) ([]int, error) {
			id, _, _ := strings.Cut(strings.TrimPrefix(mark, "mark-"), "-")
			return substratetest.Machines(id)
		},
	}}
}

// substrateOf makes a substrate with its own run, which is closed after the test.
func substrateOf(t *testing.T, root string, change func(*Config)) (*Substrate, *runstate.Run) {
	t.Helper()
	run := fabrictest.NewRun(t, root)
	c := config(t, run)
	change(&c)
	s, err := New(c)
	hosttest.Need(t, err)
	return s, run
}
