package packet

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"testing"
	"time"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"

	"vitrine"
	"vitrine/internal/bpftest"
	"vitrine/internal/hosttest"
	"vitrine/internal/netns"
)

func (p pair) bulk(t *testing.T) *Bulk {
	t.Helper()
	b, err := OpenBulk(SenderConfig{NetNS: p.near, Interface: "eth0", CPU: -1})
	hosttest.Need(t, err)
	hosttest.AtEnd(t, b.Close)
	return b
}

// enableNAPI makes the far end receive with NAPI.
func (p pair) enableNAPI(t *testing.T) {
	t.Helper()
	err := netns.Do(p.far, func() error {
		e, err := ethtool.NewEthtool()
		if err != nil {
			return err
		}
		defer e.Close()
		return e.Change("eth0", map[string]bool{"rx-gro": true})
	})
	if err != nil {
		t.Fatal(err)
	}
}

// received returns the number of frames that the far end has received.
func (p pair) received(t *testing.T) (n uint64) {
	t.Helper()
	err := netns.Do(p.far, func() error {
		link, err := netlink.LinkByName("eth0")
		if err == nil {
			n = link.Attrs().Statistics.RxPackets
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestBulkArrives checks that every probe of a bulk arrives once and in order. Its receive stamp
// must be later than its send time.
func TestBulkArrives(t *testing.T) {
	p := newPair(t)
	p.enableNAPI(t)
	b := p.bulk(t)
	const n = 3001 // not a whole number of batches
	for _, size := range []int{64, 65, 1514} {
		_, got := p.bulkOf(t, b, p.stream(n, 0, size))
		for i, x := range got {
			if x.Sent != x.Scheduled {
				t.Fatalf("%d bytes: probe %d: got %+v", size, i, x)
			}
		}
	}
}

// bulkOf sends a stream in bulk and receives all of it.
func (p pair) bulkOf(t *testing.T, b *Bulk, stream Stream) (Sent, []Reception) {
	t.Helper()
	r := receiver(t, ReceiverConfig{NetNS: p.far, Address: p.dest, Room: 256 << 20})
	defer func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}()
	sent, err := b.Send(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	if sent.Packets != stream.Packets || sent.Failed != 0 || !(sent.Rate > 0) || sent.Asked != stream.Rate {
		t.Fatalf("%d packets of %d bytes: got %+v", stream.Packets, stream.Size, sent)
	}
	got, err := r.Receive(t.Context(), stream.Packets, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Receptions) != stream.Packets {
		t.Fatalf("received %d of %d packets, dropped %d", len(got.Receptions), stream.Packets, got.Dropped)
	}
	for i, x := range got.Receptions {
		const apart = 10_000 // ns; the error of comparing the clocks
		if x.Sequence != uint32(i) || x.Sent < sent.First || x.Sent > sent.Last || x.Kernel < x.Sent-apart || x.Read < x.Kernel-apart {
			t.Fatalf("%d bytes: probe %d of %+v: got %+v", stream.Size, i, sent, x)
		}
	}
	return sent, got.Receptions
}

// TestBulkKeepsTheSchedule checks that, with a rate, Bulk sends no probe before its time. Sent
// must report how late the probes are.
func TestBulkKeepsTheSchedule(t *testing.T) {
	p := newPair(t)
	p.enableNAPI(t)
	const n, rate = 4000, 70_000
	sent, got := p.bulkOf(t, p.bulk(t), p.stream(n, rate, 64))
	late := make([]int64, n)
	for i, x := range got {
		if due := got[0].Scheduled + int64(float64(i)/rate*1e9); x.Scheduled < due-2 || x.Scheduled > due+2 {
			t.Fatalf("probe %d was scheduled %d ns after its time", i, x.Scheduled-due)
		}
		if late[i] = x.Sent - x.Scheduled; late[i] < 0 {
			t.Fatalf("probe %d was sent %d ns early", i, -late[i])
		}
	}
	if got, want := sent.Behind, late[n-1]; got != want {
		t.Errorf("the last packet is %d ns late, want %d", got, want)
	}
	want := percentiles(late)
	near := func(got, want int64) bool { return math.Abs(float64(got-want)) <= 1+float64(want)/256 }
	if s := sent.Schedule; !near(s.P50, want.P50) || !near(s.P90, want.P90) || !near(s.P99, want.P99) || !near(s.P999, want.P999) || s.Max != want.Max {
		t.Errorf("got schedule errors %+v, want %+v", s, want)
	}
}

// TestBulkOfTheProgram checks that RunSend with --bulk sends as Bulk does.
func TestBulkOfTheProgram(t *testing.T) {
	p := newPair(t)
	p.enableNAPI(t)
	r := receiver(t, ReceiverConfig{NetNS: p.far, Address: p.dest, Room: 256 << 20})
	args := []string{"--bulk", "--rate", "0", "--packets", "500", "--run", fmt.Sprint(0xC0FFEE), "--stream", "3",
		"--from", p.source.String(), "--to", p.dest.String(), "--mac", p.farMAC.String()}
	var out bytes.Buffer
	err := netns.Do(p.near, func() error { return RunSend(t.Context(), args, &out, io.Discard) })
	hosttest.Need(t, err)
	record, err := ReadRecord(out.Bytes())
	if err != nil || record.Sent == nil || record.Sent.Packets != 500 {
		t.Fatalf("%+v, %v: %s", record, err, out.Bytes())
	}
	if got, err := r.Receive(t.Context(), 500, time.Second); err != nil || len(got.Receptions) != 500 {
		t.Errorf("received %d of 500 packets, error %v", len(got.Receptions), err)
	}
}

// TestBulkIsCountedAtThePeer checks that Bulk reports as many sent packets as the far end
// receives.
func TestBulkIsCountedAtThePeer(t *testing.T) {
	p := newPair(t)
	p.enableNAPI(t)
	// With IPv6, the kernel would send its own frames.
	if err := netns.Do(p.near, func() error { return os.WriteFile("/proc/sys/net/ipv6/conf/all/disable_ipv6", []byte("1"), 0) }); err != nil {
		t.Fatal(err)
	}
	b := p.bulk(t)
	before := p.received(t)
	sent, err := b.Send(t.Context(), p.stream(50_000, 0, 64))
	if err != nil {
		t.Fatal(err)
	}
	if sent.Packets+sent.Failed != 50_000 {
		t.Errorf("got %+v, want 50000 packets sent or failed", sent)
	}
	if got := p.received(t) - before; uint64(sent.Packets) != got || got == 0 {
		t.Errorf("received %d packets, sent %+v", got, sent)
	}
}

func TestBulkWithoutReceiver(t *testing.T) {
	p := newPair(t)
	b := p.bulk(t)
	if sent, err := b.Send(t.Context(), p.stream(1000, 0, 64)); !vitrine.IsUnsupported(err) {
		t.Errorf("%+v, %v", sent, err)
	}
}

func TestBulkRefuses(t *testing.T) {
	p := newPair(t)
	b := p.bulk(t)
	for name, stream := range map[string]Stream{
		"a frame over the MTU": p.stream(1, 0, 1515),
		"a frame too small":    p.stream(1, 0, 63),
		"no packets":           p.stream(0, 0, 64),
		"too many packets":     p.stream(1<<32, 0, 64),
		"too slow":             p.stream(1, 9999, 64),
		"no rate":              p.stream(1, -1, 64),
	} {
		if _, err := b.Send(t.Context(), stream); !vitrine.IsBadInput(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := OpenBulk(SenderConfig{NetNS: p.near, Interface: "absent"}); !vitrine.IsBadInput(err) {
		t.Errorf("missing interface: got %v, want BadInput", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if sent, err := b.Send(ctx, p.stream(1<<31, 0, 64)); err == nil || sent.Packets >= 1<<31 {
		t.Errorf("send with a cancelled context: got %+v, error %v", sent, err)
	}
}

// TestObjectIsOfTheSource checks that the object was compiled again after the C file changed.
func TestObjectIsOfTheSource(t *testing.T) {
	object, err := loadBulk()
	if err != nil {
		t.Fatal(err)
	}
	bpftest.CompiledFrom(t, object, "bpf/bulk.c")
}
