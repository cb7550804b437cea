package rest

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var loopback = netip.MustParseAddr("127.0.0.1")

func addrOf(l net.Addr) netip.AddrPort { return l.(*net.TCPAddr).AddrPort() }

// gone returns an address without a listener.
func gone(t *testing.T) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return addrOf(l.Addr())
}

func TestClientPassesOverAnInstanceThatIsDown(t *testing.T) {
	var connections atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.WriteHeader(http.StatusTeapot)
		_, _ = w.Write([]byte(r.Method + r.URL.Path + string(body)))
	}))
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	c := NewClient("x", []netip.AddrPort{gone(t), addrOf(server.Listener.Addr())}, 4, 10*time.Second, loopback, prometheus.NewRegistry())
	defer c.Close()
	for range 30 {
		status, answer, err := c.Do(t.Context(), http.MethodPut, "/p", []byte("b"))
		if err != nil || status != http.StatusTeapot || string(answer) != "PUT/pb" {
			t.Fatalf("%d %s, error %v", status, answer, err)
		}
	}
	if n := connections.Load(); n != 1 {
		t.Errorf("%d connections were made for 30 requests one after the other", n)
	}
	if at := c.instances[0].aside.Load(); at <= time.Now().UnixNano() {
		t.Error("the instance that is down is not set aside")
	}
}

func TestClientErrors(t *testing.T) {
	c := NewClient("x", []netip.AddrPort{gone(t), gone(t)}, 4, 10*time.Second, loopback, prometheus.NewRegistry())
	if _, _, err := c.Do(t.Context(), http.MethodGet, "/", nil); !errors.Is(err, ErrUnreachable) {
		t.Errorf("nobody listens: %v", err)
	}
	hanging, err := net.Listen("tcp", "127.0.0.1:0") // the kernel connects, nobody answers
	if err != nil {
		t.Fatal(err)
	}
	defer hanging.Close()
	c = NewClient("x", []netip.AddrPort{addrOf(hanging.Addr())}, 4, 50*time.Millisecond, loopback, prometheus.NewRegistry())
	if _, _, err := c.Do(t.Context(), http.MethodGet, "/", nil); !errors.Is(err, ErrLate) {
		t.Errorf("nobody answers: %v", err)
	}
}
