package director

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vitrine"
)

// suspendedEnv says that the test's process sees a host that was suspended.
const suspendedEnv = "DIRECTOR_TEST_SUSPENDED"

// TestHostClock checks that the clock is the same in all processes of a host: it is CLOCK_MONOTONIC. A
// process in a time namespace whose CLOCK_BOOTTIME is an hour ahead sees a host that was suspended for
// an hour more.
func TestHostClock(t *testing.T) {
	var at unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &at); err != nil {
		t.Fatal(err)
	}
	clock, err := HostClock()
	if err != nil {
		t.Fatal(err)
	}
	if ahead := clock.Now() - time.Duration(at.Nano()); ahead.Abs() > time.Minute {
		t.Errorf("the clock is %s ahead of CLOCK_MONOTONIC", ahead)
	}
	if os.Getenv(suspendedEnv) != "" {
		return
	}
	suspended := []string{"--user", "--map-root-user", "--fork", "--time", "--boottime", "3600"}
	if out, err := exec.CommandContext(t.Context(), "unshare", append(suspended, "true")...).CombinedOutput(); err != nil {
		t.Skip(&vitrine.Unsupported{What: "time namespaces", Missing: fmt.Sprintf("unshare: %v: %s", err, out)})
	}
	cmd := exec.CommandContext(t.Context(), "unshare", append(suspended, os.Args[0], "-test.run=^TestHostClock$")...)
	cmd.Env = append(os.Environ(), suspendedEnv+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("on a host that was suspended: %v\n%s", err, out)
	}
}
