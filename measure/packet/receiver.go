package packet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/internal/mmsg"
	"vitrine/internal/netns"
	"vitrine/internal/thread"
)

const (
	batch       = 64                    // packets per system call
	controlRoom = 256                   // bytes of control messages per packet
	waitTime    = 20 * time.Millisecond // limit of a receive call, between checks of the context
	defaultRoom = 64 << 20              // bytes of the kernel's buffer
)

// A ReceiverConfig has the place where probes arrive.
type ReceiverConfig struct {
	NetNS string // path of the network namespace; empty: the process's own

	// Without Interface, a UDP socket is bound to Address. With Interface, a packet socket on it
	// receives frames to Address's port, whatever their addresses are.
	Address   netip.AddrPort
	Interface string

	CPU    int    // to receive on; below 0: any CPU of the process
	Run    uint32 // of the probes; probes of other runs count as foreign
	Stream uint16 // likewise; 0: all streams of the run
	Room   int    // bytes of the kernel's buffer; 0: 64 MiB
}

// A Reception is one probe that arrived.
type Reception struct {
	Probe
	Kernel   int64 // the kernel's stamp, as the packet entered its receive path; ns
	Hardware int64 // the network card's stamp, by its own clock; ns; 0: none
	Read     int64 // when the program got it; ns
}

// Received is the result of receiving.
type Received struct {
	Receptions []Reception // in the order of arrival
	Dropped    uint32      // by the kernel, because the socket's buffer was full
	Foreign    int         // packets that are not probes of the run and stream
	Drift      int64       // of CLOCK_REALTIME against the steady clock while receiving; ns
}

// A Receiver receives probes with the kernel's time stamps from the moment it is open.
type Receiver struct {
	config ReceiverConfig
	fd     int
	raw    bool // the socket receives whole frames
}

// OpenReceiver opens the socket. It returns a *vitrine.BadInput if another program uses
// the address, and a *vitrine.Unsupported without the privilege for a packet socket.
func OpenReceiver(config ReceiverConfig) (*Receiver, error) {
	r := &Receiver{config: config, fd: -1, raw: config.Interface != ""}
	err := netns.Do(config.NetNS, r.open)
	if err != nil {
		if r.fd >= 0 {
			err = errors.Join(err, unix.Close(r.fd))
		}
		return nil, fmt.Errorf("open a receiver at %s%v: %w", config.Interface, config.Address, err)
	}
	return r, nil
}

func (r *Receiver) open() (err error) {
	if r.raw {
		err = r.openPacket()
	} else {
		r.fd, err = openUDP(r.config.Address)
	}
	if err != nil {
		return err
	}
	room := r.config.Room
	if room <= 0 {
		room = defaultRoom
	}
	return prepare(r.fd, room)
}

// openUDP binds a UDP socket.
func openUDP(at netip.AddrPort) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	err = unix.Bind(fd, &unix.SockaddrInet4{Addr: at.Addr().As4(), Port: int(at.Port())})
	if err == nil {
		return fd, nil
	}
	if errors.Is(err, unix.EADDRINUSE) || errors.Is(err, unix.EADDRNOTAVAIL) {
		err = &vitrine.BadInput{File: "address", Found: fmt.Sprintf("%v: %v", at, err), Want: "choose another"}
	}
	return -1, errors.Join(err, unix.Close(fd))
}

func (r *Receiver) openPacket() error {
	link, err := findInterface(r.config.Interface)
	if err != nil {
		return err
	}
	if r.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
		return packetSocketError(err)
	}
	program := toPort(r.config.Address.Port())
	if err := unix.SetsockoptSockFprog(r.fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}); err != nil {
		return fmt.Errorf("attach a filter: %w", err)
	}
	_ = unix.SetsockoptInt(r.fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1)
	if err := unix.Bind(r.fd, &unix.SockaddrLinklayer{Protocol: mmsg.NetworkOrder(unix.ETH_P_IP), Ifindex: link.Index}); err != nil {
		return fmt.Errorf("bind to the interface: %w", err)
	}
	return nil
}

// toPort returns a filter that passes UDP to the port, in IPv4 without options.
func toPort(port uint16) []unix.SockFilter {
	const load8, load16, equal, give = 0x30, 0x28, 0x15, 0x06
	return []unix.SockFilter{
		{Code: load8, K: offIP}, {Code: equal, Jf: 5, K: 0x45},
		{Code: load8, K: offProtocol}, {Code: equal, Jf: 3, K: 17},
		{Code: load16, K: offUDP + 2}, {Code: equal, Jf: 1, K: uint32(port)},
		{Code: give, K: 1 << 16},
		{Code: give, K: 0},
	}
}

// prepare enables stamps, sets the buffer size, and limits how long a receive call
// waits.
func prepare(fd, room int) error {
	stamps := unix.SOF_TIMESTAMPING_RX_SOFTWARE | unix.SOF_TIMESTAMPING_SOFTWARE | unix.SOF_TIMESTAMPING_RX_HARDWARE | unix.SOF_TIMESTAMPING_RAW_HARDWARE
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPING, stamps); err != nil {
		return &vitrine.Unsupported{What: "the kernel's receive time stamps", Missing: "SO_TIMESTAMPING: " + err.Error()}
	}
	mmsg.GrowReceive(fd, room)
	wait := unix.NsecToTimeval(int64(waitTime))
	return os.NewSyscallError("setsockopt", unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait))
}

