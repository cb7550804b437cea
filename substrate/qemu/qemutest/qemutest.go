// Package qemutest runs virtual machines for the tests of other packages: they have
// Debian's kernel, which has features that the host's may lack.
package qemutest

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"vitrine/fabric/fabrictest"
	"vitrine/image"
	"vitrine/internal/hosttest"
	"vitrine/internal/runstate"
	"vitrine/substrate/qemu"
	"vitrine/substrate/qemu/machine"
)

// New makes a substrate of virtual machines that ends with the test. agent is the guest's
// program with its first arguments. Without QEMU the test skips.
func New(t testing.TB, agent ...string) (*qemu.Substrate, *runstate.Run) {
	t.Helper()
	run := fabrictest.NewRun(t, filepath.Join(t.TempDir(), "runs"))
	cache, err := image.FindCache("", os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	s, err := qemu.New(qemu.Config{Run: run, Environ: os.Environ(), Cache: cache, Prober: new(machine.Prober), Agent: agent})
	hosttest.Need(t, err)
	hosttest.AtEnd(t, func() error { return s.Close(context.Background()) })
	return s, run
}
