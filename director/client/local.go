package client

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
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
// unix socket first, where this user needs no token, and then TCP. The name localhost means
// both loopback addresses.
func dialControl(ctx context.Context, network, address string) (net.Conn, error) {
	all := []string{address}
	if port, ok := strings.CutPrefix(address, "localhost:"); ok {
		all = []string{"127.0.0.1:" + port, "[::1]:" + port}
	}
	for _, text := range all {
		if at, err := netip.ParseAddrPort(text); err == nil && runstate.Private(runstate.DefaultRoot()) == nil {
			if c, err := dialSocket(ctx, SocketPath(at)); err == nil {
				return c, nil // the socket file of a dead director remains, but refuses connections
			}
		}
	}
	var first error
	for _, to := range all {
		c, err := (&net.Dialer{Timeout: timeout}).DialContext(ctx, network, to)
		if err == nil {
			return c, nil
		}
		first = cmp.Or(first, err)
	}
	return nil, first
}
