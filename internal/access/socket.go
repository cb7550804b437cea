package access

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

const (
	longestSocket = 107                  // bytes of a path, unix(7)
	madeSocket    = "/.new-4294967295/s" // longest temporary name that OpenSocket gives a socket
)

// SocketFits returns an error if a path is too long for a unix socket.
func SocketFits(path string) error {
	if made := len(filepath.Dir(path)) + len(madeSocket); len(path) > longestSocket || made > longestSocket {
		return fmt.Errorf("%s is too long for a unix socket: it may have %d bytes, and its folder %d", path, longestSocket, longestSocket-len(madeSocket))
	}
	return nil
}

// OpenSocket creates a unix socket that only its owner may use. It creates the socket in a new
// folder, sets the mode, and moves the socket to path, so that nobody can connect before the mode
// is set. It replaces the socket of a dead service. In errors, service is the kind of service, and
// other is the advice if another service has the path.
func OpenSocket(network, path, service, other string) (net.Listener, error) {
	if old, err := os.Lstat(path); err == nil && old.Mode().Type() != fs.ModeSocket {
		return nil, fmt.Errorf("%s exists and is not a socket: remove it, or %s", path, other)
	}
	switch c, err := (&net.Dialer{Timeout: time.Second}).Dial(network, path); {
	case err == nil:
		return nil, errors.Join(fmt.Errorf("%s belongs to another %s: %s", path, service, other), c.Close())
	case !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, fs.ErrNotExist): // the backlog is full, or the socket belongs to another user
		return nil, fmt.Errorf("%s may belong to another %s: %s: %w", path, service, other, err)
	}
	dir, err := os.MkdirTemp(filepath.Dir(path), ".new-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	made := filepath.Join(dir, "s")
	l, err := net.ListenUnix(network, &net.UnixAddr{Name: made, Net: network})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // the socket is no longer at its original path
	err = os.Chmod(made, 0o600)
	if err == nil {
		err = os.Rename(made, path)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}
