package director

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"vitrine/director/datagram"
	"vitrine/director/meter"
	"vitrine/internal/hosttest"
)

// TestDropsAreShown checks that /metrics and the documentation have each reason for a drop, for
// both protocols.
func TestDropsAreShown(t *testing.T) {
	d := newDirector(t, both+"quota: {sip: {rate: 10}, gtpc: {rate: 100, burst: 500}}\n")
	w := httptest.NewRecorder()
	d.metricsHandler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	page, err := os.ReadFile(filepath.Join("..", "docs", "director.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, reason := range meter.Causes() {
		for _, protocol := range []string{SIP, GTPC} {
			if want := fmt.Sprintf("vitrine_director_drops_total{protocol=%q,reason=%q} 0\n", protocol, reason); !strings.Contains(w.Body.String(), want) {
				t.Errorf("missing metric %s", want)
			}
		}
		if !strings.Contains(string(page), "\n| `"+reason.String()+"` | ") {
			t.Errorf("docs/director.md does not list the reason %s", reason)
		}
	}
	for _, protocol := range []string{SIP, GTPC} {
		if want := fmt.Sprintf("vitrine_director_quota_sources_forgotten_total{protocol=%q} 0\n", protocol); !strings.Contains(w.Body.String(), want) {
			t.Errorf("missing metric %s", want)
		}
	}
}

const both = `
listen: {sip: ["udp://127.0.0.1:0"], gtpc: ["udp://127.0.0.1:0"], control: "127.0.0.1:0"}
types: [{name: registration, protocol: sip}, {name: gateway, protocol: gtpc}]
rules: [{type: registration}, {type: gateway}]
instances:
  - {name: reg-1, type: registration, address: "127.0.0.9:15061"}
  - {name: gw-1, type: gateway, address: "127.0.0.9:15062"}
transition: 2s
health: {sip: "off", gtpc: "off"}
`

// TestLossesAreLoggedOnce lets a socket lose datagrams before and after it is taken over, as in a
// restart. Only the later losses are new.
func TestLossesAreLoggedOnce(t *testing.T) {
	address := hosttest.FreeAddress(t, "udp")
	var log strings.Builder
	d := newDirector(t, `
listen: {sip: ["udp://`+address+`"], control: "127.0.0.1:0"}
types: [{name: registration, protocol: sip}]
rules: [{type: registration}]
instances: [{name: reg-1, type: registration, address: "127.0.0.9:15061"}]
health: {sip: "off"}
workers: 1
`, func(o *Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	phone, err := net.Dial("udp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer phone.Close()
	dropped := func() uint64 {
		t.Helper()
		c, err := d.protocols[0].Datagrams()
		if err != nil {
			t.Fatal(err)
		}
		return c.Dropped
	}
	lose := func() {
		t.Helper()
		was, message := dropped(), make([]byte, 1400)
		until(t, "the socket loses datagrams", func() bool {
			for range 1000 {
				if _, err := phone.Write(message); err != nil {
					t.Fatal(err)
				}
			}
			return dropped() > was
		})
	}
	lose()
	files, err := d.files()
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(files)
	old := d.protocols[0]
	d.protocols = nil
	if err := d.openProtocols(d.config.Load(), files); err != nil {
		t.Fatal(err)
	}
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	before := dropped()
	d.logLosses()
	if before == 0 || strings.Contains(log.String(), "socket_full") {
		t.Errorf("%d losses of the old process are logged again:\n%s", before, log.String())
	}
	lose()
	d.logLosses()
	if n := strings.Count(log.String(), "socket_full"); n != 1 {
		t.Errorf("the new losses are in %d lines, want 1:\n%s", n, log.String())
	}
}

// A refusing server has datagrams that the kernel refused.
type refusing struct{ server }

func (refusing) Datagrams() (datagram.Counters, error) {
	to := netip.MustParseAddrPort("192.0.2.1:2123")
	return datagram.Counters{Unsent: 4, Refused: datagram.Refusal{To: to, Err: unix.EPERM}}, nil
}

// TestRefusalsAreLoggedOnce checks that the log has the messages that a gate refused, once, and not those
// of the process before a restart. It must also have what was forgotten for lack of room, and what the kernel did
// not send, with a destination and the reason.
func TestRefusalsAreLoggedOnce(t *testing.T) {
	var log strings.Builder
	logged := func(o *Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) }
	wants := func(line string) {
		t.Helper()
		if n := strings.Count(log.String(), line); n != 1 {
			t.Errorf("%s is in %d lines, want 1:\n%s", line, n, log.String())
		}
	}
	d := newDirector(t, both, logged)
	w := d.meter.Worker()
	w.Fail(1, meter.Overloaded)
	w.Fail(1, meter.Overloaded)
	w.Fail(1, meter.Malformed)
	d.protocols[1].server = refusing{d.protocols[1].server}
	d.protocols[1].forgotten = func() map[string]uint64 { return map[string]uint64{"requests": 3} }
	d.logLosses()
	d.logLosses()
	wants(`msg="messages not served: overloaded" type=gateway messages=2`)
	wants(`msg="forgotten for lack of room: requests" protocol=gtpc count=3`)
	wants(`msg="messages dropped: unsent" protocol=gtpc messages=4 last_to=192.0.2.1:2123 error="operation not permitted"`)
	wants("messages not served")
	var carried bytes.Buffer
	if err := d.meter.Carry(&carried); err != nil {
		t.Fatal(err)
	}
	next := newDirector(t, both, logged)
	if err := next.meter.TakeOver(&carried); err != nil {
		t.Fatal(err)
	}
	next.logLosses()
	wants("messages not served")
}

// TestQuotaOfTheFile checks that the file's quotas are effective. A reload must keep the buckets of
// an unchanged quota. Drops must be logged as samples.
func TestQuotaOfTheFile(t *testing.T) {
	const strict = "quota: {sip: {rate: 0.0001, burst: 2}, gtpc: {rate: 0.0001}}\n"
	r := run(t, write(t, filepath.Join(t.TempDir(), "director.yaml"), both+strict))
	drops := func(protocol string) uint64 { return r.meter.Drops(protocol)["over_quota"] }
	phone, err := net.Dial("udp", r.protocols[0].Addresses()[0].String())
	if err != nil {
		t.Fatal(err)
	}
	defer phone.Close()
	send := func() {
		if _, err := phone.Write(request("REGISTER", "one")); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "requests are dropped", func() bool { send(); return drops(SIP) > 100 })
	lines := func() int { return strings.Count(r.log.String(), `msg="message dropped: over_quota"`) }
	until(t, "a drop is logged", func() bool { return lines() > 0 })
	if n := lines(); n > 20 {
		t.Errorf("got %d log lines for about 100 drops, want at most 20", n)
	}
	reload := func(text string) {
		t.Helper()
		write(t, r.options.Path, both+text)
		if err := r.Director.reload(); err != nil {
			t.Fatal(err)
		}
	}
	passed := func() uint64 {
		for _, in := range r.meter.Instances() {
			if in.Name == "reg-1" {
				return in.Messages
			}
		}
		return 0
	}
	if n := passed(); n != 2 {
		t.Errorf("%d requests passed, want the burst of 2", n)
	}
	reload(strict + "bounded_load: 2\n")
	was := drops(SIP)
	until(t, "a request is dropped after the reload", func() bool { send(); return drops(SIP) > was })
	if n := passed(); n != 2 {
		t.Errorf("%d requests passed after a reload with the same quota, want 2", n)
	}
	reload("")
	until(t, "requests pass without a quota", func() bool { send(); return passed() > 10 })
}
