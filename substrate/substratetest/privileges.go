package substratetest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"vitrine"
	"vitrine/internal/hosttest"
	"vitrine/substrate"
)

// testPrivileges checks that a command can gain privileges only if the Spec allows it. A machine's
// process has none and can gain none.
func testPrivileges(s *suite) {
	if s.h.Machine != nil {
		in := s.create(s.spec("sprout-1"))
		s.start(in, "serve", s.mark())
		s.confined(in.Vantage().PID)
		return
	}
	for allowed, want := range map[bool]string{false: "1", true: "0"} {
		spec := s.spec("sprout-1")
		spec.AllowPrivilegeEscalation = allowed
		in := s.create(spec)
		if got := s.output(in, spec.Dir, "status", "NoNewPrivs"); got != want {
			s.Errorf("AllowPrivilegeEscalation %v: Run has NoNewPrivs %s, want %s", allowed, got, want)
		}
		command := s.command("status", "NoNewPrivs")
		command.Stdout = filepath.Join(spec.Dir, "started")
		p, err := in.Start(s.ctx, command)
		if err != nil {
			s.Fatal(err)
		}
		if err := s.ended(p); err != nil {
			s.Error(err)
		}
		if b, err := os.ReadFile(command.Stdout); err != nil || strings.TrimSpace(string(b)) != want {
			s.Errorf("AllowPrivilegeEscalation %v: Start has NoNewPrivs %q, %v, want %s", allowed, b, err, want)
		}
		if err := in.Remove(s.ctx); err != nil {
			s.Fatal(err)
		}
	}
}

// confined checks a machine's process on the host.
func (s *suite) confined(pid int) {
	s.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		s.Fatal(err)
	}
	user := fmt.Sprint(Nobody)
	for _, want := range []string{
		"Uid:\t" + strings.Join([]string{user, user, user, user}, "\t"), "CapEff:\t0000000000000000", "CapPrm:\t0000000000000000",
		"NoNewPrivs:\t1", "Seccomp:\t2", // 2: a filter (proc(5))
	} {
		if !strings.Contains(string(status), "\n"+want+"\n") {
			s.Errorf("the machine's process has no %q:\n%s", want, status)
		}
	}
}

// testUser checks that commands run as the Spec's user, write to a folder that Own gives them, and
// can reopen their standard output.
func testUser(s *suite) {
	const user, ids = "54321:54322", "54321 54322"
	dir, err := os.MkdirTemp("", "user-") // other users cannot enter s.TempDir
	if err != nil {
		s.Fatal(err)
	}
	hosttest.AtEnd(s.T, func() error { return os.RemoveAll(dir) })
	scratch, program := filepath.Join(dir, "scratch"), filepath.Join(dir, "program")
	if err := errors.Join(os.Chmod(dir, 0o755), os.Mkdir(scratch, 0o755)); err != nil {
		s.Fatal(err)
	}
	if s.h.Image == "" {
		if err := copyFile(s.h.Program, program); err != nil {
			s.Fatal(err)
		}
		s.h.Program = program
	}
	spec := s.spec("sprout-1")
	spec.Dir, spec.User = dir, user
	if s.single() {
		if _, err := s.h.Substrate.Create(s.ctx, spec); !vitrine.IsUnsupported(err) {
			s.Errorf("Create with a user on a substrate of one program: %v", err)
		}
		return
	}
	in := s.create(spec)
	if err := substrate.Own(in, scratch); err != nil {
		s.Fatal(err)
	}
	command := s.command("user", "mine")
	command.Dir = scratch
	for range 2 { // the second time, the output files belong to the user already
		if err := in.Run(s.ctx, command); err != nil {
			s.Errorf("Run: %v", err)
		}
		p, err := in.Start(s.ctx, command)
		if err != nil {
			s.Fatalf("Start: %v", err)
		}
		if err := s.ended(p); err != nil {
			s.Errorf("a command as user %s: %v", user, err)
		}
	}
	log, err := os.ReadFile(filepath.Join(dir, "log"))
	if err != nil || strings.TrimSpace(string(log)) != strings.Repeat(ids+"\n", 3)+ids {
		s.Errorf("the log of four commands: %q, %v", log, err)
	}
	spec = s.spec("sprout-2")
	spec.User = "no-such-user"
	if s.h.Image == "" && s.h.Machine == nil {
		if _, err := s.h.Substrate.Create(s.ctx, spec); !vitrine.IsBadInput(err) {
			s.Errorf("Create with an unknown user: %v", err)
		}
	}
}
