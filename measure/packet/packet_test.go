package packet

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/fabric/fabrictest"
	"vitrine/internal/hosttest"
	"vitrine/internal/mmsg"
	"vitrine/internal/netns"
	"vitrine/internal/thread"
)

// A pair is two namespaces that a veth joins.
type pair struct {
	near, far       string // paths
	nearMAC, farMAC net.HardwareAddr
	source, dest    netip.AddrPort
}

// newPair makes a pair. It skips the test if this process lacks the privilege.
func newPair(t *testing.T) pair {
	t.Helper()
	p := pair{source: netip.MustParseAddrPort("198.18.7.1:7001"), dest: netip.MustParseAddrPort("198.18.7.2:7002")}
	label := fmt.Sprintf("probe%d", os.Getpid())
	p.near, p.far = fabrictest.Place(t, label, "a"), fabrictest.Place(t, label, "b")
	far, err := os.Open(p.far)
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	err = netns.Do(p.near, func() error {
		veth := netlink.NewVeth(netlink.LinkAttrs{Name: "eth0", MTU: 1500, TxQLen: -1})
		veth.PeerName, veth.PeerMTU, veth.PeerNamespace = "eth0", 1500, netlink.NsFd(far.Fd())
		return netlink.LinkAdd(veth)
	})
	if err != nil {
		t.Fatal(err)
	}
	p.nearMAC = raise(t, p.near, p.source)
	p.farMAC = raise(t, p.far, p.dest)
	addNeighbour(t, p.far, p.source.Addr(), p.nearMAC)
	return p
}

// raise gives eth0 the address, brings it up and returns its MAC address.
func raise(t *testing.T, ns string, at netip.AddrPort) (mac net.HardwareAddr) {
	t.Helper()
	err := netns.Do(ns, func() error {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		mac = link.Attrs().HardwareAddr
		if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: &net.IPNet{IP: at.Addr().AsSlice(), Mask: net.CIDRMask(24, 32)}}); err != nil {
			return err
		}
		return netlink.LinkSetUp(link)
	})
	if err != nil {
		t.Fatal(err)
	}
	return mac
}

