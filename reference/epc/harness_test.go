package epc_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vitrine/internal/hosttest"
	"vitrine/reference/epc/diameter"
	"vitrine/reference/epc/gtp"
	"vitrine/reference/epc/hss"
	"vitrine/reference/epc/pcrf"
	"vitrine/reference/epc/pgw"
	"vitrine/reference/epc/sgw"
	"vitrine/wire/gtpc"
	"vitrine/wire/identity"
	"vitrine/wire/nas"
)

var components = map[string]hosttest.Program{"hss": hss.Run, "pcrf": pcrf.Run, "sgw": sgw.Run, "pgw": pgw.Run}

// patience limits every wait of these tests. Reaching it is a failure.
const patience = 30 * time.Second

// A site holds the addresses of one test's EPC. Tests do not share addresses. The
// hosts are: MMEs 1 and 2, S-GWs 11 and 12, P-GW 21, PCRF 31, HSS 41.
type site struct {
	t      testing.TB
	prefix string
}

var sites = struct {
	sync.Mutex
	n int
}{}

func newSite(t testing.TB) site {
	sites.Lock()
	defer sites.Unlock()
	sites.n++
	return site{t, fmt.Sprintf("127.%d.%d.", 1+os.Getpid()%90, sites.n)}
}

func (s site) addr(host, port int) netip.AddrPort {
	return netip.MustParseAddrPort(s.prefix + strconv.Itoa(host) + ":" + strconv.Itoa(port))
}

func (s site) at(host, port int) string { return s.addr(host, port).String() }

// start runs a component until the test ends or stop is called. Its counters are
// at port 9090 of its host.
func (s site) start(name string, host, port int, args ...string) (stop func()) {
	s.t.Helper()
	args = append([]string{"--listen", s.at(host, port), "--metrics", s.at(host, 9090)}, args...)
	return hosttest.Start(s.t, patience, name, components[name], args...)
}

func (s site) until(what string, ok func() bool) {
	s.t.Helper()
	hosttest.Until(s.t, patience, what, ok)
}

func (s site) hss(args ...string) (stop func()) {
	return s.start("hss", 41, diameter.Port, append([]string{"--subscribers", "10"}, args...)...)
}

func (s site) pcrf(args ...string) (stop func()) {
	return s.start("pcrf", 31, diameter.Port, args...)
}

func (s site) sgw(host int, args ...string) (stop func()) {
	return s.start("sgw", host, gtp.Port, args...)
}

func (s site) pgw(args ...string) (stop func()) {
	s.t.Helper()
	stop = s.start("pgw", 21, gtp.Port, args...)
	if slices.Contains(args, "--pcrf") {
		s.until("the P-GW has a PCRF", func() bool { return s.metric(21, "gx_connected") == 1 })
	}
	return stop
}

// metric returns the value of a counter, summed over the series that have all the
// labels.
func (s site) metric(host int, name string, labels ...string) float64 {
	s.t.Helper()
	text, err := hosttest.Scrape(s.at(host, 9090))
	if err != nil {
		s.t.Fatal(err)
	}
	return hosttest.Metric(s.t, text, name, labels...)
}

// An mme is as much of an MME as these tests need: the real ends of S11 and S6a.
type mme struct {
	site
	*gtp.Endpoint
	s6a       *diameter.MME
	cancelled chan string
	handle    atomic.Pointer[func(*gtp.Request)] // for requests of an S-GW; dropped without one
	sgwTEID   atomic.Uint32                      // of the S-GW, for answers to them
}

