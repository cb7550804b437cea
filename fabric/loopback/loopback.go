// Package loopback wires instances that share the host's network: each has an
// address of its own in 127.0.0.0/8, all of which the host answers to. It needs
// no privilege.
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

// NetworkingModel is what the fabric is, in the words of
// draft-ietf-bmwg-containerized-infra.
const NetworkingModel = "none: the host's own network stack"

// Config is what a loopback fabric needs.
type Config struct {
	Run *runstate.Run // whose instances it wires
}

// A Fabric hands out addresses by blocks of 254.
type Fabric struct {
	run string

	mu       sync.Mutex
	closed   bool
	blocks   int          // asked for so far, those that were taken included
	claims   []net.Conn   // of the blocks it has
	fresh    []netip.Addr // of the last block, not given out yet
	returned []netip.Addr // given out and free again
	attached map[string]netip.Addr
}

var _ fabric.Fabric = (*Fabric)(nil)

// New makes a fabric for a run.
func New(config Config) *Fabric {
	return &Fabric{run: config.Run.ID, attached: make(map[string]netip.Addr)}
}

// Attach gives the instance an address. One that was given out before is given
// only when there is no other.
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
		return netip.Addr{}, errors.New("it is attached already")
	}
	if len(f.fresh) == 0 {
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

// claim takes a block, 127.x.y.0/24, that no other run has: an abstract Unix
// socket stands for it. Its name can be bound once in a network namespace, the
// very extent of the addresses, whoever the user is, and the kernel frees it
// however the process ends, so nothing is left to clean.
func (f *Fabric) claim() error {
	const x, y = 254, 256 // 127.0.0.0/16 is left to others, and so is 127.255.0.0/16
	for ; f.blocks < x*y; f.blocks++ {
		h := fnv.New32a()
		fmt.Fprint(h, f.run)
		n := (h.Sum32()%(x*y) + uint32(f.blocks)*7919) % (x * y) // 7919: prime, so that all blocks come
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
