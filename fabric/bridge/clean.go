package bridge

import (
	"context"
	"fmt"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"vitrine/internal/netns"
	"vitrine/internal/runs"
	"vitrine/substrate"
)

// Clean removes the fabrics of dead runs.
func (f *Fabric) Clean(context.Context) (removed []string, err error) {
	dead, err := runs.Dead(f.run.Root)
	if err != nil {
		return nil, err
	}
	for _, run := range dead {
		if _, err := os.Stat(netns.Path(name(run))); err != nil {
			continue
		}
		if err := netns.Delete(name(run)); err != nil {
			return removed, err
		}
		removed = append(removed, "network namespace "+name(run))
	}
	return removed, nil
}

// Check says whether this host can have bridge fabrics. It tries, in a
// namespace that is gone at once.
func Check(context.Context) []substrate.Check {
	c := substrate.Check{Name: "bridge: veth and bridge", OK: true, Detail: "instances at a bridge, " + network.String()}
	err := netns.Try(func() error {
		links, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer links.Close()
		if _, err := makeBridge(links); err != nil {
			return err
		}
		veth := netlink.NewVeth(netlink.LinkAttrs{Name: "p1", TxQLen: -1})
		veth.PeerName = inside
		if err := links.LinkAdd(veth); err != nil {
			return fmt.Errorf("making a pair of interfaces: %w", err)
		}
		return nil
	})
	if err = unsupported(err); err != nil {
		c.OK, c.Detail, c.Missing = false, "", err.Error()
	}
	return []substrate.Check{c}
}

var _ substrate.Cleaner = (*Fabric)(nil)
