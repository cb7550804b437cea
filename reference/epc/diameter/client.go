// Package diameter is Diameter over TCP (RFC 6733) for the reference EPC: S6a between
// MME and HSS (TS 29.272), and Gx between P-GW and PCRF (TS 29.212). go-diameter
// provides messages, capability exchange and watchdog. There are no agents, no SCTP, no
// TLS and no failover.
package diameter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fiorix/go-diameter/v4/diam"
	"github.com/fiorix/go-diameter/v4/diam/avp"
	"github.com/fiorix/go-diameter/v4/diam/datatype"
	"github.com/fiorix/go-diameter/v4/diam/sm"
	"github.com/prometheus/client_golang/prometheus"

	"vitrine/internal/truth"
)

// Port is the TCP port of Diameter (RFC 6733 clause 2.1).
const Port = 3868

// A ClientConfig configures a client. Zero values mean the defaults.
type ClientConfig struct {
	Peer     netip.AddrPort
	Host     string        // Diameter identity; the realm is the part after the first dot
	Timeout  time.Duration // for an answer, and for a connection; 5 s
	Watchdog time.Duration // between Device-Watchdog-Requests; 30 s
	Log      *slog.Logger
	Registry prometheus.Registerer
	Messages *truth.Log // nil: messages are not logged
}

// maxWaiting limits the requests of a client that have no answer yet.
const maxWaiting = 1 << 14

// A client keeps a connection to one server and sends requests to it.
type client struct {
	config      ClientConfig
	application uint32
	realm       string
	state       uint32 // Origin-State-Id; 0: none
	// handlers handle the server's requests, by command.
	handlers map[uint32]diam.HandlerFunc
	// late handles an answer that no request waits for any more; nil: it is dropped.
	late      diam.HandlerFunc
	requests  *prometheus.CounterVec
	connected prometheus.Gauge

	mu      sync.Mutex
	conn    *link // nil without a connection
	waiting map[uint32]chan *diam.Message
	next    uint32
	session uint64
	suffix  uint32 // of session identities
}

func newClient(c ClientConfig, application uint32, name string) *client {
	c.Timeout = cmp.Or(c.Timeout, 5*time.Second)
	c.Watchdog = cmp.Or(c.Watchdog, 30*time.Second)
	_, realm, _ := strings.Cut(c.Host, ".")
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: name + "_requests_total", Help: "Requests sent, by command and result. A result of 0 is no answer.",
	}, []string{"command", "result"})
	connected := prometheus.NewGauge(prometheus.GaugeOpts{Name: name + "_connected", Help: "1 while there is a connection to the server."})
	c.Registry.MustRegister(requests, connected)
	return &client{
		config: c, application: application, realm: realm, requests: requests, connected: connected,
		handlers: map[uint32]diam.HandlerFunc{}, waiting: map[uint32]chan *diam.Message{},
		next: firstID(), session: uint64(time.Now().Unix()) << 32, suffix: rand.Uint32(),
	}
}

// firstID returns the identifier that precedes the first request's: 12 bits of the time
// in seconds and 20 random bits. So the End-to-End Identifiers of a process differ from
// those of an earlier process (RFC 6733 clause 3).
func firstID() uint32 { return uint32(time.Now().Unix())<<20 | rand.Uint32()>>12 }

// run connects, and reconnects after each loss of the connection, until ctx is done.
func (c *client) run(ctx context.Context) error {
	wait := firstWait
	for ctx.Err() == nil {
		l, err := c.dial(ctx)
		if err != nil {
			c.config.Log.Warn("no Diameter connection", "peer", c.config.Peer, "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(wait):
			}
			wait = min(2*wait, longestWait)
			continue
		}
		wait = firstWait
		c.watch(ctx, l)
		c.lose(l)
	}
	return nil
}

// A link is a connection after the capability exchange.
type link struct {
	diam.Conn
	ended <-chan struct{}
	alive atomic.Bool // the last watchdog was answered
}

