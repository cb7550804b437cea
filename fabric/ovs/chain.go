package ovs

import (
	"context"
	"fmt"
	"slices"

	"vitrine"
	"vitrine/fabric"
)

var _ fabric.Chainer = (*Fabric)(nil)

// Chain steers: all that the first instance of the path sends goes to the
// second, all that the second sends to the third, and so on, whatever it is
// addressed to. The destination's MAC address becomes the next one's, the source's the
// first one's, so that the last answers it directly, past the chain. ARP is not
// steered. Each instance of the path must be attached, and is in it once;
// an instance that is detached takes the chain with it.
//
// A chain replaces the one before; the empty path only removes it. When Chain
// returns nothing goes by the old one any more: that takes about a second.
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
		return bad("two instances at least")
	}
	for i, instance := range path {
		if _, has := f.ports[instance]; !has {
			return bad(instance + " to be attached first")
		}
		if slices.Contains(path[:i], instance) {
			return bad(instance + " once: what it sends can go to one next instance only")
		}
	}
	f.chain = slices.Clone(path)
	return nil
}
