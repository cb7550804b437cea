package s1ap

import (
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"

	"vitrine/internal/tcpfd"
	"vitrine/reference/epc/s1"
)

// TestSentOctetsAreNotKept queues messages for an MME that reads slowly. Messages that the MME has
// read must take no memory, and no message may be lost.
func TestSentOctetsAreNotKept(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fds[0]); unix.Close(fds[1]) })
	const backlog, rounds = 1 << 20, 1000
	e, a := new(engine), &association{fd: fds[0], state: ready}
	var reader s1.Reader
	message := make([]byte, 8<<10)
	queued, read := uint32(0), uint32(0)
	for range rounds {
		for ; len(a.out)-a.sent < backlog; queued++ {
			binary.BigEndian.PutUint32(message, queued)
			e.queue(a, message)
		}
		e.flush(a)
		n, errno := tcpfd.Receive(fds[1], reader.Room())
		if errno != 0 || a.state != ready {
			t.Fatalf("got error %v, state %d, want ready", errno, a.state)
		}
		reader.Received(n)
		for {
			m, err := reader.Next()
			if err != nil {
				t.Fatal(err)
			}
			if m == nil {
				break
			}
			if got := binary.BigEndian.Uint32(m); got != read {
				t.Fatalf("got message %d after %d messages", got, read)
			}
			read++
		}
	}
	if read < rounds || cap(a.out) > 4*backlog {
		t.Errorf("read %d messages, the buffer has %d octets", read, cap(a.out))
	}
}
