package substratetest

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vitrine"
)

func testStopEndsFamily(s *suite) {
	in := s.create(s.spec("sprout-1"))
	p := s.start(in, "family", s.mark())
	s.family(s.mark())
	if err := in.Stop(s.ctx, 50*time.Millisecond); err != nil {
		s.Fatalf("Stop: %v", err)
	}
	if pids := s.processes(s.mark()); len(pids) > 0 {
		s.Errorf("still there after Stop: %v", pids)
	}
	if err := s.ended(p); err == nil {
		s.Error("a process that SIGKILL ended has no error")
	}
}

// testStopEndsLeft checks that a process that a command of Run left does not outlive Stop, because a
// fresh deployment must not find it.
func testStopEndsLeft(s *suite) {
	if s.h.Machine != nil {
		return // a machine keeps what commands leave
	}
	in := s.create(s.spec("sprout-1"))
	if err := in.Run(s.ctx, s.command("leave", s.mark())); err != nil {
		s.Fatalf("Run: %v", err)
	}
	s.start(in, "serve", s.mark())
	if err := in.Stop(s.ctx, 20*time.Second); err != nil {
		s.Fatalf("Stop: %v", err)
	}
	if pids := s.processes(s.mark()); len(pids) > 0 {
		s.Errorf("still there after Stop: %v", pids)
	}
}

// testStopCancelled checks that Stop ends the process at once if its context has already ended,
// whatever the grace period.
func testStopCancelled(s *suite) {
	in := s.create(s.spec("sprout-1"))
	p := s.start(in, "stubborn", s.mark())
	s.eventually("the process runs", func() bool { return len(s.processes(s.mark())) == 1 })
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	if err := in.Stop(ctx, time.Hour); err != nil {
		s.Errorf("Stop: %v", err)
	}
	_ = s.ended(p)
	if pids := s.processes(s.mark()); len(pids) > 0 {
		s.Errorf("still there after Stop: %v", pids)
	}
}

func testRemove(s *suite) {
	in := s.create(s.spec("sprout-1"))
	p := s.start(in, "family", s.mark())
	s.family(s.mark())
	for range 2 {
		if err := in.Remove(s.ctx); err != nil {
			s.Fatalf("Remove: %v", err)
		}
	}
	_ = s.ended(p)
	if pids := s.processes(s.mark()); len(pids) > 0 {
		s.Errorf("still there after Remove: %v", pids)
	}
	if err := in.Stop(s.ctx, 0); err != nil {
		s.Errorf("Stop after Remove: %v", err)
	}
	if _, err := in.Start(s.ctx, s.command("serve", s.mark())); err == nil {
		s.Error("a removed instance was started")
	}
	s.create(s.spec("sprout-1")) // the name is free again
}

func testNameTaken(s *suite) {
	s.create(s.spec("sprout-1"))
	if _, err := s.h.Substrate.Create(s.ctx, s.spec("sprout-1")); err == nil {
		s.Error("created two instances with the same name")
	}
	if _, err := s.h.Substrate.Create(s.ctx, s.spec("../sprout")); err == nil {
		s.Error("created an instance with a path as its name")
	}
}

func testCloseRemovesAll(s *suite) {
	for _, name := range []string{"sprout-1", "sprout-2", "bono-1"} {
		in := s.create(s.spec(name))
		s.start(in, "stubborn", s.mark())
	}
	s.eventually("three processes", func() bool { return len(s.processes(s.mark())) == 3 })
	if err := s.h.Substrate.Close(s.ctx); err != nil {
		s.Fatalf("Close: %v", err)
	}
	if pids := s.processes(s.mark()); len(pids) > 0 {
		s.Errorf("still there after Close: %v", pids)
	}
	s.nothingLeft(s.h.Run.ID)
	if _, err := s.h.Substrate.Create(s.ctx, s.spec("sprout-1")); err == nil {
		s.Error("a closed substrate created an instance")
	}
}

