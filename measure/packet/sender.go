package packet

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/internal/netns"
	"vitrine/internal/thread"
	"vitrine/measure/delay"
)

const (
	wakeEarly   = 150 * time.Microsecond // margin before a packet's time; a sleeper rarely wakes later than this
	sleepAtMost = 50 * time.Millisecond  // longest wait without a check of the context
	far         = 2 * wakeEarly          // longer waits sleep, shorter ones spin
	checkEvery  = 1024                   // packets between checks of the context
	fullRetries = 1000                   // attempts to send a packet while the interface's queue is full
)

// A SenderConfig has the place where frames leave.
type SenderConfig struct {
	NetNS     string // path of the network namespace; empty: the process's own
	Interface string // such as eth0
	CPU       int    // to send from; below 0: any CPU of the process
	Qdisc     bool   // through the interface's queueing discipline, like other programs' packets; false: straight to the driver
}

// A Sender sends frames on one interface.
type Sender struct {
	config SenderConfig
	fd     int
	mac    net.HardwareAddr
	mtu    int
	skip   int // bytes of a frame that the kernel writes
}

// OpenSender opens a packet socket on the interface. It returns a
// *vitrine.Unsupported without the privilege, and a *vitrine.BadInput if the
// interface is absent or down.
func OpenSender(config SenderConfig) (*Sender, error) {
	s := &Sender{config: config, fd: -1}
	err := netns.Do(config.NetNS, s.open)
	if err != nil {
		if s.fd >= 0 {
			err = errors.Join(err, unix.Close(s.fd))
		}
		return nil, fmt.Errorf("open a sender on %s: %w", config.Interface, err)
	}
	return s, nil
}

// DialSender opens a UDP socket, and the kernel builds the frames. It is for the host's own
// network, where frames cannot bypass the host's stack. The streams' ends must be source and dest;
// their MAC addresses do not matter.
func DialSender(config SenderConfig, source, dest netip.AddrPort) (*Sender, error) {
	s := &Sender{config: config, fd: -1, skip: HeaderSize, mac: make(net.HardwareAddr, 6)}
	err := netns.Do(config.NetNS, func() error {
		link, err := findInterface(config.Interface)
		if err != nil {
			return err
		}
		s.mtu = link.MTU
		if s.fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return os.NewSyscallError("socket", err)
		}
		// The kernel refuses packets larger than the MTU instead of fragmenting them.
		_ = unix.SetsockoptInt(s.fd, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO)
		_ = unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
		_ = unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 16<<20)
		if err := unix.Bind(s.fd, &unix.SockaddrInet4{Addr: source.Addr().As4(), Port: int(source.Port())}); err != nil {
			return fmt.Errorf("bind to %v: %w", source, err)
		}
		return os.NewSyscallError("connect", unix.Connect(s.fd, &unix.SockaddrInet4{Addr: dest.Addr().As4(), Port: int(dest.Port())}))
	})
	if err != nil {
		if s.fd >= 0 {
			err = errors.Join(err, unix.Close(s.fd))
		}
		return nil, fmt.Errorf("open a sender to %v: %w", dest, err)
	}
	return s, nil
}

func (s *Sender) open() error {
	link, err := findInterface(s.config.Interface)
	if err != nil {
		return err
	}
	s.mac, s.mtu = link.HardwareAddr, link.MTU
	if len(s.mac) == 0 { // lo
		s.mac = make(net.HardwareAddr, 6)
	}
	// Protocol 0: this socket only sends, so the kernel copies nothing to it.
	if s.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
		return packetSocketError(err)
	}
	if !s.config.Qdisc {
		if err := unix.SetsockoptInt(s.fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1); err != nil {
			return fmt.Errorf("bypass the queueing discipline: %w", err)
		}
	}
	// The buffer must be larger than the bytes in flight. A full buffer would delay the schedule.
	_ = unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 16<<20)
	if err := unix.Bind(s.fd, &unix.SockaddrLinklayer{Ifindex: link.Index}); err != nil {
		return fmt.Errorf("bind to the interface: %w", err)
	}
	return nil
}

// findInterface returns the interface with the name, which must be up.
func findInterface(name string) (*net.Interface, error) {
	link, err := net.InterfaceByName(name)
	switch {
	case err != nil && name == "":
		return nil, &vitrine.BadInput{File: "interface", Found: "no name", Want: "name an interface; ip link lists them"}
	case err != nil:
		return nil, &vitrine.BadInput{File: "interface", Found: fmt.Sprintf("%q: %v", name, err), Want: "ip link lists the interfaces"}
	case link.Flags&net.FlagUp == 0:
		return nil, &vitrine.BadInput{File: "interface", Found: fmt.Sprintf("%q is down", name), Want: "bring it up with ip link set"}
	}
	return link, nil
}

