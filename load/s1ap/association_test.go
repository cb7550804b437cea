package s1ap

import (
	"bytes"
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"

	"vitrine/internal/tcpfd"
	"vitrine/reference/epc/enb"
	"vitrine/reference/epc/s1"
	wire "vitrine/wire/s1ap"
	"vitrine/wire/s1ap/frame"
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

// flood sends Resets of more octets than one read takes, and returns their number.
func (d *desk) flood() (resets int) {
	d.t.Helper()
	var cell enb.Cell
	one := frame.Append(nil, frame.UE, cell.AppendReset(nil, wire.CauseIntervention, wire.Connection{ENB: 77, HasENB: true}))
	resets = 3 * frame.MaxMessage / 2 / len(one)
	all := bytes.Repeat(one, resets)
	if n, errno := tcpfd.Send(d.mme, all); n != len(all) {
		d.t.Fatalf("sent %d of %d octets, error %v", n, len(all), errno)
	}
	return resets
}

// TestMessagesLeaveTimeForOtherWork sends more messages than the turn has octets left. The next turn must read
// the rest, without another event.
func TestMessagesLeaveTimeForOtherWork(t *testing.T) {
	d := newDesk(t, "0")
	sent := d.flood()
	d.octets = 1
	d.read(d.at)
	first := d.skip()
	d.handleReady()
	second := d.skip()
	if first == 0 || second == 0 || first+second != sent {
		t.Errorf("answered %d and then %d of %d messages, want all in two turns", first, second, sent)
	}
}

// TestAnswersForAnMMEThatDoesNotReadAreBounded floods an eNodeB whose answers already wait.
func TestAnswersForAnMMEThatDoesNotReadAreBounded(t *testing.T) {
	d := newDesk(t, "0")
	sent := d.flood()
	before := 2 * maxQueued
	d.at.out = make([]byte, before)
	d.octets = maxOctets
	d.read(d.at)
	answer := frame.HeaderSize + len(d.at.cell.AppendResetAcknowledge(nil, wire.Connection{ENB: 77, HasENB: true}))
	if answered := (len(d.at.out) - before) / answer; answered == 0 || answered == sent {
		t.Errorf("answered %d of %d messages, want those of one read", answered, sent)
	}
	d.handleReady()
	if d.at.state != down {
		t.Errorf("the state is %d, want the association closed", d.at.state)
	}
}
