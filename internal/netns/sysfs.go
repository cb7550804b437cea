package netns

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Sysfs calls f with the path of a sysfs of the thread's network namespace, because /sys may
// belong to another namespace. The mount exists only during the call (Linux 5.2).
func Sysfs(f func(path string) error) (err error) {
	made, err := unix.Fsopen("sysfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return fmt.Errorf("opening sysfs of the network namespace (Linux 5.2): %w", err)
	}
	defer func() { err = errors.Join(err, unix.Close(made)) }()
	if err := unix.FsconfigCreate(made); err != nil {
		return fmt.Errorf("making sysfs of the network namespace: %w", err)
	}
	root, err := unix.Fsmount(made, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("mounting sysfs of the network namespace: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Close(root)) }()
	return f(fmt.Sprintf("/proc/self/fd/%d", root))
}
