package director

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"vitrine/director/client"
	"vitrine/internal/runstate"
)

// openLocal opens or takes over the unix socket of the control interface. If the default
// socket cannot be created, the director serves without one.
func (d *Director) openLocal(c *Config) error {
	path := c.Control.Socket
	var err error
	if path == "" {
		if path, err = d.defaultSocket(); err != nil {
			d.log.Warn("no unix socket for control: changes need a token or a client certificate", "error", err)
			return nil
		}
	}
	if err = fits(path); err != nil && c.Control.Socket != "" {
		return c.file.BadInput(err.Error(), "want a shorter path", "control", "socket")
	}
	if err == nil {
		d.local, err = d.options.Handover.listenLocal(path, func(network, path string) (l net.Listener, err error) {
			l, err = openSocket(network, path)
			d.madeSocket = err == nil
			return l, err
		})
	}
	if err == nil {
		d.socket = path
		d.socketFile, _ = os.Lstat(path) // nil if somebody has removed it
		return nil
	}
	if c.Control.Socket != "" {
		return fmt.Errorf("listen for control at %s: %w", path, err)
	}
	d.log.Warn("no unix socket for control: changes need a token or a client certificate", "error", err)
	return nil
}

// defaultSocket returns where this user's clients look for the socket of the control
// address.
func (d *Director) defaultSocket() (string, error) {
	at, err := netip.ParseAddrPort(d.control.Addr().String())
	if err != nil {
		return "", err
	}
	if err := runstate.MakeRoot(runstate.DefaultRoot()); err != nil {
		return "", err
	}
	path := client.SocketPath(at)
	return path, os.MkdirAll(filepath.Dir(path), 0o700)
}

const (
	longestSocket = 107                  // bytes of a path, unix(7)
	madeSocket    = "/.new-4294967295/s" // the longest temporary name of a socket in openSocket
)

// fits returns an error if a path is too long for a unix socket.
func fits(path string) error {
	if made := len(filepath.Dir(path)) + len(madeSocket); len(path) > longestSocket || made > longestSocket {
		return fmt.Errorf("%s is too long for a unix socket: it may have %d bytes, and its folder %d", path, longestSocket, longestSocket-len(madeSocket))
	}
	return nil
}

// openSocket creates a unix socket that only its owner may use. It creates the socket in
// a new folder and then moves it, so that nobody connects before its mode is set. It
// replaces the socket of a dead director.
func openSocket(network, path string) (net.Listener, error) {
	if old, err := os.Lstat(path); err == nil && old.Mode().Type() != fs.ModeSocket {
		return nil, fmt.Errorf("%s exists and is not a socket: remove it, or set another path under control.socket", path)
	}
	switch c, err := (&net.Dialer{Timeout: time.Second}).Dial(network, path); {
	case err == nil:
		return nil, errors.Join(fmt.Errorf("%s belongs to another director: set another path under control.socket", path), c.Close())
	case !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, fs.ErrNotExist): // its queue is full, or it is another user's
		return nil, fmt.Errorf("%s may belong to another director: set another path under control.socket: %w", path, err)
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
	l.SetUnlinkOnClose(false) // the socket is moved
	err = os.Chmod(made, 0o600)
	if err == nil {
		err = os.Rename(made, path)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// removeSocket removes the unix socket, unless another director has put its own there. No
// other process may serve the socket.
func (d *Director) removeSocket() {
	if now, err := os.Lstat(d.socket); err != nil || !os.SameFile(now, d.socketFile) {
		return
	}
	d.socketFile = nil // a later file may have the same inode
	if err := os.Remove(d.socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.log.Warn("remove the unix socket of control", "error", err)
	}
}
