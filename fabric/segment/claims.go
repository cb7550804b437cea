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

// Claims keep runs from giving out the same addresses of a host. An abstract
// Unix socket stands for an address: its name can be bound once in a network
// namespace, whoever the user is, and the kernel frees it however the process
// ends, so nothing is left to clean. The host is the namespace of the thread
// that calls NewClaims.
type Claims struct{ here *os.File }

// NewClaims makes claims.
func NewClaims() (*Claims, error) {
	here, err := OpenHere()
	if err != nil {
		return nil, err
	}
	return &Claims{here}, nil
}

// Close lets go of the host's namespace; what was taken stays so. Idempotent.
func (c *Claims) Close() error {
	if c == nil || c.here == nil {
		return nil
	}
	here := c.here
	c.here = nil
	return here.Close()
}

// Take takes an address until the claim is closed; nil when another has it.
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

// onHost calls do on a thread in the host's network namespace. Threads are,
// unless a test stands in the way, so that no privilege is needed.
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
