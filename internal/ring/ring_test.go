package ring_test

import (
	"bytes"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/internal/netns"
	"vitrine/internal/ring"
)

const slots, head = 128, 4

// TestRing checks that frames come in order, even where the ring wraps, and that frames without a
// free slot are counted.
func TestRing(t *testing.T) {
	if err := netns.Possible(); vitrine.IsUnsupported(err) {
		t.Skip(err)
	}
	err := netns.Try(func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(lo); err != nil {
			return err
		}
		r, err := ring.Open(ring.Config{
			Interface: lo.Attrs().Index, Slots: slots, SlotSize: 1 << 11, Head: head,
			Options: []ring.Option{{Level: unix.SOL_PACKET, Name: unix.PACKET_RESERVE, Value: head}},
		})
		if err != nil {
			return err
		}
		defer r.Close()
		c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			return err
		}
		defer c.Close()
		for round := range 3 {
			sent := slots/2 + round*slots/2 // the last round sends more than the ring holds
			for i := range sent {
				if _, err := c.WriteTo(fmt.Appendf(nil, "%d of %d", i, sent), c.LocalAddr()); err != nil {
					return err
				}
			}
			got, err := drain(r, sent)
			if err != nil {
				return err
			}
			lost, err := r.Dropped()
			if err != nil {
				return err
			}
			if got != min(sent, slots) || int(lost) != sent-got {
				return fmt.Errorf("received %d frames of %d, %d lost", got, sent, lost)
			}
		}
		return r.Err()
	})
	if err != nil {
		t.Fatal(err)
	}
}

// drain reads and counts the waiting frames.
func drain(r *ring.Ring, sent int) (n int, err error) {
	for ; ; n++ {
		var f ring.Frame
		slot, ok := r.Next(&f)
		if !ok {
			return n, nil
		}
		if want := fmt.Appendf(nil, "%d of %d", n, sent); !bytes.HasSuffix(f.Bytes, want) || f.Length != len(f.Bytes)-head ||
			f.Tag != 0 || f.Queued || time.Since(time.Unix(0, f.Arrived)).Abs() > time.Hour {
			return n, fmt.Errorf("frame %+v does not end in %q", f, want)
		}
		r.Release(slot)
	}
}
