package sip

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"vitrine/director/datagram"
	"vitrine/director/meter"
	"vitrine/director/table"
)

// A Config configures a Server.
type Config struct {
	Listeners []Listener
	Workers   int        // workers of UDP, and as many of TCP; one per core is right
	Inherited []*os.File // sockets of the previous process; those for Listeners are used, and the caller closes all
	Epochs    *table.Epochs
	Rules     *Rules
	Meter     *meter.Meter
	Keys      int // how many keys each UDP worker remembers, and all TCP workers together
	// Keyring signs the director's own entries in messages. nil: a random key, which no
	// other director has.
	Keyring *Keyring
	// Connections is the maximum number of TCP connections; 0: 10,000. A tenth of them is
	// reserved for instances.
	Connections int
	// PerSource is the maximum number of connections with one IP address (IPv6: one /64)
	// that is not an instance's; 0: a tenth of Connections, at least 16.
	PerSource int
	// Idle is how long a TCP connection may be silent; 0: 10 minutes.
	Idle time.Duration
	// First is how long a TCP client may take for its first message, and to complete any
	// later one; 0: 10 seconds.
	First time.Duration
	// Queues is how many bytes may wait in the queues of all TCP connections; 0: 64 MiB.
	Queues int64
	Now    func() time.Duration // monotonic; the clock of Epochs
	Log    *slog.Logger
}

// A Server serves the SIP listeners.
type Server struct {
	core      core
	group     *datagram.Group   // nil: no UDP listener
	streams   *streams          // nil: no TCP listener
	proxies   []*Proxy          // of all workers
	steerings []*table.Steering // the memories of the UDP workers, then the memory of TCP
	handlers  []*worker
}

// Listen opens or takes over the sockets. Messages wait in the sockets until Run. The
// caller closes the Server.
func Listen(c Config) (_ *Server, err error) {
	if len(c.Listeners) == 0 || len(c.Listeners) > maxListeners {
		return nil, fmt.Errorf("%d SIP listeners: there must be 1 to %d", len(c.Listeners), maxListeners)
	}
	if c.Epochs == nil || c.Rules == nil || c.Meter == nil || c.Now == nil || c.Log == nil {
		return nil, errors.New("sip: a Config needs Epochs, Rules, Meter, Now and Log")
	}
	s := &Server{core: core{epochs: c.Epochs, places: make([]place, len(c.Listeners))}}
	s.core.rules.Store(c.Rules)
	if c.Keyring == nil {
		if c.Keyring, err = randomKeyring(); err != nil {
			return nil, err
		}
	}
	s.core.keys.Store(c.Keyring)
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if err := s.listenDatagrams(&c); err != nil {
		return nil, err
	}
	if err := s.listenStreams(&c); err != nil {
		return nil, err
	}
	return s, nil
}

// listenDatagrams opens the UDP listeners and creates their workers.
func (s *Server) listenDatagrams(c *Config) (err error) {
	var addresses []netip.AddrPort
	var indexes []int // of listeners
	for i, l := range c.Listeners {
		if !l.Stream {
			addresses = append(addresses, l.Address)
			indexes = append(indexes, i)
		}
	}
	if len(addresses) == 0 {
		return nil
	}
	s.group, err = datagram.Listen(datagram.Config{Addresses: addresses, Workers: max(c.Workers, 1), Inherited: c.Inherited, Now: c.Now})
	if err != nil {
		return fmt.Errorf("listen for SIP: %w", err)
	}
	group := make([]int, len(c.Listeners)) // index in the group, by listener
	for n, i := range indexes {
		group[i] = n
		if s.core.places[i], err = newPlace(c.Listeners[i], s.group.Addresses()[n]); err != nil {
			return err
		}
	}
	for range max(c.Workers, 1) {
		s.handlers = append(s.handlers, &worker{server: s, proxy: s.newProxy(c, s.newSteering(c)), listeners: indexes, group: group})
	}
	return nil
}

func (s *Server) newSteering(c *Config) *table.Steering {
	memory := table.NewSteering(c.Epochs, c.Keys)
	s.steerings = append(s.steerings, memory)
	return memory
}

func (s *Server) newProxy(c *Config, memory steering) *Proxy {
	p := &Proxy{server: &s.core, steering: memory, meter: c.Meter.Worker()}
	p.meter.Protocol = "sip"
	s.proxies = append(s.proxies, p)
	return p
}