// mme starts an MME, 1 or 2, and connects it to the HSS at host 41 if there is
// one.
func (s site) mme(host int, restart uint8) *mme {
	s.t.Helper()
	m := &mme{site: s, cancelled: make(chan string, 16)}
	endpoint, err := gtp.Listen(s.t.Context(), gtp.Config{
		Listen: s.addr(host, gtp.Port), T3: time.Second, Restart: restart, Registry: prometheus.NewRegistry(),
		Handle: func(_ context.Context, r *gtp.Request) {
			if handle := m.handle.Load(); handle != nil {
				(*handle)(r)
			}
		},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	m.Endpoint = endpoint
	m.s6a = diameter.NewMME(diameter.MMEConfig{
		ClientConfig: diameter.ClientConfig{
			Peer: s.addr(41, diameter.Port), Host: fmt.Sprintf("mme%d.epc.test", host), Timeout: 2 * time.Second,
			Log: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry(),
		},
		Cancelled: func(imsi string) { m.cancelled <- imsi },
	})
	hosttest.Run(s.t, patience, "S11 of the MME", endpoint.Serve)
	hosttest.Run(s.t, patience, "S6a of the MME", m.s6a.Run)
	return m
}

// plmn returns the network of the tests.
func plmn() identity.PLMN {
	p, _ := identity.MakePLMN("001", "01")
	return p
}

// imsi returns the IMSI of a subscriber, from 0.
func imsi(n int) string { return fmt.Sprintf("0010100000%05d", n+1) }

// request returns a Create Session Request for the default bearer 5.
func (m *mme) request(subscriber string, teid uint32) *gtpc.CreateSession {
	digits, ok := identity.MakeDigits(subscriber)
	if !ok {
		m.t.Fatal(subscriber)
	}
	return &gtpc.CreateSession{
		IMSI: digits, Serving: plmn(), RAT: gtpc.RATEUTRAN, Sender: m.Own(gtpc.S11MME, teid),
		PGW: gtpc.Endpoint{Interface: gtpc.S5PGW, V4: m.addr(21, 0).Addr()}, APN: nas.AppendAPN(nil, "internet"), PDN: gtpc.PDNv4,
		Address: gtpc.Address{Type: gtpc.PDNv4}, AMBR: gtpc.Rates{Up: 50_000, Down: 150_000},
		Bearers: []gtpc.Bearer{{EBI: 5, QoS: gtpc.QoS{QCI: 9, Priority: 8}}}, Recovery: m.Restart(),
	}
}

// create sends a Create Session Request to an S-GW.
func (m *mme) create(sgw int, request *gtpc.CreateSession) gtpc.CreateSessionAnswer {
	m.t.Helper()
	var answer gtpc.CreateSessionAnswer
	if err := m.Do(m.t.Context(), m.addr(sgw, gtp.Port), 0, request, &answer); err != nil {
		m.t.Fatal(err)
	}
	return answer
}

// ask sends a request to an S-GW and returns the cause of the answer.
func (m *mme) ask(sgw int, teid uint32, request gtp.Message) gtpc.Answer {
	m.t.Helper()
	var answer gtpc.Answer
	if err := m.Do(m.t.Context(), m.addr(sgw, gtp.Port), teid, request, &answer); err != nil {
		m.t.Fatal(err)
	}
	return answer
}

// A gateway is a P-GW that only creates sessions, so that a test can send its
// requests.
type gateway struct {
	*gtp.Endpoint
	sgw chan gtpc.Endpoint // the S-GW of each session
}

// bareGateway starts a gateway in place of the P-GW.
func (s site) bareGateway() *gateway {
	s.t.Helper()
	p := &gateway{sgw: make(chan gtpc.Endpoint, 4)}
	endpoint, err := gtp.Listen(s.t.Context(), gtp.Config{
		Listen: s.addr(21, gtp.Port), Registry: prometheus.NewRegistry(),
		Handle: func(_ context.Context, r *gtp.Request) {
			var m gtpc.CreateSession
			if err := m.Parse(&r.Message); err != nil {
				s.t.Error(err)
			}
			own := gtpc.Endpoint{Interface: gtpc.S5PGW, TEID: 4, V4: s.addr(21, 0).Addr()}
			result := gtpc.Result{Cause: gtpc.RequestAccepted}
			r.Answer(m.Sender.TEID, &gtpc.CreateSessionAnswer{
				Result: result, PGW: own, Address: gtpc.Address{Type: gtpc.PDNv4, V4: netip.MustParseAddr("10.45.0.2")},
				Bearers: []gtpc.Bearer{{EBI: 5, Result: result, QoS: m.Bearers[0].QoS, S5PGW: own}},
			})
			p.sgw <- m.Sender
		},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	p.Endpoint = endpoint
	hosttest.Run(s.t, patience, "the P-GW", endpoint.Serve)
	return p
}
