package docker

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"vitrine/substrate/docker/dockertest"
	"vitrine/substrate/substratetest"
)

// TestDockerSubstrateUnprivileged is TestDockerSubstrate as an ordinary user
// of the group that may use the engine's socket.
func TestDockerSubstrateUnprivileged(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("this user is an ordinary one: see TestDockerSubstrate")
	}
	const nobody = 65534
	e := dockertest.Own(t)
	socket := strings.TrimPrefix(e.Host, "unix://")
	dir, err := os.MkdirTemp("", "unprivileged-") // others cannot see into t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	own, binary, program := filepath.Join(dir, "own"), filepath.Join(dir, "test"), filepath.Join(dir, "program")
	err = errors.Join(
		os.Chmod(filepath.Dir(socket), 0o711), os.Chown(socket, 0, nobody), os.Chmod(socket, 0o660),
		os.Chmod(dir, 0o755), os.Mkdir(own, 0o700), os.Chown(own, nobody, nobody),
		copyFile("/proc/self/exe", binary), copyFile(substratetest.Build(t), program))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, "-test.run=^TestDockerSubstrate$", "-test.v", "-test.count=1")
	cmd.Dir = own
	cmd.Env = []string{"DOCKER_HOST=" + e.Host, "TMPDIR=" + own, "HOME=" + own, "PATH=" + os.Getenv("PATH"), substratetest.BuiltAs(program)}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	t.Logf("as user %d:\n%s", nobody, out)
	if err != nil {
		t.Error(err)
	}
	for _, name := range []string{"StartStopStart", "StopEndsFamily", "Quota", "MemoryLimit", "Vantage", "KilledRun", "Remove"} {
		if !strings.Contains(string(out), "--- PASS: TestDockerSubstrate/"+name+" ") {
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
