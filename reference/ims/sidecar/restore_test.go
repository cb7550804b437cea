package sidecar

import (
	"log/slog"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/emiago/sipgo/sip"
	"github.com/prometheus/client_golang/prometheus"

	"vitrine/reference/ims/sipudp"
)

// serve serves a new socket until the test ends.
func serve(t *testing.T, handle func(*sipudp.Socket, []byte, sipudp.Arrival)) *sipudp.Socket {
	t.Helper()
	socket, err := sipudp.Listen(netip.MustParseAddrPort("127.0.0.1:0"), 1<<16)
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := socket.Serve(func(data []byte, a sipudp.Arrival) { handle(socket, data, a) }, nil); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { socket.Close(); serving.Wait() })
	return socket
}

// newRegistrar returns the address of a registrar, and the REGISTERs that bind a contact
// there. Like Kamailio, it refuses a REGISTER that is no newer than the one that bound the
// contact.
func newRegistrar(t *testing.T) (at netip.AddrPort, binding <-chan *sip.Request) {
	t.Helper()
	parser, seen, bound := sip.NewParser(), make(chan *sip.Request, 16), map[string]*sip.Request{}
	socket := serve(t, func(socket *sipudp.Socket, data []byte, a sipudp.Arrival) {
		msg, err := sipudp.Parse(parser, data)
		req, ok := msg.(*sip.Request)
		if err != nil || !ok {
			t.Errorf("the registrar received %q: %v", data, err)
			return
		}
		status, reason := sip.StatusOK, "OK"
		for _, c := range contacts(req.GetHeaders("Contact")) {
			seen <- req
			last := bound[c.text]
			if last != nil && last.CallID().Value() == req.CallID().Value() && last.CSeq().SeqNo >= req.CSeq().SeqNo {
				status, reason = sip.StatusInternalServerError, "Out Of Order"
				continue
			}
			bound[c.text] = req
		}
		res := sipudp.Reply(req, status, reason)
		for text := range bound {
			res.AppendHeader(sip.NewHeader("Contact", text+";expires=60"))
		}
		to := sipudp.Peer{Socket: socket, To: a.From}
		if err := to.Send(sipudp.Bytes(res), 0); err != nil {
			t.Error(err)
		}
	})
	return socket.Local(), seen
}

// TestRestoreOfPresentLocation restores a location twice at a registrar.
func TestRestoreOfPresentLocation(t *testing.T) {
	function, binding := newRegistrar(t)
	s := &sidecar{function: function, parser: sip.NewParser(), log: slog.New(slog.DiscardHandler), counts: newCounts(prometheus.NewRegistry())}
	s.transactions = sipudp.NewTransactions(time.Minute, s.timedOut)
	s.own = serve(t, func(_ *sipudp.Socket, data []byte, a sipudp.Arrival) { s.arriveOwn(data, a) })
	of := user{uri: sip.Uri{Scheme: "sip", User: "a", Host: "ims.test"}}
	stored := []location{{Contact: "<sip:a@h>", CallID: "client", CSeq: 7, Expires: time.Now().Add(time.Hour)}}
	for range 2 {
		if err := s.replace(t.Context(), of, stored); err != nil {
			t.Fatal(err)
		}
	}
	if first := <-binding; first.CallID().Value() != "client" || first.CSeq().SeqNo != 7 {
		t.Errorf("restored with Call-ID %s and CSeq %d, want those of the client", first.CallID().Value(), first.CSeq().SeqNo)
	}
	if again := <-binding; again.CallID().Value() == "client" {
		t.Error("restored again with the client's Call-ID")
	}
	if stored[0].CallID != "client" {
		t.Errorf("the stored Call-ID is now %q", stored[0].CallID)
	}
}
