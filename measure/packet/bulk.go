package packet

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"runtime"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/internal/netns"
	"vitrine/measure/thread"
)

const (
	bulkSize  = 3072    // bytes of a frame at most: the kernel keeps it in one page, with what belongs to it
	bulkBatch = 64      // frames that the kernel makes at once
	bulkTurn  = 1 << 22 // frames that it is asked for at once: beginning takes it tens of milliseconds
)

// A Bulk sends probes as fast as one CPU can, at no particular times: an XDP
// program writes them into frames that the kernel keeps using, without a system
// call or a socket buffer for each.
type Bulk struct {
	config  SenderConfig
	objects bulkObjects
	counter link.Link // the program that counts what is taken
	port    *net.Interface
	inode   uint32 // of the namespace
}

// OpenBulk loads the program. Of the config, Qdisc is not looked at: frames go
// straight to the driver. Without the privilege, or on a kernel before 5.18, it
// is a *vitrine.Unsupported; an interface that is absent or down a
// *vitrine.BadInput.
func OpenBulk(config SenderConfig) (b *Bulk, err error) {
	b = &Bulk{config: config}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("open a bulk sender on %s: %w", config.Interface, bulkUnsupported(err)), b.Close())
			b = nil
		}
	}()
	err = netns.Do(config.NetNS, func() (err error) {
		if b.port, err = findInterface(config.Interface); err != nil {
			return err
		}
		var at unix.Stat_t
		err = unix.Stat("/proc/thread-self/ns/net", &at)
		b.inode = uint32(at.Ino)
		return err
	})
	if err != nil {
		return b, err
	}
	if err := rlimit.RemoveMemlock(); err != nil {
		return b, err
	}
	if err := loadBulkObjects(&b.objects, nil); err != nil {
		return b, err
	}
	b.counter, err = link.AttachRawTracepoint(link.RawTracepointOptions{Name: "xdp_devmap_xmit", Program: b.objects.Transmitted})
	return b, err
}

// bulkUnsupported turns what the kernel has not, or does not let us, into what
// this host cannot do.
func bulkUnsupported(err error) error {
	switch {
	case vitrine.IsBadInput(err), vitrine.IsUnsupported(err):
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return &vitrine.Unsupported{What: "sending in bulk", Missing: "the privilege (CAP_BPF, CAP_NET_ADMIN): " + err.Error(), Do: "run as root, or send at a rate"}
	case errors.Is(err, ebpf.ErrNotSupported), errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS):
		return &vitrine.Unsupported{What: "sending in bulk", Missing: "XDP programs run on live frames (Linux 5.18): " + err.Error(), Do: "send at a rate"}
	}
	return err
}

// MAC is the interface's address.
func (b *Bulk) MAC() net.HardwareAddr { return b.port.HardwareAddr }

// Close unloads the program.
func (b *Bulk) Close() (err error) {
	if b.counter != nil {
		err = b.counter.Close()
		b.counter = nil
	}
	if err := errors.Join(err, b.objects.Close()); err != nil {
		return fmt.Errorf("close the bulk sender on %s: %w", b.config.Interface, err)
	}
	return nil
}

// SentInBulk is what came of sending a stream in bulk.
type SentInBulk struct {
	Packets int     `json:"packets"`  // given to the interface
	Taken   int     `json:"taken"`    // by it; it had no room for the others
	First   int64   `json:"first_ns"` // when the first was made
	Last    int64   `json:"last_ns"`  // when the last was
	Rate    float64 `json:"rate"`     // taken, packets a second
}

// Send sends the stream's packets, whose rate is not looked at: each as soon as
// the one before is gone. Probes are scheduled, and sent, when they are made.
// Frames have 64 to 3072 bytes. Where the interface takes none, it is a
// *vitrine.Unsupported: a veth does only if its other end receives by NAPI, for
// it has generic receive offload on or an XDP program.
func (b *Bulk) Send(ctx context.Context, stream Stream) (SentInBulk, error) {
	frame, err := b.frame(stream)
	if err != nil {
		return SentInBulk{}, fmt.Errorf("send in bulk on %s: %w", b.config.Interface, err)
	}
	done := make(chan error, 1)
	var sent SentInBulk
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread, with its affinity, ends with the goroutine
		err := errors.Join(thread.Pin(b.config.CPU), thread.Name(thread.Sender))
		if b.config.NetNS != "" && err == nil {
			err = netns.Enter(b.config.NetNS) // where the program looks for the interface
		}
		if err == nil {
			err = b.run(ctx, frame, stream.Packets, &sent)
		}
		done <- err
	}()
	if err := <-done; err != nil {
		return sent, fmt.Errorf("send in bulk on %s: %w", b.config.Interface, bulkUnsupported(err))
	}
	return sent, nil
}

