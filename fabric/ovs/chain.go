package ovs

import (
	"context"
	"fmt"
	"slices"

	"vitrine"
	"vitrine/fabric"
)

var _ fabric.Chainer = (*Fabric)(nil)

// Chain steers everything that the first instance of the path sends to the
// second, everything that the second sends to the third, and so on, whatever
// its destination. The destination MAC address becomes the next instance's. The
// source MAC address becomes the first instance's, so that the last instance
// answers the first directly, past the chain. ARP is not steered. Each instance
// of the path must be attached and may appear only once. Detaching one of them
// removes the chain.
//
// A chain replaces the previous one; the empty path only removes that. When
// Chain returns, no frame follows the previous chain any more. This takes about
// a second.
func (f *Fabric) Chain(ctx context.Context, path []string) error {
	if err := f.setChain(path); err != nil {
		return err
	}
	err := f.install(ctx)
	if err == nil {
		err = f.server.explain(f.client.settle(ctx))
	}
	if err != nil {
		return fmt.Errorf("steering along %q: %w", path, err)
	}
	return nil
}

func (f *Fabric) setChain(path []string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	bad := func(want string) error {
		return &vitrine.BadInput{File: "chain", Found: fmt.Sprintf("%q", path), Want: want}
	}
	if len(path) == 1 {
		return bad("at least two instances")
	}
	for i, instance := range path {
		if _, has := f.ports[instance]; !has {
			return bad(instance + " attached before the chain is set")
		}
		if slices.Contains(path[:i], instance) {
			return bad(instance + " only once: an instance has one next instance")
		}
	}
	f.chain = slices.Clone(path)
	return nil
}
