package substratetest

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"vitrine"
	"vitrine/substrate"
)

// Run runs the suite. One test starts the calling test's binary again, as a run to kill. So call
// Run once, from a top-level test, and before anything slow.
func Run(t *testing.T, open Open) {
	if dir := os.Getenv(orphanEnv); dir != "" {
		orphan(t, open, dir)
		return
	}
	program := Build(t)
	tests := []struct {
		name string
		test func(*suite)
	}{
		{"StartStopStart", testStartStopStart},
		{"StartWhileRunning", testStartWhileRunning},
		{"EndsByItself", testEndsByItself},
		{"NoSuchProgram", testNoSuchProgram},
		{"Environment", testEnvironment},
		{"Folder", testFolder},
		{"Logs", testLogs},
		{"Privileges", testPrivileges},
		{"User", testUser},
		{"RunBesideStart", testRunBesideStart},
		{"RunFailure", testRunFailure},
		{"RunCancelled", testRunCancelled},
		{"Affinity", testAffinity},
		{"Quota", testQuota},
		{"Spent", testSpent},
		{"MemoryLimit", testMemoryLimit},
		{"Vantage", testVantage},
		{"Readiness", testReadiness},
		{"Peers", testPeers},
		{"StopEndsFamily", testStopEndsFamily},
		{"StopEndsLeft", testStopEndsLeft},
		{"StopCancelled", testStopCancelled},
		{"Remove", testRemove},
		{"NameTaken", testNameTaken},
		{"CloseRemovesAll", testCloseRemovesAll},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { tt.test(begin(t, open, program, runsRoot(t))) })
	}
	t.Run("KilledRun", func(t *testing.T) { testKilledRun(t, open, program) })
}

// runsRoot returns a folder for the runs of this test only, so that Clean does not touch the runs
// of others.
func runsRoot(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "runs")
}

func testStartStopStart(s *suite) {
	spec := s.spec("sprout-1")
	in := s.create(spec)
	for range 3 {
		p := s.start(in, "serve", s.mark())
		s.eventually("the process runs", func() bool { return len(s.processes(s.mark())) == 1 })
		s.logged(filepath.Join(spec.Dir, "log"), "ready")
		select {
		case <-p.Done():
			s.Fatalf("ended before Stop: %v", p.Err())
		default:
		}
		for range 2 { // the second Stop finds a stopped instance
			if err := in.Stop(s.ctx, 20*time.Second); err != nil {
				s.Fatalf("Stop: %v", err)
			}
		}
		if err := s.ended(p); err != nil {
			s.Errorf("the process exited with status 0 after SIGTERM, but: %v", err)
		}
		if pids := s.processes(s.mark()); len(pids) > 0 {
			s.Errorf("still there after Stop: %v", pids)
		}
		if err := os.Truncate(filepath.Join(spec.Dir, "log"), 0); err != nil {
			s.Fatal(err)
		}
	}
}

func testStartWhileRunning(s *suite) {
	in := s.create(s.spec("sprout-1"))
	p := s.start(in, "serve", s.mark())
	if _, err := in.Start(s.ctx, s.command("serve", s.mark())); err == nil {
		s.Error("a running instance was started again")
	}
	select {
	case <-p.Done():
		s.Errorf("the second Start ended the first: %v", p.Err())
	default:
	}
}

func testEndsByItself(s *suite) {
	in := s.create(s.spec("sprout-1"))
	if err := s.ended(s.start(in, "print", "a", "b", "0")); err != nil {
		s.Errorf("status 0: %v", err)
	}
	// There is no Stop in between: Start must accept an instance whose process has exited.
	err := s.ended(s.start(in, "print", "a", "b", "7"))
	if err == nil || !strings.Contains(err.Error(), "7") {
		s.Errorf("status 7: %v", err)
	}
	if err := in.Stop(s.ctx, time.Second); err != nil {
		s.Errorf("Stop after the end: %v", err)
	}
}

func testNoSuchProgram(s *suite) {
	in := s.create(s.spec("sprout-1"))
	missing := vitrine.Command{Args: []string{"/no/such/program"}}
	if _, err := in.Start(s.ctx, missing); err == nil || !strings.Contains(err.Error(), "/no/such/program") {
		s.Errorf("Start of a missing program: %v", err)
	}
	if err := in.Run(s.ctx, missing); !s.single() && (err == nil || !strings.Contains(err.Error(), "/no/such/program")) {
		s.Errorf("Run of a missing program: %v", err)
	}
	s.start(in, "serve", s.mark()) // the instance still works
}

