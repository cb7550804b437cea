// Package substratetest is the suite that every substrate must pass. A substrate's own test
// opens a Harness and calls Run.
package substratetest

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"vitrine"
	"vitrine/internal/hosttest"
	"vitrine/internal/runstate"
	"vitrine/substrate"
)

// A Harness is a new substrate to test, with its own run.
type Harness struct {
	Substrate substrate.Substrate // the suite closes it; it must also be a vitrine.Cleaner
	Run       *runstate.Run       // a cleanup of Open closes it, after the suite

	// Program is the path of Build's program inside an instance. If empty, it is the path that
	// Build returns.
	Program string
	// Image is the Spec.Image of instances.
	Image string
	// Environment lists the variables that the substrate itself adds, besides PATH and HOME.
	Environment []string
	// BySession is true if the substrate finds processes by their session. A process that left its
	// session then outlives a killed run, and the suite accepts that.
	BySession bool
	// Machine is not nil if instances are virtual machines.
	Machine *Machine
	// Left lists resources with the run's label. It omits processes, which the suite finds itself.
	// If nil, the suite uses the function Left.
	Left func(run string) ([]string, error)
}

// A Machine describes virtual machines. Their processes and CPUs are not the host's.
type Machine struct {
	Memory int64   // bytes; enough for a small machine
	Extra  int64   // bytes that the host may use for the machine beyond Memory
	Quota  float64 // CPUs; the least with which a machine still boots
	// Single is true if a machine runs one program and powers off when the program ends. Run then
	// returns a *vitrine.Unsupported, and the suite counts machines instead of processes.
	Single bool
	// Processes returns the processes with the argument mark in all machines of the substrate.
	// With Single, it returns the machines whose program has the argument.
	Processes func(mark string) ([]int, error)
}

// Open opens a harness whose run is recorded in the folder root. It skips the test when the host
// does not support the substrate (*vitrine.Unsupported).
type Open func(t *testing.T, root string) Harness

// Environment variables for the suite's own processes.
const (
	builtEnv  = "SUBSTRATETEST_PROGRAM" // path of the built program
	orphanEnv = "SUBSTRATETEST_ORPHAN"  // set in the run that will be killed; its folder
	rootEnv   = "SUBSTRATETEST_ROOT"    // folder in which that process records its runs
)

// Build builds the static executable that the suite runs in instances, and returns its path. A
// test process that cannot build gets the path from BuiltAs in its environment.
func Build(t testing.TB) string {
	t.Helper()
	if path := os.Getenv(builtEnv); path != "" {
		return path
	}
	return hosttest.Built(t, "vitrine/substrate/substratetest/program")
}

// BuiltAs returns the environment variable, KEY=value, with the path for Build.
func BuiltAs(path string) string { return builtEnv + "=" + path }

// A suite is the state of one test of the suite.
type suite struct {
	*testing.T
	h    Harness
	ctx  context.Context
	root string
}

// testTime bounds one test. Emulated machines take seconds to start, and minutes on a busy
// host.
const testTime = 5 * time.Minute

// begin opens a harness for one test. When the test ends, it closes the substrate twice and checks
// that the run left nothing on the host.
func begin(t *testing.T, open Open, program, root string) *suite {
	t.Helper()
	h := open(t, root)
	if h.Machine != nil {
		t.Parallel() // a test mostly waits for a machine to boot, on one CPU
	}
	ctx, cancel := context.WithTimeout(context.Background(), testTime)
	t.Cleanup(cancel)
	if h.Program == "" {
		h.Program = program
	}
	if h.Left == nil {
		h.Left = Left
	}
	s := &suite{T: t, h: h, ctx: ctx, root: root}
	t.Cleanup(func() {
		for range 2 {
			if err := h.Substrate.Close(context.WithoutCancel(ctx)); err != nil {
				t.Errorf("Close: %v", err)
			}
		}
		s.nothingLeft(h.Run.ID)
	})
	return s
}

func (s *suite) nothingLeft(run string) {
	s.Helper()
	left, err := s.h.Left(run)
	if err != nil {
		s.Errorf("list the remaining resources: %v", err)
	}
	if len(left) > 0 {
		s.Errorf("the run left on the host: %s", strings.Join(left, ", "))
	}
}

// spec returns the Spec of an instance without limits, in its own folder.
func (s *suite) spec(name string) substrate.Spec {
	component, _, _ := strings.Cut(name, "-")
	return substrate.Spec{Run: s.h.Run.ID, Name: name, Component: component, Image: s.h.Image, Dir: s.TempDir()}
}

// create creates an instance, or skips the test when this host does not support the instance.
func (s *suite) create(spec substrate.Spec) substrate.Instance {
	s.Helper()
	in, err := s.h.Substrate.Create(s.ctx, spec)
	if vitrine.IsUnsupported(err) {
		s.Skip(err)
	}
	if err != nil {
		s.Fatalf("Create: %v", err)
	}
	return in
}

// command returns a command that runs the suite's program with its own environment.
func (s *suite) command(args ...string) vitrine.Command {
	return vitrine.Command{Args: append([]string{s.h.Program}, args...), Env: []string{"GOTRACEBACK=none"}}
}

// start starts the program in the instance.
func (s *suite) start(in substrate.Instance, args ...string) substrate.Process {
	s.Helper()
	p, err := in.Start(s.ctx, s.command(args...))
	if err != nil {
		s.Fatalf("Start %v: %v", args, err)
	}
	return p
}

// ended waits for the process to end and returns its Err.
func (s *suite) ended(p substrate.Process) error {
	s.Helper()
	select {
	case <-p.Done():
		return p.Err()
	case <-s.ctx.Done():
		s.Fatal("the process did not end")
		return nil
	}
}

// eventually waits until the condition holds.
func (s *suite) eventually(what string, holds func() bool) {
	s.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			s.Fatalf("timed out: %s", what)
		}
	}
}

// logged waits until the file contains the text.
func (s *suite) logged(file, text string) {
	s.Helper()
	s.eventually(fmt.Sprintf("%q in %s", text, file), func() bool {
		b, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(b), text)
	})
}

// processes returns the processes with the argument mark: on this host, in any namespace, or in
// the substrate's machines.
func (s *suite) processes(mark string) []int {
	s.Helper()
	find := hosttest.WithArgument
	if s.h.Machine != nil {
		find = s.h.Machine.Processes
	}
	pids, err := find(mark)
	if err != nil {
		s.Fatal(err)
	}
	return pids
}

// single reports whether an instance runs only one program.
func (s *suite) single() bool { return s.h.Machine != nil && s.h.Machine.Single }

// family waits until all three processes of a family run.
func (s *suite) family(mark string) {
	s.Helper()
	want := 3
	if s.single() {
		want = 1 // the machine
	}
	s.eventually("a family of three", func() bool { return len(s.processes(mark)) == want })
}

// refusesRun checks that Run fails on an instance that runs only one program.
func (s *suite) refusesRun(in substrate.Instance) {
	s.Helper()
	if err := in.Run(s.ctx, s.command("print", "-", "-", "0")); !vitrine.IsUnsupported(err) {
		s.Errorf("Run on an instance with one program: %v", err)
	}
}

// mark returns a process argument that is unique on this host.
func (s *suite) mark() string { return "mark-" + s.h.Run.ID }
