package ovs

import (
	"context"
	"fmt"

	"vitrine"
)

// Mirror copies the frames that pass the port of one instance, in both
// directions, to the port of another. Open vSwitch reserves the listener's port
// for copies. This affects frames that are forwarded by MAC address: all with
// rules: normal, and ARP always. Other instances' frames do not reach the
// listener any more, and frames that the listener sends are dropped.
func (f *Fabric) Mirror(ctx context.Context, of, to string) error {
	f.mu.Lock()
	from, hasFrom := f.ports[of]
	listener, hasListener := f.ports[to]
	done := f.mirrors[[2]string{of, to}]
	f.mu.Unlock()
	switch {
	case !hasFrom:
		return fmt.Errorf("mirroring %s to %s: %s is not attached to the ovs fabric", of, to, of)
	case !hasListener:
		return fmt.Errorf("mirroring %s to %s: %s is not attached to the ovs fabric", of, to, to)
	case of == to:
		return &vitrine.BadInput{File: "mirror", Found: of + " mirrored to itself", Want: "another instance as the listener"}
	case done:
		return nil
	}
	_, err := f.client.vsctl(ctx,
		"--id=@of", "get", "Port", from.name, "--",
		"--id=@to", "get", "Port", listener.name, "--",
		"--id=@mirror", "create", "Mirror", "name="+mirrorName(from, listener),
		"select_src_port=@of", "select_dst_port=@of", "output_port=@to", "--",
		"add", "Bridge", f.bridge, "mirrors", "@mirror")
	if err != nil {
		return fmt.Errorf("mirroring %s to %s: %w", of, to, f.server.explain(err))
	}
	f.mu.Lock()
	f.mirrors[[2]string{of, to}] = true
	f.mu.Unlock()
	return nil
}

// mirrorName returns the name of a mirror in the database and on command lines.
func mirrorName(of, to port) string { return fmt.Sprintf("m%dto%d", of.number, to.number) }
