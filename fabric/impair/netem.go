package impair

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/fabric/segment"
	"vitrine/internal/netns"
)

// suitsNetem reports whether tc-netem(8) can do what the link asks for and keep
// packets in order. netem's jitter reorders packets. Its queue for a rate
// counts packets, including those that only travel. It impairs all packets of an
// interface, whoever sends them.
func (l Link) suitsNetem() bool { return l.Jitter == 0 && l.Rate == 0 && len(l.Peers) == 0 }

// netemLimit bounds the packets that travel at once: 10 s of 50,000 packets a
// second.
const netemLimit = 500_000

// hasNetem returns nil if the kernel has netem and can redirect frames through
// it. hasNetem tries a splice in a temporary namespace.
func hasNetem() error {
	err := netns.Try(func() error {
		s := &splice{outer: "o0", inner: "i0"}
		veth := netlink.NewVeth(netlink.LinkAttrs{Name: s.outer, TxQLen: -1})
		veth.PeerName = s.inner
		if err := netlink.LinkAdd(veth); err != nil {
			return fmt.Errorf("making a pair of interfaces: %w", err)
		}
		return s.byNetem(Link{Delay: time.Millisecond, Way: Both})
	})
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) {
		return &vitrine.Unsupported{What: "netem", Missing: "a kernel option (CONFIG_NET_SCH_NETEM, CONFIG_NET_SCH_INGRESS, CONFIG_NET_ACT_MIRRED): " + err.Error(),
			Do: "modprobe -a sch_netem sch_ingress act_mirred, or use by: emulator"}
	}
	return unsupported(err)
}

// addNetem makes netem impair the frames that leave by an interface.
func addNetem(link netlink.Link, l Link) error {
	q := netlink.NewNetem(
		netlink.QdiscAttrs{LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
		netlink.NetemQdiscAttrs{Latency: uint32(l.Delay.Microseconds()), Limit: netemLimit},
	)
	// Set here, because the library rounds percentages to 32-bit floating point.
	q.Loss = share32(l.Loss)
	if l.Reorder > 0 {
		q.ReorderProb, q.Gap = share32(l.Reorder), 1
	}
	if err := netlink.QdiscAdd(q); err != nil {
		return fmt.Errorf("adding netem to %s: %w", link.Attrs().Name, err)
	}
	return nil
}

// share32 returns a share in the kernel's unit: 2^32-1 is all.
func share32(share float64) uint32 { return uint32(math.Round(share * math.MaxUint32)) }

// byNetem makes the kernel join the two interfaces of a splice: frames that one
// receives leave by the other, through netem. It runs on a thread in their
// namespace.
func (s *splice) byNetem(l Link) error {
	links, err := segment.Host()
	if err != nil {
		return fmt.Errorf("opening netlink: %w", err)
	}
	defer links.Close()
	outer, err := netlink.LinkByName(s.outer)
	if err != nil {
		return fmt.Errorf("looking for %s: %w", s.outer, err)
	}
	inner, err := netlink.LinkByName(s.inner)
	if err != nil {
		return fmt.Errorf("looking for %s: %w", s.inner, err)
	}
	for _, d := range []struct {
		from, to netlink.Link
		link     Link
	}{{inner, outer, l.on(Out)}, {outer, inner, l.on(In)}} {
		if !d.link.isPlain() {
			if err := addNetem(d.to, d.link); err != nil {
				return err
			}
		}
		if err := segment.Redirect(links, d.from, d.to); err != nil {
			return err
		}
	}
	return nil
}

// netemMade returns what netem counted. It runs on a thread in the splice's
// namespace. netem does not distinguish loss from a lack of room.
func (s *splice) netemMade(instance string, l Link) ([]Made, error) {
	var all []Made
	for _, d := range []struct {
		name string
		link Link
	}{{s.outer, l.on(Out)}, {s.inner, l.on(In)}} {
		made := Made{Instance: instance, Way: d.link.Way, By: Netem, Asked: d.link}
		link, err := netlink.LinkByName(d.name)
		if err != nil {
			return nil, fmt.Errorf("looking for %s: %w", d.name, err)
		}
		qdiscs, err := netlink.QdiscList(link)
		if err != nil {
			return nil, fmt.Errorf("reading the netem counters of %s: %w", d.name, err)
		}
		for _, q := range qdiscs {
			if stats := q.Attrs().Statistics; q.Type() == "netem" && stats != nil {
				made.Sent, made.Bytes, made.Lost = int64(stats.Basic.Packets), int64(stats.Basic.Bytes), int64(stats.Queue.Drops)
				made.Packets = made.Sent + made.Lost
			}
		}
		all = append(all, made)
	}
	return all, nil
}
