package sctp

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/internal/hosttest"
)

// patience bounds every wait in these tests.
const patience = time.Minute

// appendRecord appends a record for S1AP.
func appendRecord(b []byte, stream uint16, message []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(message)))
	b = binary.BigEndian.AppendUint32(b, 18)
	b = binary.BigEndian.AppendUint16(b, stream)
	return append(append(b, 0, 0), message...)
}

// message returns a message of n octets that depends on i.
func message(i, n int) []byte {
	m := bytes.Repeat([]byte{byte(i)}, n)
	if n >= 4 {
		binary.BigEndian.PutUint32(m, uint32(i))
	}
	return m
}

// TestKernelWithoutSCTPIsNamed runs on hosts on which the other tests here cannot run.
func TestKernelWithoutSCTPIsNamed(t *testing.T) {
	err := Possible()
	if err == nil {
		t.Skip("the kernel has SCTP")
	}
	if !vitrine.IsUnsupported(err) || !strings.Contains(err.Error(), "modprobe sctp") {
		t.Errorf("error %v", err)
	}
	at := netip.MustParseAddrPort("127.0.0.1:1")
	if _, err := Listen(at); !vitrine.IsUnsupported(err) {
		t.Errorf("Listen: %v", err)
	}
	if _, err := Dial(t.Context(), at); !vitrine.IsUnsupported(err) {
		t.Errorf("Dial: %v", err)
	}
}