// testKilledRun kills a run whose instances have child processes, and cleans up after it. Another
// run stays alive meanwhile.
func testKilledRun(t *testing.T, open Open, program string) {
	root, dir := runsRoot(t), t.TempDir()
	live := begin(t, open, program, root)
	cleaner, ok := live.h.Substrate.(vitrine.Cleaner)
	if !ok {
		t.Fatalf("%T is not a vitrine.Cleaner", live.h.Substrate)
	}
	in := live.create(live.spec("sprout-1"))
	p := live.start(in, "serve", live.mark())

	run, kill := startOrphan(live, program, root, dir)
	mark := "mark-" + run
	if removed, err := cleaner.Clean(live.ctx); err != nil || len(removed) > 0 {
		t.Errorf("Clean while both runs live: removed %q, %v", removed, err)
	}
	// Only the killed run can see processes inside its machines. orphan has counted them.
	if n := len(live.processes(mark)); n != 6 && live.h.Machine == nil {
		t.Errorf("the run has %d processes before it is killed, want 6", n)
	}
	kill()
	removed, err := cleaner.Clean(live.ctx)
	if err != nil {
		t.Errorf("Clean: %v", err)
	}
	if len(removed) == 0 {
		t.Error("Clean reports nothing removed")
	}
	if pids := live.processes(mark); len(pids) > 0 {
		t.Errorf("still there after Clean: %v", pids)
	}
	live.nothingLeft(run)
	if removed, err := cleaner.Clean(live.ctx); err != nil || len(removed) > 0 {
		t.Errorf("Clean again: removed %q, %v", removed, err)
	}
	select {
	case <-p.Done():
		t.Errorf("Clean ended a live run's process: %v", p.Err())
	default:
	}
	if live.single() {
		return
	}
	if err := in.Run(live.ctx, live.command("print", "-", "-", "0")); err != nil {
		t.Errorf("Run in the live run after Clean: %v", err)
	}
}

// startOrphan starts this test binary again. The new process creates instances and waits. kill
// sends SIGKILL to that process only.
func startOrphan(s *suite, program, root, dir string) (run string, kill func()) {
	s.Helper()
	top, _, _ := strings.Cut(s.Name(), "/")
	cmd := exec.CommandContext(s.ctx, os.Args[0], "-test.run=^"+top+"$", "-test.count=1")
	cmd.Env = append(os.Environ(), BuiltAs(program), orphanEnv+"="+dir, rootEnv+"="+root, "TMPDIR="+dir) // in dir, because the killed orphan cannot remove its files
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	stdin, err := cmd.StdinPipe() // the orphan ends when this pipe closes, at the latest with this process
	if err != nil {
		s.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		s.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	kill = func() {
		_ = cmd.Process.Kill()
		<-ended
		_ = stdin.Close()
	}
	s.Cleanup(func() { // needed if the test fails before it calls Clean
		kill()
		if _, err := s.h.Substrate.(vitrine.Cleaner).Clean(context.WithoutCancel(s.ctx)); err != nil {
			s.Errorf("Clean: %v", err)
		}
	})
	s.eventually("the other run has created its instances", func() bool {
		select {
		case <-ended:
			s.Fatalf("the other run ended too early:\n%s", out.String())
		default:
		}
		b, err := os.ReadFile(filepath.Join(dir, "run"))
		run = string(b)
		return err == nil
	})
	return run, kill
}

// orphan creates the instances of the run that testKilledRun kills.
func orphan(t *testing.T, open Open, dir string) {
	s := begin(t, open, Build(t), os.Getenv(rootEnv))
	verb := "family"
	if s.h.BySession {
		verb = "household"
	}
	for _, name := range []string{"sprout-1", "bono-1"} {
		spec := s.spec(name)
		spec.Dir = filepath.Join(dir, name) // the process that called startOrphan removes it
		if err := os.Mkdir(spec.Dir, 0o755); err != nil {
			t.Fatal(err)
		}
		s.start(s.create(spec), verb, s.mark())
	}
	want := 6
	if s.single() {
		want = 2
	}
	s.eventually("two families of three", func() bool { return len(s.processes(s.mark())) == want })
	ready := filepath.Join(dir, "run")
	if err := os.WriteFile(ready+".new", []byte(s.h.Run.ID), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(ready+".new", ready); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, os.Stdin) // until killed, or until the parent ends
}
