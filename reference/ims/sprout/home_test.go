package sprout

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"vitrine/reference/ims/rest"
)

// TestRecordsAreSentAtTheEnd ends a Sprout while charging records wait. Each must reach Ralf or count as lost.
func TestRecordsAreSentAtTheEnd(t *testing.T) {
	var taken atomic.Int64
	ralf := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { taken.Add(1) }))
	defer ralf.Close()
	address := netip.MustParseAddrPort(ralf.Listener.Addr().String())
	const n = 10
	s := &server{
		log: slog.New(slog.DiscardHandler), counts: newCounts(prometheus.NewRegistry()), charges: make(chan chargeable, n),
		ralf: rest.NewClient("ralf", []netip.AddrPort{address}, 4, 10*time.Second, address.Addr(), prometheus.NewRegistry()),
	}
	defer s.ralf.Close()
	for range n {
		s.charges <- chargeable{callID: "c"}
	}
	close(s.charges)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.sendCharges(ctx)
	if lost := int64(testutil.ToFloat64(s.counts.unchargeable)); taken.Load() == 0 || taken.Load()+lost != n {
		t.Errorf("Ralf took %d records, and %d were lost; want %d together", taken.Load(), lost, n)
	}
}
