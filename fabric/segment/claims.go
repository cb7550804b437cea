package segment

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"vitrine/internal/netns"
)

// Claims keep runs from giving out the same addresses of a host. A claim binds
// an abstract Unix socket named after the address. Such a name can be bound
// once in a network namespace, by any user. The kernel frees it however the
// process ends, so there is nothing to clean. The host is the network namespace
// of the thread that calls NewClaims.
type Claims struct{ here *os.File }

// NewClaims returns claims in the calling thread's network namespace.
func NewClaims() (*Claims, error) {
	here, err := OpenHere()
	if err != nil {
		return nil, err
	}
	return &Claims{here}, nil
}

// Close closes the host's namespace. Addresses that were taken stay taken.
// Idempotent, also on nil.
func (c *Claims) Close() error {
	if c == nil || c.here == nil {
		return nil
	}
	here := c.here
	c.here = nil
	return here.Close()
}

// Take takes an address until the claim is closed. It returns nil if the
// address is already taken.
func (c *Claims) Take(addr netip.Addr) (claim net.Conn, err error) {
	err = c.onHost(func() (err error) {
		claim, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: "@vitrine/" + addr.String()})
		return err
	})
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("claiming the address %s: %w", addr, err)
	}
	return claim, nil
}

// onHost calls do on a thread in the host's network namespace. The calling
// thread is already in it, except in tests, so this needs no privilege.
func (c *Claims) onHost(do func() error) error {
	thread, err := os.Stat("/proc/thread-self/ns/net")
	if err != nil {
		return fmt.Errorf("looking at a thread's network namespace: %w", err)
	}
	its, err := c.here.Stat()
	if err != nil {
		return fmt.Errorf("looking at the host's network namespace: %w", err)
	}
	if os.SameFile(thread, its) {
		return do()
	}
	return netns.Do(fmt.Sprintf("/proc/self/fd/%d", c.here.Fd()), do)
}
