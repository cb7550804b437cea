// Package loopback wires instances that share the host's network. Each instance
// has an address of its own in 127.0.0.0/8; the host answers to all of these.
// It needs no privilege.
package loopback

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"
	"sync"

	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/fabric"
	"vitrine/internal/runstate"
)

// Config configures a loopback fabric.
type Config struct {
	Run *runstate.Run // the run whose instances are wired
}

// A Fabric claims blocks of 254 addresses and gives the addresses out.
type Fabric struct {
	run string

	mu       sync.Mutex
	closed   bool
	blocks   int          // number of blocks tried so far, including blocks of other runs
	claims   []net.Conn   // on the blocks that this fabric has
	fresh    []netip.Addr // addresses of the last block that were never given out
	returned []netip.Addr // addresses that were given out and are free again
	attached map[string]netip.Addr
}

var _ fabric.Fabric = (*Fabric)(nil)

// New makes a fabric for a run.
func New(config Config) *Fabric {
	return &Fabric{run: config.Run.ID, attached: make(map[string]netip.Addr)}
}

// The fabric reuses addresses once this many are free. Each block costs a file
// descriptor, so a run of months must not claim all blocks.
const reuse = 1 << 14

// Attach gives the instance an address. It reuses a freed address only when reuse
// addresses are free, or no block is left.
func (f *Fabric) Attach(ctx context.Context, port fabric.Port) (fabric.Endpoint, error) {
	addr, err := f.attach(ctx, port)
	if err != nil {
		return fabric.Endpoint{}, fmt.Errorf("attaching %s to the loopback fabric: %w", port.Instance, err)
	}
	return fabric.Endpoint{Addr: addr, Interface: "lo"}, nil
}

func (f *Fabric) attach(ctx context.Context, port fabric.Port) (netip.Addr, error) {
	if err := context.Cause(ctx); err != nil {
		return netip.Addr{}, err
	}
	if port.NetNS != "" {
		return netip.Addr{}, &vitrine.BadInput{File: "fabric loopback", Found: fmt.Sprintf("%s has a network namespace, %s", port.Instance, port.NetNS),
			Want: "an instance that shares the host's network; for others use the fabric bridge"}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return netip.Addr{}, errors.New("the fabric is closed")
	}
	if _, has := f.attached[port.Instance]; has {
		return netip.Addr{}, errors.New("it is already attached")
	}
	if len(f.fresh) == 0 && len(f.returned) < reuse {
		if err := f.claim(); err != nil && len(f.returned) == 0 {
			return netip.Addr{}, err
		}
	}
	from := &f.fresh
	if len(*from) == 0 {
		from = &f.returned
	}
	addr := (*from)[0]
	*from = (*from)[1:]
	f.attached[port.Instance] = addr
	return addr, nil
}

// claim takes a block, 127.x.y.0/24, that no other run has, by binding an
// abstract Unix socket named after it. Like the addresses, such a name belongs
// to a network namespace, where it can be bound once, by any user. The kernel
// frees the name however the process ends, so there is nothing to clean.
func (f *Fabric) claim() error {
	const x, y = 254, 256 // 127.0.0.0/16 and 127.255.0.0/16 are left to others
	for ; f.blocks < x*y; f.blocks++ {
		h := fnv.New32a()
		fmt.Fprint(h, f.run)
		n := (h.Sum32()%(x*y) + uint32(f.blocks)*7919) % (x * y) // 7919 shares no factor with x*y, so this visits all blocks
		block := [4]byte{127, byte(1 + n/y), byte(n % y), 0}
		claim, err := net.ListenUnixgram("unixgram", &net.UnixAddr{
			Net: "unixgram", Name: "@vitrine/" + netip.AddrFrom4(block).String(),
		})
		if errors.Is(err, unix.EADDRINUSE) {
			continue
		}
		if err != nil {
			return fmt.Errorf("claiming loopback addresses: %w", err)
		}
		f.blocks++
		f.claims = append(f.claims, claim)
		for host := range byte(254) {
			block[3] = host + 1
			f.fresh = append(f.fresh, netip.AddrFrom4(block))
		}
		return nil
	}
	return errors.New("claiming loopback addresses: other runs have them all")
}

// Detach frees the instance's address.
func (f *Fabric) Detach(_ context.Context, instance string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if addr, has := f.attached[instance]; has {
		delete(f.attached, instance)
		f.returned = append(f.returned, addr)
	}
	return nil
}

// Close frees all addresses.
func (f *Fabric) Close(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	var err error
	for _, claim := range f.claims {
		err = errors.Join(err, claim.Close())
	}
	f.claims = nil
	clear(f.attached)
	return err
}
