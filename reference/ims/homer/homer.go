// Package homer is the document server of the reference IMS. It stores each
// user's telephony service settings, an XML document of TS 24.623.
package homer

import (
	"context"
	"encoding/xml"
	"io"
	"net/http"
	"net/netip"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"vitrine/reference/ims"
	"vitrine/reference/ims/rest"
)

// Run runs a Homer until ctx is done. The error is a *vitrine.BadInput for wrong
// arguments.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	c := ims.NewCommand("homer", "Homer is the document server of the reference IMS.", stdout, stderr)
	var listen netip.AddrPort
	c.Addr(&listen, "listen", true, "address, HTTP: IP:PORT")
	documents := c.Int("documents", 200_000, "documents that are kept at most, beside the default that every user has")
	c.Positive("documents")
	c.LogMessages()
	if help, err := c.Parse(args); help || err != nil {
		return err
	}
	listener, err := ims.Listen(ctx, "listen", listen)
	if err != nil {
		return err
	}
	s := newServer(*documents)
	c.Registry.MustRegister(s.requests)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return rest.Serve(ctx, listener, c.Messages.Server(s.handler()), c.Log) })
	return rest.Wait(ctx, group, c, listener.Addr())
}

// A server stores the documents that were put. Every other user of the domain has
// the default document.
type server struct {
	limit    int
	requests *prometheus.CounterVec
	standard []byte

	mu   sync.RWMutex
	held map[string][]byte
}

func newServer(limit int) *server {
	standard, err := xml.MarshalIndent(ims.DefaultServices(), "", "  ")
	if err != nil {
		standard = nil // no value of this type fails to marshal
	}
	return &server{
		limit: limit, standard: append([]byte(xml.Header), standard...), held: map[string][]byte{},
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "homer_requests_total", Help: "Requests answered, by method."}, []string{"method"}),
	}
}

func (s *server) handler() http.Handler {
	mux := rest.NewMux()
	mux.HandleFunc("GET "+ims.ServicesPath("{user}"), s.get)
	mux.HandleFunc("PUT "+ims.ServicesPath("{user}"), s.put)
	mux.HandleFunc("DELETE "+ims.ServicesPath("{user}"), s.remove)
	return mux
}

// user returns the identity in the path. If it is not of this domain, user
// answers the request and returns false.
func (s *server) user(w http.ResponseWriter, r *http.Request) (string, bool) {
	s.requests.WithLabelValues(r.Method).Inc()
	identity := r.PathValue("user")
	if ims.UserOf(identity) == "" {
		http.Error(w, "no such user", http.StatusNotFound)
		return "", false
	}
	return identity, true
}

func (s *server) get(w http.ResponseWriter, r *http.Request) {
	user, ok := s.user(w, r)
	if !ok {
		return
	}
	s.mu.RLock()
	document, ok := s.held[user]
	s.mu.RUnlock()
	if !ok {
		document = s.standard
	}
	w.Header().Set("Content-Type", "application/vnd.etsi.simservs+xml")
	_, _ = w.Write(document)
}

func (s *server) put(w http.ResponseWriter, r *http.Request) {
	user, ok := s.user(w, r)
	if !ok {
		return
	}
	document, err := io.ReadAll(io.LimitReader(r.Body, rest.MaxRequest))
	if err == nil {
		_, err = ims.ParseServices(document)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusConflict) // RFC 4825 section 8.2.1
		return
	}
	s.mu.Lock()
	_, known := s.held[user]
	full := !known && len(s.held) >= s.limit
	if !full {
		s.held[user] = document
	}
	s.mu.Unlock()
	switch {
	case full:
		http.Error(w, "too many documents: raise --documents", http.StatusInsufficientStorage)
	case known:
		w.WriteHeader(http.StatusOK)
	default:
		w.WriteHeader(http.StatusCreated)
	}
}

func (s *server) remove(w http.ResponseWriter, r *http.Request) {
	user, ok := s.user(w, r)
	if !ok {
		return
	}
	s.mu.Lock()
	_, known := s.held[user]
	delete(s.held, user)
	s.mu.Unlock()
	if !known {
		http.Error(w, "no document", http.StatusNotFound)
	}
}