func testEnvironment(s *suite) {
	spec := s.spec("sprout-1")
	in := s.create(spec)
	command := s.command("environ")
	command.Env = []string{"ADDRESS=192.0.2.1", "EMPTY=", "SPACED=a b"}
	command.Stdout = filepath.Join(spec.Dir, "environ")
	p, err := in.Start(s.ctx, command)
	if err != nil {
		s.Fatal(err)
	}
	if err := s.ended(p); err != nil {
		s.Fatal(err)
	}
	b, err := os.ReadFile(command.Stdout)
	if err != nil {
		s.Fatal(err)
	}
	added := append([]string{"PATH", "HOME"}, s.h.Environment...)
	var got []string
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSuffix(line, "\n")
		name, _, _ := strings.Cut(line, "=")
		if !slices.Contains(added, name) {
			got = append(got, line)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, command.Env) {
		s.Errorf("environment %q, want %q", got, command.Env)
	}
	if !strings.Contains("\n"+string(b), "\nPATH=") {
		s.Errorf("no PATH in %q", b)
	}
}

func testFolder(s *suite) {
	spec := s.spec("sprout-1")
	in := s.create(spec)
	other := s.TempDir()
	for dir, want := range map[string]string{"": spec.Dir, other: other} {
		if s.h.Image != "" && dir != "" {
			continue // an image does not have other folders of the host
		}
		command := s.command("where")
		command.Dir = dir
		command.Stdout = filepath.Join(spec.Dir, "where"+filepath.Base(dir))
		p, err := in.Start(s.ctx, command)
		if err != nil {
			s.Fatal(err)
		}
		if err := s.ended(p); err != nil {
			s.Fatal(err)
		}
		if b, err := os.ReadFile(command.Stdout); err != nil || strings.TrimSpace(string(b)) != want {
			s.Errorf("Dir %q: ran in %q, %v; want %q", dir, b, err, want)
		}
	}
}

func testLogs(s *suite) {
	spec := s.spec("sprout-1")
	in := s.create(spec)
	log := filepath.Join(spec.Dir, "log")
	if err := s.ended(s.start(in, "print", "first out", "first err", "0")); err != nil {
		s.Fatal(err)
	}
	stdout := filepath.Join(spec.Dir, "stdout")
	if err := os.WriteFile(stdout, []byte("before\n"), 0o600); err != nil {
		s.Fatal(err)
	}
	command := s.command("print", "second out", "second err", "0")
	command.Stdout = stdout
	p, err := in.Start(s.ctx, command)
	if err != nil {
		s.Fatal(err)
	}
	if err := s.ended(p); err != nil {
		s.Fatal(err)
	}
	for _, path := range substrate.Logs(in) { // these must be in the instance's folder, like the log
		if rel, err := filepath.Rel(spec.Dir, path); err != nil || !filepath.IsLocal(rel) || path == log {
			s.Errorf("the additional log %s is not inside the instance's folder %s", path, spec.Dir)
		}
	}
	// The log is complete when Done is closed.
	b, err := os.ReadFile(log)
	if err != nil {
		s.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	slices.Sort(lines)
	if want := []string{"first err", "first out", "second err"}; !slices.Equal(lines, want) {
		s.Errorf("log %q, want %q", lines, want)
	}
	if b, err := os.ReadFile(stdout); err != nil || string(b) != "before\nsecond out\n" {
		s.Errorf("Stdout file %q, %v", b, err)
	}
}

func testRunBesideStart(s *suite) {
	spec := s.spec("sprout-1")
	in := s.create(spec)
	if s.single() {
		s.refusesRun(in)
		return
	}
	if err := in.Run(s.ctx, s.command("print", "before", "-", "0")); err != nil {
		s.Errorf("Run before Start: %v", err)
	}
	p := s.start(in, "serve", s.mark())
	if err := in.Run(s.ctx, s.command("print", "beside", "-", "0")); err != nil {
		s.Errorf("Run during Start: %v", err)
	}
	select {
	case <-p.Done():
		s.Errorf("Run ended the process of Start: %v", p.Err())
	default:
	}
}

func testRunFailure(s *suite) {
	in := s.create(s.spec("sprout-1"))
	if s.single() {
		s.refusesRun(in)
		return
	}
	err := in.Run(s.ctx, s.command("print", "half a database", "table users missing", "3"))
	if err == nil {
		s.Fatal("Run returned no error for exit status 3")
	}
	for _, want := range []string{"3", "half a database", "table users missing"} {
		if !strings.Contains(err.Error(), want) {
			s.Errorf("error %q does not contain %q", err, want)
		}
	}
}

func testRunCancelled(s *suite) {
	in := s.create(s.spec("sprout-1"))
	started := s.start(in, "serve", s.mark())
	if s.single() {
		s.refusesRun(in)
		return
	}
	mark := s.mark() + "-run"
	ctx, cancel := context.WithCancel(s.ctx)
	ran := make(chan error, 1)
	go func() { ran <- in.Run(ctx, s.command("family", mark)) }()
	s.eventually("a family of three", func() bool { return len(s.processes(mark)) == 3 })
	cancel()
	select {
	case err := <-ran:
		if err == nil {
			s.Error("a cancelled Run returned no error")
		}
	case <-s.ctx.Done():
		s.Fatal("Run continues after its context ended")
	}
	if pids := s.processes(mark); len(pids) > 0 {
		s.Errorf("still there after a cancelled Run: %v", pids)
	}
	select {
	case <-started.Done():
		s.Errorf("a cancelled Run ended the process of Start: %v", started.Err())
	default:
	}
}
