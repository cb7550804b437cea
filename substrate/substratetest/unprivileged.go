package substratetest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"vitrine/internal/hosttest"
)

// Nobody is the user and group ID that Unprivileged uses.
const Nobody = 65534

// Unprivileged runs a test of this binary again as an ordinary user. The caller must be root. The
// named parts of the test must not skip, because an ordinary user can run them on every host.
func Unprivileged(t *testing.T, test string, env []string, parts ...string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "unprivileged-") // other users cannot read t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	hosttest.AtEnd(t, func() error { return os.RemoveAll(dir) })
	own, binary, program := filepath.Join(dir, "own"), filepath.Join(dir, "test"), filepath.Join(dir, "program")
	err = errors.Join(
		os.Chmod(dir, 0o755), os.Mkdir(own, 0o700), os.Chown(own, Nobody, Nobody),
		copyFile("/proc/self/exe", binary), copyFile(Build(t), program))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), binary, "-test.run=^"+test+"$", "-test.v", "-test.count=1")
	cmd.Dir = own
	cmd.Env = append(env, "TMPDIR="+own, "HOME="+own, "PATH="+os.Getenv("PATH"), BuiltAs(program))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: Nobody, Gid: Nobody}, Pdeathsig: syscall.SIGKILL}
	// The kernel kills the child when the thread that started it ends, not only with this process.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	out, err := cmd.CombinedOutput()
	t.Logf("as user %d:\n%s", Nobody, out)
	if err != nil {
		t.Error(err)
	}
	for _, name := range parts {
		if !strings.Contains(string(out), "--- PASS: "+test+"/"+name+" ") {
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
