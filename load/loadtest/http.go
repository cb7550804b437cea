package loadtest

import (
	"context"
	"net"
	"net/http"
	"time"
)

// HTTP returns the protocol whose calls are one GET each.
func HTTP() Protocol {
	return Protocol{
		Serve: func(ctx context.Context, address string, b Behaviour) (Function, error) {
			return newServer(ctx, address, b)
		},
		Messages: map[string]int{"get": 2},
		Delayed:  1,
		Closed:   "connect",
		Wrong:    [][2]string{{"path", "index.html"}, {"connections", "-1"}},
	}
}

// A server answers GETs of any path with some bytes.
type server struct {
	tally
	addr string
}

func newServer(ctx context.Context, address string, b Behaviour) (*server, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp4", net.JoinHostPort(address, "0"))
	if err != nil {
		return nil, err
	}
	s := &server{tally: newTally(b), addr: listener.Addr().String()}
	if b.Shut {
		return s, listener.Close()
	}
	web := &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = web.Serve(listener) // returns when web is closed
	}()
	context.AfterFunc(ctx, func() {
		_ = web.Close()
		<-done
	})
	return s, nil
}

func (s *server) Addr() string { return s.addr }

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch fate := s.chooseFate(r.Method); fate {
	case 'i':
		<-r.Context().Done()
	case 'r':
		s.answering(fate)
		w.WriteHeader(http.StatusServiceUnavailable)
	default:
		select {
		case <-time.After(s.behaviour.Delay):
		case <-r.Context().Done():
			return
		}
		s.answering(fate)
		_, _ = w.Write([]byte("hello, world\n")) // the generator counts the answers it gets
	}
}

// chooseFate returns the fate of the call that begins now.
func (s *server) chooseFate(method string) byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen.Requests[method]++
	return s.begin()
}

// answering counts an answer before it is sent, so that the count is complete
// when the generator has the answer.
func (s *server) answering(fate byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen.Sent++
	if fate == 'a' {
		s.seen.Finished++
	}
}
