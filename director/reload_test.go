package director

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vitrine"
	"vitrine/director/client"
	"vitrine/director/gtpc"
	"vitrine/director/table"
)

// TestReload checks that a changed file takes effect as a whole. A broken file must change nothing,
// and its error must be reported.
func TestReload(t *testing.T) {
	r := runGood(t)
	path, ctx := r.options.Path, t.Context()
	write(t, path, strings.Replace(good, "weight: 100}", "weight: 250}", 1))
	until(t, "the file's change is seen", func() bool { return r.epochs.View().Table.ByName("reg-1").Weight == 250 })
	before := r.settle(t)

	write(t, path, strings.Replace(good, "protocol: sip}", "protocol: sup}", 1))
	until(t, "the broken file is refused", func() bool {
		s, err := r.client.Status(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return s.Reload != nil && strings.Contains(s.Reload.Error, ":6:36: ")
	})
	r.hasMetric(t, "vitrine_director_reload_failed 1")
	if s := r.settle(t); s.Digest != before.Digest || s.Epoch != before.Epoch || !strings.Contains(r.log.String(), "the configuration is unchanged") {
		t.Errorf("after a broken file: status %+v, want %+v; log %s", s, before, r.log)
	}

	write(t, path, strings.Replace(good, "transition: 2s", "transition: 5s", 1))
	if err := r.client.Reload(ctx); err == nil || !strings.Contains(err.Error(), "transition has changed: this needs a restart") {
		t.Errorf("reload of a setting that needs a restart: got %v", err)
	}

	write(t, path, strings.Replace(good, "name: registration, protocol", "name: registration, transport: tcp, protocol", 1))
	if err := r.client.Reload(ctx); err == nil || !strings.Contains(err.Error(), "no tcp:// listener in listen.sip") {
		t.Errorf("reload of a transport without a listener: got %v", err)
	}

	more := strings.Replace(good, "rules:\n", "  - {name: message, protocol: sip}\nrules:\n  - {method: MESSAGE, type: message}\n", 1)
	write(t, path, strings.Replace(more, "instances:\n", "instances:\n  - {name: msg-1, type: message, address: \"127.0.0.1:15066\"}\n", 1))
	if err := r.client.Reload(ctx); err != nil {
		t.Fatal(err)
	}
	r.hasMetric(t, "vitrine_director_reload_failed 0")
	e, err := r.client.Explain(ctx, client.Question{Message: request("MESSAGE", "x"), From: "127.0.0.1:9"})
	if err != nil || e.Instance != "msg-1" || e.Type != "message" {
		t.Errorf("%+v, %v", e, err)
	}

	// A reload of the same file by signal keeps changes by REST.
	if _, err := r.client.Drain(ctx, "reg-1"); err != nil {
		t.Fatal(err)
	}
	r.settle(t)
	r.reload <- struct{}{}
	until(t, "the signal is taken", func() bool { return len(r.reload) == 0 })
	if err := r.client.Reload(ctx); err != nil {
		t.Error(err)
	}
	if in, err := r.client.Instance(ctx, "reg-1"); err != nil || in.State != vitrine.Draining {
		t.Errorf("%+v, %v", in, err)
	}
}

// TestReloadKeepsChangesByREST edits one part of the file after another. What REST has changed must stay
// until the file's own part changes.
func TestReloadKeepsChangesByREST(t *testing.T) {
	r := runGood(t)
	ctx := t.Context()
	if _, err := r.client.Put(ctx, vitrine.Instance{Name: "reg-9", Type: "registration", Address: netip.MustParseAddrPort("127.0.0.1:15079"), Weight: 50}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.client.Drain(ctx, "reg-1"); err != nil {
		t.Fatal(err)
	}
	if err := r.client.PutRules(ctx, []client.Rule{{Type: "session"}}); err != nil {
		t.Fatal(err)
	}
	if err := r.client.PutRooms(ctx, []client.Room{{Type: "session", Region: "eu", Share: 0.5}}); err != nil {
		t.Fatal(err)
	}
	epoch := r.settle(t).Epoch
	r.meter.Worker().Dialog(r.epochs.View().Table.ByName("reg-9"), true)

	text := good
	for _, c := range []struct {
		from, to  string
		instances bool // of REST are in force
		rules     int
	}{
		{`{sip: "off"}`, `{sip: "off", fail: 5}`, true, 1},
		{"rules:\n", "rules:\n  - {method: MESSAGE, type: session}\n", true, 3},
		{"weight: 100}", "weight: 250}", false, 3},
	} {
		text = strings.Replace(text, c.from, c.to, 1)
		write(t, r.options.Path, text)
		if err := r.client.Reload(ctx); err != nil {
			t.Fatal(err)
		}
		s, table := r.settle(t), r.epochs.View().Table
		if more := table.ByName("reg-9") != nil; more != c.instances || (table.ByName("reg-1").State == vitrine.Draining) != c.instances || (s.Epoch == epoch) != c.instances {
			t.Errorf("%s: in epoch %d after %d, reg-9 is there: %v; reg-1 is %+v", c.to, s.Epoch, epoch, more, table.ByName("reg-1").Instance)
		}
		if rules, err := r.client.Rules(ctx); err != nil || len(rules) != c.rules {
			t.Errorf("%s: got rules %+v, %v, want %d", c.to, rules, err, c.rules)
		}
		if _, rooms := r.roster.rulesAndRooms(); len(rooms) != 1 {
			t.Errorf("%s: got rooms %+v, want that of REST", c.to, rooms)
		}
		if in, err := r.client.Instance(ctx, "reg-9"); c.instances && (err != nil || in.Dialogs != 1) {
			t.Errorf("%s: got %+v, %v, want one dialog", c.to, in, err)
		}
	}
}

// TestReloadFollowsLinks replaces a folder on the way to the file, as Kubernetes does for a ConfigMap: the
// file is a link through a link to a folder, and that link is replaced.
func TestReloadFollowsLinks(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "etc", "director.yaml")
	link := func(to, from string) {
		t.Helper()
		if err := os.Symlink(to, from); err != nil {
			t.Fatal(err)
		}
	}
	for _, folder := range []string{"etc", "one", "two"} {
		if err := os.Mkdir(filepath.Join(dir, folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(dir, "one", "director.yaml"), good)
	write(t, filepath.Join(dir, "two", "director.yaml"), strings.Replace(good, "weight: 100}", "weight: 250}", 1))
	link("one", filepath.Join(dir, "data"))
	link("../data/director.yaml", path)
	r := run(t, path)
	link("two", filepath.Join(dir, "next"))
	if err := os.Rename(filepath.Join(dir, "next"), filepath.Join(dir, "data")); err != nil {
		t.Fatal(err)
	}
	until(t, "the other folder's file is in force", func() bool { return r.epochs.View().Table.ByName("reg-1").Weight == 250 })
}

// TestReloadReachesInstancesOfREST changes a type to TCP, for which there is no IPv6 listener. REST has added
// an instance with an IPv6 address, so the reload must be refused.
func TestReloadReachesInstancesOfREST(t *testing.T) {
	text := strings.Replace(good, `"udp://127.0.0.1:0"`, `"udp://127.0.0.1:0", "udp://[::1]:0", "tcp://127.0.0.1:0"`, 1)
	r := run(t, write(t, filepath.Join(t.TempDir(), "director.yaml"), text))
	if _, err := r.client.Put(t.Context(), vitrine.Instance{Name: "reg-9", Type: "registration", Address: netip.MustParseAddrPort("[::1]:15079"), Weight: 1}); err != nil {
		t.Fatal(err)
	}
	write(t, r.options.Path, strings.Replace(text, "name: registration, protocol", "name: registration, transport: tcp, protocol", 1))
	if err := r.client.Reload(t.Context()); err == nil || !strings.Contains(err.Error(), "400: instance reg-9: address [::1]:15079: want an address of the IP family") {
		t.Errorf("got %v, want an error that names reg-9", err)
	}
}

// TestTableDigest checks that directors side by side with the same file have the same metric, and that a
// change at one of them shows.
func TestTableDigest(t *testing.T) {
	one, two := runGood(t), runGood(t)
	if a, b := one.tableDigest(), two.tableDigest(); a != b || a == 0 {
		t.Errorf("got the digests %v and %v of the same file", a, b)
	}
	for what, change := range map[string]func() error{
		"drain": func() error { _, err := one.client.Drain(t.Context(), "reg-1"); return err },
		"rules": func() error { return one.client.PutRules(t.Context(), []client.Rule{{Type: "session"}}) },
	} {
		before := one.tableDigest()
		if err := change(); err != nil {
			t.Fatal(err)
		}
		one.settle(t)
		if one.tableDigest() == before {
			t.Errorf("%s: the digest is the same as before", what)
		}
	}
	if _, _, text := one.request(t, http.MethodGet, "/metrics", ""); !strings.Contains(string(text), "\nvitrine_director_table_digest ") {
		t.Error("/metrics lacks the digest")
	}
}

// hasMetric checks that /metrics has a line.
func (r *running) hasMetric(t *testing.T, line string) {
	t.Helper()
	if _, _, text := r.request(t, http.MethodGet, "/metrics", ""); !strings.Contains(string(text), "\n"+line+"\n") {
		t.Errorf("/metrics lacks %s", line)
	}
}

// TestReloadLimitsIDs gives a GTP-C type a number, which limits the IDs of its instances. IDs that are
// too high must be replaced, also those in a state file. The director must tell the limit.
func TestReloadLimitsIDs(t *testing.T) {
	d := newDirector(t, both)
	wantHighest := func(want map[string]uint16) {
		t.Helper()
		got := map[string]uint16{}
		for _, ty := range d.types() {
			got[ty.Name] = ty.HighestID
		}
		if !maps.Equal(got, want) {
			t.Errorf("got the highest IDs %v, want %v", got, want)
		}
	}
	wantHighest(map[string]uint16{"registration": table.MaxID, "gateway": table.MaxID})
	id := func(d *Director) uint16 { return d.epochs.View().Table.ByName("gw-1").ID }
	high := id(d)
	if high <= gtpc.MaxID {
		t.Fatal("the ID is low, so the test proves nothing")
	}
	write(t, d.options.Path, strings.Replace(both, "protocol: gtpc}", "protocol: gtpc, number: 1}", 1))
	if err := d.reload(); err != nil {
		t.Fatal(err)
	}
	if n := id(d); n == 0 || n > gtpc.MaxID {
		t.Errorf("after a reload the ID is %d, want at most %d", n, gtpc.MaxID)
	}
	wantHighest(map[string]uint16{"registration": table.MaxID, "gateway": gtpc.MaxID})
	for i := range d.state.Current.Instances {
		if in := &d.state.Current.Instances[i]; in.Name == "gw-1" {
			in.ID = high
		}
	}
	if err := d.state.write(d.config.Load().State); err != nil {
		t.Fatal(err)
	}
	next, err := New(t.Context(), d.options)
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	if n := id(next); n == 0 || n > gtpc.MaxID {
		t.Errorf("after a restart the ID is %d, want at most %d", n, gtpc.MaxID)
	}
}

// TestTypesHaveTheirDrain checks that the director tells what draining waits for. An orchestrator compares that
// with its own file.
func TestTypesHaveTheirDrain(t *testing.T) {
	got := map[string]string{}
	for _, ty := range newDirector(t, good).types() {
		got[ty.Name] = ty.Drain
	}
	if want := map[string]string{"registration": DrainTransactions, "session": DrainDialogs}; !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestReloadBeforeHandOver checks that a hand-over waits for a running reload, because the reload
// could not end afterwards.
func TestReloadBeforeHandOver(t *testing.T) {
	var freezing, apart bool
	var d *Director
	d = newDirector(t, good, func(o *Options) {
		now := o.Clock.Now
		o.Clock.Now = func() time.Duration {
			if freezing && d.reloads.serial.TryLock() {
				apart = true
				d.reloads.serial.Unlock()
			}
			return now()
		}
	})
	freezing = true
	err := d.freeze(t.Context())
	freezing = false
	if err != nil || apart {
		t.Errorf("a reload could start while a hand-over publishes its changes: %v, %v", apart, err)
	}
	write(t, d.options.Path, strings.Replace(good, "weight: 100}", "weight: 250}", 1))
	if err := d.reload(); !errors.Is(err, errFrozen) {
		t.Errorf("reload during a hand-over: got %v, want errFrozen", err)
	}
	d.thaw()
	if err := d.reload(); err != nil {
		t.Error(err)
	}
}

// request returns a SIP request.
func request(method, callID string) []byte {
	return fmt.Appendf(nil, "%s sip:bob@example.com SIP/2.0\r\nVia: SIP/2.0/UDP 127.0.0.1:9;branch=z9hG4bK%s\r\nMax-Forwards: 70\r\n"+
		"From: <sip:alice@example.com>;tag=1\r\nTo: <sip:bob@example.com>\r\nCall-ID: %s\r\nCSeq: 1 %s\r\nContent-Length: 0\r\n\r\n", method, callID, callID, method)
}