// listen listens on a free port of loopback.
func listen(t *testing.T) (*Listener, netip.AddrPort) {
	t.Helper()
	hosttest.Need(t, Possible())
	l, err := Listen(netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l, l.Addr().(*net.TCPAddr).AddrPort()
}

// pair returns the two ends of an association. prepare may change the listener first.
func pair(t *testing.T, prepare func(fd int) error) (server, client *Conn) {
	t.Helper()
	l, at := listen(t)
	if prepare != nil {
		raw, err := l.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		control(t, raw, prepare)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	client, err := Dial(ctx, at)
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	server = accepted.(*Conn)
	for _, c := range []*Conn{server, client} {
		t.Cleanup(func() { c.Close() })
		if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
	}
	return server, client
}

// control calls do with a socket's descriptor.
func control(t *testing.T, raw syscall.RawConn, do func(fd int) error) {
	t.Helper()
	var failed error
	err := raw.Control(func(fd uintptr) { failed = do(int(fd)) })
	if err := errors.Join(err, failed); err != nil {
		t.Fatal(err)
	}
}

// lengths are those of messages around the sizes of packets and buffers.
var lengths = []int{1, 2, 100, 1400, 1500, 4096, 9000, MaxMessage - 1, MaxMessage}

// TestRecordsArriveAsTheyWereSent sends messages of many lengths on several streams, and reads
// them into buffers of several sizes.
func TestRecordsArriveAsTheyWereSent(t *testing.T) {
	for _, room := range []int{1, 13, 100, 4096, 64 << 10} {
		server, client := pair(t, nil)
		var sent []byte
		for i, n := range lengths {
			sent = appendRecord(sent, uint16(i%streams), message(i, n))
		}
		written := make(chan error, 1)
		go func() {
			_, err := client.Write(sent)
			written <- err
		}()
		var got []byte
		for buffer := make([]byte, room); len(got) < len(sent); {
			n, err := server.Read(buffer)
			if err != nil {
				t.Fatalf("room of %d octets: after %d of %d: %v", room, len(got), len(sent), err)
			}
			got = append(got, buffer[:n]...)
		}
		if err := <-written; err != nil {
			t.Error(err)
		}
		// Messages of different streams may overtake each other, so compare each stream.
		if a, b := byStream(t, got), byStream(t, sent); a != b {
			t.Errorf("room of %d octets: the received messages differ from the sent ones", room)
		}
	}
}

// TestStreamThatTheAssociationLacks sends messages to a peer that takes two streams. Those of higher
// streams must arrive on the second one, in order, and the association must last.
func TestStreamThatTheAssociationLacks(t *testing.T) {
	server, client := pair(t, func(fd int) error {
		initial := binary.NativeEndian.AppendUint16(make([]byte, 0, 8), streams)
		initial = binary.NativeEndian.AppendUint16(initial, 2)[:8]
		return unix.SetsockoptString(fd, unix.IPPROTO_SCTP, initMessage, string(initial))
	})
	var sent, want []byte
	for i, stream := range []uint16{1, 2, 5, streams - 1} {
		sent, want = appendRecord(sent, stream, message(i, 100)), appendRecord(want, 1, message(i, 100))
	}
	if _, err := client.Write(sent); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(want))
	if _, err := io.ReadFull(server, got); err != nil || !bytes.Equal(got, want) {
		t.Errorf("got % x, %v, want % x", got, err, want)
	}
}

// byStream returns the records, sorted by stream.
func byStream(t *testing.T, b []byte) (all [streams]string) {
	t.Helper()
	for len(b) > 0 {
		if len(b) < HeaderSize || len(b) < HeaderSize+int(binary.BigEndian.Uint32(b)) {
			t.Fatalf("a record has %d octets", len(b))
		}
		end := HeaderSize + int(binary.BigEndian.Uint32(b))
		all[binary.BigEndian.Uint16(b[8:])] += string(b[:end])
		b = b[end:]
	}
	return all
}

// TestMessageThatArrivesInPartsIsOneRecord sends messages in many chunks, and makes the
// kernel deliver them before they are complete (RFC 6458 section 8.1.21).
func TestMessageThatArrivesInPartsIsOneRecord(t *testing.T) {
	const deliveryPoint, segment = 19, 13 // SCTP_PARTIAL_DELIVERY_POINT, SCTP_MAXSEG
	server, client := pair(t, func(fd int) error { return unix.SetsockoptInt(fd, unix.IPPROTO_SCTP, deliveryPoint, 1000) })
	control(t, client.raw, func(fd int) error { return unix.SetsockoptInt(fd, unix.IPPROTO_SCTP, segment, 500) })
	const messages = 5
	written := make(chan error, 1)
	go func() {
		var out []byte
		for i := range messages {
			out = appendRecord(out, 1, message(i, MaxMessage))
		}
		_, err := client.Write(out)
		written <- err
	}()
	buffer := make([]byte, 64<<10)
	var got []byte
	for len(got) < messages*(HeaderSize+MaxMessage) {
		n, err := server.Read(buffer)
		if err != nil {
			t.Fatalf("after %d octets: %v", len(got), err)
		}
		got = append(got, buffer[:n]...)
	}
	for i := range messages {
		want := appendRecord(nil, 1, message(i, MaxMessage))
		if !bytes.Equal(got[:len(want)], want) {
			t.Fatalf("message %d differs", i)
		}
		got = got[len(want):]
	}
	if n := len(server.records.long); n != HeaderSize+usualMessage {
		t.Errorf("messages that arrived in parts left a buffer of %d octets, want %d", n, HeaderSize+usualMessage)
	}
	if err := <-written; err != nil {
		t.Error(err)
	}
}

// TestTooLongMessageEndsReading sends a message that exceeds the bound.
func TestTooLongMessageEndsReading(t *testing.T) {
	server, client := pair(t, nil)
	control(t, client.raw, func(fd int) error {
		_, err := unix.Write(fd, make([]byte, MaxMessage+1))
		return err
	})
	for range 2 { // the error stays
		if n, err := server.Read(make([]byte, 64<<10)); !errors.Is(err, unix.EMSGSIZE) {
			t.Errorf("%d octets, %v", n, err)
		}
	}
}

func TestSendRefusesInvalidRecords(t *testing.T) {
	for name, b := range map[string][]byte{
		"empty message": appendRecord(nil, 0, nil),
		"too long":      appendRecord(nil, 0, make([]byte, MaxMessage+1)),
		"cut off":       appendRecord(nil, 0, message(1, 10))[:15],
		"half a header": appendRecord(nil, 0, message(1, 10))[:5],
		"header alone":  appendRecord(nil, 0, message(1, 10))[:HeaderSize],
		"huge length":   {0xff, 0xff, 0xff, 0xff, 0, 0, 0, 18, 0, 0, 0, 0, 1},
	} {
		var r Records
		if n, errno := r.Send(-1, b); n != 0 || errno != unix.EINVAL {
			t.Errorf("%s: %d octets sent, %v", name, n, errno)
		}
	}
}

// TestSentMessagesArriveBeforeShutdown sends messages and then shuts down the association.
func TestSentMessagesArriveBeforeShutdown(t *testing.T) {
	server, client := pair(t, nil)
	var sent []byte
	for i := range 1000 {
		sent = appendRecord(sent, 1, message(i, 40))
	}
	written := make(chan error, 1)
	go func() {
		_, err := client.Write(sent)
		written <- errors.Join(err, client.Conn.(*net.TCPConn).CloseWrite())
	}()
	got, err := io.ReadAll(server)
	if err := errors.Join(err, <-written); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d of %d octets, %v", len(got), len(sent), err)
	}
	if _, err := server.Write(sent); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Write after the end: %v", err)
	}
}