// A worker hands the datagrams of a UDP worker to its proxy.
type worker struct {
	server    *Server
	proxy     *Proxy
	listeners []int // by the group's index
	group     []int // by listener
	out       Outgoing
}

// Handle processes one datagram.
func (w *worker) Handle(in *datagram.Datagram, out *datagram.Sender) {
	in.Listener = w.listeners[in.Listener]
	listener := in.Listener
	if w.proxy.Handle(in, out.Room(), &w.out) {
		if w.server.core.places[w.out.Listener].Stream {
			w.server.streams.send(&w.out)
		} else {
			out.Send(w.group[w.out.Listener], w.out.To, w.out.Parts...)
		}
	}
	in.Listener = w.group[listener]
}

// Addresses returns the addresses that the Server listens on, in the order of
// Config.Listeners, with the ports that the kernel chose.
func (s *Server) Addresses() []netip.AddrPort {
	var addresses []netip.AddrPort
	for i := range s.core.places {
		addresses = append(addresses, s.core.places[i].Address)
	}
	return addresses
}

// SetRules replaces the rules. Set rules with more types than the table after the table,
// and rules with fewer types before it.
func (s *Server) SetRules(r *Rules) { s.core.rules.Store(r) }

// SetKeyring replaces the keys.
func (s *Server) SetKeyring(r *Keyring) { s.core.keys.Store(r) }

// Run serves until ctx is done; a Server is run once. Run handles and sends everything
// that it has received. Messages that still wait in the sockets stay there for the
// process that inherits them.
func (s *Server) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	if s.streams != nil {
		s.streams.begin(ctx) // before a worker has a message for them
	}
	if s.group != nil {
		g.Go(func() error {
			return s.group.Run(ctx, func(i int) datagram.Handler { return s.handlers[i] })
		})
	}
	if s.streams != nil {
		g.Go(func() error { return s.streams.run(ctx) })
	}
	return g.Wait()
}

// Files duplicates the listening sockets for another process, which passes them
// to Listen as Inherited. The caller closes them.
func (s *Server) Files() (files []*os.File, err error) {
	if s.group != nil {
		if files, err = s.group.Files(); err != nil {
			return nil, err
		}
	}
	if s.streams != nil {
		more, err := s.streams.files()
		files = append(files, more...)
		if err != nil {
			for _, f := range files {
				err = errors.Join(err, f.Close())
			}
			return nil, err
		}
	}
	return files, nil
}

// Steerings returns the memories of the UDP workers, in their order, and then the memory of
// TCP. The caller may use them only before and after Run.
func (s *Server) Steerings() []*table.Steering { return slices.Clone(s.steerings) }

// Close closes the sockets; Run must have returned.
func (s *Server) Close() error {
	var err error
	if s.streams != nil {
		err = s.streams.close()
	}
	if s.group != nil {
		err = errors.Join(err, s.group.Close())
	}
	return err
}

// Counters count the messages of a Server since its start.
type Counters struct {
	Requests, Responses uint64 // received
	Inward, Outward     uint64 // requests sent on, to instances and to clients
	Returned            uint64 // responses sent on
	Answered            uint64 // requests that the director answered
	KeepAlives          uint64 // datagrams of line ends
	Malformed           uint64 // received, and neither parsed nor answerable
	Absorbed            uint64 // ACKs of the director's own answers
	Dropped             uint64 // neither sent on nor answered
	Unsigned            uint64 // own Route entries without a valid MAC, which were ignored
	Datagrams           datagram.Counters
	Streams             StreamCounters
}

// Counters returns the sums over all workers.
func (s *Server) Counters() (t Counters, err error) {
	for _, p := range s.proxies {
		c := &p.counts
		t.Requests += c.Requests.Load()
		t.Responses += c.Responses.Load()
		t.Inward += c.Inward.Load()
		t.Outward += c.Outward.Load()
		t.Returned += c.Returned.Load()
		t.Answered += c.Answered.Load()
		t.KeepAlives += c.KeepAlives.Load()
		t.Malformed += c.Malformed.Load()
		t.Absorbed += c.Absorbed.Load()
		t.Dropped += c.Dropped.Load()
		t.Unsigned += c.Unsigned.Load()
	}
	if s.streams != nil {
		t.Streams = s.streams.counters()
	}
	t.Datagrams, err = s.Datagrams()
	return t, err
}

// Datagrams returns the counters of the UDP sockets.
func (s *Server) Datagrams() (datagram.Counters, error) {
	if s.group == nil {
		return datagram.Counters{}, nil
	}
	return s.group.Counters()
}
