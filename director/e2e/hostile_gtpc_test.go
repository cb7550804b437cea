package e2e

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"vitrine"
	"vitrine/internal/hosttest"
	"vitrine/wire/gtpc"
)

// mmes is the number of concurrent MMEs of the load, each at its own host.
const mmes = 16

// bearerType is an aggregate type with a gate. It serves requests about bearers.
const bearerType = "bearer"

// budgetGTPC is the memory bound of a director for GTP-C by its configuration, in bytes.
func budgetGTPC() int64 {
	const (
		entries   = 524288
		steering  = 2 * entries * 8
		exchanges = 262144 * 120
		learned   = 2 * 262144 * 56
		inFlight  = entries * 8
		quota     = 65536 * 26
		slack     = 16 << 20 // the heap between two collections
	)
	if hosttest.Raced {
		return 8 * (steering + exchanges + learned + inFlight + quota + slack)
	}
	return steering + exchanges + learned + inFlight + quota + slack
}

// A hostileEPC is an EPC whose director is under attack.
type hostileEPC struct {
	*epc
	target
	peer         *net.UDPAddr // the director
	imsis        atomic.Int64
	bearers      *bearerNode
	quota, burst float64 // of each source, in requests per second and in requests
}

// TestHostileGTPC attacks a director's GTP-C listener while subscribers attach, hand over and
// detach at half of the rate that the site carries. Each of their requests must succeed.
func TestHostileGTPC(t *testing.T) {
	h := &hostileEPC{}
	h.epc = newEPC(t, func(o *options) {
		o.Types += fmt.Sprintf("\n- {name: %s, protocol: gtpc, number: 3, overload: {target: 2s, initial: %d, min: 1, max: %d, burst: %d}}", bearerType, gateRate, gateRate, gateRate)
		o.Rules = fmt.Sprintf("- {message: update-bearer, type: %[1]s}\n- {message: delete-bearer, type: %[1]s}\n%[2]s", bearerType, o.Rules)
	})
	h.steward, h.peer = h.behind, h.through
	address := h.at(firstInstance+8, gtpcPort)
	h.bearers = newBearerNode(t, address)
	fleet{h.steward}.put(vitrine.Instance{Name: "bearer-1", Type: bearerType, Address: netip.MustParseAddrPort(address), Weight: 100})
	eventually(t, "bearer-1 is up", func() bool { return h.instance("bearer-1").Health == "up" })

	carried := h.capacity(t)
	h.messages = carried / 2 * messagesPerSession
	h.limit(t, 4*carried/mmes)
	h.serve = func(t *testing.T, lasting time.Duration) (int64, error) {
		t.Helper()
		return h.sessions(t.Context(), carried/2, lasting)
	}
	h.before, h.budget = h.memory(), budgetGTPC()
	t.Logf("capacity is %.0f sessions/s; the load is half of that, %.0f messages/s", carried, h.messages)
	for _, a := range []attack{h.garbage(), h.strayAnswers(), h.commandBits(), h.takeovers(t), h.createFlood()} {
		h.withstand(t, a)
	}
}

// messagesPerSession is how many messages of a session pass the director.
const messagesPerSession = 6

