package director

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"vitrine"
	"vitrine/director/client"
	"vitrine/director/sip"
	"vitrine/internal/hosttest"
)

const good = `
listen:
  sip: ["udp://127.0.0.1:0"]
  control: 127.0.0.1:0
types:
  - {name: registration, protocol: sip}
  - {name: session, protocol: sip, drain: dialog}
rules:
  - {method: REGISTER, type: registration}
  - {type: session}
instances:
  - {name: reg-1, type: registration, address: "127.0.0.1:15061", weight: 100}
  - {name: reg-2, type: registration, address: "127.0.0.1:15062", weight: 100}
  - {name: ses-1, type: session, address: "127.0.0.1:15063"}
regions: [{name: eu, networks: [10.1.0.0/16]}]
transition: 2s
health: {sip: "off"}
`

func write(t testing.TB, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

type running struct {
	*Director
	client *client.Client
	reload chan struct{}
	log    *hosttest.Output
	stop   func()
}

// run starts a director with the file.
func run(t testing.TB, path string, change ...func(*Options)) *running {
	t.Helper()
	clock, err := HostClock()
	if err != nil {
		t.Fatal(err)
	}
	r := &running{reload: make(chan struct{}, 1), log: new(hosttest.Output)}
	o := Options{Path: path, Clock: clock, Log: r.log.Logger(), Reload: r.reload}
	for _, c := range change {
		c(&o)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if r.Director, err = New(ctx, o); err != nil {
		cancel()
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	var once sync.Once
	r.stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(r.stop)
	if r.client, err = client.New(client.Access{URL: r.Control()}); err != nil {
		t.Fatal(err)
	}
	return r
}

// A skipper is the host's clock, which a test can put forward.
type skipper struct{ by atomic.Int64 }

func (s *skipper) options(o *Options) {
	now := o.Clock.Now
	o.Clock.Now = func() time.Duration { return now() + time.Duration(s.by.Load()) }
}

func (s *skipper) skip(d time.Duration) { s.by.Add(int64(d)) }

// long is a file with a transition that is longer than any test.
var long = strings.Replace(good, "transition: 2s", "transition: 30s", 1)

func runGood(t testing.TB) *running {
	t.Helper()
	return run(t, write(t, filepath.Join(t.TempDir(), "director.yaml"), good))
}

// until waits until ok holds, for as long as the test may run.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	hosttest.Until(t, 20*time.Second, what, ok)
}

func (r *running) epoch(t testing.TB) uint64 {
	t.Helper()
	s, err := r.client.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s.Epoch
}

// settle waits until all changes are effective, and returns the status.
func (r *running) settle(t testing.TB) client.Status {
	t.Helper()
	var s client.Status
	until(t, "an epoch has all changes", func() bool {
		var err error
		if s, err = r.client.Status(t.Context()); err != nil {
			t.Fatal(err)
		}
		return !s.Pending
	})
	return s
}

// TestBadFiles checks that each error names the place, the value there and what is wanted.
func TestBadFiles(t *testing.T) {
	for from, to := range map[string][2]string{
		`:0"]`:                                 {`:0"]` + "\n  advertise: \"2001:db8::1\"", "no SIP listener has this address family"},
		"protocol: sip}":                       {"protocol: sup}", `6:36: types[0].protocol is "sup"`},
		"type: session}\ninstances":            {"type: sessions}\ninstances", "10:12: no type sessions: want one of registration, session"},
		"127.0.0.1:15062":                      {"127.0.0.1:15061", "instance reg-1 of type registration has it already"},
		`"127.0.0.1:15063"`:                    {`"[::ffff:127.0.0.1]:15063"`, "want the address and port where the instance listens"},
		`"127.0.0.1:15061"`:                    {"127.0.0.1", `12:48: instances[0].address is "127.0.0.1": want an IP address and a port, such as 127.0.0.1:5061`},
		"name: reg-2":                          {"name: reg-1", "13:12: duplicate instance reg-1"},
		"weight: 100}\n  - {name: reg-2":       {"weight: 0}\n  - {name: reg-2", "12:75: instances[0].weight is 0"},
		"control: 127.0.0.1:0":                 {"control: 0.0.0.0:0", "beyond loopback the control address needs"},
		`["udp://127.0.0.1:0"]`:                {`["upd://127.0.0.1:0"]`, "want udp:// or tcp://"},
		"  control:":                           {"  advertise: \"sip.example.net:5060\"\n  control:", "want a host name or an IP address, without a port"},
		"method: REGISTER, type: registration": {"method: REGISTER, message: echo, type: registration", "is for types of protocol gtpc"},
		"transition: 2s":                       {"transition: 0s", "transition"},
		"transition: 2s\n":                     {"transition: 16m\n", "want at most 15m0s"},
		"health:":                              {"healht:", "healht"},
		"listen:":                              {"workers: 0\nlisten:", "workers"},
		"  - {type: session}\n":                {"", "type session without a rule"},
		"drain: dialog":                        {"drain: dialogue", "drain"},
		"drain: dialog}":                       {"drain: dialog, rooms: [{region: ue, share: 1}]}", "no region ue"},
		"protocol: sip, drain":                 {"rooms: [{region: eu, share: 1}, {region: eu, share: 0}], protocol: sip, drain", "duplicate region eu"},
		"types:":                               {"types: [", "mend the YAML"},
		"name: registration, protocol":         {"name: registration, transport: tcp, protocol", "6:37: no tcp:// listener in listen.sip: type registration sends over tcp"},
		`127.0.0.1:15063"}`:                    {`[::1]:15063"}`, "14:43: [::1]:15063: want an address of the IP family of a listener"},
	} {
		path := write(t, filepath.Join(t.TempDir(), "bad.yaml"), strings.Replace(good, from, to[0], 1))
		_, err := Load(path)
		if err == nil || !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), to[1]) || !strings.HasPrefix(err.Error(), path+":") {
			t.Errorf("%s: got error %v, want %q", to[0], err, to[1])
		}
	}
	if _, err := Load(filepath.Join(t.TempDir(), "none.yaml")); !vitrine.IsBadInput(err) {
		t.Errorf("loading a missing file: got error %v, want a bad input error", err)
	}
}

