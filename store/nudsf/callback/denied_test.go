package callback_test

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"vitrine/store/nudsf/callback"
)

// send sends one message and returns its outcome, or the error of Send.
func send(t *testing.T, c callback.Config, target string) error {
	t.Helper()
	outcome := make(chan error, 1)
	if err := running(t, c).Send(callback.Message{Target: target, Body: []byte("x"), Done: func(err error) { outcome <- err }}); err != nil {
		return err
	}
	return <-outcome
}

func targets(t *testing.T, allow ...string) callback.Targets {
	t.Helper()
	list, err := callback.ParseTargets(allow)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestDenied checks that a name that resolves to loopback is denied unless the list has the
// address, and that the product's own listeners are always denied.
func TestDenied(t *testing.T) {
	var came atomic.Int64
	base := listen(t, func(http.ResponseWriter, *http.Request) { came.Add(1) }, true, true)
	at := netip.MustParseAddrPort(strings.TrimPrefix(base, "http://"))
	byName := "http://localhost:" + base[strings.LastIndexByte(base, ':')+1:]
	for _, c := range []struct {
		name, target string
		allow        []string
		own          []netip.AddrPort
		comes        bool
	}{
		{"address without a list", base, nil, nil, false},
		{"name without a list", byName, nil, nil, false},
		{"name on the list", byName, []string{"localhost"}, nil, false},
		{"address on the list", base, []string{"127.0.0.1"}, nil, true},
		{"name and address on the list", byName, []string{"localhost", at.String()}, nil, true},
		{"every name, and the address", byName, []string{"*", "127.0.0.0/8"}, nil, true},
		{"everything", base, []string{"*", "0.0.0.0/0", "::/0"}, nil, false},
		{"own listener", base, []string{"127.0.0.1"}, []netip.AddrPort{at}, false},
		{"own listener on every address", base, []string{"127.0.0.1"}, []netip.AddrPort{netip.AddrPortFrom(netip.IPv6Unspecified(), at.Port())}, false},
		{"own listener on another port", base, []string{"127.0.0.1"}, []netip.AddrPort{netip.AddrPortFrom(at.Addr(), 1)}, true},
	} {
		came.Store(0)
		list := targets(t, c.allow...)
		err := send(t, callback.Config{Targets: list.Without(c.own...), Tries: 1}, c.target)
		if comes := came.Load() > 0; comes != c.comes || (err == nil) != c.comes {
			t.Errorf("%s: got delivered %v, error %v", c.name, comes, err)
		}
	}
}

// TestDeniedIsFinal checks that a denied message is not retried, and that the error says what was
// denied and how to allow it.
func TestDeniedIsFinal(t *testing.T) {
	var denied *callback.Denied
	list := targets(t, "localhost")
	s := running(t, callback.Config{Targets: list})
	outcome := make(chan error, 1)
	err := s.Send(callback.Message{Target: "http://localhost:9", Done: func(err error) { outcome <- err }})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-outcome; !errors.As(err, &denied) || !strings.Contains(err.Error(), "--allow-callback") {
		t.Errorf("outcome: got %v, want an error that names --allow-callback", err)
	}
	if c := s.Counters(); c.Refused != 1 || c.Retried != 0 || c.Failed != 0 {
		t.Errorf("%+v", c)
	}
}

// TestDeniedAddresses checks that a URI may not name a denied address in any form.
func TestDeniedAddresses(t *testing.T) {
	var none callback.Targets
	for _, host := range []string{
		"127.0.0.1", "127.9.9.9", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "[::]", "169.254.169.254", "[fe80::1]",
		"[fe80::1%25lo]", "224.0.0.1", "[ff02::1]", "255.255.255.255",
	} {
		if _, err := none.Check("http://" + host + ":80/"); err == nil {
			t.Errorf("%s is allowed without a list", host)
		}
	}
	for _, host := range []string{"10.0.0.1", "192.0.2.1", "[2001:db8::1]", "[::ffff:10.0.0.1]", "nf.example"} {
		if _, err := none.Check("http://" + host + ":80/"); err != nil {
			t.Error(err)
		}
	}
}

// TestNoRedirect checks that a redirect counts as an answer and is not followed.
func TestNoRedirect(t *testing.T) {
	var came atomic.Int64
	final := listen(t, func(http.ResponseWriter, *http.Request) { came.Add(1) }, true, true)
	for _, status := range []int{http.StatusTemporaryRedirect, http.StatusPermanentRedirect, http.StatusFound} {
		first := listen(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, final, status) }, true, true)
		err := send(t, callback.Config{Targets: targets(t, "127.0.0.1"), Tries: 1}, first)
		if refused, ok := errors.AsType[*callback.Refused](err); !ok || refused.Status != status || came.Load() != 0 {
			t.Errorf("redirect %d: got %v, %d requests at its target, want 0", status, err, came.Load())
		}
	}
}

// TestOwnBeyondLoopback checks that a listener on all addresses counts as own at each address of
// the host.
func TestOwnBeyondLoopback(t *testing.T) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	list := targets(t).Without(netip.MustParseAddrPort("[::]:8070"))
	for _, a := range addresses {
		p, err := netip.ParsePrefix(a.String())
		if err != nil {
			t.Fatal(err)
		}
		if err := list.Dial(netip.AddrPortFrom(p.Addr(), 8070)); err == nil {
			t.Errorf("the list allowed a connection to %s", p.Addr())
		}
	}
	if err := list.Dial(netip.MustParseAddrPort("192.0.2.1:8070")); err != nil {
		t.Error(err)
	}
}
