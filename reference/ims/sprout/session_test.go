package sprout

import (
	"bytes"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/emiago/sipgo/sip"
	"github.com/prometheus/client_golang/prometheus"

	"vitrine/reference/ims/sipudp"
)

// TestAssertIdentity checks that a caller cannot assert an identity itself.
func TestAssertIdentity(t *testing.T) {
	req, ok := request("p-asserted-identity: <sip:b@ims.test>\r\nP-Asserted-Identity: <sip:c@ims.test>, <tel:+1>")
	if !ok {
		t.Fatal("cannot parse the request")
	}
	assertIdentity(req, "sip:a@ims.test")
	got := req.GetHeaders("P-Asserted-Identity")
	if len(got) != 1 || got[0].Value() != "<sip:a@ims.test>" {
		t.Errorf("got %v, want the caller's identity alone", got)
	}
}

// TestCancelOfQueuedInvite cancels an INVITE that waits for a worker.
func TestCancelOfQueuedInvite(t *testing.T) {
	socket, err := sipudp.Listen(netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	s := &server{socket: socket, log: slog.New(slog.DiscardHandler), counts: newCounts(prometheus.NewRegistry())}
	s.transactions = sipudp.NewTransactions(time.Minute, s.timedOut)
	const invite = "INVITE sip:b@127.0.0.1:9 SIP/2.0\r\nVia: SIP/2.0/UDP 127.0.0.1:9;branch=z9hG4bK1\r\nFrom: <sip:a@ims.test>;tag=1\r\n" +
		"To: <sip:b@ims.test>\r\nCall-ID: c\r\nCSeq: 1 INVITE\r\nContent-Length: 0\r\n\r\n"
	parse := func(text string) *sip.Request {
		msg, err := sipudp.Parse(sip.NewParser(), []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return msg.(*sip.Request)
	}
	client := sipudp.Peer{Socket: socket, To: socket.Local()}
	tx, _ := s.transactions.Receive(parse(invite), client, time.Now())
	if _, err := s.transactions.ReceiveCancel(parse(strings.ReplaceAll(invite, "INVITE", "CANCEL")), client); err != nil {
		t.Fatal(err)
	}
	s.answer(tx, s.inDialog(tx)) // forwards, as the end of session does
	if forwarded, reply := s.transactions.Sent(tx); forwarded != nil || !bytes.HasPrefix(reply, []byte("SIP/2.0 487 ")) {
		t.Errorf("forwarded %q and answered %q, want only 487", forwarded, reply)
	}
}
