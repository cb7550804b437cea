package diameter

import (
	"context"
	"errors"
	"maps"
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/fiorix/go-diameter/v4/diam"
	"github.com/fiorix/go-diameter/v4/diam/avp"
	"github.com/fiorix/go-diameter/v4/diam/datatype"
	"github.com/fiorix/go-diameter/v4/diam/sm"
	"github.com/fiorix/go-diameter/v4/diam/sm/smpeer"
	"github.com/prometheus/client_golang/prometheus"

	"vitrine/internal/truth"
	"vitrine/reference/ims"
)

// A handler handles a request and returns the AVPs of the answer, or an error. The error
// is a Result; any other error is answered with DIAMETER_UNABLE_TO_COMPLY.
type handler func(origin string, request set) ([]*diam.AVP, error)

// A server answers the requests of clients.
type server struct {
	host, realm string
	application uint32
	machine     *sm.StateMachine
	requests    *prometheus.CounterVec
	restarted   func(origin string) // a client has lost its sessions; nil: the server has none

	mu    sync.Mutex
	peers map[string]peer // by Diameter identity
	next  uint32          // identifier of the server's last request

	Messages *truth.Log // nil: messages are not logged; set before Serve
}

// A peer is a client that has exchanged capabilities.
type peer struct {
	conn  diam.Conn // the latest connection
	state uint32    // highest Origin-State-Id; 0: none
}

// newServer returns a server. name is the node's name in the counter.
func newServer(host string, application uint32, registry prometheus.Registerer, name string) *server {
	_, realm, _ := strings.Cut(host, ".")
	s := &server{
		host: host, realm: realm, application: application,
		machine: sm.New(&sm.Settings{
			OriginHost: datatype.DiameterIdentity(host), OriginRealm: datatype.DiameterIdentity(realm),
			VendorID: vendor3GPP, ProductName: product,
		}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: name + "_procedures_total", Help: "Requests answered, by command and result.",
		}, []string{"procedure", "result"}),
		peers: map[string]peer{}, next: firstID(),
	}
	registry.MustRegister(s.requests)
	s.machine.HandleFunc("ALL", s.unknown)
	return s
}

// handle sets the handler of a command.
func (s *server) handle(command uint32, name string, h handler) {
	s.machine.HandleIdx(diam.CommandIndex{AppID: s.application, Code: command, Request: true}, diam.HandlerFunc(func(conn diam.Conn, m *diam.Message) {
		of := s.Messages.Begin()
		logReceived(s.Messages, conn, m, of)
		origin, ok := set(m.AVP).text(avp.OriginHost)
		var avps []*diam.AVP
		var err error = MissingAVP
		if ok && origin != "" {
			avps, err = h(origin, m.AVP)
		}
		result := resultOf(err)
		s.requests.WithLabelValues(name, strconv.Itoa(int(result.Code()))).Inc()
		reply(conn, m, s.host, s.realm, s.Messages, of, result, avps...)
	}))
}

// receive handles a message. When capabilities have been exchanged, it stores the
// connection for the server's own requests to the client. A client whose Origin-State-Id
// has become higher has lost its sessions (RFC 6733 clause 8.16).
func (s *server) receive(conn diam.Conn, m *diam.Message) {
	s.machine.ServeDIAM(conn, m)
	if m.Header.CommandCode != diam.CapabilitiesExchange {
		return
	}
	client, ok := smpeer.FromContext(conn.Context())
	if !ok {
		return
	}
	origin := string(client.OriginHost)
	state, _ := set(m.AVP).number(avp.OriginStateID)
	s.mu.Lock()
	before := s.peers[origin].state
	if len(s.peers) >= maxConnections { // no more than that are open
		maps.DeleteFunc(s.peers, func(_ string, p peer) bool { return p.conn.Connection().(*connection).over() })
	}
	s.peers[origin] = peer{conn, max(state, before)}
	s.mu.Unlock()
	if s.restarted != nil && before != 0 && state > before {
		s.restarted(origin)
	}
}

// unknown answers a request whose command has no handler.
func (s *server) unknown(conn diam.Conn, m *diam.Message) {
	if m.Header.CommandFlags&diam.RequestFlag == 0 {
		return
	}
	s.requests.WithLabelValues("unknown", strconv.Itoa(int(CommandUnsupported.Code()))).Inc()
	reply(conn, m, s.host, s.realm, nil, 0, CommandUnsupported)
}

// resultOf returns the Result for an answer. It is Success without an error.
func resultOf(err error) Result {
	var r Result
	switch {
	case err == nil:
		return Success
	case errors.As(err, &r):
		return r
	}
	return UnableToComply
}

// reply answers a request, and logs the answer with the request's event.
func reply(conn diam.Conn, request *diam.Message, host, realm string, log *truth.Log, of truth.Event, result Result, avps ...*diam.AVP) {
	answer := beginAnswer(request, host, realm)
	appendResult(answer, result)
	for _, a := range avps {
		answer.AddAVP(a)
	}
	logSent(log, conn, answer, of)
	_, _ = answer.WriteTo(conn) // the peer notices if the connection is lost
}

// beginAnswer begins the answer to a request. It sets the identifiers, the
// session, the application and the origin. Of the request's flags, an answer keeps only
// the P bit (RFC 6733 clauses 3 and 6.2).
func beginAnswer(request *diam.Message, host, realm string) *diam.Message {
	answer := diam.NewMessage(request.Header.CommandCode, request.Header.CommandFlags&diam.ProxiableFlag, request.Header.ApplicationID,
		request.Header.HopByHopID, request.Header.EndToEndID, request.Dictionary())
	from := set(request.AVP)
	if session := from.find(avp.SessionID); session != nil {
		answer.AddAVP(session)
	}
	if request.Header.ApplicationID == gxApplication { // TS 29.212 clause 5.6.3
		answer.AddAVP(base(avp.AuthApplicationID, number(request.Header.ApplicationID)))
		for _, code := range [...]uint32{avp.CCRequestType, avp.CCRequestNumber} {
			if a := from.find(code); a != nil {
				answer.AddAVP(a)
			}
		}
	} else {
		answer.AddAVP(applicationAVP(request.Header.ApplicationID))
		answer.AddAVP(base(avp.AuthSessionState, datatype.Enumerated(noStateMaintained)))
	}
	answer.AddAVP(base(avp.OriginHost, datatype.DiameterIdentity(host)))
	answer.AddAVP(base(avp.OriginRealm, datatype.DiameterIdentity(realm)))
	return answer
}

// serve serves a listener until ctx is done. Then it closes all connections.
func (s *server) serve(ctx context.Context, l net.Listener) error {
	return ims.ServeEach(ctx, l, maxConnections, func(ctx context.Context, socket net.Conn) {
		c := newConnection(socket)
		defer c.Close()
		if _, err := diam.NewConn(c, socket.RemoteAddr().String(), diam.HandlerFunc(s.receive), nil); err != nil {
			return
		}
		select {
		case <-c.ended:
		case <-ctx.Done():
		}
	})
}
