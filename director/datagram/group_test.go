package datagram

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/director/directortest"
	"vitrine/internal/mmsg"
)

func clock() func() time.Duration {
	start := time.Now()
	return func() time.Duration { return time.Since(start) }
}

// An echo sends each datagram back with a mark in front.
type echo struct{ handled atomic.Int64 }

func (e *echo) Handle(in *Datagram, out *Sender) {
	e.handled.Add(1)
	mark := append(out.Room(), "echo:"...)
	out.Send(in.Listener, in.From, mark, nil, in.Data)
}

// serve runs a group until the test ends or stop is called.
func serve(t *testing.T, config Config) (g *Group, e *echo, stop func()) {
	t.Helper()
	config.Now = clock()
	g, err := Listen(config)
	if err != nil {
		t.Fatal(err)
	}
	e = new(echo)
	run := func(ctx context.Context) error { return g.Run(ctx, func(int) Handler { return e }) }
	return g, e, directortest.Serve(t, run, g.Close)
}

func dial(t *testing.T, to netip.AddrPort) *net.UDPConn {
	t.Helper()
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func exchange(t *testing.T, c *net.UDPConn, message []byte) []byte {
	t.Helper()
	if _, err := c.Write(message); err != nil {
		t.Fatal(err)
	}
	return read(t, c)
}

func read(t *testing.T, c *net.UDPConn) []byte {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 70000)
	n, err := c.Read(answer)
	if err != nil {
		t.Fatal(err)
	}
	return answer[:n]
}

var loopback = []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0"), netip.MustParseAddrPort("[::1]:0")}

func TestBothFamiliesAndAllSizes(t *testing.T) {
	g, _, _ := serve(t, Config{Addresses: loopback, Workers: 2})
	for _, address := range g.Addresses() {
		c := dial(t, address)
		for _, size := range []int{0, 1, front - 1, front, front + 1, 9000, 65000} {
			message := make([]byte, size)
			for i := range message {
				message[i] = byte(i * 7 / 3)
			}
			if got := exchange(t, c, message); !bytes.Equal(got, append([]byte("echo:"), message...)) {
				t.Errorf("%v: sent %d bytes, got a wrong reply of %d bytes", address, size, len(got))
			}
		}
	}
}

// TestManySources checks that the workers together answer every sender.
func TestManySources(t *testing.T) {
	g, e, _ := serve(t, Config{Addresses: loopback, Workers: 2})
	const sources, rounds = 50, 40
	var conns []*net.UDPConn
	for i := range sources {
		conns = append(conns, dial(t, g.Addresses()[i%2]))
	}
	for round := range rounds {
		for i, c := range conns {
			if _, err := c.Write(binary.BigEndian.AppendUint64(nil, uint64(round*sources+i))); err != nil {
				t.Fatal(err)
			}
		}
		for i, c := range conns {
			if got := read(t, c); binary.BigEndian.Uint64(got[5:]) != uint64(round*sources+i) {
				t.Fatalf("source %d got the wrong answer %x", i, got)
			}
		}
	}
	counters, err := g.Counters()
	if err != nil {
		t.Fatal(err)
	}
	if n := uint64(sources * rounds); counters.Received != n || counters.Sent != n || counters.Unsent != 0 || counters.Dropped != 0 || e.handled.Load() != int64(n) {
		t.Errorf("sent %d datagrams, handled %d: counters %+v", n, e.handled.Load(), counters)
	}
	if counters.Reads == 0 || counters.Reads > counters.Received {
		t.Errorf("got counters of reads %+v", counters)
	}
}

// TestHandOver checks that the next group serves the datagrams that wait in the sockets when a
// group stops. The kernel must refuse no datagram in between.
func TestHandOver(t *testing.T) {
	first, _, stop := serve(t, Config{Addresses: loopback, Workers: 3})
	address := first.Addresses()[0]
	c := dial(t, address)
	exchange(t, c, []byte("1"))
	files, err := first.Files()
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 6 {
		t.Errorf("got %d files for 3 workers on 2 addresses, want 6", len(files))
	}
	stop()
	var waiting []*net.UDPConn
	for range 20 { // no group runs; the kernel spreads the datagrams over all three sockets
		w := dial(t, address)
		if _, err := w.Write([]byte("2")); err != nil {
			t.Fatal(err)
		}
		waiting = append(waiting, w)
	}
	pipe, other, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	files = append(files, pipe, other) // not ours: they must be left alone
	second, _, _ := serve(t, Config{Addresses: first.Addresses(), Workers: 2, Inherited: files})
	for _, f := range files {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	for i, w := range waiting {
		if got := read(t, w); string(got) != "echo:2" {
			t.Errorf("%d: %q", i, got)
		}
	}
	if n := len(second.workers[0].sockets) + len(second.workers[1].sockets); n != 6 {
		t.Errorf("got %d sockets, want the 6 inherited ones", n)
	}
}

func TestRefusedIsCountedAndTheRestSent(t *testing.T) {
	g, _, _ := serve(t, Config{Addresses: loopback[:1], Workers: 1})
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:0")))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s := g.NewSender()
	to := c.LocalAddr().(*net.UDPAddr).AddrPort()
	s.Send(0, to, []byte("a"))
	s.Send(0, to, make([]byte, 66000)) // longer than a UDP datagram can be
	s.Send(0, netip.AddrPortFrom(to.Addr(), 0), []byte("x"))
	s.Send(0, to, []byte("b"), []byte("c"))
	s.Flush()
	for _, want := range []string{"a", "bc"} {
		if got := read(t, c); string(got) != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	last := Refusal{netip.AddrPortFrom(to.Addr(), 0), unix.EINVAL}
	if counters, err := g.Counters(); err != nil || counters.Sent != 2 || counters.Unsent != 2 || counters.Refused != last {
		t.Errorf("%+v %v", counters, err)
	}
}

// TestFullQueue checks that all messages are sent even if a queue gets more messages than it holds.
func TestFullQueue(t *testing.T) {
	g, _, _ := serve(t, Config{Addresses: loopback[:1], Workers: 1})
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:0")))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	mmsg.GrowReceive(fdOf(t, c), socketRoom)
	s := g.NewSender()
	parts := bytes.Split([]byte("a,b,c,d,e,f,g,h,i,j,k,l"), []byte(","))
	for range 3*batch + 1 {
		s.Send(0, c.LocalAddr().(*net.UDPAddr).AddrPort(), parts...)
	}
	s.Flush()
	for range 3*batch + 1 {
		if got := read(t, c); string(got) != "abcdefghijkl" {
			t.Fatalf("%q", got)
		}
	}
}

func fdOf(t *testing.T, c *net.UDPConn) (fd int) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(f uintptr) { fd = int(f) }); err != nil {
		t.Fatal(err)
	}
	return fd
}

