// Package subscriberdb replaces the MongoDB of NextEPC's HSS and PCRF. It answers the
// few commands that they send, for the subscribers of the reference EPC. It stores
// nothing on disk and has no authentication, so give it an address that only the HSS
// and the PCRF can reach.
package subscriberdb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.mongodb.org/mongo-driver/v2/bson"
	"golang.org/x/sync/errgroup"

	"vitrine/reference/epc/subscriber"
	"vitrine/reference/ims"
	"vitrine/reference/ims/rest"
	"vitrine/wire/mongo"
)

const (
	// maxConnections is the most connections at a time. Each NextEPC process opens
	// two.
	maxConnections = 64
	// patience is the time limit for the rest of a message, and for a write.
	patience = 10 * time.Second
)

// Run serves until ctx is done. The error is a *vitrine.BadInput for wrong arguments.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	c := ims.NewCommand("subscribers", "The subscribers of the reference EPC, as NextEPC's HSS and PCRF read them from MongoDB.", stdout, stderr)
	var listen netip.AddrPort
	c.Addr(&listen, "listen", true, "address for HSS and PCRF, MongoDB's wire protocol: IP:27017")
	parsed := subscriber.Flags(c)
	if help, err := c.Parse(args); help || err != nil {
		return err
	}
	subscribers, err := parsed()
	if err != nil {
		return err
	}
	listener, err := ims.Listen(ctx, "listen", listen)
	if err != nil {
		return err
	}
	defer listener.Close()
	s := newServer(subscribers)
	c.Registry.MustRegister(s.commands, s.malformed)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.serve(ctx, listener) })
	return rest.Wait(ctx, group, c, listener.Addr())
}

// A server answers the commands of its connections.
type server struct {
	database  database
	commands  *prometheus.CounterVec
	malformed prometheus.Counter
}

func newServer(subscribers *subscriber.Set) *server {
	return &server{
		database: database{subscribers: subscribers, states: map[string]*state{}},
		commands: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "subscribers_commands_total", Help: "Commands, by name.",
		}, []string{"command"}),
		malformed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "subscribers_malformed_total", Help: "Connections that ended with a malformed message.",
		}),
	}
}

// serve serves a listener until ctx is done. Then it closes all connections.
func (s *server) serve(ctx context.Context, l net.Listener) error {
	return ims.ServeEach(ctx, l, maxConnections, func(_ context.Context, conn net.Conn) {
		if err := s.answer(conn); isMalformed(err) {
			s.malformed.Inc()
		}
	})
}

// isMalformed reports whether an error is about a message's content, not about its
// connection.
func isMalformed(err error) bool {
	return errors.Is(err, mongo.ErrLength) || errors.Is(err, mongo.ErrOp) || errors.Is(err, mongo.ErrBody)
}

// answer answers the requests of a connection until it ends.
func (s *server) answer(conn net.Conn) error {
	var header [mongo.HeaderSize]byte
	var body, out []byte
	for id := uint32(1); ; id++ {
		if err := conn.SetDeadline(time.Time{}); err != nil {
			return fmt.Errorf("clear the deadline: %w", err)
		}
		if _, err := io.ReadFull(conn, header[:1]); err != nil {
			return fmt.Errorf("wait for a request: %w", err)
		}
		if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
			return fmt.Errorf("set a deadline: %w", err)
		}
		if _, err := io.ReadFull(conn, header[1:]); err != nil {
			return fmt.Errorf("read a header: %w", err)
		}
		h, err := mongo.ParseHeader(header[:], mongo.MaxMessage)
		if err != nil {
			return err
		}
		body = append(body[:0], make([]byte, h.Length-mongo.HeaderSize)...)
		if _, err := io.ReadFull(conn, body); err != nil {
			return fmt.Errorf("read a request: %w", err)
		}
		if out, err = s.reply(out[:0], id, h, body); err != nil {
			return err
		}
		if _, err := conn.Write(out); err != nil {
			return fmt.Errorf("write a reply: %w", err)
		}
	}
}

// reply executes a request and appends the reply to b, unless the client expects
// none.
func (s *server) reply(b []byte, id uint32, h mongo.Header, body []byte) ([]byte, error) {
	var r mongo.Request
	if err := r.Parse(h, body); err != nil {
		return b, err
	}
	document, name := s.database.execute(&r)
	s.commands.WithLabelValues(name).Inc()
	if r.Silent {
		return b, nil
	}
	encoded, err := bson.Marshal(document)
	if err != nil {
		return b, fmt.Errorf("encode the reply to %s: %w", name, err)
	}
	return r.AppendReply(b, id, encoded), nil
}