// TestBadListeners checks that a listener must be a network, an IP address without zone, and a
// port.
func TestBadListeners(t *testing.T) {
	for _, bad := range []string{"", "127.0.0.1:5060", "tls://127.0.0.1:5061", "udp://host:5060", "udp://127.0.0.1", "udp://[fe80::1%eth0]:5060"} {
		path := write(t, filepath.Join(t.TempDir(), "bad.yaml"), strings.Replace(good, "udp://127.0.0.1:0", bad, 1))
		if _, err := Load(path); !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), fmt.Sprintf("%q: want ", bad)) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestAdvertisedIPv6 checks that an advertised IPv6 address is in brackets in Via, as RFC 3261 section
// 25.1 wants it, whether the file has the brackets or not.
func TestAdvertisedIPv6(t *testing.T) {
	for _, given := range []string{"2001:db8::1", "[2001:db8::1]"} {
		bound := newAgent(t, "::1")
		at := bound.LocalAddr().String()
		bound.Close()
		text := strings.Replace(good, `"udp://127.0.0.1:0"]`, fmt.Sprintf("%q]\n  advertise: %q", "udp://"+at, given), 1)
		d := newDirector(t, strings.ReplaceAll(text, `"127.0.0.1:1506`, `"[::1]:1506`))
		x, err := d.protocols[0].server.(*sip.Server).Explain(d.now(), d.meter.Probe(), netip.AddrPort{}, request("REGISTER", "x"))
		want := "\r\nVia: SIP/2.0/UDP [2001:db8::1]:" + at[strings.LastIndexByte(at, ':')+1:] + ";branch="
		if err != nil || !strings.Contains(string(x.Message), want) {
			t.Errorf("%s: got %q, %v, want %q", given, x.Message, err, want)
		}
	}
}