// watch returns when the connection is lost, when the server does not answer a
// watchdog in time (RFC 3539 clause 3.4.1), or when ctx is done.
func (c *client) watch(ctx context.Context, l *link) {
	ticker := time.NewTicker(c.config.Watchdog)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.ended:
			return
		case <-ticker.C:
			if !l.alive.Swap(false) {
				c.config.Log.Warn("a Diameter watchdog is not answered", "peer", c.config.Peer)
				return
			}
			m := diam.NewRequest(diam.DeviceWatchdog, 0, nil)
			m.AddAVP(base(avp.OriginHost, datatype.DiameterIdentity(c.config.Host)))
			m.AddAVP(base(avp.OriginRealm, datatype.DiameterIdentity(c.realm)))
			if _, err := m.WriteTo(l); err != nil {
				return
			}
		}
	}
}

// The pauses between attempts to connect. RFC 6733 clause 2.1 recommends 30 s. Shorter
// pauses let the components of an EPC start in any order.
const (
	firstWait   = 50 * time.Millisecond
	longestWait = 2 * time.Second
)

// dial connects and exchanges capabilities.
func (c *client) dial(ctx context.Context) (*link, error) {
	l := new(link)
	l.alive.Store(true)
	machine := sm.New(&sm.Settings{
		OriginHost: datatype.DiameterIdentity(c.config.Host), OriginRealm: datatype.DiameterIdentity(c.realm),
		VendorID: vendor3GPP, ProductName: product, OriginStateID: datatype.Unsigned32(c.state),
	})
	machine.HandleFunc("DWA", func(diam.Conn, *diam.Message) { l.alive.Store(true) })
	for _, command := range commands(c.application) {
		machine.HandleIdx(diam.CommandIndex{AppID: c.application, Code: command}, diam.HandlerFunc(c.answered))
		if handle := c.handlers[command]; handle != nil {
			machine.HandleIdx(diam.CommandIndex{AppID: c.application, Code: command, Request: true}, handle)
		}
	}
	dialer := &sm.Client{
		Handler: machine, RetransmitInterval: c.config.Timeout,
		SupportedVendorID:           []*diam.AVP{base(avp.SupportedVendorID, number(uint32(vendor3GPP)))},
		VendorSpecificApplicationID: []*diam.AVP{applicationAVP(c.application)},
	}
	socket, err := (&net.Dialer{Timeout: c.config.Timeout}).DialContext(ctx, "tcp", c.config.Peer.String())
	if err != nil {
		return nil, err
	}
	checked := newConnection(socket)
	stop := context.AfterFunc(ctx, func() { checked.Close() })
	defer stop()
	l.ended = checked.ended
	if l.Conn, err = exchangeCapabilities(dialer, checked); err != nil {
		checked.Close()
		return nil, fmt.Errorf("capability exchange: %w", err)
	}
	c.mu.Lock()
	c.conn = l
	c.mu.Unlock()
	c.connected.Set(1)
	return l, nil
}

// exchangeCapabilities returns when the exchange has ended, or when the connection is closed.
// go-diameter alone does not notice that, and waits for the answer until its time is over.
func exchangeCapabilities(dialer *sm.Client, over *connection) (diam.Conn, error) {
	type result struct {
		conn diam.Conn
		err  error
	}
	done := make(chan result, 1)
	go func() {
		conn, err := dialer.NewConn(over, over.RemoteAddr().String())
		done <- result{conn, err}
	}()
	select {
	case r := <-done:
		return r.conn, r.err
	case <-over.ended:
		return nil, net.ErrClosed
	}
}

// lose closes a lost connection, and ends the requests that wait for answers on it.
func (c *client) lose(l *link) {
	l.Close()
	c.connected.Set(0)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn = nil
	for id, answer := range c.waiting {
		close(answer)
		delete(c.waiting, id)
	}
}

// call sends a request and returns the AVPs of its answer. The error is a Result if the
// answer reports a failure; otherwise it is ErrUnreachable, ErrTimeout or the context's
// error.
func (c *client) call(ctx context.Context, command uint32, session string, avps []*diam.AVP) (set, error) {
	answer, err := c.exchange(ctx, command, session, avps)
	result := uint32(0)
	if err == nil {
		s := set(answer.AVP)
		result, _ = s.number(avp.ResultCode)
		if err = s.result(); err != nil {
			if r, ok := errors.AsType[Result](err); ok {
				result = r.Code()
			}
		}
	}
	c.requests.WithLabelValues(strconv.Itoa(int(command)), resultLabel(result)).Inc()
	if err != nil {
		return nil, err
	}
	return answer.AVP, nil
}

