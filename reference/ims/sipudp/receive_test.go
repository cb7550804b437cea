package sipudp

import (
	"log/slog"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/emiago/sipgo/sip"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"vitrine/internal/truth"
)

// TestReceiver gives a node one datagram of each kind, and checks which of its functions are
// called. Without a socket for answers, only a response reaches the node.
func TestReceiver(t *testing.T) {
	node, from := newWire(t).serve(t), newWire(t).serve(t)
	var called []string
	call := func(what string) { called = append(called, what) }
	garbage := prometheus.NewCounter(prometheus.CounterOpts{Name: "garbage"})
	r := &Receiver{
		Transactions: NewTransactions(time.Minute, nil), Upstream: node.Socket,
		Parser: sip.NewParser(), Garbage: garbage, Log: slog.New(slog.DiscardHandler),
		Begun:    func(tx *Transaction, _ Arrival) { call("begun " + string(tx.Request.Method)) },
		Ack:      func(*sip.Request, netip.AddrPort, truth.Event) { call("ACK") },
		Response: func(res *sip.Response, _ Arrival) truth.Event { call(strconv.Itoa(res.StatusCode)); return 0 },
	}
	receive := func(texts ...string) {
		for _, text := range texts {
			r.Receive([]byte(text), Arrival{From: from.Local(), To: node.Local(), At: time.Now()})
		}
	}
	_, headers, _ := strings.Cut(register, "\r\n")
	response := "SIP/2.0 200 OK\r\n" + headers
	receive(register, register, // the second one is a retransmission
		strings.ReplaceAll(register, "REGISTER", "ACK"), strings.ReplaceAll(register, "REGISTER", "CANCEL"), response,
		"\r\n\r\n", // a keep-alive
		strings.Replace(register, "Via:", "X-Via:", 1))
	want := []string{"begun REGISTER", "ACK", "200"}
	if !slices.Equal(called, want) || testutil.ToFloat64(garbage) != 1 {
		t.Errorf("got calls %q and %v unusable messages, want %q and 1", called, testutil.ToFloat64(garbage), want)
	}
	if got := from.await(t, 1); len(got) != 1 || !strings.HasPrefix(got[0], "SIP/2.0 481 ") {
		t.Errorf("got %q, want 481 to the CANCEL alone", got)
	}
	called, r.Upstream = nil, nil
	receive(strings.Replace(register, "z9hG4bKabc", "z9hG4bKdef", 1), response)
	if !slices.Equal(called, []string{"200"}) || testutil.ToFloat64(garbage) != 1 {
		t.Errorf("without a socket for answers: got calls %q, want the response alone", called)
	}
}