// TestAdvertisedFamily checks that an advertised IP address names only the listeners of its family. A
// client over IPv6 must find an address in Record-Route that it can send to.
func TestAdvertisedFamily(t *testing.T) {
	var bound [2]string
	for i, host := range []string{"127.0.0.1", "::1"} {
		a := newAgent(t, host)
		bound[i] = a.LocalAddr().String()
		a.Close()
	}
	d := newDirector(t, strings.Replace(good, `"udp://127.0.0.1:0"]`, fmt.Sprintf("%q, %q]\n  advertise: 203.0.113.5", "udp://"+bound[0], "udp://"+bound[1]), 1))
	from := netip.MustParseAddrPort("[2001:db8::9]:5060")
	x, err := d.protocols[0].server.(*sip.Server).Explain(d.now(), d.meter.Probe(), from, request("INVITE", "x"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"@203.0.113.5:" + strings.TrimPrefix(bound[0], "127.0.0.1:") + ";lr>, ", "@" + bound[1] + ";lr>\r\n"} {
		if !strings.Contains(string(x.Message), want) {
			t.Errorf("got %q, want %q", x.Message, want)
		}
	}
}

// TestControl adds, changes, drains and removes instances by REST. A request that changes nothing
// must make no epoch.
func TestControl(t *testing.T) {
	var clock skipper
	r := run(t, write(t, filepath.Join(t.TempDir(), "director.yaml"), long), clock.options)
	ctx := t.Context()
	if n := r.epoch(t); n != 1 {
		t.Errorf("first epoch: got %d, want 1", n)
	}
	put, err := r.client.Put(ctx, vitrine.Instance{Name: "reg-3", Type: "registration", Address: netip.MustParseAddrPort("127.0.0.1:15070"), Weight: 50})
	if err != nil || put.ID == 0 {
		t.Fatalf("%+v, %v", put, err)
	}
	weight := 300.0
	if in, err := r.client.Alter(ctx, "reg-1", client.Change{Weight: &weight}); err != nil || in.Weight != 300 {
		t.Errorf("%+v, %v", in, err)
	}
	if in, err := r.client.Drain(ctx, "reg-2"); err != nil || in.State != vitrine.Draining {
		t.Errorf("%+v, %v", in, err)
	}
	s := r.settle(t)
	v := r.epochs.View().Table
	if v.Len() != 4 || v.ByName("reg-1").Weight != 300 || v.ByName("reg-2").State != vitrine.Draining || v.ByName("reg-3").ID != put.ID || s.Epoch < 2 || !s.InTransition {
		t.Errorf("got status %+v, epoch %d", s, v.Epoch())
	}
	before := s.Epoch
	// The present weight is no change. A count of 0 would be wrong, because the answer has no counts.
	if status, _, text := r.request(t, http.MethodPatch, "/v1/instances/reg-1", `{"weight": 300}`); status != http.StatusOK ||
		!bytes.Contains(text, []byte(`"weight":300,`)) || bytes.Contains(text, []byte(`"in_flight"`)) {
		t.Errorf("got %d: %s", status, text)
	}
	if err := r.client.Remove(ctx, "reg-3"); err != nil {
		t.Error(err)
	}
	if s := r.settle(t); s.Epoch != before+1 || r.epochs.View().Table.ByName("reg-3") != nil {
		t.Errorf("got epoch %d after epoch %d, want one more", s.Epoch, before)
	}
	clock.skip(30 * time.Second)
	until(t, "the draining instance is drained", func() bool {
		in, err := r.client.Instance(ctx, "reg-2")
		if err != nil {
			t.Fatal(err)
		}
		return in.Drained
	})
}

// TestRefusals checks that invalid requests are refused with a reason and change nothing.
func TestRefusals(t *testing.T) {
	r := runGood(t)
	ctx := t.Context()
	zero := 0.0
	good := vitrine.Instance{Name: "reg-9", Type: "registration", Address: netip.MustParseAddrPort("127.0.0.1:15079"), Weight: 1}
	with := func(change func(*vitrine.Instance)) error {
		in := good
		change(&in)
		_, err := r.client.Put(ctx, in)
		return err
	}
	_, absent := r.client.Drain(ctx, "nobody")
	_, weight := r.client.Alter(ctx, "reg-1", client.Change{Weight: &zero})
	place := "Eu 1"
	_, region := r.client.Alter(ctx, "reg-1", client.Change{Region: &place})
	for want, err := range map[string]error{
		"404: no instance nobody":          absent,
		"400: instance reg-1: weight 0":    weight,
		"400: instance reg-1: region Eu 1": region,
		"400: instance reg-9: no type tea": with(func(in *vitrine.Instance) { in.Type = "tea" }),
		"same address":                     with(func(in *vitrine.Instance) { in.Address = netip.MustParseAddrPort("127.0.0.1:15061") }),
		"want lower-case letters":          with(func(in *vitrine.Instance) { in.Name = "Reg 9" }),
		"address [::ffff:10.0.0.1]:5060":   with(func(in *vitrine.Instance) { in.Address = netip.MustParseAddrPort("[::ffff:10.0.0.1]:5060") }),
		"address [fe80::1%eth0]:5060":      with(func(in *vitrine.Instance) { in.Address = netip.MustParseAddrPort("[fe80::1%eth0]:5060") }),
		"address 0.0.0.0:5060":             with(func(in *vitrine.Instance) { in.Address = netip.MustParseAddrPort("0.0.0.0:5060") }),
		"address [::1]:5060: want an":      with(func(in *vitrine.Instance) { in.Address = netip.MustParseAddrPort("[::1]:5060") }),
		"same id":                          with(func(in *vitrine.Instance) { in.ID = r.epochs.View().Table.ByName("reg-1").ID }),
		"404: no instance reg-8":           r.client.Remove(ctx, "reg-8"),
		"all or none":                      r.client.AlterAll(ctx, map[string]client.Change{"reg-1": {Region: new(string)}, "reg-8": {}}),
		"no type tea: want one of":         r.client.PutRules(ctx, []client.Rule{{Type: "tea"}}),
		"a share outside":                  r.client.PutRooms(ctx, []client.Room{{Type: "session", Region: "eu", Share: 2}}),
		"400: rooms: no region ue":         r.client.PutRooms(ctx, []client.Room{{Type: "session", Region: "ue", Share: 0.5}}),
		"400: rooms: duplicate region eu":  r.client.PutRooms(ctx, []client.Room{{Type: "session", Region: "eu"}, {Type: "session", Region: "eu", Share: 1}}),
		"duplicate name":                   r.client.PutAll(ctx, []vitrine.Instance{good, good}),
		"409: this director was started":   r.client.Restart(ctx),
	} {
		if want == "all or none" {
			want = "404: no instance reg-8"
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want %q", err, want)
		}
	}
	for _, body := range []string{"", "{", `{"weigth": 5}`, `{"weight": 5} {}`, `{"state": "gone"}`, `{"state": ""}`, strings.Repeat(" ", maxBody+1)} {
		q, err := http.NewRequestWithContext(ctx, http.MethodPatch, "http://director/v1/instances/reg-1", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		a, err := r.bySocket(t).Do(q)
		if err != nil {
			t.Fatal(err)
		}
		if a.Body.Close(); a.StatusCode != http.StatusBadRequest && a.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("%.20q: %s", body, a.Status)
		}
	}
	if s := r.settle(t); s.Epoch != 1 {
		t.Errorf("refused requests changed the epoch to %d, want 1", s.Epoch)
	}
}

// TestRules checks that rules from REST take effect at once and survive a restart.
func TestRules(t *testing.T) {
	r := runGood(t)
	ctx := t.Context()
	goes := func(r *running) string {
		e, err := r.client.Explain(ctx, client.Question{Message: request("REGISTER", "x")})
		if err != nil {
			t.Fatal(err)
		}
		return e.Type
	}
	if got := goes(r); got != "registration" {
		t.Errorf("REGISTER was sent to %s, want registration", got)
	}
	if err := r.client.PutRules(ctx, []client.Rule{{Type: "session"}}); err != nil {
		t.Fatal(err)
	}
	if got := goes(r); got != "session" {
		t.Errorf("with the new rules REGISTER was sent to %s, want session", got)
	}
	path := r.options.Path
	r.stop()
	if got := goes(run(t, path)); got != "session" {
		t.Errorf("after a restart REGISTER was sent to %s, want session", got)
	}
}

// TestMetrics checks that /metrics has the counts of instances, types and the service in
// Prometheus's format.
func TestMetrics(t *testing.T) {
	r := run(t, write(t, filepath.Join(t.TempDir(), "director.yaml"), good+"overload: {target: 100ms}\n"))
	c, err := net.Dial("udp", r.protocols[0].Addresses()[0].String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write(request("REGISTER", "one")); err != nil {
		t.Fatal(err)
	}
	until(t, "the request is counted", func() bool {
		a, err := http.Get("http://" + r.Control() + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		defer a.Body.Close()
		text := new(strings.Builder)
		if err := a.Write(text); err != nil {
			t.Fatal(err)
		}
		if a.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s", a.Status, text)
		}
		all := text.String()
		for _, want := range []string{
			`vitrine_director_gate_rate{type="registration"} 200`, `vitrine_director_epoch 1`, `vitrine_director_instance_state{instance="reg-1",state="active",type="registration"} 1`,
			`vitrine_director_latency_seconds_bucket{type="session",le="+Inf"} 0`, `vitrine_director_failures_total{cause="no_instance",type="session"} 0`,
		} {
			if !strings.Contains(all, want) {
				t.Fatalf("missing %s in:\n%s", want, all)
			}
		}
		one := strings.Contains(all, `vitrine_director_transactions_in_flight{instance="reg-1",type="registration"} 1`)
		two := strings.Contains(all, `vitrine_director_transactions_in_flight{instance="reg-2",type="registration"} 1`)
		return one != two
	})
}

// TestBoundedLoad checks that an instance with more than its share in flight is full.
func TestBoundedLoad(t *testing.T) {
	r := runGood(t)
	table := r.epochs.View().Table
	for _, c := range []struct {
		one, two uint64
		want     bool
	}{{100, 10, true}, {60, 50, false}, {15, 0, false}, {0, 0, false}} {
		if got := beyondBound(table, map[string]uint64{"reg-1": c.one, "reg-2": c.two, "ses-1": 1000}, 1.25); got["reg-1"] != c.want || got["reg-2"] || got["ses-1"] {
			t.Errorf("with %d and %d in flight: got full instances %v", c.one, c.two, got)
		}
	}
}

// TestUrgentChangeStaysUrgent checks that a change of state stays urgent until it is in force. While
// it waits for the pace of the epochs, a change of weights would otherwise delay it.
func TestUrgentChangeStaysUrgent(t *testing.T) {
	d := newDirector(t, long)
	now := d.now() + time.Hour
	d.now = func() time.Duration { return now }
	step := func(what string, waits, urgent bool) {
		t.Helper()
		if wait, err := d.publish(); err != nil || (wait > 0) != waits {
			t.Errorf("%s: publish waits for %s, %v", what, wait, err)
		}
		if got := d.roster.isUrgent(); got != urgent {
			t.Errorf("%s: got urgent %v, want %v", what, got, urgent)
		}
	}
	drain := func(name string) {
		t.Helper()
		state := vitrine.Draining
		if _, err := d.roster.alter(name, client.Change{State: &state}); err != nil {
			t.Fatal(err)
		}
	}
	drain("reg-1")
	step("first change", false, false)
	drain("reg-2")
	step("second change", true, true)
	now += time.Second
	step("second change, later", false, false)
}

// TestThousands checks that continuous changes to a thousand weights share a few epochs.
func TestThousands(t *testing.T) {
	r := runGood(t)
	ctx := t.Context()
	var all []vitrine.Instance
	for i := range 1000 {
		all = append(all, vitrine.Instance{Name: fmt.Sprintf("reg-%d", i), Type: "registration", Weight: 100,
			Address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 1, byte(i >> 8), byte(i)}), 5060)})
	}
	if err := r.client.PutAll(ctx, all); err != nil {
		t.Fatal(err)
	}
	first := r.settle(t).Epoch
	begun := time.Now()
	for i := range 500 {
		weight := 50 + float64(i)
		if _, err := r.client.Alter(ctx, fmt.Sprintf("reg-%d", i), client.Change{Weight: &weight}); err != nil {
			t.Fatal(err)
		}
	}
	last := r.settle(t).Epoch
	if most := uint64(time.Since(begun)/gather) + 3; last == first || last-first > most {
		t.Errorf("500 weight changes made %d epochs, want 1 to %d", last-first, most)
	}
	if got := r.epochs.View().Table.ByName("reg-499").Weight; got != 549 {
		t.Errorf("weight after the last change: got %g, want 549", got)
	}
}
