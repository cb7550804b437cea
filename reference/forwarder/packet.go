package forwarder

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"vitrine/internal/mmsg"
	"vitrine/internal/ring"
)

const (
	batch     = 64   // most frames sent by one system call
	ringSlots = 2048 // frames that can wait: a tenth of a second at 20,000 frames/s
	slotHead  = 128  // most bytes in a slot before the frame
)

// A packetForwarder reads frames from a ring shared with the kernel. It rewrites
// and sends them there, without a copy or an allocation per frame.
type packetForwarder struct {
	addresses
	delay  time.Duration
	maxLen int // largest frame for the outgoing interface, in bytes, without tags
	in     *ring.Ring
	out    int // socket
	wake   int // eventfd
	ended  atomic.Bool
	count  Counters

	verdicts [verdicts]uint64
	vectors  [batch]unix.Iovec
	messages [batch]mmsg.Message
	slots    [batch]int // slots of the ring that hold the vectors
	held     int        // slots waiting to be sent
}

// newPacketForwarder opens both sockets in the network namespace of the calling
// thread.
func newPacketForwarder(o Options) (f *packetForwarder, err error) {
	f = &packetForwarder{addresses: o.addresses(), delay: o.Delay, maxLen: o.out.MTU + headerSize, out: -1, wake: -1}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("forward frames of %s: %w", o.In, unsupported(err)), f.close())
		}
	}()
	if f.in, err = openRing(o.in.Index, o.in.MTU); err != nil {
		return f, err
	}
	if f.out, err = outSocket(o.out.Index); err != nil {
		return f, err
	}
	if f.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC); err != nil {
		return f, fmt.Errorf("make an eventfd: %w", err)
	}
	for i := range f.messages {
		f.messages[i].SetVectors(f.vectors[i : i+1])
	}
	return f, nil
}

// openRing returns a ring that receives frames of the interface. Before each
// frame there is room for the VLAN tag that the kernel has removed.
func openRing(index, mtu int) (*ring.Ring, error) {
	size := 1 << 11
	for size < mtu+headerSize+maxTags*tagSize+slotHead {
		size *= 2
	}
	return ring.Open(ring.Config{
		Interface: index, Slots: ringSlots, SlotSize: size, Head: tagSize,
		Options: []ring.Option{{Level: unix.SOL_PACKET, Name: unix.PACKET_RESERVE, Value: tagSize}},
	})
}

// outSocket returns a socket that sends frames on the interface and receives
// none.
func outSocket(index int) (int, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open a packet socket: %w", err)
	}
	// Bypass the queueing discipline, so that a send fails at once if the frame
	// cannot be sent.
	err = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: index})
	}
	if err != nil {
		return -1, errors.Join(fmt.Errorf("bind a packet socket to interface %d: %w", index, err), unix.Close(fd))
	}
	return fd, nil
}

func (f *packetForwarder) close() (err error) {
	if f.in != nil {
		err = f.in.Close()
	}
	for _, fd := range []int{f.out, f.wake} {
		if fd >= 0 {
			err = errors.Join(err, unix.Close(fd))
		}
	}
	return err
}

// run forwards frames until ctx is done. The calling goroutine must be locked to
// a thread.
func (f *packetForwarder) run(ctx context.Context) error {
	woken := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		f.ended.Store(true)
		_, err := unix.Write(f.wake, binary.NativeEndian.AppendUint64(nil, 1))
		woken <- err
	})
	err := f.loop()
	if !stop() { // the function has started, and uses the eventfd
		err = errors.Join(err, <-woken)
	}
	return err
}

func (f *packetForwarder) loop() error {
	ready := []unix.PollFd{{Fd: int32(f.in.FD()), Events: unix.POLLIN}, {Fd: int32(f.wake), Events: unix.POLLIN}}
	for !f.ended.Load() {
		took := 0
		for ; took < batch && f.take(); took++ {
		}
		if err := f.flush(); err != nil {
			return err
		}
		if took > 0 {
			continue
		}
		if _, err := unix.Poll(ready, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for frames: %w", err)
		}
		if ready[0].Revents&unix.POLLERR != 0 { // ENETDOWN: the interface went down; ENODEV: it was removed
			if err := f.in.Err(); err != nil {
				return fmt.Errorf("read frames: %w", err)
			}
		}
	}
	return nil
}

// take handles the ring's next frame. It returns false if there is none or if a
// flush fails.
func (f *packetForwarder) take() bool {
	var in ring.Frame
	slot, ok := f.in.Next(&in)
	if !ok {
		return false
	}
	f.count.Received++
	frame := in.Bytes[tagSize:]
	v := f.classify(frame)
	f.verdicts[v]++
	switch {
	case v != forwarded:
	case len(frame) < in.Length || len(frame) > f.maxLen+maxTags*tagSize:
		f.count.TooLong++
	default:
		f.rewrite(frame)
		if in.Tag != 0 {
			frame = retag(in.Bytes, in.Tag)
		}
		if f.delay > 0 {
			f.hold()
		}
		f.vectors[f.held] = mmsg.Vector(frame)
		f.slots[f.held] = slot
		f.held++
		if f.delay > 0 || f.held == batch {
			return f.flush() == nil
		}
		return true
	}
	f.in.Release(slot)
	return true
}

// hold returns when the frame just taken has been here for the delay. The
// forwarder's own time comes on top, so the delay is exactly the added time. hold
// spins at the end, because a sleeping thread wakes up tens of µs late.
func (f *packetForwarder) hold() {
	const awake = 150 * time.Microsecond
	until := time.Now().Add(f.delay)
	if f.delay > awake {
		nap := unix.NsecToTimespec((f.delay - awake).Nanoseconds())
		_ = unix.Nanosleep(&nap, nil) // after an early wake-up, the loop below waits for the rest
	}
	for time.Now().Before(until) {
	}
}

// flush sends the held frames and releases their slots.
func (f *packetForwarder) flush() error {
	for at := 0; at < f.held; {
		n, errno := mmsg.Send(f.out, f.messages[at:f.held], unix.MSG_DONTWAIT)
		switch errno {
		case 0:
			for i := range n {
				f.count.Forwarded++
				f.count.ForwardedBytes += f.vectors[at+i].Len
			}
			at += n
		case unix.ENOBUFS, unix.EAGAIN, unix.EMSGSIZE, unix.ENETDOWN:
			f.count.Refused++ // skip the first unsent frame and try the others
			at++
		default:
			return fmt.Errorf("send frames: %w", errno)
		}
	}
	for _, slot := range f.slots[:f.held] {
		f.in.Release(slot)
	}
	f.held = 0
	return nil
}

// counters returns the counts since the start. It is called once, at the end.
func (f *packetForwarder) counters() (Counters, error) {
	lost, err := f.in.Dropped()
	c := f.count
	c.Lost = lost
	c.Short, c.NotOurs, c.NotIP = f.verdicts[short], f.verdicts[notOurs], f.verdicts[notIP]
	return c, err
}
