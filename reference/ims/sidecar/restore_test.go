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
	socket, err := sipudp.Listen(netip.MustParseAddrPort("127.0.0.1:0"))
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
// contact. It also refuses a REGISTER for less than a minute.
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
			if life := lifetime(c.expires); life > 0 && life < time.Minute {
				status, reason = sip.StatusIntervalToBrief, "Interval Too Brief"
				continue
			}
			seen <- req
			last := bound[c.text]
			if last != nil && last.CallID().Value() == req.CallID().Value() && last.CSeq().SeqNo >= req.CSeq().SeqNo {
				status, reason = sip.StatusInternalServerError, "Out Of Order"
				continue
			}
			bound[c.text] = req
		}
		res := sipudp.Reply(req, status, reason)
		if status == sip.StatusIntervalToBrief {
			res.AppendHeader(sip.NewHeader("Min-Expires", "60"))
		}
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

// newRestorer returns a sidecar without a store, in front of a registrar.
func newRestorer(t *testing.T, function netip.AddrPort) *sidecar {
	t.Helper()
	s := &sidecar{function: function, log: slog.New(slog.DiscardHandler), counts: newCounts(prometheus.NewRegistry())}
	s.transactions = sipudp.NewTransactions(time.Minute, s.timedOut)
	receiver := s.receiver(nil)
	s.own = serve(t, func(_ *sipudp.Socket, data []byte, a sipudp.Arrival) { receiver.Receive(data, a) })
	return s
}

// TestRestoreOfShortLife restores a location with less time left than the registrar's minimum.
func TestRestoreOfShortLife(t *testing.T) {
	function, binding := newRegistrar(t)
	s := newRestorer(t, function)
	of := user{uri: sip.Uri{Scheme: "sip", User: "a", Host: "ims.test"}}
	now := time.Now()
	stored := []location{{Contact: "<sip:a@h>", CallID: "client", CSeq: 7, Expires: now.Add(20 * time.Second)}}
	if err := s.replace(t.Context(), of, stored, now); err != nil {
		t.Fatal(err)
	}
	bound := <-binding
	if c := contacts(bound.GetHeaders("Contact")); c[0].expires != "60" || bound.CallID().Value() != "client" || bound.CSeq().SeqNo != 7 {
		t.Errorf("restored %+v with Call-ID %s and CSeq %d", c, bound.CallID().Value(), bound.CSeq().SeqNo)
	}
}

// TestRestoreOfPresentLocation restores a location twice at a registrar.
func TestRestoreOfPresentLocation(t *testing.T) {
	function, binding := newRegistrar(t)
	s := newRestorer(t, function)
	of := user{uri: sip.Uri{Scheme: "sip", User: "a", Host: "ims.test"}}
	stored := []location{{Contact: "<sip:a@h>", CallID: "client", CSeq: 7, Expires: time.Now().Add(time.Hour)}}
	for range 2 {
		if err := s.replace(t.Context(), of, stored, time.Now()); err != nil {
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

// TestSpellingsOfAUser checks which addresses have one record in the store. If two spellings of a
// user had two records, a request with the other spelling would remove the user's locations.
func TestSpellingsOfAUser(t *testing.T) {
	for _, c := range []struct {
		a, b string
		of   spelling
		same bool
	}{
		{"sub0@ims.test", "SUB%30@IMS.test:5070", spelling{}, true},
		{"a%2fb@ims.test", "a/b@ims.test", spelling{}, true},
		{"sub0@ims.test", "sub0@192.0.2.1", spelling{}, false},
		{"sub0@ims.test", "sub0@192.0.2.1", spelling{anyDomain: true}, true},
		{"sub0@ims.test", "sub1@ims.test", spelling{anyDomain: true}, false},
		{"sub0@ims.test", "SUB0@ims.test", spelling{caseSensitive: true}, false},
		{"sub0@ims.test", "sub%30@ims.test", spelling{caseSensitive: true}, true},
		{"a%40b@c", "a@b@c", spelling{}, false},
		{"50%@ims.test", "50%25@ims.test", spelling{}, true},
	} {
		var users [2]user
		for i, address := range []string{c.a, c.b} {
			var uri sip.Uri
			if err := sip.ParseUri("sip:"+address, &uri); err != nil {
				t.Fatal(err)
			}
			users[i] = userOf(sip.NewRequest(sip.INVITE, uri), c.of)
			if users[i].uri.User != uri.User {
				t.Errorf("%s: REGISTERs name %s, want the user as written", address, users[i].uri.User)
			}
		}
		if (users[0].name == users[1].name) != c.same {
			t.Errorf("%s is %s, %s is %s, want one user: %t", c.a, users[0].name, c.b, users[1].name, c.same)
		}
	}
}
