package client

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"vitrine/internal/runstate"
)

// socketEnd is the suffix of socket names.
const socketEnd = ".sock"

// SocketPath returns the path of the unix socket of this user's director with the given
// control address. It is specific to the current network namespace, because each namespace
// has its own addresses.
func SocketPath(control netip.AddrPort) string {
	return filepath.Join(socketFolder(runstate.DefaultRoot()), namespace()+control.String()+socketEnd)
}

func socketFolder(root string) string { return filepath.Join(root, "director") }

// namespace returns the name prefix for this network namespace.
func namespace() string {
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/net", &st); err != nil {
		return "0-" // without /proc, all namespaces count as one
	}
	return fmt.Sprintf("%d-", st.Ino)
}

// Sockets returns the unix sockets of this user's running directors in this network
// namespace.
func Sockets(ctx context.Context) []string { return sockets(ctx, runstate.DefaultRoot()) }

func sockets(ctx context.Context, root string) (live []string) {
	all, err := filepath.Glob(filepath.Join(socketFolder(root), namespace()+"*"+socketEnd))
	if err != nil || runstate.Private(root) != nil {
		return nil
	}
	slices.Sort(all)
	for _, path := range all {
		if c, err := dialSocket(ctx, path); err == nil {
			_ = c.Close() // nothing was sent
			live = append(live, path)
		}
	}
	return live
}

func dialSocket(ctx context.Context, path string) (net.Conn, error) {
	return (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "unix", path)
}

// dialControl connects to the director with the control address. It tries the director's
// unix socket first, where this user needs no token, and then TCP.
func dialControl(ctx context.Context, network, address string) (net.Conn, error) {
	if port, ok := strings.CutPrefix(address, "localhost:"); ok {
		address = "127.0.0.1:" + port
	}
	if at, err := netip.ParseAddrPort(address); err == nil && runstate.Private(runstate.DefaultRoot()) == nil {
		path := SocketPath(at)
		if _, err := os.Lstat(path); err == nil {
			if c, err := dialSocket(ctx, path); err == nil {
				return c, nil // the socket file of a dead director remains, but refuses connections
			}
		}
	}
	return (&net.Dialer{Timeout: timeout}).DialContext(ctx, network, address)
}