// teach sends an empty datagram to the address. Switches learn the receiver's MAC address from it.
// They would flood the probes otherwise, because the receiver of one-way streams sends nothing.
func (r *Receiver) teach(to netip.AddrPort) error {
	if err := unix.Sendto(r.fd, nil, 0, mmsg.Sockaddr(to)); err != nil {
		return fmt.Errorf("send a datagram to %v, by which switches learn the receiver's address: %w", to, err)
	}
	return nil
}

// Close closes the socket.
func (r *Receiver) Close() error {
	if err := unix.Close(r.fd); err != nil {
		return fmt.Errorf("close a receiver: %w", err)
	}
	return nil
}

// Receive receives at most most probes. It ends without an error when the context ends. It also
// ends when no packet has arrived for quiet after the first packet; quiet 0 means no such limit.
// The caller may send first and then call Receive, because the kernel stamps and queues packets.
// Then Reception.Read has no meaning.
func (r *Receiver) Receive(ctx context.Context, most int, quiet time.Duration) (Received, error) {
	type outcome struct {
		got Received
		err error
	}
	done := make(chan outcome, 1)
	go func() {
		runtime.LockOSThread() // the thread and its affinity end with the goroutine
		if err := thread.Pin(r.config.CPU); err != nil {
			done <- outcome{err: err}
			return
		}
		thread.Prefer()
		in := newInbox(r.fd)
		in.clock = NewClock()
		got := Received{Receptions: make([]Reception, 0, most)}
		err := r.take(ctx, in, &got, most, quiet)
		got.Drift, _ = in.clock.Drift()
		var dropsErr error
		got.Dropped, dropsErr = drops(r.fd)
		done <- outcome{got, errors.Join(err, dropsErr)}
	}()
	o := <-done
	if o.err != nil {
		return o.got, fmt.Errorf("receive at %s%v: %w", r.config.Interface, r.config.Address, o.err)
	}
	return o.got, nil
}

func (r *Receiver) take(ctx context.Context, in *inbox, got *Received, most int, quiet time.Duration) error {
	var last int64
	for len(got.Receptions) < most {
		select {
		case <-ctx.Done(): // the usual end of a receiver
			return nil
		default:
		}
		n, err := in.receive()
		if err != nil {
			return err
		}
		now := in.clock.Now()
		if n > 0 {
			last = now
		}
		if n == 0 && quiet > 0 && last > 0 && now-last > int64(quiet) {
			return nil
		}
		for i := range n {
			p, ok := r.parse(in.data(i))
			if !ok || p.Run != r.config.Run || r.config.Stream != 0 && p.Stream != r.config.Stream {
				got.Foreign++
				continue
			}
			if len(got.Receptions) < most {
				kernel, hardware := in.stamps(i)
				got.Receptions = append(got.Receptions, Reception{p, kernel, hardware, now})
			}
		}
	}
	return nil
}

// drops returns the number of packets that the kernel dropped because the buffer was full. It is 0
// if the kernel does not report that number; gVisor does not. The count in control messages
// (SO_RXQ_OVFL) is not sufficient, because it covers only drops before a queued packet.
func drops(fd int) (uint32, error) {
	n, err := mmsg.Drops(fd)
	if errors.Is(err, unix.ENOPROTOOPT) {
		return 0, nil
	}
	return n, err
}

func (r *Receiver) parse(b []byte) (Probe, bool) {
	if !r.raw {
		return ParsePayload(b)
	}
	p, port, ok := Parse(b)
	return p, ok && port == r.config.Address.Port()
}

// An inbox takes packets from a socket, many per system call.
type inbox struct {
	fd       int
	clock    Clock
	messages [batch]mmsg.Message
	vectors  [batch]unix.Iovec
	names    [batch]mmsg.Name
	room     [batch][MaxSize]byte
	control  [batch][controlRoom]byte
}

func newInbox(fd int) *inbox {
	in := &inbox{fd: fd}
	for i := range in.messages {
		in.messages[i].SetVectors(in.vectors[i : i+1])
	}
	return in
}

// receive waits for at least one packet and returns the number of packets that it took. It returns
// 0 if none arrived within the socket's time limit.
func (in *inbox) receive() (int, error) {
	for i := range in.messages {
		in.vectors[i] = mmsg.Vector(in.room[i][:])
		in.messages[i].SetControl(in.control[i][:])
		in.messages[i].SetName(&in.names[i], mmsg.NameSize)
	}
	n, errno := mmsg.Wait(in.fd, in.messages[:])
	switch errno {
	case 0:
		return n, nil
	case unix.EAGAIN, unix.EINTR, unix.ECONNREFUSED: // refused: this socket sent a stream to a closed port
		return 0, nil
	case unix.ENETDOWN:
		return 0, fmt.Errorf("the interface went down while receiving: %w", errno)
	}
	return 0, os.NewSyscallError("recvmmsg", errno)
}

func (in *inbox) data(i int) []byte { return in.room[i][:min(in.messages[i].Length, MaxSize)] }

// stamps returns the kernel's time stamps of packet i (SO_TIMESTAMPING); 0: none.
func (in *inbox) stamps(i int) (kernel, hardware int64) {
	written := in.control[i][:in.messages[i].Header.Controllen]
	if stamps := mmsg.Control(written, unix.SOL_SOCKET, unix.SO_TIMESTAMPING); len(stamps) >= 48 {
		return mmsg.Nanoseconds(stamps), mmsg.Nanoseconds(stamps[32:])
	}
	return 0, 0
}
