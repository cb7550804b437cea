package director

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A Clock is where the director takes the time from.
type Clock struct {
	// Now is the time since the host booted, suspension included: it never jumps,
	// and a director that takes over from another reads on where that one was.
	Now func() time.Duration
	// Boot names the host's boot that Now counts from.
	Boot string
	// Wall is the calendar time, which can jump. It matters only where the host
	// was booted between two starts.
	Wall func() time.Time
}

// HostClock is the host's own.
func HostClock() (Clock, error) {
	var at unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &at); err != nil {
		return Clock{}, fmt.Errorf("read CLOCK_BOOTTIME: %w", err)
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