func packetSocketError(err error) error {
	if errors.Is(err, unix.EPERM) {
		return &vitrine.Unsupported{What: "packet sockets", Missing: "the privilege (CAP_NET_RAW): " + err.Error(), Do: "run as root"}
	}
	if errors.Is(err, unix.EAFNOSUPPORT) {
		return &vitrine.Unsupported{What: "packet sockets", Missing: "the kernel option CONFIG_PACKET: " + err.Error(), Do: "modprobe af_packet"}
	}
	return fmt.Errorf("open a packet socket: %w", err)
}

// MAC returns the interface's address.
func (s *Sender) MAC() net.HardwareAddr { return s.mac }

// Close closes the socket.
func (s *Sender) Close() error {
	if err := unix.Close(s.fd); err != nil {
		return fmt.Errorf("close the sender on %s: %w", s.config.Interface, err)
	}
	return nil
}

// A Stream is a series of probes of one size at one rate.
type Stream struct {
	Run     uint32
	ID      uint16
	Ends    Ends
	Size    int     // bytes of a frame, without the frame check sequence
	Packets int     // number of packets
	Rate    float64 // packets a second

	Around func() // called on the sending thread before the first packet and after the last; may be nil
}

// Interval returns the time between packets; ns.
func (s Stream) Interval() float64 { return 1e9 / s.Rate }

// Room returns the buffer size that a receiver's kernel needs to queue the whole
// stream, in bytes as the kernel counts them: packets and their socket buffers.
func (s Stream) Room() int {
	const most = math.MaxInt32 / 4
	return min(max(defaultRoom, s.Packets*(2*s.Size+1024)), most)
}

func (s Stream) check(mtu int) error {
	switch {
	case s.Size-etherSize > mtu:
		return &vitrine.BadInput{File: "frame size", Found: fmt.Sprintf("%d bytes, %d without the Ethernet header", s.Size, s.Size-etherSize), Want: fmt.Sprintf("the interface's MTU is %d: choose frames of at most %d bytes", mtu, mtu+etherSize)}
	case s.Packets < 1:
		return &vitrine.BadInput{File: "packets", Found: fmt.Sprint(s.Packets), Want: "want at least 1"}
	case !(s.Rate > 0 && s.Rate <= 1e9):
		return &vitrine.BadInput{File: "rate", Found: fmt.Sprintf("%g packets a second", s.Rate), Want: "want more than 0 and at most 1e9"}
	}
	return nil
}

// Sent is the result of sending a stream.
type Sent struct {
	Packets int   `json:"packets"`     // handed to the kernel
	Failed  int   `json:"failed"`      // refused by the kernel, which had no room
	First   int64 `json:"first_ns"`    // when the first packet was sent
	Last    int64 `json:"last_ns"`     // when the last packet was sent
	End     int64 `json:"end_ns"`      // when the send call of the last packet returned
	Behind  int64 `json:"behind_ns"`   // how long after its time the last packet was sent
	Drift   int64 `json:"drift_ns"`    // of CLOCK_REALTIME against the steady clock during the stream
	Unsure  int64 `json:"drift_pm_ns"` // maximum error of Drift

	// The waiting loop is also a soaker. Spins is the number of clock readings, and Spin the time
	// of an undisturbed reading. In the rest of the time from Began to End, the CPU sent packets
	// or did other work.
	Began int64   `json:"began_ns"`
	Spins int64   `json:"spins"`
	Spin  float64 `json:"spin_ns"`
	Slept int64   `json:"slept_ns"` // part of the waiting

	Asked    float64        `json:"asked_rate"`         // packets a second
	Rate     float64        `json:"rate"`               // achieved
	Schedule ScheduleErrors `json:"schedule_errors_ns"` // how long after their times packets were sent
}

// ScheduleErrors are percentiles of how late packets were sent; ns.
type ScheduleErrors struct {
	P50  int64 `json:"p50"`
	P90  int64 `json:"p90"`
	P99  int64 `json:"p99"`
	P999 int64 `json:"p99.9"`
	Max  int64 `json:"max"`
}