// capacity returns the rate of sessions per second when each MME attaches, hands over and
// detaches one session after the other.
func (h *hostileEPC) capacity(t *testing.T) float64 {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Second)
	defer stop()
	var sessions atomic.Int64
	began := time.Now()
	err := h.subscribe(t.Context(), func(s *subscriber) error {
		for ctx.Err() == nil {
			if err := s.session(h.imsi()); err != nil {
				return err
			}
			sessions.Add(1)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return max(float64(sessions.Load())/time.Since(began).Seconds(), 2)
}

// limit sets the quota of each source, in requests per second.
func (h *hostileEPC) limit(t *testing.T, rate float64) {
	t.Helper()
	h.quota, h.burst = math.Ceil(rate), math.Ceil(max(3*rate, 10))
	text := fmt.Appendf(mustRead(t, h.file), "quota: {gtpc: {rate: %.0f, burst: %.0f}}\n", h.quota, h.burst)
	if err := os.WriteFile(h.file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := h.client.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (h *hostileEPC) imsi() string { return fmt.Sprintf("00101%010d", h.imsis.Add(1)) }

// sessions runs sessions at a rate for a time, and returns the number of successes.
func (h *hostileEPC) sessions(ctx context.Context, rate float64, lasting time.Duration) (int64, error) {
	due := make(chan string, int(rate*lasting.Seconds())+1)
	timed, stop := context.WithTimeout(ctx, lasting)
	defer stop()
	var served atomic.Int64
	var all errgroup.Group
	all.Go(func() error {
		defer close(due)
		_, err := hosttest.Pace(timed, rate, func(int) error {
			due <- h.imsi()
			return nil
		})
		return err
	})
	all.Go(func() error {
		return h.subscribe(ctx, func(s *subscriber) error {
			for imsi := range due {
				if err := s.session(imsi); err != nil {
					return err
				}
				served.Add(1)
			}
			return nil
		})
	})
	err := all.Wait()
	return served.Load(), err
}

// subscribe runs all MMEs.
func (h *hostileEPC) subscribe(ctx context.Context, run func(*subscriber) error) error {
	g, ctx := errgroup.WithContext(ctx)
	for i := range mmes {
		g.Go(func() error {
			host := net.ParseIP(h.host(firstPhone + i))
			c, err := net.DialUDP("udp4", &net.UDPAddr{IP: host}, h.peer)
			if err != nil {
				return err
			}
			defer c.Close()
			defer context.AfterFunc(ctx, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })()
			return run(&subscriber{ctx: ctx, conn: c, host: netip.MustParseAddr(host.String()), sequence: rand.Uint32() & 0x3fffff})
		})
	}
	return g.Wait()
}

// A subscriber is an MME with one session at a time.
type subscriber struct {
	ctx      context.Context //nolint:containedctx // context of its only run
	conn     *net.UDPConn
	host     netip.Addr
	sequence uint32
	teid     uint32 // TEID of the MME
	answer   [2048]byte
}

// Retransmission of requests (TS 29.274 clause 7.6): T3-RESPONSE and N3-REQUESTS.
const (
	t3Response = time.Second
	n3Requests = 30
)

// ask sends a request, with retransmissions, until a response arrives. It returns the response
// and whether it retransmitted. An accepting response must have the subscriber's TEID, even if
// the instances know the subscriber by an alias TEID.
func (s *subscriber) ask(t gtpc.Type, teid uint32, elements func([]byte) []byte) (m gtpc.Message, again bool, err error) {
	s.sequence = (s.sequence + 1) & 0x7fffff
	request := gtpc.End(elements(gtpc.AppendHeader(nil, t, teid, s.sequence)), 0)
	want, _ := t.Response()
	for try := range n3Requests {
		if _, err := s.conn.Write(request); err != nil && !isRefused(err) {
			return m, again, err
		}
		if err := s.conn.SetReadDeadline(time.Now().Add(t3Response)); err != nil {
			return m, again, err
		}
		for again = try > 0; ; {
			n, err := s.conn.Read(s.answer[:])
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			} else if err != nil {
				return m, again, err
			}
			if _, err := m.Parse(s.answer[:n]); err != nil || m.Type != want || m.Sequence != s.sequence {
				continue
			}
			if causeOf(&m).Accepted() && m.TEID != s.teid {
				return m, again, fmt.Errorf("%s to TEID %#x, want %#x", want, m.TEID, s.teid)
			}
			return m, again, nil
		}
		if s.ctx.Err() != nil {
			return m, again, s.ctx.Err()
		}
	}
	return m, again, fmt.Errorf("no %s after %d tries", want, n3Requests)
}

// attach creates a session, and returns the gateway's TEID.
func (s *subscriber) attach(imsi string) (gateway uint32, err error) {
	s.teid++
	m, _, err := s.ask(gtpc.CreateSessionRequest, 0, func(b []byte) []byte {
		b = gtpc.AppendDigits(b, gtpc.IMSI, imsi)
		b = gtpc.AppendFTEID(b, 0, gtpc.Endpoint{Interface: gtpc.S11MME, TEID: s.teid, V4: s.host})
		b = gtpc.AppendFTEID(b, 1, gtpc.Endpoint{Interface: gtpc.S5PGW, V4: s.host})
		return appendBearer(b)
	})
	if err := accepted(&m, err); err != nil {
		return 0, fmt.Errorf("attach %s: %w", imsi, err)
	}
	value, _ := m.Find(gtpc.FTEID, 0)
	end, ok := gtpc.ParseFTEID(value)
	if !ok {
		return 0, fmt.Errorf("attach %s: no F-TEID", imsi)
	}
	return end.TEID, nil
}

// session attaches, hands over and detaches.
func (s *subscriber) session(imsi string) error {
	gateway, err := s.attach(imsi)
	if err != nil {
		return err
	}
	m, _, err := s.ask(gtpc.ModifyBearerRequest, gateway, func(b []byte) []byte {
		return appendBearer(b, gtpc.Endpoint{Interface: gtpc.S1UeNodeB, TEID: s.teid, V4: s.host})
	})
	if err := accepted(&m, err); err != nil {
		return fmt.Errorf("hand over %s: %w", imsi, err)
	}
	m, again, err := s.ask(gtpc.DeleteSessionRequest, gateway, func(b []byte) []byte { return gtpc.AppendElement(b, gtpc.EBI, 0, 5) })
	const contextNotFound = 64 // answer to a retransmission after a lost response
	if err := accepted(&m, err); err != nil && (!again || causeOf(&m) != contextNotFound) {
		return fmt.Errorf("detach %s: %w", imsi, err)
	}
	return nil
}

// appendBearer appends a bearer context with the bearer's ends.
func appendBearer(b []byte, ends ...gtpc.Endpoint) []byte {
	start := len(b)
	b = gtpc.AppendElement(gtpc.BeginGroup(b, gtpc.BearerContext, 0), gtpc.EBI, 0, 5)
	for _, end := range ends {
		b = gtpc.AppendFTEID(b, 0, end)
	}
	return gtpc.EndGroup(b, start)
}

func causeOf(m *gtpc.Message) gtpc.CauseValue {
	value, _ := m.Find(gtpc.Cause, 0)
	cause, _ := gtpc.ParseCause(value)
	return cause
}

// accepted returns err, or an error if the response does not accept the request.
func accepted(m *gtpc.Message, err error) error {
	if cause := causeOf(m); err == nil && !cause.Accepted() {
		return fmt.Errorf("cause %d", cause)
	}
	return err
}

const drops = "vitrine_director_drops_total"

// garbage sends noise, truncated messages, and messages with changed octets. Some of these are valid,
// so each names an IMSI of its own: the gateway would keep all sessions of one IMSI, and run out of
// TEIDs for the subscribers whose IMSIs have the same key.
func (h *hostileEPC) garbage() attack {
	r := rand.New(rand.NewPCG(5, 5))
	return attack{
		name: "garbage", times: 10, counter: drops, labels: []string{`protocol="gtpc"`, `reason="malformed"`},
		run: flood(h.peer.String(), anywhere, func(n int) []byte {
			b := createRequest(1, fmt.Sprintf("00103%010d", n), netip.MustParseAddr("127.0.0.9"))
			switch n % 3 {
			case 0:
				return b[:r.IntN(len(b))]
			case 1:
				b[[]int{0, 2, 3}[r.IntN(3)]] = byte(r.Uint32()) // version and flags, and the length
				return b
			}
			for i := range b {
				b[i] = byte(r.Uint32())
			}
			return b
		}),
	}
}

// createRequest returns a Create Session Request from a sender.
func createRequest(sequence uint32, imsi string, from netip.Addr) []byte {
	b := gtpc.AppendDigits(gtpc.AppendHeader(nil, gtpc.CreateSessionRequest, 0, sequence), gtpc.IMSI, imsi)
	b = gtpc.AppendFTEID(b, 0, gtpc.Endpoint{Interface: gtpc.S11MME, TEID: sequence + 1, V4: from})
	return gtpc.End(appendBearer(b), 0)
}

// strayAnswers sends responses to requests that the director did not send to the strangers.
func (h *hostileEPC) strayAnswers() attack {
	return attack{
		name: "answers of strangers", times: 10, counter: drops, labels: []string{`protocol="gtpc"`, `reason="unroutable"`}, all: true,
		run: flood(h.peer.String(), anywhere, func(n int) []byte {
			b := gtpc.AppendHeader(nil, gtpc.CreateSessionResponse, uint32(n), uint32(n)&0x3fffff) // the director's own numbers
			return gtpc.End(gtpc.AppendCause(b, 16), 0)
		}),
	}
}

// commandBits sends requests about bearers with the bit in the sequence number that marks them
// as triggered by a command.
func (h *hostileEPC) commandBits() attack {
	var began time.Time
	var before int64
	return attack{
		name: "the command bit of sequence numbers", times: 10, counter: "vitrine_director_failures_total", labels: []string{`type="` + bearerType + `"`, `cause="overloaded"`},
		run: func(ctx context.Context, rate float64) (int, error) {
			began, before = time.Now(), h.bearers.requests.Load()
			return flood(h.peer.String(), anywhere, func(n int) []byte {
				kind := []gtpc.Type{gtpc.UpdateBearerRequest, gtpc.DeleteBearerRequest}[n%2]
				b := gtpc.AppendHeader(nil, kind, 0, uint32(n)&0x3fffff|gtpc.CommandSequence)
				return gtpc.End(appendBearer(b), 0)
			})(ctx, rate)
		},
		check: func(t *testing.T) {
			passed := h.bearers.requests.Load() - before
			if most := gateRate * (2 + time.Since(began).Seconds()); float64(passed) > most {
				t.Errorf("%d requests passed the gate, want at most %.0f", passed, most)
			}
		},
	}
}

// createFlood sends Create Session Requests from one source. Only as many as its quota may pass.
func (h *hostileEPC) createFlood() attack {
	one := netip.MustParseAddr(h.host(firstPhone + mmes))
	refused := func() float64 {
		return h.metric(drops, `protocol="gtpc"`, `reason="over_quota"`) + h.metric(drops, `protocol="gtpc"`, `reason="socket_full"`)
	}
	var sent int
	var before, most float64
	return attack{
		name: "Create Session Requests from one source", times: 10, counter: drops, labels: []string{`protocol="gtpc"`, `reason="over_quota"`},
		run: func(ctx context.Context, rate float64) (_ int, err error) {
			before = refused()
			began := time.Now()
			sent, err = flood(h.peer.String(), func(int) netip.Addr { return one }, func(n int) []byte {
				return createRequest(uint32(n)&0x7fffff, fmt.Sprintf("00102%010d", n), one)
			})(ctx, rate)
			most = h.burst + h.quota*(1+time.Since(began).Seconds())
			return sent, err
		},
		check: func(t *testing.T) {
			eventually(t, fmt.Sprintf("at most %.0f of %d requests pass", most, sent), func() bool { return float64(sent)-(refused()-before) <= most })
		},
	}
}
