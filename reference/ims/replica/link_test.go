package replica

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// connect connects a link to a peer in memory. The peer answers the frames for which answers returns true.
func connect(t *testing.T, l *link, answers func(frame) bool) {
	ours, theirs := net.Pipe()
	ctx := t.Context()
	go l.useConnection(ctx, ours)
	due := make(chan uint32, 1000) // both ends of a pipe may write at the same time
	go func() {
		defer close(due)
		r := bufio.NewReader(theirs)
		for {
			f, _, err := readFrame(r, nil)
			if err != nil {
				return
			}
			if answers(f) {
				due <- f.id
			}
		}
	}()
	go func() {
		for id := range due {
			_, _ = theirs.Write(endFrame(beginFrame(nil), opOK, id)) // fails at the end of the test
		}
	}()
}

// TestOnlyMissedRecordsAreSentAgain lets one copy of a record be late. The peer must get this record again, and
// not all others.
func TestOnlyMissedRecordsAreSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		self, peer := netip.MustParseAddrPort("127.0.0.1:1"), netip.MustParseAddrPort("127.0.0.1:2")
		s := New(Config{Self: self, Peers: []netip.AddrPort{self, peer}, Copies: 2, Ask: heartbeat / 2, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})
		const held = 500
		for i := range held {
			s.table.set(fmt.Sprint("key", i), Record{Version: 1})
		}
		var copied []string
		connect(t, s.members[1].link, func(f frame) bool {
			if f.op != opSet {
				return true
			}
			key, _, err := parseRecord(f.body)
			if err != nil {
				t.Error(err)
			}
			copied = append(copied, key)
			return len(copied) != held+1
		})
		synctest.Wait()
		if len(copied) != held {
			t.Fatalf("a peer that came up got %d records, want all %d", len(copied), held)
		}
		key := "late"
		for s.rank(key) != 0 { // find a key whose first replica is this instance
			key += "e"
		}
		if _, err := s.Put(t.Context(), key, Record{Value: []byte("v")}, 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * heartbeat)
		synctest.Wait()
		if got := copied[held:]; !slices.Equal(got, []string{key, key}) {
			t.Errorf("after a late answer for %s, the peer got %v, want this record twice", key, got)
		}
	})
}

// TestLatePingAfterALongResync lets a resync take longer than a peer may be silent, and the next ping be late.
// The peer must stay up.
func TestLatePingAfterALongResync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		resyncs, pings := 0, 0
		l := &link{ask: heartbeat / 2, resync: func(context.Context, *link, map[string]struct{}) {
			if resyncs++; resyncs == 2 {
				time.Sleep(deadAfter + heartbeat)
			}
		}}
		connect(t, l, func(f frame) bool {
			if f.op == opPing {
				pings++
			}
			return f.op != opPing || pings != 2
		})
		time.Sleep(heartbeat + deadAfter + heartbeat + heartbeat/2 + time.Millisecond) // until the second ping is late
		synctest.Wait()
		if pings < 2 || !l.up.Load() {
			t.Errorf("after %d pings the peer is up: %v, want at least 2, true", pings, l.up.Load())
		}
	})
}
