package packet

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"runtime"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/internal/netns"
	"vitrine/internal/thread"
	"vitrine/measure/delay"
)

const (
	bulkSize  = 3072    // largest frame in bytes: the kernel keeps it and its metadata in one page
	bulkBatch = 64      // frames that the kernel builds at once if they have no times of their own
	bulkTurn  = 1 << 22 // frames per run of the program; the kernel takes tens of milliseconds to start a run

	// Packets are at most 100 µs apart, because the CPU does no other work in between.
	bulkSlowest = 10_000 // packets a second
)

// A Bulk sends probes as fast as one CPU can, or on a schedule too fast for one system
// call per packet. An XDP program waits for the time of each probe and writes the probe
// into a frame that the kernel reuses. This takes no system call and no socket buffer
// per packet.
type Bulk struct {
	config    SenderConfig
	objects   bulkObjects
	counter   link.Link // of the program that counts the frames that the port accepts
	port      *net.Interface
	namespace *os.File // the port's network namespace
}

// OpenBulk loads the program. It ignores config.Qdisc, because frames go straight to the driver.
// Without the privilege, or on a kernel before 5.18, it returns a *vitrine.Unsupported. If the
// interface is absent or down, it returns a *vitrine.BadInput.
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
		b.namespace, err = os.Open("/proc/thread-self/ns/net")
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

// bulkUnsupported turns the error of a missing kernel feature or privilege into a
// *vitrine.Unsupported.
func bulkUnsupported(err error) error {
	switch {
	case vitrine.IsBadInput(err), vitrine.IsUnsupported(err):
	case errors.Is(err, unix.EPERM):
		return &vitrine.Unsupported{What: "sending in bulk", Missing: "the privilege (CAP_BPF, CAP_NET_ADMIN): " + err.Error(), Do: "run as root, or do not send in bulk"}
	case errors.Is(err, ebpf.ErrNotSupported), errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS):
		return &vitrine.Unsupported{What: "sending in bulk", Missing: "XDP programs run on live frames (Linux 5.18): " + err.Error(), Do: "do not send in bulk"}
	}
	return err
}

// Close unloads the program.
func (b *Bulk) Close() (err error) {
	if b.counter != nil {
		err = b.counter.Close()
		b.counter = nil
	}
	if b.namespace != nil {
		err = errors.Join(err, b.namespace.Close())
		b.namespace = nil
	}
	if err := errors.Join(err, b.objects.Close()); err != nil {
		return fmt.Errorf("close the bulk sender on %s: %w", b.config.Interface, err)
	}
	return nil
}

// Send sends the stream's packets, each at its own time as a Sender does. If the stream
// has no rate, each packet leaves directly after the previous one. Frames have 64 to
// 3072 bytes; a rate is at least 10,000 packets a second. If the interface accepts no
// frame, Send returns a *vitrine.Unsupported. A veth accepts frames only if its other
// end receives by NAPI, that is, with generic receive offload on or with an XDP
// program.
//
// In the result, Packets were accepted by the interface, and Failed were rejected
// because it had no room. Schedule errors are rounded to 8 bits.
func (b *Bulk) Send(ctx context.Context, stream Stream) (Sent, error) {
	frame, err := b.frame(stream)
	if err != nil {
		return Sent{}, fmt.Errorf("send in bulk on %s: %w", b.config.Interface, err)
	}
	done := make(chan error, 1)
	var sent Sent
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread, with its affinity, ends with the goroutine
		err := errors.Join(thread.Pin(b.config.CPU), thread.Name(thread.Sender))
		if err == nil {
			err = unix.Setns(int(b.namespace.Fd()), unix.CLONE_NEWNET) // the program looks up the interface here
		}
		if err == nil {
			sent, err = b.run(ctx, frame, stream)
		}
		done <- err
	}()
	if err := <-done; err != nil {
		return sent, fmt.Errorf("send in bulk on %s: %w", b.config.Interface, bulkUnsupported(err))
	}
	return sent, nil
}

