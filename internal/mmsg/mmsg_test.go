package mmsg

import (
	"bytes"
	"net/netip"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// open makes a non-blocking UDP socket on a free port.
func open(t *testing.T, ip string) (int, netip.AddrPort) {
	t.Helper()
	at := netip.AddrPortFrom(netip.MustParseAddr(ip), 0)
	family := unix.AF_INET6
	if at.Addr().Is4() {
		family = unix.AF_INET
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Bind(fd, Sockaddr(at)); err != nil {
		t.Skip(err) // no IPv6 here
	}
	if at, err = Local(fd); err != nil || at.Port() == 0 {
		t.Fatal(at, err)
	}
	return fd, at
}

// TestExchange sends datagrams of two parts and receives them, without allocation.
func TestExchange(t *testing.T) {
	for _, ip := range []string{"127.0.0.1", "::1"} {
		t.Run(ip, func(t *testing.T) {
			const size = 3
			from, source := open(t, ip)
			to, target := open(t, ip)
			if err := unix.SetsockoptInt(to, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1); err != nil {
				t.Fatal(err)
			}
			var out, in [size]Message
			var names [2 * size]Name
			var vectors [size][2]unix.Iovec
			var inVectors [size]unix.Iovec
			var control [size][64]byte
			var room [size][16]byte
			a, b := []byte("ab"), []byte("cde")
			exchange := func() {
				for i := range out {
					vectors[i] = [2]unix.Iovec{Vector(a), Vector(b)}
					out[i].SetVectors(vectors[i][:])
					out[i].SetName(&names[i], names[i].Put(target))
					inVectors[i] = Vector(room[i][:])
					in[i].SetVectors(inVectors[i : i+1])
					in[i].SetName(&names[size+i], NameSize)
					in[i].SetControl(control[i][:])
				}
				if n, errno := Send(from, out[:], unix.MSG_NOSIGNAL); n != size || errno != 0 || out[0].Length != 5 {
					t.Fatalf("sent %d: %v", n, errno)
				}
				if n := Receive(to, in[:]); n != size {
					t.Fatalf("received %d", n)
				}
			}
			if n := testing.AllocsPerRun(10, exchange); n != 0 {
				t.Errorf("%v allocations", n)
			}
			for i := range in {
				if got := room[i][:in[i].Length]; !bytes.Equal(got, []byte("abcde")) || names[size+i].AddrPort() != source {
					t.Errorf("%q came from %v, want %v", got, names[size+i].AddrPort(), source)
				}
				stamp := Control(control[i][:in[i].Header.Controllen], unix.SOL_SOCKET, unix.SO_TIMESTAMPNS)
				if len(stamp) != 16 || time.Since(time.Unix(0, Nanoseconds(stamp))).Abs() > time.Hour {
					t.Errorf("stamp %x", stamp)
				}
			}
			if n := Receive(to, in[:]); n != 0 {
				t.Errorf("%d more", n)
			}
		})
	}
}

// TestWait checks that Wait returns waiting datagrams, and gives up at the socket's timeout.
func TestWait(t *testing.T) {
	fd, at := open(t, "127.0.0.1")
	if err := unix.SetNonblock(fd, false); err != nil {
		t.Fatal(err)
	}
	limit := unix.NsecToTimeval(int64(time.Millisecond))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
		t.Fatal(err)
	}
	var room [8]byte
	vectors := []unix.Iovec{Vector(room[:])}
	in := make([]Message, 2)
	in[0].SetVectors(vectors)
	if n, errno := Wait(fd, in); errno != unix.EAGAIN {
		t.Errorf("%d, %v", n, errno)
	}
	if err := unix.Sendto(fd, []byte("x"), 0, Sockaddr(at)); err != nil {
		t.Fatal(err)
	}
	if n, errno := Wait(fd, in); n != 1 || errno != 0 || room[0] != 'x' {
		t.Errorf("%d, %v, %q", n, errno, room)
	}
}

// TestDrops checks that datagrams beyond the receive buffer are counted.
func TestDrops(t *testing.T) {
	fd, at := open(t, "127.0.0.1")
	if n, err := Drops(fd); n != 0 || err != nil {
		t.Fatal(n, err)
	}
	GrowReceive(fd, 1)
	const sent = 1000
	for range sent {
		if err := unix.Sendto(fd, make([]byte, 100), 0, Sockaddr(at)); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := Drops(fd); n == 0 || n >= sent || err != nil {
		t.Error(n, err)
	}
}

// TestControl checks that only complete control messages count.
func TestControl(t *testing.T) {
	first, second := make([]byte, unix.CmsgSpace(1)), make([]byte, unix.CmsgSpace(4))
	for i, b := range [][]byte{first, second} {
		h := (*unix.Cmsghdr)(unsafe.Pointer(&b[0]))
		h.Level, h.Type = unix.SOL_UDP, int32(i)
		h.SetLen(unix.CmsgLen([]int{1, 4}[i]))
		b[unix.CmsgLen(0)] = byte(7 + i)
	}
	all := append(first, second...)
	if got := Control(all, unix.SOL_UDP, 0); len(got) != 1 || got[0] != 7 {
		t.Errorf("the first control message is %x", got)
	}
	if got := Control(all, unix.SOL_UDP, 1); len(got) != 4 || got[0] != 8 {
		t.Errorf("the second control message is %x", got)
	}
	for n := range all {
		if got := Control(all[:n], unix.SOL_UDP, 2); got != nil {
			t.Errorf("of %d bytes: %x", n, got)
		}
	}
}
