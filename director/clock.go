package director

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A Clock gives the director the time.
type Clock struct {
	// Now returns the time since the host booted, suspension excluded. It never jumps,
	// and continues in a process that takes over.
	Now func() time.Duration
	// Boot identifies the boot that Now counts from.
	Boot string
	// Wall returns the calendar time, which can jump. Signing keys depend on it. The age
	// of an epoch depends on it only if the host was booted between two starts.
	Wall func() time.Time
}

// HostClock returns the host's clock.
func HostClock() (Clock, error) {
	var at unix.Timespec
	// time.Since counts by CLOCK_MONOTONIC. With another base, a process that takes over after a
	// suspension would be ahead of the one before it.
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &at); err != nil {
		return Clock{}, fmt.Errorf("read CLOCK_MONOTONIC: %w", err)
	}
	start, base := time.Now(), time.Duration(at.Nano())
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return Clock{}, fmt.Errorf("read which boot this is: %w", err)
	}
	return Clock{
		Now:  func() time.Duration { return base + time.Since(start) },
		Boot: strings.TrimSpace(string(id)),
		Wall: time.Now,
	}, nil
}
