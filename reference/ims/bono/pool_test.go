package bono

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"vitrine/reference/ims/sipudp"
)

// TestRingingCallKeepsItsConnection replaces two connections. An INVITE waits for its answer on
// the first one, so that one must stay open, for as long as the call rings.
func TestRingingCallKeepsItsConnection(t *testing.T) {
	p, client := entry(t)
	from := client.LocalAddr().(*net.UDPAddr).AddrPort()
	config := poolConfig{local: from.Addr(), sprouts: []netip.AddrPort{from}, connections: 2, refresh: time.Minute}
	pool, err := newPool(config, func([]byte, sipudp.Arrival) {}, p.transactions.InUse, p.log, p.counts.asides)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.close)
	ringing, idle := pool.slots[0], pool.slots[1]
	forward(t, p, from, sipudp.Peer{Socket: ringing.socket}, ringing.sprout)

	if open := pool.closeUnused([]*connection{ringing, idle}, 2); len(open) != 2 {
		t.Errorf("%d of 2 connections are open just after they were replaced", len(open))
	}
	open := pool.closeUnused([]*connection{ringing, idle}, 0)
	if len(open) != 1 || open[0] != ringing {
		t.Errorf("%d of 2 replaced connections stay open, want only that of the ringing call", len(open))
	}
	for c, closed := range map[*connection]bool{ringing: false, idle: true} {
		if err := (sipudp.Peer{Socket: c.socket}).Send([]byte("x"), 0); (err != nil) != closed {
			t.Errorf("sending on a connection gives %v, want it closed: %t", err, closed)
		}
	}
}