// addNeighbour adds a static neighbour.
func addNeighbour(t *testing.T, ns string, addr netip.Addr, mac net.HardwareAddr) {
	t.Helper()
	err := netns.Do(ns, func() error {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		return netlink.NeighSet(&netlink.Neigh{LinkIndex: link.Attrs().Index, IP: addr.AsSlice(), HardwareAddr: mac, State: netlink.NUD_PERMANENT})
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (p pair) stream(packets int, rate float64, size int) Stream {
	return Stream{Run: 0xC0FFEE, ID: 3, Size: size, Packets: packets, Rate: rate,
		Ends: Ends{SourceMAC: p.nearMAC, DestMAC: p.farMAC, Source: p.source, Dest: p.dest}}
}

func (p pair) sender(t *testing.T) *Sender {
	t.Helper()
	s, err := OpenSender(SenderConfig{NetNS: p.near, Interface: "eth0", CPU: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func receiver(t *testing.T, c ReceiverConfig) *Receiver {
	t.Helper()
	c.Run, c.Stream, c.CPU = 0xC0FFEE, 3, -1
	r, err := OpenReceiver(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

func send(t *testing.T, s *Sender, stream Stream) Sent {
	t.Helper()
	sent, err := s.Send(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	if sent.Packets != stream.Packets || sent.Failed != 0 {
		t.Fatalf("sent %d packets, %d refused, want %d", sent.Packets, sent.Failed, stream.Packets)
	}
	return sent
}

// TestPacketsOverAVethAreStamped checks that every packet arrives once, at a UDP socket and at a
// packet socket. The kernel's stamp must lie between sending and reading.
func TestPacketsOverAVethAreStamped(t *testing.T) {
	p := newPair(t)
	const n = 3000
	sockets := map[string]*Receiver{
		"UDP":    receiver(t, ReceiverConfig{NetNS: p.far, Address: p.dest}),
		"packet": receiver(t, ReceiverConfig{NetNS: p.far, Address: p.dest, Interface: "eth0"}),
	}
	s := p.sender(t)
	sent := send(t, s, p.stream(n, 20_000, 64))
	if sent.Schedule.P50 < 0 || sent.Schedule.P50 > sent.Schedule.P99 || sent.Schedule.P99 > sent.Schedule.Max {
		t.Errorf("got schedule errors %+v", sent.Schedule)
	}
	for name, r := range sockets {
		got, err := r.Receive(t.Context(), n, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Receptions) != n || got.Dropped != 0 {
			t.Fatalf("%s: received %d of %d, dropped %d", name, len(got.Receptions), n, got.Dropped)
		}
		for i, x := range got.Receptions {
			if x.Sequence != uint32(i) || x.Sent < x.Scheduled {
				t.Fatalf("%s: packet %d: got %+v", name, i, x)
			}
			if x.Kernel < x.Sent-1000 || x.Kernel > x.Read+1000 { // the error of comparing the clocks
				t.Fatalf("%s: packet %d was sent at %d, timestamped %d ns later and read %d ns later", name, i, x.Sent, x.Kernel-x.Sent, x.Read-x.Sent)
			}
		}
		first, last := got.Receptions[0], got.Receptions[n-1]
		if span, want := float64(last.Scheduled-first.Scheduled), float64(n-1)*50_000; span < want-2 || span > want+2 {
			t.Errorf("%s: the schedule spans %v ns, want %v", name, span, want)
		}
	}
}

// TestAFullBufferIsCounted checks that drops at a full socket buffer are counted, even if the
// receiver read nothing at that time and no packet arrived afterwards.
func TestAFullBufferIsCounted(t *testing.T) {
	p := newPair(t)
	const n = 500
	sockets := map[string]*Receiver{
		"UDP":    receiver(t, ReceiverConfig{NetNS: p.far, Address: p.dest, Room: 4096}),
		"packet": receiver(t, ReceiverConfig{NetNS: p.far, Address: p.dest, Interface: "eth0", Room: 4096}),
	}
	send(t, p.sender(t), p.stream(n, 100_000, 64))
	for name, r := range sockets {
		got, err := r.drain(t.Context(), n, lateFirst, lateNext)
		if err != nil || got.Dropped == 0 || len(got.Receptions)+int(got.Dropped) != n {
			t.Errorf("%s: received %d of %d packets, dropped %d: %v", name, len(got.Receptions), n, got.Dropped, err)
		}
	}
}

// TestDuplicatesTakeNoRoom checks that duplicates do not take the room of the last
// packets.
func TestDuplicatesTakeNoRoom(t *testing.T) {
	p := newPair(t)
	const n = 200
	var far *net.UDPConn
	err := netns.Do(p.far, func() (err error) {
		far, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(p.dest))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	go func() {
		for b := make([]byte, MaxSize); ; {
			size, from, err := far.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			_, _ = far.WriteToUDPAddrPort(b[:size], from)
			_, _ = far.WriteToUDPAddrPort(b[:size], from)
		}
	}()
	record, err := p.sender(t).RoundTrip(t.Context(), p.stream(n, 10_000, 64), p.source)
	if err != nil {
		t.Fatal(err)
	}
	came := map[uint32]int{}
	for _, x := range record.Receptions {
		came[x.Sequence]++
	}
	if len(came) != n || len(record.Receptions) != 2*n {
		t.Errorf("got %d receptions of %d different packets, want %d", len(record.Receptions), len(came), n)
	}
}

func TestRoundTripsOfEverySize(t *testing.T) {
	p := newPair(t)
	var e *Echo
	err := netns.Do(p.far, func() (err error) {
		e, err = OpenEcho(p.dest, -1)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	s := p.sender(t)
	for _, size := range Sizes() {
		r := receiver(t, ReceiverConfig{NetNS: p.near, Address: p.source})
		send(t, s, p.stream(200, 10_000, size))
		got, err := r.Receive(t.Context(), 200, time.Second)
		if err != nil || len(got.Receptions) != 200 {
			t.Errorf("%d bytes: received %d of 200 packets: %v", size, len(got.Receptions), err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestEchoCountsItsDrops checks that datagrams beyond an echo's buffer are counted.
func TestEchoCountsItsDrops(t *testing.T) {
	e, err := OpenEcho(netip.MustParseAddrPort("127.0.0.1:0"), -1)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	mmsg.GrowReceive(e.fd, 1)
	at, err := mmsg.Local(e.fd)
	if err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		if err := unix.Sendto(e.fd, make([]byte, 100), 0, mmsg.Sockaddr(at)); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := e.Dropped(); n == 0 || err != nil {
		t.Errorf("got %d drops, error %v", n, err)
	}
}

// TestEchoPrintsARecord checks the output of the program, which has the drops and the buffer.
func TestEchoPrintsARecord(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out bytes.Buffer
	if err := RunEcho(ctx, []string{"--listen", hosttest.FreeAddress(t, "udp")}, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	if r, err := ReadRecord(out.Bytes()); err != nil || r.Dropped != 0 || r.Room == 0 {
		t.Errorf("got %+v, error %v", r, err)
	}
	err := RunEcho(ctx, []string{"--listen", hosttest.FreeAddress(t, "udp"), "--cpu", "1023"}, io.Discard, io.Discard)
	if !vitrine.IsUnsupported(err) {
		t.Errorf("on a CPU that this host does not have: got %v", err)
	}
}

// TestEchoStaysOnItsCPU checks that an echo with a CPU answers from a thread that may run on no other.
func TestEchoStaysOnItsCPU(t *testing.T) {
	allowed, err := thread.Allowed()
	if err != nil || len(allowed) < 2 {
		t.Skipf("CPUs %v, error %v: want two", allowed, err)
	}
	cpu := allowed[len(allowed)-1]
	before := threadsOn(t, cpu)
	e, err := OpenEcho(netip.MustParseAddrPort("127.0.0.1:0"), cpu)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	at, err := mmsg.Local(e.fd)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	conn, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(at))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	_, err = conn.Write([]byte{1})
	if err == nil {
		_, err = conn.Read(make([]byte, 1))
	}
	if err != nil {
		t.Error(err)
	}
	if n := threadsOn(t, cpu); n != before+1 {
		t.Errorf("%d threads are bound to CPU %d, and %d were before the echo", n, cpu, before)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// threadsOn returns how many threads of this process may run only on the CPU.
func threadsOn(t *testing.T, cpu int) (threads int) {
	t.Helper()
	files, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file) // fails if the thread has ended
		if err == nil && strings.Contains(string(text), fmt.Sprintf("\nCpus_allowed_list:\t%d\n", cpu)) {
			threads++
		}
	}
	return threads
}

// TestReceiverTeachesSwitches checks that the datagram by which switches learn where a receiver is
// arrives at the sender's end, and that it is no probe.
func TestReceiverTeachesSwitches(t *testing.T) {
	p := newPair(t)
	near := receiver(t, ReceiverConfig{NetNS: p.near, Address: p.source})
	far := receiver(t, ReceiverConfig{NetNS: p.far, Address: p.dest})
	if err := far.teach(p.source); err != nil {
		t.Fatal(err)
	}
	if got, err := near.drain(t.Context(), 1, lateFirst, lateNext); err != nil || got.Foreign != 1 || len(got.Receptions) != 0 {
		t.Errorf("got %+v, error %v", got, err)
	}
}

func TestDialedSenderKeepsTheSchedule(t *testing.T) {
	p := newPair(t)
	r := receiver(t, ReceiverConfig{NetNS: p.far, Address: p.dest})
	addNeighbour(t, p.near, p.dest.Addr(), p.farMAC)
	s, err := DialSender(SenderConfig{NetNS: p.near, Interface: "eth0", CPU: -1}, p.source, p.dest)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	send(t, s, p.stream(500, 10_000, 1514))
	got, err := r.Receive(t.Context(), 500, time.Second)
	if err != nil || len(got.Receptions) != 500 {
		t.Fatalf("received %d of 500 packets: %v", len(got.Receptions), err)
	}
	if _, err := s.Send(t.Context(), p.stream(1, 1, 1515)); !vitrine.IsBadInput(err) {
		t.Errorf("frame above the MTU: got %v, want BadInput", err)
	}
}

// TestUnheldRateIsReported checks that Held reports a rate of 1e9 packets/s, which no
// sender holds.
func TestUnheldRateIsReported(t *testing.T) {
	p := newPair(t)
	s := p.sender(t)
	sent := send(t, s, p.stream(20_000, 1e9, 64))
	if err := sent.Held(); err == nil {
		t.Errorf("Held accepted a sender that fell behind: %+v", sent)
	}
	slow := Sent{Packets: 1001, Asked: 1000, Rate: 1000, Behind: 5_000_000}
	if err := slow.Held(); err != nil {
		t.Errorf("5 ms behind after a second: got %v", err)
	}
}

func TestBadInputIsNamed(t *testing.T) {
	p := newPair(t)
	s := p.sender(t)
	for name, stream := range map[string]Stream{
		"a frame over the MTU": p.stream(1, 1, 1515),
		"a frame too small":    p.stream(1, 1, 63),
		"no packets":           p.stream(0, 1, 64),
		"no rate":              p.stream(1, 0, 64),
	} {
		if _, err := s.Send(t.Context(), stream); !vitrine.IsBadInput(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := OpenSender(SenderConfig{NetNS: p.near, Interface: "absent"}); !vitrine.IsBadInput(err) {
		t.Errorf("missing interface: got %v, want BadInput", err)
	}
	receiver(t, ReceiverConfig{NetNS: p.far, Address: p.dest})
	if _, err := OpenReceiver(ReceiverConfig{NetNS: p.far, Address: p.dest}); !vitrine.IsBadInput(err) {
		t.Errorf("address in use: got %v, want BadInput", err)
	}
}

func TestSendingEndsWithTheContext(t *testing.T) {
	p := newPair(t)
	s := p.sender(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Send(ctx, p.stream(1<<20, 10, 64)); err == nil {
		t.Error("Send succeeded with a cancelled context")
	}
}

func TestFramesAreRead(t *testing.T) {
	p := pair{nearMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, farMAC: net.HardwareAddr{2, 0, 0, 0, 0, 2},
		source: netip.MustParseAddrPort("198.18.0.1:1"), dest: netip.MustParseAddrPort("198.18.0.2:65535")}
	want := Probe{Run: 1 << 31, Stream: 1 << 15, Sequence: 1<<32 - 1, Scheduled: 1_700_000_000_123_456_789, Sent: 1_700_000_000_123_999_999}
	for _, size := range Sizes() {
		frame := make([]byte, size)
		if err := Build(frame, p.stream(1, 1, size).Ends); err != nil {
			t.Fatal(err)
		}
		if checksum(frame[offIP:offUDP]) != 0 {
			t.Error("the header checksum is wrong")
		}
		want.Put(frame[HeaderSize:])
		got, port, ok := Parse(frame)
		if !ok || got != want || port != 65535 {
			t.Errorf("%d bytes: got %+v to port %d, %v", size, got, port, ok)
		}
	}
}

func FuzzParse(f *testing.F) {
	ends := Ends{SourceMAC: make(net.HardwareAddr, 6), DestMAC: make(net.HardwareAddr, 6),
		Source: netip.MustParseAddrPort("198.18.0.1:1"), Dest: netip.MustParseAddrPort("198.18.0.2:2")}
	for _, size := range []int{64, 65, 1514} {
		frame := make([]byte, size)
		if err := Build(frame, ends); err != nil {
			f.Fatal(err)
		}
		Probe{Run: 7, Sequence: 9, Scheduled: 1 << 60, Sent: 1<<60 + 5}.Put(frame[HeaderSize:])
		f.Add(frame)
		f.Add(frame[:63])
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		p, _, ok := Parse(frame)
		if !ok {
			return
		}
		again := bytes.Clone(frame)
		p.Put(again[HeaderSize:])
		if !bytes.Equal(frame, again) {
			t.Errorf("frame %x decoded as %+v, which encodes as %x", frame, p, again)
		}
	})
}
