package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vitrine"
	"vitrine/director/client"
	"vitrine/internal/hosttest"
	"vitrine/load/sipp"
	"vitrine/wire/sip"
)

// memory returns the resident set of the serving process, in bytes.
func (d *steward) memory() int64 {
	d.t.Helper()
	now, _ := hosttest.Resident(d.t, d.status().PID)
	return now
}

// request returns a request for the director.
func request(method, callID, headers string) []byte {
	return fmt.Appendf(nil, "%s sip:user@proof.test SIP/2.0\r\nVia: SIP/2.0/UDP 127.0.0.1;rport;branch=z9hG4bK%s\r\nMax-Forwards: 70\r\n"+
		"From: <sip:user@proof.test>;tag=1\r\nTo: <sip:user@proof.test>\r\nCall-ID: %s\r\nCSeq: 1 %s\r\nContact: <sip:user@127.0.0.1>\r\n%sContent-Length: 0\r\n\r\n",
		method, callID, callID, method, headers)
}

// vandals generate different kinds of bad input.
func vandals(r *rand.Rand) map[string]func(int) []byte {
	register := func(n int) []byte { return request("REGISTER", fmt.Sprintf("v%d", n), "") }
	return map[string]func(int) []byte{
		"noise": func(n int) []byte {
			b := make([]byte, 1+r.IntN(1400))
			for i := range b {
				b[i] = byte(r.Uint32())
			}
			return b
		},
		"largest datagrams": func(n int) []byte {
			return request("INVITE", fmt.Sprintf("large%d", n), "X: "+strings.Repeat("x", 60000)+"\r\n")
		},
		"many headers": func(n int) []byte {
			return request("REGISTER", fmt.Sprintf("many%d", n), strings.Repeat("Via: SIP/2.0/UDP 127.0.0.1;branch=z9hG4bKa\r\n", 1000))
		},
		"many routes": func(n int) []byte {
			return request("INVITE", fmt.Sprintf("routes%d", n), strings.Repeat("Route: <sip:i.0001..session@127.0.0.1;lr>, <sip:x;lr>\r\n", 500))
		},
		"cut off": func(n int) []byte { b := register(n); return b[:r.IntN(len(b))] },
		"changed bytes": func(n int) []byte {
			b := register(n)
			for range 1 + r.IntN(8) {
				b[r.IntN(len(b))] = byte(r.Uint32())
			}
			return b
		},
		"a body that is not there": func(n int) []byte {
			return bytes.Replace(register(n), []byte("Content-Length: 0"), []byte("Content-Length: 99999999"), 1)
		},
		"negative length": func(n int) []byte {
			return bytes.Replace(register(n), []byte("Content-Length: 0"), []byte("Content-Length: -1"), 1)
		},
		"answers to nothing": func(n int) []byte {
			return fmt.Appendf(nil, "SIP/2.0 200 OK\r\nVia: SIP/2.0/UDP 127.0.0.1;branch=z9hG4bKvd%d\r\nVia: SIP/2.0/UDP 127.0.0.1:9\r\nFrom: a\r\nTo: b\r\nCall-ID: c\r\nCSeq: 1 INVITE\r\n\r\n", n)
		},
		"no hops left": func(n int) []byte {
			return bytes.Replace(register(n), []byte("Forwards: 70"), []byte("Forwards: 0"), 1)
		},
		"unknown methods": func(n int) []byte { return request(fmt.Sprintf("M%d", n), fmt.Sprintf("u%d", n), "") },
		"unknown events":  func(n int) []byte { return request("SUBSCRIBE", fmt.Sprintf("e%d", n), "Event: none\r\n") },
		"keep-alives":     func(int) []byte { return []byte("\r\n\r\n") },
		"nothing":         func(int) []byte { return nil },
	}
}

