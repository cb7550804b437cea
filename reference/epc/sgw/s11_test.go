package sgw

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"vitrine/reference/epc/gtp"
	"vitrine/wire/gtpc"
)

// patience limits every wait of these tests. Reaching it is a failure.
const patience = 30 * time.Second

// TestAllAbandonedConnectionsReachTheirPGW abandons more connections than the endpoint has
// room for requests.
func TestAllAbandonedConnectionsReachTheirPGW(t *testing.T) {
	const connections = 8
	var queues gtp.Queues
	var group errgroup.Group
	t.Cleanup(func() { // the test's context has ended
		if err := group.Wait(); err != nil {
			t.Error(err)
		}
	})
	listen := func(host byte, handle func(context.Context, *gtp.Request)) *gtp.Endpoint {
		t.Helper()
		e, err := gtp.Listen(t.Context(), gtp.Config{
			Listen: netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, host}), gtp.Port), Pending: 1,
			Handle: handle, Queues: &queues, Registry: prometheus.NewRegistry(),
		})
		if err != nil {
			t.Fatal(err)
		}
		group.Go(func() error { return e.Serve(t.Context()) })
		return e
	}
	gate, reached := make(chan struct{}), make(chan uint32, connections)
	pgw := listen(3, func(_ context.Context, r *gtp.Request) {
		<-gate
		reached <- r.TEID
		r.Answer(0, &gtpc.Answer{Type: gtpc.DeleteSessionResponse, Result: gtpc.Result{Cause: gtpc.RequestAccepted}})
	})
	s := &server{endpoint: listen(2, nil), tasks: &group}
	var gone []*connection
	for n := range uint32(connections) {
		gone = append(gone, &connection{ebi: 5, pgw: pgw.Own(gtpc.S5PGW, n+1)})
	}
	s.abandon(t.Context(), gone)
	close(gate)
	seen := map[uint32]bool{}
	for len(seen) < connections {
		select {
		case teid := <-reached:
			seen[teid] = true
		case <-time.After(patience):
			t.Fatalf("%d of %d connections reached the P-GW", len(seen), connections)
		}
	}
}
