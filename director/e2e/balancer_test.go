package e2e

import (
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"
)

// A balancer forwards each datagram of a phone to a random director. It does not parse SIP, so
// the messages of one transaction pass different directors.
type balancer struct {
	t         testing.TB
	front     *net.UDPConn
	directors []netip.AddrPort
	mu        sync.Mutex
	backs     map[netip.AddrPort]*net.UDPConn // socket to the directors, by phone
	done      sync.WaitGroup
}

// balance starts a balancer at a host of the site. The directors advertise its address.
func (s site) balance(host int, fleet fleet) *balancer {
	s.t.Helper()
	front, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(s.at(host, sipPort))))
	if err != nil {
		s.t.Fatal(err)
	}
	b := &balancer{t: s.t, front: front, backs: map[netip.AddrPort]*net.UDPConn{}}
	for _, d := range fleet {
		b.directors = append(b.directors, netip.MustParseAddrPort(d.address))
	}
	if err := front.SetReadBuffer(8 << 20); err != nil {
		s.t.Fatal(err)
	}
	b.done.Go(b.forth)
	s.t.Cleanup(b.close)
	return b
}

func (b *balancer) address() string { return b.front.LocalAddr().String() }

func (b *balancer) close() {
	_ = b.front.Close()
	b.mu.Lock()
	for _, back := range b.backs {
		_ = back.Close()
	}
	b.mu.Unlock()
	b.done.Wait()
}

// forth forwards datagrams of phones.
func (b *balancer) forth() {
	message := make([]byte, 1<<16)
	for {
		n, phone, err := b.front.ReadFromUDPAddrPort(message)
		if errors.Is(err, net.ErrClosed) {
			return
		} else if err != nil {
			continue // the phone has closed its socket
		}
		back, err := b.back(phone)
		if err != nil {
			b.t.Errorf("balance: %v", err)
			return
		}
		// A socket of a director that is being replaced accepts the message in any case.
		_, _ = back.WriteToUDPAddrPort(message[:n], b.directors[rand.IntN(len(b.directors))])
	}
}

func (b *balancer) back(phone netip.AddrPort) (*net.UDPConn, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if back := b.backs[phone]; back != nil {
		return back, nil
	}
	back, err := net.ListenUDP("udp", &net.UDPAddr{IP: b.front.LocalAddr().(*net.UDPAddr).IP})
	if err != nil {
		return nil, err
	}
	if err := back.SetReadBuffer(8 << 20); err != nil {
		return nil, errors.Join(err, back.Close())
	}
	b.backs[phone] = back
	b.done.Go(func() {
		message := make([]byte, 1<<16)
		for {
			n, err := back.Read(message)
			if errors.Is(err, net.ErrClosed) {
				return
			} else if err == nil {
				_, _ = b.front.WriteToUDPAddrPort(message[:n], phone)
			}
		}
	})
	return back, nil
}

// TestTransactionsOverTwoDirectors sends the messages of one transaction to either of two
// directors, which do not communicate. Within one epoch each transaction stays on its
// instance, also across restarts. A change of epoch may move only open transactions, because a
// director does not know the keys that only the other director has seen.
func TestTransactionsOverTwoDirectors(t *testing.T) {
	t.Parallel()
	requirePrograms(t, "kamailio", "sipp", "tcpdump")
	s := newSite(t)
	const host = firstPhone - 1
	m := s.motion(2, options{Transition: "4s", Advertise: s.host(host)})
	m.targets = []string{s.balance(host, m.fleet).address()}
	m.call(kinds, 20, 0)
	m.after(600)
	m.restart()
	m.after(600)
	m.report("a transaction changed instances within one epoch", m.ledger.strayed(), nil)
	from := time.Now()
	m.grow()
	to := time.Now()
	m.after(600)
	sum := m.finish()
	m.ledger.close()
	amid := func(r *record) bool { return r.amid(from, to) }
	t.Logf("%d transactions, %d of them through both directors; %d changed instances during the change; %d calls failed",
		sum.transactions, m.ledger.shared(), len(m.ledger.strayed()), sum.failed)
	m.report("a transaction changed instances that was not amid the change", m.ledger.strayedBut(func(r *record) bool { return amid(r) || r.longer(m.transition) }), nil)
	m.lost(sum, amid)
	if n := m.ledger.shared(); int64(n) < sum.transactions/4 {
		t.Errorf("%d of %d transactions went through both directors: too few to prove anything", n, sum.transactions)
	}
	m.captured(sum)
}
