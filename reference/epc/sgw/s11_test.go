package sgw

import (
	"context"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"vitrine/reference/epc/gtp"
	"vitrine/wire/gtpc"
	"vitrine/wire/identity"
	"vitrine/wire/nas"
)

// patience limits every wait of these tests. Reaching it is a failure.
const patience = 30 * time.Second

// A bed connects endpoints in this process.
type bed struct {
	t      *testing.T
	queues gtp.Queues
	group  errgroup.Group
}

func newBed(t *testing.T) *bed {
	b := &bed{t: t}
	t.Cleanup(func() { // the test's context has ended
		if err := b.group.Wait(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// listen starts an endpoint at 127.0.0.HOST that has room for one request of its own.
func (b *bed) listen(host byte, handle func(context.Context, *gtp.Request)) *gtp.Endpoint {
	b.t.Helper()
	e, err := gtp.Listen(b.t.Context(), gtp.Config{
		Listen: netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, host}), gtp.Port), Pending: 1,
		Handle: handle, Queues: &b.queues, Registry: prometheus.NewRegistry(),
	})
	if err != nil {
		b.t.Fatal(err)
	}
	b.group.Go(func() error { return e.Serve(b.t.Context()) })
	return e
}

// await returns the next value of a channel.
func await[T any](t *testing.T, what string, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(patience):
		t.Fatalf("waited too long for %s", what)
	}
	return v
}

var accepted = gtpc.Result{Cause: gtpc.RequestAccepted}

// TestAllAbandonedConnectionsReachTheirPGW abandons more connections than the endpoint has
// room for requests.
func TestAllAbandonedConnectionsReachTheirPGW(t *testing.T) {
	const connections = 8
	b := newBed(t)
	gate, reached := make(chan struct{}), make(chan uint32, connections)
	pgw := b.listen(3, func(_ context.Context, r *gtp.Request) {
		<-gate
		reached <- r.TEID
		r.Answer(0, &gtpc.Answer{Type: gtpc.DeleteSessionResponse, Result: accepted})
	})
	s := &server{endpoint: b.listen(2, nil), tasks: &b.group}
	var gone []*connection
	for n := range uint32(connections) {
		gone = append(gone, &connection{ebi: 5, pgw: pgw.Own(gtpc.S5PGW, n+1)})
	}
	s.abandon(t.Context(), gone)
	close(gate)
	seen := map[uint32]bool{}
	for len(seen) < connections {
		seen[await(t, "another connection at the P-GW", reached)] = true
	}
}