// TestDirectorOutlivesBadInput sends malformed messages, oversized messages, and floods from
// one source. The director must survive, use bounded memory, and serve other phones.
func TestDirectorOutlivesBadInput(t *testing.T) {
	requirePrograms(t, "kamailio", "sipp")
	s := newSite(t)
	table := []vitrine.Instance{
		entry(s.kamailio(firstInstance, "registration-1", registration), 1),
		entry(s.kamailio(firstInstance+1, "session-1", session), 2),
	}
	d := s.director(firstDirector, options{Instances: table})
	r := rand.New(rand.NewPCG(1, 2))
	times, room := 1000, int64(32<<20)
	if hosttest.Raced { // the race detector needs shadow memory for all touched memory
		times, room = 100, 128<<20
	}
	flood := func() {
		conn, err := net.Dial("udp", d.address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		for name, next := range vandals(r) {
			before := d.metric("vitrine_director_datagrams_received_total") + d.metric("vitrine_director_drops_total", `reason="socket_full"`)
			for n := range times {
				if _, err := conn.Write(next(n)); err != nil && n == 0 {
					t.Fatalf("%s: %v", name, err)
				}
			}
			eventually(t, name+" is handled", func() bool {
				return d.metric("vitrine_director_datagrams_received_total")+d.metric("vitrine_director_drops_total", `reason="socket_full"`) > before
			})
		}
		s.garbageByTCP(d, r)
	}
	phones := s.phone(kinds[0], drive{target: d.address, host: firstPhone, rate: 50, think: true})
	flood() // fill the director's bounded memories
	flood()
	first := d.memory()
	for range 3 {
		flood()
	}
	last := d.memory()
	phones.finish()
	sum := phones.wait(2 * patience)
	t.Logf("%d calls by other phones, %d failed; resident memory was %d MB, then %d MB", sum.made, sum.failed, first>>20, last>>20)
	if sum.failed > 0 || sum.made == 0 {
		t.Errorf("with the flood, %d of %d calls by other phones failed", sum.made, sum.failed)
	}
	if last > first+room {
		t.Errorf("the director grew from %d MB to %d MB", first>>20, last>>20)
	}
	if d.metric("vitrine_director_failures_total", `cause="malformed"`) == 0 {
		t.Error("no malformed message was counted")
	}
	if d.metric("vitrine_director_failures_total", `cause="too_many_hops"`) == 0 {
		t.Error("no message with Max-Forwards exhausted was counted")
	}
	if !d.running() {
		t.Errorf("the director stopped: %v", d.err)
	}
}

// garbageByTCP opens connections that send garbage, or nothing.
func (s site) garbageByTCP(d *steward, r *rand.Rand) {
	s.t.Helper()
	var open []net.Conn
	for n := range 100 {
		c, err := net.Dial("tcp", d.address)
		if err != nil {
			s.t.Fatal(err)
		}
		open = append(open, c)
		if n%2 == 0 {
			continue // silent
		}
		garbage := make([]byte, 100_000)
		for i := range garbage {
			garbage[i] = byte(r.Uint32())
		}
		if n%4 == 1 {
			garbage = append([]byte("REGISTER sip:proof.test SIP/2.0\r\nX: "), bytes.Repeat([]byte("x"), 200_000)...)
		}
		_ = c.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = c.Write(garbage) // the director may close the connection meanwhile
	}
	for _, c := range open {
		c.Close()
	}
}

// ask sends a request and returns the first final answer.
func (s site) ask(from, to string, message []byte) (status int, text string) {
	s.t.Helper()
	var dialer net.Dialer
	dialer.LocalAddr = net.UDPAddrFromAddrPort(netip.MustParseAddrPort(from))
	conn, err := dialer.Dial("udp", to)
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close()
	answer := make([]byte, 65536)
	deadline := time.Now().Add(patience)
	for time.Now().Before(deadline) {
		if _, err := conn.Write(message); err != nil {
			s.t.Fatal(err)
		}
		if err := conn.SetReadDeadline(time.Now().Add(500 * time.Millisecond)); err != nil {
			s.t.Fatal(err)
		}
		for {
			n, err := conn.Read(answer)
			if err != nil {
				break
			}
			var m sip.Message
			if _, err := m.Parse(answer[:n]); err == nil && m.Status >= 200 {
				return m.Status, string(answer[:n])
			}
		}
	}
	s.t.Fatalf("no answer to %.40q", message)
	return 0, ""
}

// TestNoInstanceIs503 checks that the director counts requests without a live instance, and
// answers 503 with Retry-After, or 500 while another type has an instance. It must refuse
// tables with duplicates and keep the old table.
func TestNoInstanceIs503(t *testing.T) {
	t.Parallel()
	requirePrograms(t, "kamailio")
	s := newSite(t)
	in := s.kamailio(firstInstance, "registration-1", registration)
	d := s.director(firstDirector, options{Instances: []vitrine.Instance{entry(in, 1)}})
	if status, _ := s.ask(s.at(firstPhone, 0), d.address, request("REGISTER", "alive", "")); status != 401 {
		t.Errorf("with a healthy instance: got status %d, want 401", status)
	}
	refused := func() float64 { return d.metric("vitrine_director_failures_total", `cause="no_instance"`) }
	status, text := s.ask(s.at(firstPhone, 0), d.address, request("INVITE", "none-of-the-type", ""))
	if status != 500 || !strings.Contains(text, "Retry-After:") {
		t.Errorf("with no instance of the type: got answer %s, want 500 with Retry-After", text)
	}
	if n := refused(); n == 0 {
		t.Error("the 500 answer was not counted")
	}

	other := entry(in, 0)
	other.Name = "registration-2"
	before := d.status()
	for what, all := range map[string][]vitrine.Instance{
		"a name twice":     {entry(in, 0), entry(in, 0)},
		"an address twice": {entry(in, 0), other},
		"an unknown type":  {{Name: "x", Type: "none", Address: other.Address, Weight: 1}},
		"a bad weight":     {{Name: "x", Type: registration, Address: other.Address, Weight: -1}},
		"no address":       {{Name: "x", Type: registration, Weight: 1}},
	} {
		var e *client.Error
		if err := d.client.PutAll(t.Context(), all); !errors.As(err, &e) || e.Status != 400 {
			t.Errorf("%s: got %v, want status 400", what, err)
		}
	}
	if after := d.status(); after.Digest != before.Digest || after.Pending {
		t.Errorf("a refused table changed the current table: before %+v, after %+v", before, after)
	}
	text = string(mustRead(t, d.file))
	if err := os.WriteFile(d.file, []byte(text+"- {name: registration-1, type: registration, address: 127.0.0.1:1}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := d.client.Reload(t.Context()); err == nil || !strings.Contains(err.Error(), filepath.Base(d.file)) {
		t.Errorf("reload of a file with a repeated name: got %v, want an error that names the file", err)
	}

	in.kill()
	eventually(t, "the director sees that none is alive", func() bool { return d.instance(in.name).Health == "away" })
	was := refused()
	status, text = s.ask(s.at(firstPhone, 0), d.address, request("REGISTER", "dead", ""))
	if status != 503 || !strings.Contains(text, "Retry-After:") {
		t.Errorf("with no healthy instance: got answer %s, want 503 with Retry-After", text)
	}
	if refused() <= was {
		t.Error("the 503 answer was not counted")
	}
	if err := d.client.PutAll(t.Context(), nil); err != nil {
		t.Errorf("an empty table: %v", err)
	}
	if status, _ = s.ask(s.at(firstPhone, 0), d.address, request("REGISTER", "empty", "")); status != 503 {
		t.Errorf("with an empty table: got status %d, want 503", status)
	}
}

func mustRead(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestRegionsAndHealth checks that the client's region serves it. While the instance of that
// region is down, the other region serves the client.
func TestRegionsAndHealth(t *testing.T) {
	t.Parallel()
	requirePrograms(t, "kamailio")
	s := newSite(t)
	var table []vitrine.Instance
	homes := map[string]*instance{}
	for i, region := range []string{"east", "west"} {
		in := s.kamailio(firstInstance+i, "registration-"+region, registration)
		e := entry(in, uint16(i+1))
		e.Region = region
		homes[region], table = in, append(table, e)
	}
	d := s.director(firstDirector, options{Instances: table, More: fmt.Sprintf(
		"regions:\n- {name: east, networks: [%s/32]}\n- {name: west, networks: [%s/32]}\n", s.host(firstPhone), s.host(firstPhone+1))})
	served := func(host int, n int, name string) bool {
		_, text := s.ask(s.at(host, 0), d.address, request("REGISTER", fmt.Sprintf("%s-%d", name, n), ""))
		return strings.Contains(text, "Server: registration-"+name+"\r\n")
	}
	for n := range 50 {
		if !served(firstPhone, n, "east") || !served(firstPhone+1, n, "west") {
			t.Fatalf("client %d is not served in its region", n)
		}
	}
	homes["east"].kill()
	eventually(t, "east is away", func() bool { return d.instance("registration-east").Health == "away" })
	for n := range 50 {
		if !served(firstPhone, 100+n, "west") {
			t.Fatalf("client %d is not served by the remote region", n)
		}
	}
	s.kamailio(firstInstance, "registration-east", registration)
	eventually(t, "east is back", func() bool { return d.instance("registration-east").Health == "up" })
	for n := range 50 {
		if !served(firstPhone, 200+n, "east") {
			t.Fatalf("client %d is not served by its own region again", n)
		}
	}
}

// TestOverloadIsHeldAtTheIngress checks that a gate refuses load above its rate with 503 and
// Retry-After, and that instances serve the admitted load.
func TestOverloadIsHeldAtTheIngress(t *testing.T) {
	requirePrograms(t, "kamailio", "sipp")
	s := newSite(t)
	in := s.kamailio(firstInstance, "registration-1", registration)
	d := s.director(firstDirector, options{Instances: []vitrine.Instance{entry(in, 1)}, Registration: ", overload: {target: 2s, initial: 100, max: 100, burst: 20}"})
	status := 0
	var text string
	for n := 0; status != 503 && n < 2000; n++ {
		status, text = s.ask(s.at(firstPhone, 0), d.address, request("REGISTER", fmt.Sprintf("burst-%d", n), ""))
	}
	if status != 503 || !strings.Contains(text, "Retry-After:") {
		t.Fatalf("above the gate's rate: got status %d %s, want 503 with Retry-After", status, text)
	}
	p := s.phone(kinds[0], drive{target: d.address, host: firstPhone, calls: 600, rate: 300, think: true})
	hosttest.Until(t, 2*patience, "the phones are done", func() bool { return !p.running() })
	made, failed, err := sipp.Totals(filepath.Join(p.dir, "statistics.csv"))
	if err != nil {
		t.Fatal(err)
	}
	log := string(mustRead(t, filepath.Join(p.dir, "errors.log")))
	if n := strings.Count(log, "SIP/2.0 503"); failed == 0 || int64(n) < failed {
		t.Errorf("%d of %d calls failed, but the log has %d answers 503", failed, made, n)
	}
	if made == failed {
		t.Error("the gate refused all calls")
	}
	if n := d.metric("vitrine_director_failures_total", `cause="overloaded"`); n < float64(failed) {
		t.Errorf("counted %g refusals, want at least %d", n, failed)
	}
	t.Logf("%d of %d calls were refused", failed, made)
}
