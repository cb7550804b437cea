package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"

	"vitrine/fabric"
	"vitrine/fabric/direct"
	"vitrine/fabric/segment"
	"vitrine/internal/netns"
	"vitrine/internal/runstate"
	"vitrine/internal/thread"
	"vitrine/measure/packet"
	"vitrine/testbed"
)

// A cable is a veth pair between the namespaces near and far. All its work, including the
// receiver's, runs on one core.
type cable struct {
	dir     string // for files
	run     *runstate.Run
	fabric  *segment.Segment
	core    int
	names   []string // names of the namespaces to remove
	near    cableEnd
	far     cableEnd
	dropper *ebpf.Program // XDP program at the far end
	dropped link.Link
}

type cableEnd struct {
	netns string // path
	addr  netip.Addr
	mac   net.HardwareAddr
}

// newCable returns a partly built cable together with an error, so that the caller can close it.
func newCable(ctx context.Context) (c *cable, err error) {
	c = &cable{}
	cpus, err := testbed.ShareCPUs(nil, nil)
	if err != nil {
		return c, err
	}
	c.core = cpus.Generator[0]
	if c.dir, err = os.MkdirTemp("", "bench-cable-"); err != nil {
		return c, err
	}
	if c.run, err = runstate.New(runstate.DefaultRoot()); err != nil {
		return c, err
	}
	if c.fabric, err = direct.New(direct.Config{Run: c.run}); err != nil {
		return c, err
	}
	if c.near, err = c.end(ctx, "near-1"); err != nil {
		return c, err
	}
	if c.far, err = c.end(ctx, "far-1"); err != nil {
		return c, err
	}
	for _, end := range []*cableEnd{&c.near, &c.far} { // attaching the second end recreated the first end's interface
		if end.mac, err = end.hardware(); err != nil {
			return c, err
		}
	}
	return c, nil
}

func (c *cable) end(ctx context.Context, name string) (e cableEnd, err error) {
	label := runstate.Name(c.run.ID, name)
	if e.netns, err = netns.Create(label); err != nil {
		return e, err
	}
	c.names = append(c.names, label)
	at, err := c.fabric.Attach(ctx, fabric.Port{Instance: name, NetNS: e.netns})
	e.addr = at.Addr
	return e, err
}

func (e cableEnd) hardware() (mac net.HardwareAddr, err error) {
	err = netns.Do(e.netns, func() error {
		at, err := net.InterfaceByName(segment.Inside)
		if err == nil {
			mac = at.HardwareAddr
		}
		return err
	})
	return mac, err
}

// start starts a peer of our senders in the near namespace, on the same core and with the same
// scheduling as ours.
func (c *cable) start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return netns.Do(c.near.netns, func() error {
		return startOn(cmd, c.core, func() (func(), error) { return thread.Prefer(), nil })
	})
}

// received returns the number of received frames that the end's interface has
// counted.
func (e cableEnd) received() (n uint64, err error) {
	err = netns.Do(e.netns, func() error {
		at, err := netlink.LinkByName(segment.Inside)
		if err == nil {
			n = at.Attrs().Statistics.RxPackets
		}
		return err
	})
	return n, err
}

// dropFrames makes the far end drop every frame on arrival, by an XDP program. No receiver costs
// less, and the cost is the same for every sender.
func (c *cable) dropFrames() (err error) {
	const xdpDrop = 1
	c.dropper, err = ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, xdpDrop), asm.Return()}})
	if err != nil {
		return fmt.Errorf("load the XDP program that drops frames: %w", err)
	}
	return netns.Do(c.far.netns, func() error {
		at, err := net.InterfaceByName(segment.Inside)
		if err != nil {
			return err
		}
		c.dropped, err = link.AttachXDP(link.XDPOptions{Program: c.dropper, Interface: at.Index, Flags: link.XDPDriverMode})
		return err
	})
}

// receiveXDP makes the far end's stack receive frames that XDP programs send. A veth without an
// XDP program of its own does so only with GRO.
func (c *cable) receiveXDP() error {
	return netns.Do(c.far.netns, func() error {
		e, err := ethtool.NewEthtool()
		if err != nil {
			return err
		}
		defer e.Close()
		return e.Change(segment.Inside, map[string]bool{"rx-gro": true})
	})
}

// ends returns the addresses of a stream from the near end to the far end.
func (c *cable) ends() packet.Ends {
	const port = 7001
	return packet.Ends{
		SourceMAC: c.near.mac, DestMAC: c.far.mac,
		Source: netip.AddrPortFrom(c.near.addr, port), Dest: netip.AddrPortFrom(c.far.addr, port),
	}
}

// arrivals counts the frames that arrive at the far end while send runs, and
// returns arrivals per second. send returns how many packets it sent and how
// long it took.
func (c *cable) arrivals(send func() (packets int, took time.Duration, err error)) (rate float64, err error) {
	before, err := c.far.received()
	if err != nil {
		return 0, err
	}
	packets, took, err := send()
	if err != nil {
		return 0, err
	}
	after, err := c.far.received()
	if err != nil {
		return 0, err
	}
	arrived := float64(after - before)
	// The count may include a few frames of the stack's own.
	if arrived > float64(packets)+10 || arrived < float64(packets)*(1-lossAllowed) {
		return 0, fmt.Errorf("%d packets sent, but %.0f arrived", packets, arrived)
	}
	return arrived / took.Seconds(), nil
}

func (c *cable) close() (err error) {
	if c.dropped != nil {
		err = errors.Join(err, c.dropped.Close())
	}
	if c.dropper != nil {
		err = errors.Join(err, c.dropper.Close())
	}
	if c.fabric != nil {
		err = errors.Join(err, c.fabric.Close(context.Background()))
	}
	for _, name := range c.names {
		err = errors.Join(err, netns.Delete(name))
	}
	if c.run != nil {
		err = errors.Join(err, c.run.Close())
	}
	if c.dir != "" {
		err = errors.Join(err, os.RemoveAll(c.dir))
	}
	return err
}
