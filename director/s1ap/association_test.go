package s1ap

import (
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"vitrine/director/meter"
	"vitrine/wire/s1ap/frame"
)

// TestSlowPeerKeepsItsAssociation writes a queue to a peer that reads all the time, but needs longer for
// the whole queue than a write may take. Long after that, the next write must succeed.
func TestSlowPeerKeepsItsAssociation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer near.Close()
		const octets, each = 100, 10
		a := &association{server: &Server{}, conn: near, out: make([]byte, octets), draining: true}
		a.server.queued.Store(octets)
		ended := make(chan struct{})
		go func() {
			a.drain()
			close(ended)
		}()
		for range octets / each {
			time.Sleep(stall / 4)
			if n, err := far.Read(make([]byte, each)); n != each || err != nil {
				t.Fatalf("read %d octets, %v", n, err)
			}
		}
		<-ended
		if queued := a.server.queued.Load(); a.err != nil || queued != 0 {
			t.Errorf("a peer that reads: %v, %d octets are left", a.err, queued)
		}
		time.Sleep(2 * stall)
		go func() { _, _ = far.Read(make([]byte, 1)) }()
		if _, err := near.Write([]byte{1}); err != nil {
			t.Errorf("a write long after the queue was sent: %v", err)
		}
	})
}

// TestStuckPeerLosesItsAssociation writes a queue to a peer that does not read. The reason must differ
// from that of an eNodeB that is late.
func TestStuckPeerLosesItsAssociation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		m := meter.New(8, time.Minute)
		w := &worker{meter: m.Worker()}
		w.meter.Protocol = "s1ap"
		s := &Server{config: Config{Now: func() time.Duration { return 0 }}, workers: []*worker{w}}
		a := &association{server: s, conn: near, out: make([]byte, 100), draining: true}
		s.queued.Store(100)
		a.drain()
		if dropped := m.Drops("s1ap")[meter.Unsent.String()]; !errors.Is(a.err, errStuck) || dropped != 1 || s.queued.Load() != 0 {
			t.Errorf("error %v, %d drops, %d octets are left", a.err, dropped, s.queued.Load())
		}
	})
}

// TestQueuesAreBounded fills the queue of an eNodeB and of an instance that do not read. At the bound the
// association must end, with a drop, and nothing may stay reserved.
func TestQueuesAreBounded(t *testing.T) {
	whole := frame.Append(nil, frame.UE, make([]byte, 1000))
	for known, most := range map[bool]int{false: 1 << 20, true: 4 << 20} {
		b := newBench(t)
		full := func() uint64 { return sharedGround().meter.Drops(b.worker.meter.Protocol)[meter.QueueFull.String()] }
		a, before := b.queue(t, b.server, known), full()
		b.begin()
		queued := 0
		for a.reason() == nil && queued <= most {
			queued = len(a.out)
			b.pass(a, whole)
		}
		b.done()
		if queued > most || queued <= most-len(whole) {
			t.Errorf("the peer is an instance: %t: %d octets were queued, want at most %d, and no fewer than fit", known, queued, most)
		}
		if reserved := b.server.queued.Load(); !errors.Is(a.reason(), errFull) || full() != before+1 || reserved != 0 {
			t.Errorf("the peer is an instance: %t: error %v, %d drops, %d octets are reserved", known, a.reason(), full()-before, reserved)
		}
	}
}

// TestSlowPeerFreesItsBuffer writes a long queue to a peer that reads all but the end. Only the end counts
// as queued, so its buffer must be short.
func TestSlowPeerFreesItsBuffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer near.Close()
		const octets, end = maxQueued, 100
		a := &association{server: &Server{}, conn: near, out: make([]byte, octets), draining: true}
		a.server.queued.Store(octets)
		go a.drain()
		if _, err := io.ReadFull(far, make([]byte, octets-end)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(stall + time.Second)
		a.mu.Lock()
		size, queued := cap(a.out), a.server.queued.Load()
		a.mu.Unlock()
		if size > keptBuffer || queued != end {
			t.Errorf("a buffer of %d octets for %d that are queued, want %d", size, queued, end)
		}
		if _, err := io.ReadFull(far, make([]byte, end)); err != nil {
			t.Error(err)
		}
	})
}

// TestEmptySendBuffer checks that an association keeps only a short buffer.
func TestEmptySendBuffer(t *testing.T) {
	for size, want := range map[int]int{keptBuffer: keptBuffer, 3 * shortMessage: 0} {
		a := &association{out: make([]byte, size)}
		if a.reuse(); cap(a.out) != want {
			t.Errorf("of %d octets, %d are kept, want %d", size, cap(a.out), want)
		}
	}
}

// TestReceiveBuffer grows the buffer until the frame is too long, and then empties it.
func TestReceiveBuffer(t *testing.T) {
	for most, long := range map[int]bool{shortFrame: false, longFrame: true} {
		r := &reading{buffer: make([]byte, firstBuffer), long: long}
		err := error(nil)
		for err == nil {
			r.to = len(r.buffer)
			err = r.grow()
		}
		if !errors.Is(err, frame.ErrLength) || r.to != most {
			t.Errorf("room for %d octets, want %d; error %v", r.to, most, err)
		}
		if r.keep(r.to); len(r.buffer) > shortFrame {
			t.Errorf("an empty buffer has %d octets", len(r.buffer))
		}
	}
}

// TestLostHostEndsItsConnection drops all segments to a peer, as the loss of the peer's host does. The
// connection must end soon, whether or not something waits for an acknowledgement.
func TestLostHostEndsItsConnection(t *testing.T) {
	for _, waits := range []bool{false, true} {
		near, far := pair(t)
		raw, err := near.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		if err := limitSilence(near.(*net.TCPConn), raw, time.Second); err != nil {
			t.Fatal(err)
		}
		deafen(t, far.(*net.TCPConn))
		if waits {
			if _, err := near.Write([]byte{1}); err != nil {
				t.Fatal(err)
			}
		}
		if err := near.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := near.Read(make([]byte, 1)); !errors.Is(err, unix.ETIMEDOUT) {
			t.Errorf("an octet waits: %t: got error %v, want %v", waits, err, unix.ETIMEDOUT)
		}
	}
}

// deafen attaches a filter that passes nothing, so the kernel drops all segments that arrive.
func deafen(t *testing.T, conn *net.TCPConn) {
	t.Helper()
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	nothing := &unix.SockFprog{Len: 1, Filter: &unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K}}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, nothing)
	})
	if errors.Is(failed, unix.EPERM) {
		t.Skip("this host lets only root attach a filter to a socket")
	}
	if err := errors.Join(err, failed); err != nil {
		t.Fatal(err)
	}
}

// left is a connection whose peer has ended it: the kernel has no peer address.
type left struct{ *net.TCPConn }

func (left) RemoteAddr() net.Addr { return nil }

func TestPeerThatHasLeftIsNoAssociation(t *testing.T) {
	conn, _ := pair(t)
	if _, err := newAssociation(new(Server), left{conn.(*net.TCPConn)}, true); !errors.Is(err, net.ErrClosed) {
		t.Errorf("got error %v, want %v", err, net.ErrClosed)
	}
}
