// Package fabric says how instances are wired to each other. Each kind of
// wiring is one folder below this one and passes the suite in fabrictest.
package fabric

import (
	"context"
	"net/netip"
)

// A Port is an instance to wire.
type Port struct {
	Instance string // "sprout-1"; unique in the run
	NetNS    string // path of its network namespace; empty: the host's
}

// An Endpoint is how a wired instance is reached from every other one.
type Endpoint struct {
	Addr      netip.Addr
	Interface string // inside the instance: "eth0"; "lo" for loopback addresses
}

// A Fabric wires the instances of one run. Its methods may be called from any
// goroutine.
type Fabric interface {
	// Attach gives the instance an interface and an address that no other
	// instance of the run has had. It is called between Create and Start. When it
	// fails it leaves nothing behind; what the host cannot do is a
	// *vitrine.Unsupported.
	Attach(ctx context.Context, port Port) (Endpoint, error)

	// Detach takes the instance off the fabric; idempotent. Its address may be
	// given out again.
	Detach(ctx context.Context, instance string) error

	// Close removes all that the fabric made. Idempotent.
	Close(ctx context.Context) error
}

// A Mirrorer is a Fabric that can show one instance the traffic of another, for
// functions that only listen.
type Mirrorer interface {
	// Mirror copies what passes the port of one attached instance, in both
	// directions, to the port of another. It ends when either is detached. Where
	// the host or the fabric cannot, it is a *vitrine.Unsupported.
	Mirror(ctx context.Context, of, to string) error
}

// A Chainer is a Fabric whose own rules can forward along a chain of instances.
type Chainer interface {
	// Chain steers what each instance of the path sends to the one after it,
	// whatever it is addressed to. It replaces the chain before; the empty path
	// only removes that.
	Chain(ctx context.Context, path []string) error
}