// frame builds what every frame begins as.
func (b *Bulk) frame(stream Stream) ([]byte, error) {
	stream.Rate = 1 // which is fine, for it is not looked at
	if err := stream.check(b.port.MTU); err != nil {
		return nil, err
	}
	if stream.Size > bulkSize || int64(stream.Packets) > math.MaxUint32 {
		return nil, &vitrine.BadInput{File: "stream", Found: fmt.Sprintf("%d packets of %d bytes", stream.Packets, stream.Size), Want: fmt.Sprintf("want frames of at most %d bytes, and less than 2^32", bulkSize)}
	}
	if stream.Ends.SourceMAC == nil {
		stream.Ends.SourceMAC = b.port.HardwareAddr
	}
	frame := make([]byte, stream.Size)
	if err := Build(frame, stream.Ends); err != nil {
		return nil, err
	}
	Probe{Run: stream.Run, Stream: stream.ID}.Put(frame[HeaderSize:])
	return frame, nil
}

// run has the program run until all is sent, on this thread.
func (b *Bulk) run(ctx context.Context, frame []byte, packets int, sent *SentInBulk) error {
	if err := b.prepare(frame, packets); err != nil {
		return fmt.Errorf("set the program up: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = b.objects.Most.Set(uint32(0)) })() // then the rest is done with soon
	for sent.Packets < packets {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		turn := min(packets-sent.Packets, bulkTurn)
		_, err := b.objects.Bulk.Run(&ebpf.RunOptions{Data: frame, Repeat: uint32(turn), BatchSize: bulkBatch, Flags: unix.BPF_F_TEST_XDP_LIVE_FRAMES})
		if err != nil {
			return err
		}
		if err := b.count(sent); err != nil {
			return err
		}
		if sent.Taken == 0 && ctx.Err() == nil {
			return &vitrine.Unsupported{What: "sending in bulk", Missing: "an interface that takes what XDP programs send: it had no room for any frame",
				Do: "turn generic receive offload on at the other end of a veth (ethtool -K NAME gro on), or send at a rate"}
		}
	}
	if sent.Last > sent.First {
		sent.Rate = float64(sent.Taken-1) / float64(sent.Last-sent.First) * 1e9
	}
	return nil
}

func (b *Bulk) prepare(frame []byte, packets int) error {
	var words [MinSize / 4]uint32
	for i := range words {
		words[i] = binary.NativeEndian.Uint32(frame[4*i:])
	}
	o := &b.objects
	return errors.Join(o.Words.Set(words), o.Out.Set(uint32(b.port.Index)), o.Inode.Set(b.inode), o.Offset.Set(uint64(realtime())),
		o.Most.Set(uint32(packets)), o.Sent.Set(uint32(0)), o.Taken.Set(uint64(0)))
}

// count reads what was sent so far.
func (b *Bulk) count(sent *SentInBulk) error {
	var packets uint32
	var taken, first, last uint64
	o := &b.objects
	if err := errors.Join(o.Sent.Get(&packets), o.Taken.Get(&taken), o.First.Get(&first), o.Last.Get(&last)); err != nil {
		return fmt.Errorf("read how many were sent: %w", err)
	}
	sent.Packets, sent.Taken, sent.First, sent.Last = int(packets), int(taken), int64(first), int64(last)
	return nil
}

// monotonic is CLOCK_MONOTONIC, the clock of BPF programs; ns.
func monotonic() int64 {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // a clock that every kernel has
	return now.Nano()
}

// realtime is what CLOCK_REALTIME is ahead of CLOCK_MONOTONIC, by the closest of
// many pairs of readings; ns.
func realtime() int64 {
	type pair struct{ width, offset int64 }
	pairs := make([]pair, 64)
	for i := range pairs {
		before := monotonic()
		wall := time.Now().UnixNano()
		width := monotonic() - before
		pairs[i] = pair{width, wall - before - width/2}
	}
	return slices.MinFunc(pairs, func(a, b pair) int { return int(a.width - b.width) }).offset
}
