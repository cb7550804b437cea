package course

import (
	"slices"
	"testing"
	"time"

	"vitrine/affinity/correlate"
	"vitrine/affinity/message"
)

// TestALossIsTimeOnTheWay: a proxy's request is lost, and sent again after 500 ms. Captures at both ends have
// the second transmission, 2 ms apart. The server answers 2 ms later.
func TestALossIsTimeOnTheWay(t *testing.T) {
	var c *Collector
	correlator := correlate.New(correlate.Options{}, func(e *correlate.Event) { c.Add(e) })
	c = New(correlator, 0)
	for i, m := range []message.Message{
		{From: "UE", To: "Proxy", Name: "MESSAGE"},
		{From: "Proxy", To: "Server", Name: "MESSAGE", Time: int64(time.Millisecond)},
		{From: "Proxy", To: "Server", Name: "MESSAGE", Kind: message.Repeat, Answers: 2, Time: int64(501 * time.Millisecond), Arrived: int64(503 * time.Millisecond)},
		{From: "Server", To: "Proxy", Name: "200 MESSAGE", Kind: message.Answer, Answers: 2, Time: int64(505 * time.Millisecond)},
		{From: "Proxy", To: "UE", Name: "200 MESSAGE", Kind: message.Answer, Answers: 1, Time: int64(506 * time.Millisecond)},
	} {
		m.ID, m.Protocol = uint64(i)+1, message.SIP
		m.Identifiers = []message.Identifier{{Kind: message.CallID, Hash: 1, Text: []byte("a")}}
		correlator.Add(&m)
	}
	correlator.Close()
	m := c.Result(func(string) bool { return false }).Measured["MESSAGE"]
	hop := slices.IndexFunc(m.Hops, func(h Hop) bool { return h.From == "Proxy" && h.To == "Server" })
	if hop < 0 || m.Hops[hop].Way == nil || m.Hops[hop].Way.P50 != 502 {
		t.Errorf("got hops %+v, want 502 ms on the way to the server", m.Hops)
	}
	server := slices.IndexFunc(m.Processing, func(p Process) bool { return p.Function == "Server" })
	if server < 0 || m.Processing[server].Times.P50 != 2 {
		t.Errorf("got processing %+v, want 2 ms of the server", m.Processing)
	}
}
