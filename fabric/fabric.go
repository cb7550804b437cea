// Package fabric defines the contract for wiring instances to each other. Each
// kind of wiring is one folder below this one and passes the suite in
// fabrictest.
package fabric

import (
	"context"
	"net/netip"
)

// A Port is an instance to wire.
type Port struct {
	Instance  string // "sprout-1"; unique in the run
	Component string // "sprout"; empty: the part of Instance before "-" and the number
	NetNS     string // path of its network namespace; empty: the host's
}

// An Endpoint is where every other instance of the run reaches a wired
// instance.
type Endpoint struct {
	Addr      netip.Addr
	Interface string // inside the instance: "eth0"; "lo" for loopback addresses
}

// A Fabric wires the instances of one run. Its methods may be called from any
// goroutine.
type Fabric interface {
	// Attach gives the instance an interface and an address that no other instance
	// has. A freed address is reused as late as possible. Attach is called between
	// Create and Start. When it fails it leaves nothing behind. If the host lacks
	// something that the fabric needs, the error is a *vitrine.Unsupported.
	Attach(ctx context.Context, port Port) (Endpoint, error)

	// Detach removes the instance from the fabric and frees its address.
	// Idempotent.
	Detach(ctx context.Context, instance string) error

	// Close removes everything that the fabric made. Idempotent.
	Close(ctx context.Context) error
}

// A Mirrorer is a Fabric that can copy the traffic of one instance to another,
// for functions that only listen.
type Mirrorer interface {
	// Mirror copies the frames that pass the port of one attached instance, in
	// both directions, to the port of another. It ends when either instance is
	// detached. If the host or the fabric cannot mirror, the error is a
	// *vitrine.Unsupported.
	Mirror(ctx context.Context, of, to string) error
}

// An Ender is a Fabric whose links need processes of the run.
type Ender interface {
	// Ended returns an error that says which process has ended, and why. It returns
	// nil if none has. It does not wait for other methods, such as a slow Attach.
	Ended() error
}

// A Chainer is a Fabric whose own rules can forward along a chain of instances.
type Chainer interface {
	// Chain steers every packet that an instance of the path sends to the next
	// instance of the path, whatever its destination address. It replaces the
	// previous chain. An empty path only removes the previous chain.
	Chain(ctx context.Context, path []string) error
}

// Ended returns an error if a process that the fabric's links need has ended. The fabric may be
// nil.
func Ended(f Fabric) error {
	if e, can := f.(Ender); can {
		return e.Ended()
	}
	return nil
}