// TestConnectionRemovedBeforeThePGWAnswersEndsThere has an MME restart while the P-GW creates
// a connection for that MME.
func TestConnectionRemovedBeforeThePGWAnswersEndsThere(t *testing.T) {
	own := gtpc.Endpoint{Interface: gtpc.S5PGW, TEID: 7, V4: netip.AddrFrom4([4]byte{127, 0, 0, 3})}
	b := newBed(t)
	begun, gate, ended, answered := make(chan struct{}, 1), make(chan struct{}), make(chan uint32, 1), make(chan gtpc.CauseValue, 1)
	b.listen(3, func(ctx context.Context, r *gtp.Request) {
		if r.Type == gtpc.DeleteSessionRequest {
			ended <- r.TEID
			r.Answer(0, &gtpc.Answer{Type: gtpc.DeleteSessionResponse, Result: accepted})
			return
		}
		begun <- struct{}{}
		select {
		case <-gate:
		case <-ctx.Done(): // the test failed
		}
		r.Answer(0, &gtpc.CreateSessionAnswer{Result: accepted, PGW: own, Bearers: []gtpc.Bearer{{EBI: 5, Result: accepted}}})
	})
	s := &server{
		procedures: gtp.NewProcedures(prometheus.NewRegistry(), "sgw"), lost: prometheus.NewCounter(prometheus.CounterOpts{Name: "lost"}),
		teids: gtp.NewTable[entry](10, gtp.Prefix{}), ues: map[identity.Digits]*ue{}, tasks: &b.group,
	}
	s.endpoint = b.listen(2, s.handle)
	mme := b.listen(1, nil)
	imsi, _ := identity.MakeDigits("001010000000001")
	request := gtpc.CreateSession{
		IMSI: imsi, RAT: gtpc.RATEUTRAN, Sender: mme.Own(gtpc.S11MME, 1), APN: nas.AppendAPN(nil, "internet"),
		PGW: gtpc.Endpoint{Interface: gtpc.S5PGW, V4: own.V4}, Bearers: []gtpc.Bearer{{EBI: 5, QoS: gtpc.QoS{QCI: 9, Priority: 8}}},
	}
	b.group.Go(func() error {
		var answer gtpc.CreateSessionAnswer
		err := mme.Do(t.Context(), s.endpoint.Addr(), 0, &request, &answer)
		answered <- answer.Result.Cause
		return err
	})
	await(t, "the request at the P-GW", begun)
	s.restarted(t.Context(), mme.Addr().Addr())
	close(gate)
	if teid := await(t, "the end of the connection at the P-GW", ended); teid != own.TEID {
		t.Errorf("the S-GW ended the connection %d, want %d", teid, own.TEID)
	}
	if cause := await(t, "the answer to the MME", answered); cause != gtpc.RequestRejected {
		t.Errorf("the MME got cause %d", cause)
	}
}

// TestDownlinkPacketIsForTheDefaultBearer has the P-GW create a dedicated bearer before the
// S-GW has completed the connection.
func TestDownlinkPacketIsForTheDefaultBearer(t *testing.T) {
	b := newBed(t)
	asked := make(chan uint8, 1)
	mme := b.listen(1, func(_ context.Context, r *gtp.Request) {
		var d gtpc.DownlinkDataNotification
		if err := d.Parse(&r.Message); err != nil {
			t.Error(err)
		}
		asked <- d.EBI
		r.Answer(0, &gtpc.Answer{Type: gtpc.DownlinkDataAcknowledge, Result: accepted})
	})
	imsi, _ := identity.MakeDigits("001010000000001")
	c := &connection{ebi: 5}
	s := &server{
		endpoint: b.listen(2, nil), procedures: gtp.NewProcedures(prometheus.NewRegistry(), "sgw"),
		ues: map[identity.Digits]*ue{imsi: {imsi: imsi, mme: gtp.Peer{At: mme.Addr()}, connections: []*connection{c}}},
	}
	quality := gtpc.QoS{QCI: 9, Priority: 8}
	c.add(gtpc.Bearer{EBI: 6, QoS: quality})
	if _, status := s.packet(t.Context(), imsi); status != http.StatusNotFound {
		t.Errorf("without the default bearer: got status %d, want 404", status)
	}
	c.bearers = append(c.bearers, gtpc.Bearer{EBI: 5, QoS: quality}) // as settle does
	if _, status := s.packet(t.Context(), imsi); status != http.StatusOK {
		t.Errorf("got status %d", status)
	}
	if ebi := await(t, "the notification", asked); ebi != 5 {
		t.Errorf("the S-GW notified the MME of bearer %d, want 5", ebi)
	}
}

// TestIdentityIsUsedAgain adds two bearers with one identity, and one with the identity of
// the default bearer.
func TestIdentityIsUsedAgain(t *testing.T) {
	c := &connection{ebi: 5, bearers: []gtpc.Bearer{{EBI: 5}}}
	for _, b := range []gtpc.Bearer{{EBI: 6, ChargingID: 1}, {EBI: 6, ChargingID: 2}, {EBI: 5, ChargingID: 3}} {
		c.add(b)
	}
	if of := c.find(6); len(c.bearers) != 2 || of == nil || of.ChargingID != 2 || c.find(5).ChargingID != 0 {
		t.Errorf("got bearers %+v", c.bearers)
	}
}
