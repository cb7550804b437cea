package docker

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vitrine/substrate/docker/dockertest"
	"vitrine/substrate/substratetest"
)

// TestDockerSubstrateUnprivileged runs TestDockerSubstrate as an ordinary user of the group
// that may use the engine's socket.
func TestDockerSubstrateUnprivileged(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("this user is not root: see TestDockerSubstrate")
	}
	e := dockertest.Own(t)
	socket := strings.TrimPrefix(e.Host, "unix://")
	if err := errors.Join(os.Chmod(filepath.Dir(socket), 0o711), os.Chown(socket, 0, substratetest.Nobody), os.Chmod(socket, 0o660)); err != nil {
		t.Fatal(err)
	}
	substratetest.Unprivileged(t, "TestDockerSubstrate", []string{"DOCKER_HOST=" + e.Host},
		"StartStopStart", "StopEndsFamily", "Quota", "MemoryLimit", "Vantage", "KilledRun", "Remove")
}
