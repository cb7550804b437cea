// Package netns makes, enters and removes named network namespaces as `ip netns` does, so that
// each tool sees the other's namespaces. It uses three system calls of golang.org/x/sys/unix, and
// handles Go's threads.
package netns

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"vitrine"
)

// Dir is where iproute2 keeps the names of network namespaces.
const Dir = "/run/netns"

// threadNamespace is the namespace of the calling thread.
const threadNamespace = "/proc/thread-self/ns/net"

// Path returns the path of a namespace with that name, whether or not it exists.
func Path(name string) string { return filepath.Join(Dir, name) }

// Create makes a network namespace with a name and brings its loopback interface up. The name must
// be free. It returns the namespace's path. If it fails, it leaves nothing behind. Without the
// privilege the error is a *vitrine.Unsupported.
func Create(name string) (path string, err error) {
	if name == "" || strings.ContainsAny(name, "/") || name[0] == '.' {
		return "", fmt.Errorf("making network namespace %q: not a valid name", name)
	}
	if err := share(); err != nil {
		return "", unsupported(fmt.Errorf("making the folder of network namespaces: %w", err))
	}
	path = Path(name)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL, 0o444)
	if err != nil {
		return "", unsupported(fmt.Errorf("naming network namespace %s: %w", name, err))
	}
	if err := f.Close(); err != nil {
		return "", errors.Join(err, os.Remove(path))
	}
	err = onOwnThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("making network namespace %s: %w", name, err)
		}
		if err := unix.Mount(threadNamespace, path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("naming network namespace %s: %w", name, err)
		}
		lo := &netlink.Device{LinkAttrs: netlink.LinkAttrs{Name: "lo"}}
		if err := netlink.LinkSetUp(lo); err != nil {
			return fmt.Errorf("bringing lo up in network namespace %s: %w", name, err)
		}
		return nil
	})
	if err != nil {
		return "", errors.Join(unsupported(err), Delete(name))
	}
	return path, nil
}

// Possible returns nil if this process may make named network namespaces. Otherwise it returns a
// *vitrine.Unsupported with the missing part. It tries to make one.
func Possible() error {
	if err := share(); err != nil {
		return unsupported(fmt.Errorf("making the folder of network namespaces: %w", err))
	}
	return Try(func() error { return nil })
}

// Try calls f on a thread in a new network namespace without a name. The namespace ends when f has
// returned and the sockets of f are closed.
func Try(f func() error) error {
	return onOwnThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return unsupported(fmt.Errorf("making a network namespace: %w", err))
		}
		return f()
	})
}

// Delete removes the name. The namespace itself ends once nothing runs in it and no interface is
// attached from outside. It is not an error if the name does not exist.
func Delete(name string) error {
	path := Path(name)
	err := unix.Unmount(path, unix.MNT_DETACH)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("removing network namespace %s: %w", name, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing network namespace %s: %w", name, err)
	}
	return nil
}

// List returns the names of namespaces that begin with the prefix.
func List(prefix string) ([]string, error) {
	entries, err := os.ReadDir(Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing network namespaces: %w", err)
	}
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// Do calls f on a thread in the network namespace at path, such as /run/netns/x or
// /proc/1234/ns/net. Sockets that f opens stay in that namespace. An empty path means the
// process's own namespace.
func Do(path string, f func() error) error {
	if path == "" {
		return f()
	}
	return onOwnThread(func() error {
		if err := Enter(path); err != nil {
			return err
		}
		return f()
	})
}

// Enter moves the calling thread, which must be locked to its goroutine, into the network namespace
// at path. The goroutine must end without unlocking it.
func Enter(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening network namespace %s: %w", path, err)
	}
	err = unix.Setns(fd, unix.CLONE_NEWNET)
	if err := errors.Join(err, unix.Close(fd)); err != nil {
		return unsupported(fmt.Errorf("entering network namespace %s: %w", path, err))
	}
	return nil
}

// onOwnThread calls f on a separate thread and then moves the thread back to its old namespace. If
// it cannot move the thread back, the thread is not used again.
func onOwnThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		home, err := unix.Open(threadNamespace, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			done <- fmt.Errorf("opening the thread's own network namespace: %w", err)
			return
		}
		err = f()
		if unix.Setns(home, unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
		done <- errors.Join(err, unix.Close(home))
	}()
	return <-done
}

// share makes Dir a shared mount, as `ip netns add` does. It must do so before the first name is
// made, because earlier names could not be removed. It takes the same lock as iproute2.
func share() error {
	if err := os.MkdirAll(Dir, 0o755); err != nil {
		return err
	}
	lock, err := os.Open(Dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return err
	}
	err = unix.Mount("", Dir, "none", unix.MS_SHARED|unix.MS_REC, "")
	if !errors.Is(err, unix.EINVAL) { // EINVAL: not a mount yet
		return err
	}
	if err := unix.Mount(Dir, Dir, "none", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	return unix.Mount("", Dir, "none", unix.MS_SHARED|unix.MS_REC, "")
}

// unsupported converts a refusal by the kernel to a *vitrine.Unsupported.
func unsupported(err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EROFS):
		return &vitrine.Unsupported{
			What:    "network namespaces",
			Missing: "the privilege (CAP_SYS_ADMIN): " + err.Error(),
			Do:      "run as root, or share the host's network",
		}
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS):
		return &vitrine.Unsupported{
			What:    "network namespaces",
			Missing: "the kernel option CONFIG_NET_NS: " + err.Error(),
		}
	}
	return err
}
