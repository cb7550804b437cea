package unikernel

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// buildEnv names the pipe that a build holds open.
const buildEnv = "UNIKERNEL_TEST_BUILD"

// TestBuildEndsWithUs checks that a build ends when the process that started it is killed.
func TestBuildEndsWithUs(t *testing.T) {
	if pipe := os.Getenv(buildEnv); pipe != "" {
		t.Fatal(run(t.Context(), "/bin/sh", "-euc", `exec > "$0"; echo begun; exec sleep 3600`, pipe))
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestBuildEndsWithUs$")
	cmd.Env = append(os.Environ(), buildEnv+"="+pipe)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() }) // this test kills it
	from, err := os.Open(pipe)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	if _, err := io.ReadFull(from, make([]byte, len("begun\n"))); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(from); err != nil { // ends when no process holds the pipe
		t.Error(err)
	}
}