// TestKernelDropsAreCounted fills the buffer of a socket from which nobody reads.
func TestKernelDropsAreCounted(t *testing.T) {
	g, err := Listen(Config{Addresses: loopback[:1], Workers: 1, Now: clock()})
	if err != nil {
		t.Fatal(err)
	}
	c := dial(t, g.Addresses()[0])
	message := make([]byte, 60000)
	for range 2000 { // 120 MB
		if _, err := c.Write(message); err != nil {
			t.Fatal(err)
		}
	}
	counters, err := g.Counters()
	if err != nil || counters.Dropped == 0 || counters.Dropped >= 2000 {
		t.Errorf("%+v %v", counters, err)
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	if after, err := g.Counters(); err != nil || after != counters {
		t.Errorf("counters changed after Close: %+v, error %v", after, err)
	}
}

func TestAddressTakenByAStrangerIsRefused(t *testing.T) {
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:0")))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	g, err := Listen(Config{Addresses: []netip.AddrPort{c.LocalAddr().(*net.UDPAddr).AddrPort()}, Workers: 1, Now: clock()})
	if err == nil {
		t.Error(g.Close(), "no error")
	}
}

// TestNoAllocation checks that a round trip of a batch through a worker allocates
// nothing.
func TestNoAllocation(t *testing.T) {
	g, err := Listen(Config{Addresses: loopback[:1], Workers: 1, Now: clock()})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	c := dial(t, g.Addresses()[0])
	w, in, e := g.workers[0], new(Datagram), new(echo)
	message := make([]byte, 300)
	answer := make([]byte, 400)
	const rounds = 200
	for range rounds + 1 {
		if _, err := c.Write(message); err != nil {
			t.Fatal(err)
		}
	}
	fd := fdOf(t, c)
	receive := &inbox{}
	*receive = *newInbox()
	n := testing.AllocsPerRun(rounds, func() {
		w.turn(&w.sockets[0], in, g.now, e)
		receive.receive(fd)
		near, _ := receive.data(0, len(message))
		copy(answer, near)
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
	if e.handled.Load() != rounds+1 {
		t.Errorf("handled %d datagrams, want one more than the rounds", e.handled.Load())
	}
}

// TestBurst checks that datagrams sent in one piece (UDP_SEGMENT) arrive one by one, the
// last one shorter.
func TestBurst(t *testing.T) {
	g, e, _ := serve(t, Config{Addresses: loopback, Workers: 1})
	for _, address := range g.Addresses() {
		c := dial(t, address)
		for _, size := range []int{1, 100, 300, 1400} {
			if err := unix.SetsockoptInt(fdOf(t, c), unix.SOL_UDP, unix.UDP_SEGMENT, size); err != nil {
				t.Skip(&vitrine.Unsupported{What: "UDP segmentation offload", Missing: err.Error()})
			}
			before := e.handled.Load()
			const count = 20
			burst := make([]byte, count*size+size/2)
			for i := range burst {
				burst[i] = byte(i / size)
			}
			if _, err := c.Write(burst); err != nil {
				t.Fatal(err)
			}
			want := count + (size/2+size-1)/size
			for i := range want {
				message := burst[i*size : min((i+1)*size, len(burst))]
				if got := read(t, c); !bytes.Equal(got, append([]byte("echo:"), message...)) {
					t.Fatalf("%v: datagram %d of size %d came back as %d bytes %.20q", address, i, size, len(got), got)
				}
			}
			if n := e.handled.Load() - before; n != int64(want) {
				t.Errorf("sent %d datagrams of size %d, handled %d", want, size, n)
			}
		}
	}
	counters, err := g.Counters()
	if err != nil || counters.Received != uint64(e.handled.Load()) {
		t.Errorf("handled %d datagrams, counters %+v, error %v", e.handled.Load(), counters, err)
	}
}