// frame builds the initial content of every frame.
func (b *Bulk) frame(stream Stream) ([]byte, error) {
	rated := stream
	if stream.Rate == 0 {
		rated.Rate = 1 // any valid rate, because only check reads it
	}
	if err := rated.check(b.port.MTU); err != nil {
		return nil, err
	}
	switch {
	case stream.Size > bulkSize || int64(stream.Packets) > math.MaxUint32:
		return nil, &vitrine.BadInput{File: "stream", Found: fmt.Sprintf("%d packets of %d bytes", stream.Packets, stream.Size), Want: fmt.Sprintf("want frames of at most %d bytes, and fewer than 2^32", bulkSize)}
	case stream.Rate != 0 && stream.Rate < bulkSlowest:
		return nil, &vitrine.BadInput{File: "rate", Found: fmt.Sprintf("%g packets a second in bulk", stream.Rate), Want: fmt.Sprintf("want at least %d", bulkSlowest)}
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

// run runs the program on this thread until everything is sent.
func (b *Bulk) run(ctx context.Context, frame []byte, stream Stream) (sent Sent, err error) {
	if err := b.prepare(frame, stream); err != nil {
		return sent, fmt.Errorf("set up the program: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = b.objects.Most.Set(uint32(0)) })() // then the program drops the remaining packets, which is fast
	batch, turn := uint32(bulkBatch), bulkTurn
	if stream.Rate > 0 {
		batch, turn = 1, stream.Packets // one run, without pauses
	}
	for done := 0; done < stream.Packets; done = sent.Packets + sent.Failed {
		if err := context.Cause(ctx); err != nil {
			return sent, err
		}
		if _, err := b.objects.Bulk.Run(&ebpf.RunOptions{
			Data: frame, Repeat: uint32(min(stream.Packets-done, turn)), BatchSize: batch, Flags: unix.BPF_F_TEST_XDP_LIVE_FRAMES,
		}); err != nil {
			return sent, err
		}
		if sent, err = b.count(); err != nil {
			return sent, err
		}
		if sent.Packets == 0 && ctx.Err() == nil {
			return sent, &vitrine.Unsupported{What: "sending in bulk", Missing: "an interface that sends the frames of XDP programs: it accepted none",
				Do: "turn generic receive offload on at the other end of a veth (ethtool -K NAME gro on), or do not send in bulk"}
		}
	}
	sent.Asked, sent.End = stream.Rate, NewClock().Now()
	if sent.Last > sent.First {
		sent.Rate = float64(sent.Packets-1) / float64(sent.Last-sent.First) * 1e9
	}
	return sent, nil
}

func (b *Bulk) prepare(frame []byte, stream Stream) error {
	var words [MinSize / 4]uint32
	for i := range words {
		words[i] = binary.NativeEndian.Uint32(frame[4*i:])
	}
	interval := uint64(0)
	if stream.Rate > 0 {
		interval = uint64(math.Round(stream.Interval() * (1 << 16)))
	}
	var namespace unix.Stat_t
	if err := unix.Fstat(int(b.namespace.Fd()), &namespace); err != nil {
		return err
	}
	o := &b.objects
	return errors.Join(o.Words.Set(words), o.Out.Set(uint32(b.port.Index)), o.Inode.Set(uint32(namespace.Ino)),
		o.Lateness.Set(lateness{}), o.Latest.Set(uint64(0)), o.Behind.Set(uint64(0)),
		o.Sent.Set(uint32(0)), o.Taken.Set(uint64(0)), o.Most.Set(uint32(stream.Packets)), o.Interval.Set(interval),
		o.Offset.Set(uint64(NewClock().offset))) // BPF programs also use the steady clock
}

// lateness is a histogram of how late frames were, in the steps of bpf/bulk.c.
type lateness [1 << 14]uint32

// of returns the middle of a step; ns.
func (*lateness) of(step int) int64 {
	shift := step >> 8
	return int64(step&0xff)<<shift + int64(1)<<shift/2
}

// count returns the totals so far.
func (b *Bulk) count() (sent Sent, err error) {
	var packets uint32
	var taken, first, last, behind, latest uint64
	late := new(lateness)
	o := &b.objects
	err = errors.Join(o.Sent.Get(&packets), o.Taken.Get(&taken), o.First.Get(&first), o.Last.Get(&last),
		o.Behind.Get(&behind), o.Latest.Get(&latest), o.Lateness.Get(late))
	if err != nil {
		return sent, fmt.Errorf("read the number of sent packets: %w", err)
	}
	return Sent{
		Packets: int(taken), Failed: int(packets) - int(taken), First: int64(first), Last: int64(last), Behind: int64(behind),
		Schedule: late.percentiles(int64(latest)),
	}, nil
}

// percentiles returns the percentiles of the lateness. latest is the exact maximum.
func (l *lateness) percentiles(latest int64) ScheduleErrors {
	var all uint64
	for _, n := range l {
		all += uint64(n)
	}
	at := func(share float64) int64 {
		rank, sum := uint64(delay.NearestRank(share, int(all))), uint64(0)
		for step, n := range l {
			if sum += uint64(n); sum >= rank {
				return min(l.of(step), latest)
			}
		}
		return latest
	}
	return ScheduleErrors{P50: at(0.5), P90: at(0.9), P99: at(0.99), P999: at(0.999), Max: latest}
}

// sendInBulk sends one stream and prints its Record.
func sendInBulk(ctx context.Context, config SenderConfig, stream Stream, stdout io.Writer) (err error) {
	b, err := OpenBulk(config)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	sent, err := b.Send(ctx, stream)
	if err != nil {
		return err
	}
	return (&Record{Sent: &sent}).Write(stdout)
}