// A rate was held if the last packet was not later than the larger of these two: a share of the
// stream's time, and the time of one switch to another process.
const (
	heldShare = 0.01
	heldTime  = time.Millisecond
)

// Held returns nil if the stream was sent at its rate: all packets were sent, and the last one at
// most 1% of the stream's time (or 1 ms) late. Otherwise the error has the reason.
func (s Sent) Held() error {
	span := float64(s.Packets+s.Failed-1) / s.Asked * 1e9
	switch {
	case s.Failed > 0:
		return fmt.Errorf("the interface had no room for %d of %d packets at %.0f a second", s.Failed, s.Packets+s.Failed, s.Asked)
	case float64(s.Behind) > max(span*heldShare, float64(heldTime)):
		return fmt.Errorf("the sender could not hold %.0f packets a second: it sent %.0f, and the last packet left %s after its time",
			s.Asked, s.Rate, time.Duration(s.Behind).Round(time.Microsecond))
	}
	return nil
}

// leastStep is the least step of the time of day that is not an error of its measurement.
const leastStep = time.Microsecond

// Steady returns an error if the time of day was set while the stream was sent. The kernel stamps
// arrivals by it, so later packets seem to take longer or shorter by the step. NTP's usual
// corrections are no steps, because the steady clock has them too.
func (s Sent) Steady() error {
	step := time.Duration(s.Drift)
	if step.Abs() <= time.Duration(s.Unsure)+leastStep {
		return nil
	}
	return fmt.Errorf("the time of day was set by %s during the stream, and the kernel stamps packets by it", step.Round(time.Microsecond))
}

// Send sends every packet of the stream at its own time, with one send call each. It sends a late
// packet at once, and the next one at its own time. If packets are at most 300 µs (far) apart, it
// uses a whole CPU. A rate that Send could not hold is not an error: see Held.
func (s *Sender) Send(ctx context.Context, stream Stream) (Sent, error) {
	frame := make([]byte, max(stream.Size, 0))
	err := stream.check(s.mtu)
	if err == nil {
		if stream.Ends.SourceMAC == nil {
			stream.Ends.SourceMAC = s.mac
		}
		err = Build(frame, stream.Ends)
	}
	if err != nil {
		return Sent{}, fmt.Errorf("send on %s: %w", s.config.Interface, err)
	}
	return s.loop(frame, stream, func(l *loop) error { return l.run(ctx) })
}

// Idle waits for the span on the sender's CPU, as between two packets of a stream, and
// sends nothing.
func (s *Sender) Idle(ctx context.Context, stream Stream, span time.Duration) (Sent, error) {
	stream.Packets = 0
	return s.loop(make([]byte, MinSize), stream, func(l *loop) error { return l.idle(ctx, span) })
}

// loop calls run on a separate thread.
func (s *Sender) loop(frame []byte, stream Stream, run func(*loop) error) (Sent, error) {
	type outcome struct {
		sent Sent
		err  error
	}
	done := make(chan outcome, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread, with its affinity, ends with the goroutine
		if err := errors.Join(thread.Pin(s.config.CPU), thread.Name(thread.Sender)); err != nil {
			done <- outcome{err: err}
			return
		}
		thread.Prefer()
		sleep(int64(wakeEarly)) // the Meter reads the name at a switch of tasks, which a shorter sleep may not cause
		l := newLoop(s.fd, frame, s.skip, stream)
		l.around()
		l.sent.Began = l.clock.Now()
		err := run(l)
		l.sent.End = l.clock.Now()
		l.around()
		done <- outcome{l.result(), err}
	}()
	o := <-done
	if o.err != nil {
		return o.sent, fmt.Errorf("send on %s: %w", s.config.Interface, o.err)
	}
	return o.sent, nil
}

// A loop sends one stream. It does not allocate while it runs.
type loop struct {
	fd     int
	frame  []byte
	out    []byte // the part of frame that goes to the kernel
	stream Stream
	clock  Clock
	probe  Probe
	sent   Sent
	errors []int64 // how late each packet was sent

	done     int     // packets sent or failed
	begin    int64   // the first packet's time
	interval float64 // between packets; ns
}

func newLoop(fd int, frame []byte, skip int, stream Stream) *loop {
	l := &loop{fd: fd, frame: frame, out: frame[skip:], stream: stream, errors: make([]int64, stream.Packets)}
	clear(l.errors) // touches all pages, because a page fault would delay a packet
	runtime.GC()    // now, not while sending
	l.clock = NewClock()
	l.sent.Spin = l.calibrate()
	l.probe = Probe{Run: stream.Run, Stream: stream.ID}
	return l
}