// TestLimitsOfSilenceAreSet reads the limits from both ends. The accepted socket has those of its listener.
func TestLimitsOfSilenceAreSet(t *testing.T) {
	server, client := pair(t, nil)
	for name, c := range map[string]*Conn{"accepted": server, "dialed": client} {
		control(t, c.raw, func(fd int) error {
			timeouts, err := option(fd, rtoInfo, 16)
			limits, errLimits := option(fd, assocInfo, 20)
			path, errPath := option(fd, addressInfo, 152)
			if err := errors.Join(err, errLimits, errPath); err != nil {
				return err
			}
			order := binary.NativeEndian
			longest, most, between := order.Uint32(timeouts[8:]), order.Uint16(limits[4:]), order.Uint32(path[132:])
			if longest != maxTimeout || most != retransmissions || between != heartbeats {
				t.Errorf("%s: got a maximum of %d ms, %d retransmissions, and heartbeats each %d ms", name, longest, most, between)
			}
			return nil
		})
	}
}

// option returns an option of SCTP.
func option(fd, name, size int) ([]byte, error) {
	value, length := make([]byte, size), uint32(size)
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.IPPROTO_SCTP, uintptr(name), uintptr(unsafe.Pointer(&value[0])), uintptr(unsafe.Pointer(&length)), 0)
	if errno != 0 {
		return nil, os.NewSyscallError("getsockopt", errno)
	}
	return value, nil
}

// TestWriteBlocksWithoutReader checks that Write blocks, and returns at its deadline.
func TestWriteBlocksWithoutReader(t *testing.T) {
	_, client := pair(t, nil)
	out := make([]byte, 0, 5<<20)
	for len(out) < 4<<20 { // more than the buffers of both ends hold
		out = appendRecord(out, 1, message(1, 8<<10))
	}
	if err := client.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	if n, err := client.Write(out); !errors.Is(err, os.ErrDeadlineExceeded) || n == len(out) {
		t.Errorf("%d octets written, %v", n, err)
	}
}

func TestCloseEndsReadAndDial(t *testing.T) {
	server, client := pair(t, nil)
	ended := make(chan error, 1)
	go func() {
		_, err := server.Read(make([]byte, 64<<10))
		ended <- err
	}()
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("Read continues after Close")
	}
	if n, err := client.Read(make([]byte, 64<<10)); err == nil {
		t.Errorf("the peer still reads: %d octets", n)
	}
	l, at := listen(t)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Dial(t.Context(), at); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("Dial without a listener: %v", err)
	}
}

// TestRecordsDoNotAllocate exchanges messages on both sides without allocation.
func TestRecordsDoNotAllocate(t *testing.T) {
	server, client := pair(t, nil)
	out := appendRecord(nil, 1, message(1, 100))
	in := make([]byte, 64<<10)
	if n := testing.AllocsPerRun(100, func() {
		if _, err := client.Write(out); err != nil {
			t.Fatal(err)
		}
		if n, err := server.Read(in); err != nil || n != len(out) {
			t.Fatal(n, err)
		}
	}); n != 0 {
		t.Errorf("%v allocations a message", n)
	}
}

// TestListenerIsInherited accepts an association on the file of a listener that has closed.
func TestListenerIsInherited(t *testing.T) {
	l, at := listen(t)
	f, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	inherited, ok := Inherit(f)
	if !ok || inherited.Addr().(*net.TCPAddr).AddrPort() != at {
		t.Fatalf("inherited: %v, %v", ok, inherited)
	}
	defer inherited.Close()
	client, err := Dial(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := inherited.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	if _, ok := server.(*Conn); !ok {
		t.Errorf("it accepts a %T", server)
	}
}

func TestTCPIsNotSCTP(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, ok := Inherit(f); ok || Is(f) {
		t.Error("Is accepts a TCP socket")
	}
}
