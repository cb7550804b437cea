package overload

import (
	"encoding/binary"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"
)

func spoofed(n uint32) netip.Addr {
	var ip [4]byte
	binary.BigEndian.PutUint32(ip[:], 0x0b000000+n)
	return netip.AddrFrom4(ip)
}

// TestQuota checks that each source gets its burst at once and its rate afterwards. As many
// refusals are answered, and all further requests are dropped.
func TestQuota(t *testing.T) {
	q := NewQuota(QuotaConfig{Rate: 10, Burst: 3, Sources: 1000})
	now := time.Hour
	var got [3]int
	offer := func(n int, from string) [3]int {
		got = [3]int{}
		for range n {
			got[q.Take(now, netip.MustParseAddr(from))]++
		}
		return got
	}
	for _, step := range []struct {
		later time.Duration
		n     int
		from  string
		want  [3]int
	}{
		{0, 10, "192.0.2.1", [3]int{3, 3, 4}},
		{0, 2, "::ffff:192.0.2.1", [3]int{0, 0, 2}}, // same host, as an IPv4-mapped address
		{0, 2, "192.0.2.2", [3]int{2, 0, 0}},
		{0, 3, "2001:db8::1", [3]int{3, 0, 0}},
		{0, 1, "2001:db8::ffff:1", [3]int{0, 1, 0}}, // same /64 network
		{0, 1, "2001:db8:0:1::1", [3]int{1, 0, 0}},
		{100 * time.Millisecond, 5, "192.0.2.1", [3]int{1, 1, 3}},
		{time.Second, 10, "192.0.2.1", [3]int{3, 3, 4}},
		{-10 * time.Millisecond, 1, "192.0.2.1", [3]int{0, 0, 1}}, // a worker whose clock lags behind
	} {
		now += step.later
		if got := offer(step.n, step.from); got != step.want {
			t.Errorf("%d requests from %s: admitted, refused, dropped are %v, want %v", step.n, step.from, got, step.want)
		}
	}
	for burst, want := range map[float64]Verdict{1: Refused, 1e300: Admitted} {
		slow := NewQuota(QuotaConfig{Rate: 1e-300, Burst: burst, Sources: 8})
		if first, second := slow.Take(now, netip.Addr{}), slow.Take(now, netip.Addr{}); first != Admitted || second != want {
			t.Errorf("quota with a rate near 0 and burst %g: got %d, then %d", burst, first, second)
		}
	}
	if (*Quota)(nil).Take(now, netip.Addr{}) != Admitted {
		t.Error("a nil quota refused a request")
	}
}

// TestQuotaAgainstForgedSources checks that forged addresses cannot free a source that is over its
// limit, take tokens from others, or make the memory grow.
func TestQuotaAgainstForgedSources(t *testing.T) {
	q := NewQuota(QuotaConfig{Rate: 1, Burst: 10, Sources: 100})
	if bytes := len(q.sets) * int(unsafe.Sizeof(q.sets[0])); bytes > 26*100 {
		t.Errorf("the quota uses %d bytes for 100 sources, want at most 2600", bytes)
	}
	now, heavy, light := time.Hour, netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	for range 100 {
		q.Take(now, heavy)
	}
	for n := range uint32(100_000) {
		if q.Take(now, spoofed(n)) != Admitted {
			t.Fatalf("spoofed source %d did not get a full bucket", n)
		}
		if n%1000 == 0 && q.Take(now, heavy) == Admitted {
			t.Fatalf("after %d spoofed sources the heavy source was admitted again", n)
		}
	}
	if q.Take(now, light) != Admitted {
		t.Error("a new source was refused")
	}
	if n := q.Forgotten(); n < 99_000 {
		t.Errorf("forgot %d buckets, want at least 99000", n)
	}
	full := NewQuota(QuotaConfig{Rate: 1, Burst: 10, Sources: 100})
	for n := range uint32(1000) {
		full.Take(now, spoofed(n))
		now += 10 * time.Second // all buckets are full again
	}
	if n := full.Forgotten(); n != 0 {
		t.Errorf("counted %d full buckets as forgotten, want 0", n)
	}
}

// TestQuotaAllocatesNothing checks that neither known nor new sources allocate.
func TestQuotaAllocatesNothing(t *testing.T) {
	q := NewQuota(QuotaConfig{Rate: 1, Burst: 1, Sources: 100})
	n := uint32(0)
	six := netip.MustParseAddr("2001:db8::1")
	if allocated := testing.AllocsPerRun(10_000, func() {
		n++
		q.Take(time.Duration(n), spoofed(n))
		q.Take(time.Duration(n), six)
	}); allocated != 0 {
		t.Errorf("%v allocations", allocated)
	}
}

// TestQuotaOfManyWorkers checks that workers together admit no more than the burst.
func TestQuotaOfManyWorkers(t *testing.T) {
	q := NewQuota(QuotaConfig{Rate: 1e-3, Burst: 500, Sources: 8})
	var admitted atomic.Int64
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for range 1000 {
				if q.Take(time.Hour, netip.MustParseAddr("192.0.2.1")) == Admitted {
					admitted.Add(1)
				}
			}
		})
	}
	workers.Wait()
	if n := admitted.Load(); n != 500 {
		t.Errorf("admitted %d requests, want 500", n)
	}
}

func BenchmarkQuota(b *testing.B) {
	q := NewQuota(QuotaConfig{Rate: 100, Burst: 100, Sources: 1 << 16})
	b.ReportAllocs()
	n := uint32(0)
	for b.Loop() {
		n++
		q.Take(time.Duration(n), spoofed(n%1000))
	}
}
