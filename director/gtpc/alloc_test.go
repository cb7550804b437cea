package gtpc_test

import (
	"net/netip"
	"testing"
	"time"

	"vitrine"
	"vitrine/director/datagram"
	director "vitrine/director/gtpc"
	"vitrine/director/meter"
	"vitrine/director/table"
	"vitrine/internal/hosttest"
	"vitrine/wire/gtpc"
	"vitrine/wire/gtpc/gtpctest"
)

// A bench is one worker of a director with four instances, and the worker's sender. It has no
// socket loop.
type bench struct {
	worker datagram.Handler
	sender *datagram.Sender
	now    time.Duration
	in     datagram.Datagram
	d      *director.Server
	of     *table.Table
	meter  *meter.Meter
	log    hosttest.Output
}

// newBench makes a bench. limit bounds each of the director's memories; 0 means the defaults. The
// director listens at all places, such as "[::1]:0", and the instances at the first; none: IPv4.
func newBench(tb testing.TB, number uint8, limit int, places ...string) *bench {
	tb.Helper()
	if len(places) == 0 {
		places = []string{"127.0.0.1:0"}
	}
	sink, err := datagram.Listen(datagram.Config{Addresses: []netip.AddrPort{
		free(tb, places[0]), free(tb, places[0]), free(tb, places[0]), free(tb, places[0]),
	}, Workers: 1, Now: func() time.Duration { return 0 }})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = sink.Close() })
	var instances []vitrine.Instance
	for i, a := range sink.Addresses() {
		instances = append(instances, vitrine.Instance{Name: "gw-" + string(rune('1'+i)), Type: "gateway", Address: a, Weight: 1, ID: uint16(i + 1)})
	}
	types := []string{"gateway"}
	of, err := table.New(1, types, instances)
	if err != nil {
		tb.Fatal(err)
	}
	m := meter.New(1<<12, 15*time.Second)
	policy, err := director.NewPolicy(types, []director.TypeOption{{Type: "gateway", Number: number, Sessions: true}}, []director.Rule{{Type: "gateway"}})
	if err != nil {
		tb.Fatal(err)
	}
	b := &bench{now: time.Second, of: of, meter: m}
	var listeners []netip.AddrPort
	for _, at := range places {
		listeners = append(listeners, free(tb, at))
	}
	b.d, err = director.Listen(director.Config{
		Addresses: listeners, Now: func() time.Duration { return b.now }, Epochs: table.NewEpochs(table.Transition, 0, of, nil), Meter: m, Policy: policy, Log: b.log.Logger(), PeerPort: 9,
		Exchanges: limit, Sessions: limit, Keys: limit,
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = b.d.Close() })
	b.worker, b.sender = b.d.Bare()
	if err := m.Register(of); err != nil {
		tb.Fatal(err)
	}
	return b
}

func (b *bench) handle(data []byte, from netip.AddrPort) {
	b.now += time.Microsecond
	b.in = datagram.Datagram{Data: data, From: from, At: b.now}
	b.worker.Handle(&b.in, b.sender)
}

func (b *bench) counters(tb testing.TB) director.Counters {
	tb.Helper()
	n, err := b.d.Counters()
	if err != nil {
		tb.Fatal(err)
	}
	return n
}

// teids returns a function that returns TEIDs with the prefixes of four instances. If types have no
// prefixes, it returns nil.
func teids(number uint8) func(uint32) uint32 {
	if number == 0 {
		return nil
	}
	return func(session uint32) uint32 {
		p, _ := director.PrefixOf(number, uint16(session%4+1))
		return p.SessionTEID(uint16(session), session>>12)
	}
}

// TestNothingIsAllocated checks that no kind of message allocates.
func TestNothingIsAllocated(t *testing.T) {
	for _, number := range []uint8{0, 1} {
		b := newBench(t, number, 1<<12)
		mix := gtpctest.NewMix(gtpctest.Config{Sessions: 1000, TEID: teids(number)})
		peer, stranger := netip.MustParseAddrPort("127.0.0.9:2123"), netip.MustParseAddrPort("[::1]:5")
		room := make([]byte, 0, 4096)
		others := [][]byte{
			gtpc.AppendEchoRequest(nil, 1, 1), {0x32, 1, 0, 4, 0, 0, 0, 0, 0x12, 0x34, 0, 0}, {1}, {0x48, 32, 0, 99, 0, 0, 0, 0},
			gtpc.AppendEchoResponse(nil, 1, 1), plain(gtpc.CreateSessionResponse, 5, 5), plain(gtpc.UpdateBearerResponse, 5, 5|gtpc.CommandSequence),
			plain(gtpc.Type(250), 1, 1),
		}
		for i := 0; i < 5000; i++ { // warm up: fill the tables
			b.handle(mix.Append(room[:0]), peer)
		}
		const rounds = 2000
		if n := testing.AllocsPerRun(1, func() {
			for range rounds {
				b.handle(mix.Append(room[:0]), peer)
				b.handle(mix.Append(room[:0]), stranger)
				for _, o := range others {
					b.handle(append(room[:0], o...), peer)
				}
				b.sender.Flush()
			}
		}); n > rounds/1000 {
			t.Errorf("number %d: %v allocations for %d messages", number, n, rounds*(2+len(others)))
		}
	}
}

func BenchmarkHandle(b *testing.B) {
	for name, number := range map[string]uint8{"learned": 0, "prefix": 1} {
		b.Run(name, func(b *testing.B) {
			s := newBench(b, number, 0)
			mix := gtpctest.NewMix(gtpctest.Config{TEID: teids(number)})
			peer := netip.MustParseAddrPort("127.0.0.9:2123")
			room := make([]byte, 0, 4096)
			for b.Loop() {
				s.handle(mix.Append(room[:0]), peer)
			}
		})
	}
}
