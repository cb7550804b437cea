package process

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"vitrine/fabric/fabrictest"
	"vitrine/substrate/substratetest"
)

func TestProcessSubstrate(t *testing.T) { substratetest.Run(t, open) }

func open(t *testing.T, root string) substratetest.Harness {
	t.Helper()
	run := fabrictest.NewRun(t, root)
	s, err := New(Config{Run: run, Environ: os.Environ()})
	if err != nil {
		t.Fatal(err)
	}
	return substratetest.Harness{Substrate: s, Run: run, BySession: s.groups == nil}
}

// TestProcessSubstrateUnprivileged is TestProcessSubstrate as an ordinary user.
func TestProcessSubstrateUnprivileged(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("this user is an ordinary one: see TestProcessSubstrate")
	}
	const nobody = 65534
	dir, err := os.MkdirTemp("", "unprivileged-") // others cannot see into t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	own := filepath.Join(dir, "own")
	if err := errors.Join(os.Chmod(dir, 0o755), os.Mkdir(own, 0o700), os.Chown(own, nobody, nobody)); err != nil {
		t.Fatal(err)
	}
	binary, program := filepath.Join(dir, "test"), filepath.Join(dir, "program")
	err = errors.Join(copyFile("/proc/self/exe", binary), copyFile(substratetest.Build(t), program))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, "-test.run=^TestProcessSubstrate$", "-test.v", "-test.count=1")
	cmd.Dir = own
	cmd.Env = []string{"TMPDIR=" + own, "HOME=" + own, "PATH=" + os.Getenv("PATH"), substratetest.BuiltAs(program)}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: nobody, Gid: nobody},
		Pdeathsig:  syscall.SIGKILL,
	}
	out, err := cmd.CombinedOutput()
	t.Logf("as user %d:\n%s", nobody, out)
	if err != nil {
		t.Error(err)
	}
	// What such a user can have everywhere may not be skipped.
	for _, name := range []string{"StartStopStart", "StopEndsFamily", "Affinity", "Vantage", "Readiness", "Peers", "KilledRun", "Remove"} {
		if !strings.Contains(string(out), "--- PASS: TestProcessSubstrate/"+name+" ") {
			t.Errorf("%s did not pass", name)
		}
	}
}

func copyFile(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o755)
}