// exchange sends a request and waits for its answer.
func (c *client) exchange(ctx context.Context, command uint32, session string, avps []*diam.AVP) (*diam.Message, error) {
	c.mu.Lock()
	conn := c.conn
	if conn == nil || len(c.waiting) >= maxWaiting {
		c.mu.Unlock()
		return nil, ErrUnreachable
	}
	c.next++
	id := c.next
	wait := make(chan *diam.Message, 1)
	c.waiting[id] = wait
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.waiting, id)
		c.mu.Unlock()
		select {
		case answer, ok := <-wait: // it arrived after the wait had ended
			if ok && c.late != nil {
				c.late(conn, answer)
			}
		default:
		}
	}()
	m := c.request(command, id, session, avps)
	if _, err := m.WriteTo(conn); err != nil {
		return nil, ErrUnreachable
	}
	of := truth.From(ctx)
	if of == 0 {
		of = c.config.Messages.Begin()
	}
	logSent(c.config.Messages, conn, m, of)
	timer := time.NewTimer(c.config.Timeout)
	defer timer.Stop()
	select {
	case answer, ok := <-wait:
		if !ok {
			return nil, ErrUnreachable
		}
		logReceived(c.config.Messages, conn, answer, of)
		return answer, nil
	case <-timer.C:
		return nil, ErrTimeout
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// request returns a request.
func (c *client) request(command, id uint32, session string, avps []*diam.AVP) *diam.Message {
	return newRequest(command, c.application, id, append(c.header(session), avps...)...)
}

// newRequest returns a request with both identifiers equal to id.
func newRequest(command, application, id uint32, avps ...*diam.AVP) *diam.Message {
	m := diam.NewMessage(command, diam.RequestFlag|diam.ProxiableFlag, application, id, id, nil)
	for _, a := range avps {
		m.AddAVP(a)
	}
	return m
}

// header returns the first AVPs of every request.
func (c *client) header(session string) []*diam.AVP {
	all := []*diam.AVP{
		base(avp.SessionID, datatype.UTF8String(session)),
		base(avp.OriginHost, datatype.DiameterIdentity(c.config.Host)),
		base(avp.OriginRealm, datatype.DiameterIdentity(c.realm)),
		base(avp.DestinationRealm, datatype.DiameterIdentity(c.realm)),
	}
	if c.application == gxApplication { // the base protocol's AVP (TS 29.212 clause 5.6.2)
		return append(all, base(avp.AuthApplicationID, number(c.application)))
	}
	return append(all, applicationAVP(c.application), base(avp.AuthSessionState, datatype.Enumerated(noStateMaintained)))
}

// newSession returns a session identity (RFC 6733 clause 8.8). Its random suffix differs
// between clients that have the same host and start in the same second.
func (c *client) newSession() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.session++
	return fmt.Sprintf("%s;%d;%d;%08x", c.config.Host, c.session>>32, uint32(c.session), c.suffix)
}

// answered passes an answer to the request that waits for it.
func (c *client) answered(conn diam.Conn, m *diam.Message) {
	c.mu.Lock()
	wait, ok := c.waiting[m.Header.HopByHopID]
	if ok {
		delete(c.waiting, m.Header.HopByHopID)
		wait <- m
	}
	c.mu.Unlock()
	if !ok && c.late != nil {
		c.late(conn, m)
	}
}

// product is the Product-Name of clients and servers.
const product = "Vitrine reference EPC"

// noStateMaintained is the Auth-Session-State of S6a (TS 29.272 clause 7.1.4).
const noStateMaintained = 1

// applicationAVP returns a Vendor-Specific-Application-Id.
func applicationAVP(application uint32) *diam.AVP {
	return base(avp.VendorSpecificApplicationID, group(
		base(avp.VendorID, number(uint32(vendor3GPP))), base(avp.AuthApplicationID, number(application))))
}

// commands returns the commands of an application.
func commands(application uint32) []uint32 {
	if application == gxApplication {
		return []uint32{creditControl, reAuth}
	}
	return []uint32{updateLocation, cancelLocation, authenticationInformation, purgeUE}
}

// Connected reports whether there is a connection to the server.
func (c *client) Connected() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.conn != nil
}