// calibrate returns the time of one clock reading, in ns. It is the minimum of many
// spans, because other work only adds to it.
func (l *loop) calibrate() float64 {
	const spans, span = 100, 20_000 // ns
	least := math.Inf(1)
	for range spans {
		l.sent.Spins = 0
		before := l.clock.Now()
		after := l.wait(before + span)
		least = min(least, float64(after-before)/float64(l.sent.Spins))
	}
	l.sent.Spins = 0
	return least
}

func (l *loop) around() {
	if l.stream.Around != nil {
		l.stream.Around()
	}
}

// idle spins for the span, or until the context ends.
func (l *loop) idle(ctx context.Context, span time.Duration) error {
	look := l.sent.Began // the time of the next check of the context
	for due, end := look, look+int64(span); due < end; due += int64(wakeEarly) {
		if due >= look {
			if err := context.Cause(ctx); err != nil {
				return err
			}
			look += int64(sleepAtMost)
		}
		l.wait(due)
	}
	return context.Cause(ctx)
}

func (l *loop) run(ctx context.Context) error {
	l.begin, l.interval = l.sent.Began+int64(time.Millisecond), l.stream.Interval()
	for next := 0; next < l.stream.Packets; {
		due := l.due(next)
		if err := l.await(ctx, due); err != nil {
			return err
		}
		l.doze(due)
		var errno unix.Errno
		if next, errno = l.burst(next, min(next+checkEvery, l.stream.Packets)); errno != 0 {
			return sendError(errno)
		}
	}
	return nil
}

// due returns the time of a packet.
//
//go:nosplit
func (l *loop) due(packet int) int64 { return l.begin + int64(float64(packet)*l.interval) }

// await sleeps until due is at most sleepAtMost away, or until the context ends.
func (l *loop) await(ctx context.Context, due int64) error {
	for {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		left := due - l.clock.Now()
		if left <= int64(sleepAtMost) {
			return nil
		}
		sleep(int64(sleepAtMost) / 2)
	}
}

// wait waits until due, which may have passed, and returns the time. It sleeps
// while due is far and spins for the rest.
func (l *loop) wait(due int64) int64 {
	l.doze(due)
	return l.spin(due)
}

// doze sleeps while due is far.
func (l *loop) doze(due int64) {
	for {
		now := l.clock.Now()
		left := due - now
		if left <= int64(far) {
			return
		}
		sleep(left - int64(wakeEarly))
		l.sent.Slept += l.clock.Now() - now
	}
}

// sleep makes a system call on this thread, because the runtime's timers wake up later.
func sleep(ns int64) {
	ts := unix.NsecToTimespec(ns)
	_, _, _ = unix.Syscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&ts)), 0, 0) // EINTR: the caller checks the clock
}

func sendError(errno unix.Errno) error {
	switch errno {
	case unix.ENETDOWN, unix.ENXIO, unix.ENODEV:
		return fmt.Errorf("the interface was removed or went down while sending: %w", errno)
	case unix.EMSGSIZE:
		return fmt.Errorf("the frame is larger than the interface's MTU: %w", errno)
	}
	return os.NewSyscallError("sendto", errno)
}

// Busy returns the time from Began to End in which the sender neither waited nor slept. In this
// time, the sender's CPU sent packets, or did other work of the kernel and of other programs.
func (s Sent) Busy() time.Duration {
	return time.Duration(float64(s.End-s.Began-s.Slept) - float64(s.Spins)*s.Spin)
}

// result computes the result of the stream.
func (l *loop) result() Sent {
	s := l.sent
	s.Asked = l.stream.Rate
	if n := s.Packets + s.Failed; n > 1 && s.Last > s.First {
		s.Rate = float64(s.Packets-1) / float64(s.Last-s.First) * 1e9
	}
	s.Drift, s.Unsure = l.clock.Drift()
	s.Schedule = percentiles(l.errors[:l.done])
	return s
}

// percentiles sorts the errors. Percentiles are by nearest rank.
func percentiles(errors []int64) ScheduleErrors {
	if len(errors) == 0 {
		return ScheduleErrors{}
	}
	slices.Sort(errors)
	at := func(share float64) int64 { return errors[delay.NearestRank(share, len(errors))-1] }
	return ScheduleErrors{P50: at(0.5), P90: at(0.9), P99: at(0.99), P999: at(0.999), Max: errors[len(errors)-1]}
}
