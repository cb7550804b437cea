package director

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"vitrine/director/client"
	"vitrine/internal/access"
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
	if err = access.SocketFits(path); err != nil && c.Control.Socket != "" {
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

// openSocket creates a unix socket that only its owner may use.
func openSocket(network, path string) (net.Listener, error) {
	return access.OpenSocket(network, path, "director", "set another path under control.socket")
}

// warnOfLostSocket logs once that somebody has removed the unix socket. Only tick calls it.
func (d *Director) warnOfLostSocket() {
	if d.socket == "" || d.lostSocket {
		return
	}
	if _, err := os.Lstat(d.socket); errors.Is(err, fs.ErrNotExist) {
		d.lostSocket = true
		d.log.Warn("the unix socket of control is gone, as after its user's last session: changes need a token or a client certificate. "+
			"Run loginctl enable-linger, or set control.socket, and start again", "socket", d.socket)
	}
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
