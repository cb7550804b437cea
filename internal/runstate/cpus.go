package runstate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// CPULockDir is the folder of the CPUs' lock files, which all users of the host share.
const CPULockDir = "/dev/shm"

const (
	cpuLockName    = "vitrine-cpu-"
	mostLockText   = 4096 // most bytes to read from a lock file
	mostSocketName = 90   // most bytes of a lock file's path in the name of its socket, which has at most 108 in all
	lockPause      = 100 * time.Millisecond
)

// An Owner is the run that holds a CPU.
type Owner struct {
	Run     string   `json:"run"` // label
	PID     int      `json:"pid"`
	Command []string `json:"command"`
}

// String describes the owner for people. It quotes text from the lock file, which another user may
// have written.
func (o Owner) String() string {
	return fmt.Sprintf("run %q, pid %d: %q", o.Run, o.PID, o.Command)
}

// A CPUBusyError is the error for a CPU that another run holds.
type CPUBusyError struct {
	CPU   int
	Owner Owner // zero: unknown
}

func (e *CPUBusyError) Error() string {
	if e.Owner.PID == 0 {
		return fmt.Sprintf("another run measures on CPU %d", e.CPU)
	}
	return fmt.Sprintf("another run measures on CPU %d: %s", e.CPU, e.Owner)
}

// CPULocks are the CPUs that this process holds. The kernel drops the locks when the process ends,
// however it ends. The files stay.
//
// A CPU has two locks: a file, and an abstract Unix socket that is named after the file. systemd-logind
// removes an ordinary user's files in /dev/shm at the end of the last session (RemoveIPC= of logind.conf(5)),
// also while another user's run holds their locks. Nobody can remove the socket. Containers that share
// the folder, but not the network namespace, see only the file.
type CPULocks struct{ held []io.Closer }

// LockCPUs locks the CPUs for the owner, by files in the folder and by sockets. It locks all of them or
// none. If another run holds one of them, the error is a *CPUBusyError.
func LockCPUs(dir string, cpus []int, owner Owner) (_ *CPULocks, err error) {
	text, err := json.Marshal(owner)
	if err != nil {
		return nil, err
	}
	l := &CPULocks{}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Close())
		}
	}()
	for _, cpu := range slices.Compact(slices.Sorted(slices.Values(cpus))) {
		path := filepath.Join(dir, cpuLockName+strconv.Itoa(cpu))
		f, err := openCPULock(path)
		if err != nil {
			return nil, fmt.Errorf("lock CPU %d: %w", cpu, err)
		}
		l.held = append(l.held, f)
		if err := flock(f, unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
			return nil, &CPUBusyError{CPU: cpu, Owner: readOwner(f)}
		} else if err != nil {
			return nil, fmt.Errorf("lock CPU %d by %s: %w", cpu, f.Name(), err)
		}
		socket, err := bindCPULock(path)
		if errors.Is(err, unix.EADDRINUSE) { // the file of the run that holds the CPU was removed
			return nil, &CPUBusyError{CPU: cpu}
		}
		if err != nil {
			return nil, fmt.Errorf("lock CPU %d by a socket: %w", cpu, err)
		}
		l.held = append(l.held, socket)
		writeOwner(f, text)
	}
	return l, nil
}

// WaitForCPUs is like LockCPUs, but tries until no other run holds any of the CPUs, or until the
// context ends. While it waits it holds no lock, so two waiting runs cannot block each other. It
// calls waiting once for each owner that it waits for.
func WaitForCPUs(ctx context.Context, dir string, cpus []int, owner Owner, waiting func(*CPUBusyError)) (*CPULocks, error) {
	reported := ""
	for {
		l, err := LockCPUs(dir, cpus, owner)
		busy, ok := errors.AsType[*CPUBusyError](err)
		if !ok {
			return l, err
		}
		if text := busy.Error(); text != reported {
			reported = text
			waiting(busy)
		}
		select {
		case <-time.After(lockPause):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Close unlocks the CPUs. It may be called more than once, and on nil.
func (l *CPULocks) Close() error {
	if l == nil {
		return nil
	}
	var errs []error
	for _, lock := range slices.Backward(l.held) { // a socket before its file: the file names the owner while the socket is bound
		errs = append(errs, lock.Close())
	}
	l.held = nil
	return errors.Join(errs...)
}

// openCPULock opens the lock file, or creates it with access for every user. It needs two steps,
// because in a sticky folder the kernel refuses O_CREAT on a file of another user
// (fs.protected_regular, proc_sys_fs(5)).
func openCPULock(path string) (*os.File, error) {
	const flags = os.O_RDWR | unix.O_NOFOLLOW
	for range 3 {
		f, err := os.OpenFile(path, flags, 0)
		if !errors.Is(err, fs.ErrNotExist) {
			return f, err
		}
		f, err = os.OpenFile(path, flags|os.O_CREATE|os.O_EXCL, 0o666)
		if errors.Is(err, fs.ErrExist) { // another run has just created it
			continue
		}
		if err == nil {
			err = f.Chmod(0o666) // undoes the umask
		}
		return f, err
	}
	return nil, fmt.Errorf("%s is created and removed again and again", path)
}

// bindCPULock binds the socket of a lock file.
func bindCPULock(path string) (*net.UnixConn, error) {
	path = path[max(0, len(path)-mostSocketName):] // the end tells the folders of tests apart
	return net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: "@vitrine" + path})
}

// writeOwner writes the owner into a file that is locked. After an error, as on a full disk, the lock still holds, and
// messages of other processes lack the owner.
func writeOwner(f *os.File, text []byte) {
	_ = f.Truncate(0)
	_, _ = f.WriteAt(text, 0)
}

// readOwner reads the owner from a lock file. It returns zero if the file names no owner.
func readOwner(f *os.File) (o Owner) {
	text, err := io.ReadAll(io.NewSectionReader(f, 0, mostLockText))
	if err != nil || json.Unmarshal(text, &o) != nil {
		return Owner{}
	}
	return o
}
