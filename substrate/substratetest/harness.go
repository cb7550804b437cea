// Package substratetest is what every substrate must pass. A substrate's own
// test opens a Harness and calls Run.
package substratetest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vitrine"
	"vitrine/internal/runstate"
	"vitrine/substrate"
)

// A Harness is one substrate to try, fresh, with a run of its own.
type Harness struct {
	Substrate substrate.Substrate // closed by the suite; must be a vitrine.Cleaner too
	Run       *runstate.Run       // closed by whoever opened the harness, after the suite

	// Program is the path, in an instance, of the program that Build makes;
	// empty: the path that Build gave.
	Program string
	// Image is the Spec's.
	Image string
	// Environment names variables that the substrate adds on its own, besides
	// PATH and HOME.
	Environment []string
	// BySession is set where processes are told by their session: one that has
	// left it outlives a run that is killed, and the suite does not ask for more.
	BySession bool
	// Machine is set where instances are virtual machines.
	Machine *Machine
	// Left lists what carries the run's label, but for processes, which the suite
	// looks for; nil: Left.
	Left func(run string) ([]string, error)
}

// A Machine is what the suite must know of virtual machines: their processes and
// processors are not the host's.
type Machine struct {
	Memory int64   // bytes: a small machine's
	Extra  int64   // bytes that the host may need for it beside that
	Quota  float64 // CPUs: few, but enough to start a machine with
	// Single is set where a machine runs one program, to whose end it is switched
	// off: Run is a *vitrine.Unsupported, and of processes the suite sees machines.
	Single bool
	// Processes finds the processes, in all machines of the substrate, that have
	// the mark among their arguments; machines that run a program with the mark,
	// where they are single ones.
	Processes func(mark string) ([]int, error)
}

// Open makes a harness whose run is known in the folder root. It skips the
// test when the substrate is a *vitrine.Unsupported here.
type Open func(t *testing.T, root string) Harness

// Environment by which the suite's own processes find what they share.
const (
	builtEnv  = "SUBSTRATETEST_PROGRAM" // the program, built already
	orphanEnv = "SUBSTRATETEST_ORPHAN"  // be a run that will be killed; its folder
	rootEnv   = "SUBSTRATETEST_ROOT"    // where the runs of that process are known
)

// Build makes the program that the suite runs, a static executable, and gives
// its path. Set BuiltAs in the environment of a test process that cannot build.
func Build(t testing.TB) string {
	t.Helper()
	if path := os.Getenv(builtEnv); path != "" {
		return path
	}
	path := filepath.Join(t.TempDir(), "program")
	build := exec.CommandContext(context.Background(), "go", "build", "-o", path, "vitrine/substrate/substratetest/program")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the program that instances run: %v\n%s", err, out)
	}
	return path
}

// BuiltAs is the variable, KEY=value, that tells a test process where the
// program is.
func BuiltAs(path string) string { return builtEnv + "=" + path }

// suite is what one test of the suite needs.
type suite struct {
	*testing.T
	h    Harness
	ctx  context.Context
	root string
}

// testTime bounds one test. Emulated machines take seconds to start, on a host
// that does other things minutes.
const testTime = 5 * time.Minute

// begin opens a harness for one test. At the end of the test the substrate is
// closed, twice, and nothing may be left of the run.
func begin(t *testing.T, open Open, program, root string) *suite {
	t.Helper()
	h := open(t, root)
	if h.Machine != nil {
		t.Parallel() // most of the time goes into starting them, one CPU each
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
		s.Errorf("looking for what is left: %v", err)
	}
	if len(left) > 0 {
		s.Errorf("left behind: %s", strings.Join(left, ", "))
	}
}

// spec is a plain instance: no limits, a folder of its own.
func (s *suite) spec(name string) substrate.Spec {
	component, _, _ := strings.Cut(name, "-")
	return substrate.Spec{Run: s.h.Run.ID, Name: name, Component: component, Image: s.h.Image, Dir: s.TempDir()}
}

// create makes an instance, and skips the test when this host cannot.
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

// command is the program with its arguments, and an environment of its own.
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

// ended waits for the process to end and gives how.
func (s *suite) ended(p substrate.Process) error {
	s.Helper()
	select {
	case <-p.Done():
		return p.Err()
	case <-s.ctx.Done():
		s.Fatal("the process does not end")
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
			s.Fatalf("waited in vain: %s", what)
		}
	}
}

// logged waits until a log of the instance has the text.
func (s *suite) logged(file, text string) {
	s.Helper()
	s.eventually(fmt.Sprintf("%q in %s", text, file), func() bool {
		b, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(b), text)
	})
}

// processes finds the processes of this host, in whatever namespaces, or of its
// machines, that have the mark among their arguments.
func (s *suite) processes(mark string) []int {
	s.Helper()
	find := func(mark string) ([]int, error) {
		return processes(func(arguments string) bool { return strings.Contains(arguments, "\x00"+mark+"\x00") })
	}
	if s.h.Machine != nil {
		find = s.h.Machine.Processes
	}
	pids, err := find(mark)
	if err != nil {
		s.Fatal(err)
	}
	return pids
}

// single says whether instances run one program each.
func (s *suite) single() bool { return s.h.Machine != nil && s.h.Machine.Single }

// family waits until a family of three is there.
func (s *suite) family(mark string) {
	s.Helper()
	want := 3
	if s.single() {
		want = 1 // the machine that they are in
	}
	s.eventually("a family of three", func() bool { return len(s.processes(mark)) == want })
}

// refusesRun tries Run where an instance runs one program.
func (s *suite) refusesRun(in substrate.Instance) {
	s.Helper()
	if err := in.Run(s.ctx, s.command("print", "-", "-", "0")); !vitrine.IsUnsupported(err) {
		s.Errorf("Run where there is one program: %v", err)
	}
}

// mark is an argument that no other process has.
func (s *suite) mark() string { return "mark-" + s.h.Run.ID }
