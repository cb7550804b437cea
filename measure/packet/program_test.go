package packet

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"reflect"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"vitrine/internal/netns"
	"vitrine/measure/delay"
)

// TestMain lets the test binary act as a receiver if its first argument is receive.
func TestMain(m *testing.M) {
	if len(os.Args) < 2 || os.Args[1] != "receive" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	err := RunReceive(ctx, os.Args[2:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// TestAStalledReceiverShowsAsLateness checks that packets that arrive while the receiver is
// stopped are late by the time of the stop. The kernel is not stopped, so its stamps are earlier.
func TestAStalledReceiverShowsAsLateness(t *testing.T) {
	const n, missed = 400, 6
	p := newPair(t)
	c := exec.Command(os.Args[0], "receive", "--listen", p.dest.String(), "--run", fmt.Sprint(0xC0FFEE))
	var out bytes.Buffer
	c.Stdout = &out
	ready, err := c.StderrPipe()
	if err == nil {
		err = netns.Do(p.far, c.Start)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Process.Kill() }()
	if _, err := ready.Read(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	s := p.sender(t)
	stalled := make(chan [2]int64, 1)
	go func() {
		p.awaitArrivals(t, n/4)
		stalled <- stopWhile(c.Process.Pid, func() { p.awaitArrivals(t, min(n, p.arrivals(t)+missed)) })
	}()
	send(t, s, p.stream(n, 2000, 64))
	span := <-stalled
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err != nil {
		t.Fatal(err)
	}
	record, err := ReadRecord(out.Bytes())
	if err != nil || len(record.Receptions) != n {
		t.Fatalf("received %d of %d packets: %v", len(record.Receptions), n, err)
	}
	var late []delay.Packet
	first := span[1] // arrival of the first packet while the receiver was stopped
	for _, x := range record.Receptions {
		late = append(late, delay.Packet{Sequence: x.Sequence, Sent: x.Sent, Received: x.Read})
		if x.Kernel > span[0] && x.Kernel < span[1] {
			first = min(first, x.Kernel)
			if x.Read < span[1] {
				t.Errorf("packet %d was read while the program was stopped: %d ns before its end", x.Sequence, span[1]-x.Read)
			}
		}
	}
	if first == span[1] { // the whole host stalled
		t.Skip("no packet arrived while the receiver was stopped")
	}
	lateness := delay.Analyze(n, late, delay.Cut{}).Lateness
	if held := float64(span[1]-first) / 1e3; lateness.Max < 0.8*held {
		t.Errorf("got lateness %+v of a receiver that was stopped for %.0f µs of a packet's time", lateness, held)
	}
}

// awaitArrivals returns when the far end has received the given number of packets.
func (p pair) awaitArrivals(t *testing.T, packets uint64) {
	for deadline := time.Now().Add(time.Minute); !t.Failed() && p.arrivals(t) < packets; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Errorf("the far end did not receive %d packets", packets)
		}
	}
}

// arrivals returns the number of packets that the far end has received.
func (p pair) arrivals(t *testing.T) (packets uint64) {
	err := netns.Do(p.far, func() error {
		link, err := netlink.LinkByName("eth0")
		if err == nil {
			packets = link.Attrs().Statistics.RxPackets
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return packets
}

// stopWhile stops a child process until await returns. It returns the start and the end of a span
// during which the child was certainly stopped, in ns since 1970.
func stopWhile(pid int, await func()) (span [2]int64) {
	_ = unix.Kill(pid, unix.SIGSTOP)
	for unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED, nil) == unix.EINTR {
	}
	span[0] = time.Now().UnixNano()
	await()
	span[1] = time.Now().UnixNano()
	_ = unix.Kill(pid, unix.SIGCONT)
	return span
}

func record() *Record {
	return &Record{Dropped: 3, Sent: &Sent{Packets: 2, Rate: 10}, Receptions: []Reception{
		{Probe: Probe{Run: 1, Stream: 2, Sequence: 3, Scheduled: 4, Sent: 5}, Kernel: 6, Hardware: 7, Read: 8},
		{Probe: Probe{Run: 1<<32 - 1, Stream: 1<<16 - 1, Sequence: 1<<32 - 1, Scheduled: 1 << 62, Sent: -1}, Kernel: -1},
	}}
}

// TestARecordIsReadFromAConsole checks that a record is found among the kernel messages of a
// console.
func TestARecordIsReadFromAConsole(t *testing.T) {
	for _, want := range []*Record{record(), {}} {
		var b bytes.Buffer
		b.WriteString("[    0.1] Linux version 6.1\n")
		if err := (&Record{Foreign: 1}).Write(&b); err != nil {
			t.Fatal(err)
		}
		if err := want.Write(&b); err != nil {
			t.Fatal(err)
		}
		whole := b.Len()
		b.WriteString("[    9.1] reboot: Power down\r\n")
		got, err := ReadRecord(b.Bytes())
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, error %v, want %+v", got, err, want)
		}
		if _, err := ReadRecord(b.Bytes()[:whole-10]); err == nil && len(want.Receptions) > 0 {
			t.Error("ReadRecord accepted a truncated record")
		}
	}
	if _, err := ReadRecord([]byte("ready\n")); err == nil {
		t.Error("ReadRecord accepted data without a record")
	}
}

func FuzzReadRecord(f *testing.F) {
	var b bytes.Buffer
	if err := record().Write(&b); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte("{\"boot_id\":\"x\",\"receptions\":1}\nAAAA\n"))
	f.Add([]byte("{\"boot_id\":\"x\",\"receptions\":-1}\n\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := ReadRecord(text)
		if err != nil {
			return
		}
		if len(r.Receptions) != r.Count {
			t.Errorf("got %d receptions, want %d", len(r.Receptions), r.Count)
		}
		var again bytes.Buffer
		if err := r.Write(&again); err != nil {
			t.Fatal(err)
		}
		back, err := ReadRecord(again.Bytes())
		if err != nil || !reflect.DeepEqual(back.Receptions, r.Receptions) {
			t.Errorf("error %v: record %+v became %+v", err, r, back)
		}
	})
}
