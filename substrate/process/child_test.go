package process

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"vitrine/fabric/fabrictest"
	"vitrine/internal/cgroup"
	"vitrine/internal/hosttest"
	"vitrine/internal/thread"
	"vitrine/substrate"
)

// A recorder is a holder that records the CPUs of the thread on which a command would start.
type recorder struct {
	holder
	cpus []int
}

func (r *recorder) start(*exec.Cmd) (err error) {
	r.cpus, err = thread.Allowed()
	return err
}

// TestForkBindsTheThread checks that a command inherits the instance's CPUs, also if the instance has
// a cpuset, because a cpuset of version 2 does not change the CPUs of a new process on old kernels.
func TestForkBindsTheThread(t *testing.T) {
	run := fabrictest.NewRun(t, filepath.Join(t.TempDir(), "runs"))
	s, err := New(Config{Run: run, Network: NetworkHost, Environ: os.Environ()})
	if err != nil {
		t.Fatal(err)
	}
	hosttest.AtEnd(t, func() error { return s.Close(context.Background()) })
	allowed, err := thread.Allowed()
	hosttest.Need(t, err)
	last := allowed[len(allowed)-1:]
	in := &Instance{substrate: s, spec: substrate.Spec{CPUs: last}}
	if s.groups != nil {
		in.group = &cgroup.Group{}
	}
	r, forked := &recorder{}, make(chan error)
	onOwnThread(func() { forked <- in.fork(&child{holder: r}) })
	if err := <-forked; err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(r.cpus, last) {
		t.Errorf("the command starts on CPUs %v, want %v of %v", r.cpus, last, allowed)
	}
}
