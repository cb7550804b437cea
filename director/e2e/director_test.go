package e2e

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"text/template"
	"time"

	"vitrine"
	"vitrine/director"
	"vitrine/director/client"
	"vitrine/internal/hosttest"
	"vitrine/reference/ims/bono"
	"vitrine/reference/ims/homestead"
	"vitrine/reference/ims/sprout"
)

// programVariable makes the test binary run a program instead of the tests.
const programVariable = "PROOF_PROGRAM"

var programs = map[string]func(ctx context.Context, args []string, stdout, stderr io.Writer) error{
	"director": runDirector, "store": runStore, "gateway": runGateway,
	"bono": bono.Run, "sprout": sprout.Run, "homestead": homestead.Run,
}

func TestMain(m *testing.M) {
	name := os.Getenv(programVariable)
	if name == "" {
		os.Exit(runTests(m))
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := programs[name](ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// runTests runs the tests that mostly wait for transitions in parallel.
func runTests(m *testing.M) int {
	err := errors.Join(os.Setenv("PATH", os.Getenv("PATH")+":/usr/sbin"), flag.Set("test.parallel", "4"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// runDirector is `vitrine director run FILE`, without signal handling.
func runDirector(ctx context.Context, args []string, _, stderr io.Writer) error {
	clock, err := director.HostClock()
	if err != nil {
		return err
	}
	handover, err := director.NewHandover("")
	if err != nil {
		return err
	}
	d, err := director.New(ctx, director.Options{Path: args[0], Clock: clock, Log: slog.New(slog.NewTextHandler(stderr, nil)), Handover: handover})
	if err != nil {
		return err
	}
	return errors.Join(d.Run(ctx), d.Close())
}

// spawnSelf runs one of this binary's programs in its own process.
func spawnSelf(t testing.TB, program, name, dir string, args ...string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return spawn(t, name, dir, []string{programVariable + "=" + program}, self, args...)
}

// The aggregate types of these tests. registration serves REGISTER, and session serves
// calls and subscriptions.
const (
	registration = "registration"
	session      = "session"
)

var configuration = template.Must(template.New("director").Parse(`listen:
  sip: ["udp://{{.SIP}}", "tcp://{{.SIP}}"]
{{if .GTPC}}  gtpc: ["udp://{{.GTPC}}"]
{{end}}{{if .S1AP}}  s1ap: ["tcp://{{.S1AP}}"]
{{end}}  control: "{{.Control}}"
{{if .Advertise}}  advertise: {{.Advertise}}
{{end}}keys: {file: shared.keys}
workers: 2
transition: {{.Transition}}
memory: {keys: 524288, transactions: 524288{{.Memory}}}
types:
- {name: registration, protocol: sip{{.Registration}}}
- {name: session, protocol: sip{{.Session}}}
{{.Types}}
rules:
- {method: REGISTER, type: registration}
- {method: SUBSCRIBE, event: reg, type: session}
- {method: INVITE, type: session}
{{.Rules}}
health: {every: 200ms, timeout: {{.Timeout}}, fail: {{.Fail}}, rise: 1}
{{.More}}
{{if .Instances}}instances:
{{range .Instances}}- {name: {{.Name}}, type: {{.Type}}, address: "{{.Address}}", weight: {{.Weight}}, id: {{.ID}}{{if .Region}}, region: {{.Region}}{{end}}}
{{end}}{{end}}`))

// options are the parts of a director's configuration that tests vary.
type options struct {
	SIP, Control          string // set by the site
	Advertise             string // host of the director in messages
	Transition            string // default 4s
	Registration, Session string // further fields of the types, after a comma
	Timeout               string // timeout of a health check; default 2s, because the host may be busy
	Fail                  int    // failed checks until an instance is down; default 3
	GTPC, S1AP            string // listen addresses; empty: not used
	Types, Rules          string // additional types and rules
	Memory                string // further bounds, after a comma
	More                  string // appended to the file
	Instances             []vitrine.Instance
}

// A steward is one director in a process, and its client.
type steward struct {
	*process
	t       testing.TB
	address string // SIP address
	control string
	file    string
	client  *client.Client
}

// director starts a director at the site's host and returns when it serves.
func (s site) director(host int, o options) *steward {
	s.t.Helper()
	o.SIP, o.Control = s.at(host, sipPort), s.at(host, 8090)
	if o.Transition == "" {
		o.Transition = "4s"
	}
	if o.Timeout == "" {
		o.Timeout = "2s"
	}
	if o.Fail == 0 {
		o.Fail = 3
	}
	name := fmt.Sprintf("director-%d", host)
	var text bytes.Buffer
	if err := configuration.Execute(&text, o); err != nil {
		s.t.Fatal(err)
	}
	d := &steward{t: s.t, address: o.SIP, control: o.Control, file: filepath.Join(s.dir, name+".yaml")}
	if err := os.WriteFile(d.file, text.Bytes(), 0o600); err != nil {
		s.t.Fatal(err)
	}
	keys := filepath.Join(s.dir, "shared.keys")
	if err := os.WriteFile(keys, []byte("1 000102030405060708090a0b0c0d0e0f 2026-01-01T00:00:00Z\n"), 0o600); err != nil {
		s.t.Fatal(err)
	}
	var err error
	if d.client, err = client.New(client.Access{URL: "http://" + o.Control}); err != nil {
		s.t.Fatal(err)
	}
	d.begin(name, s.dir)
	return d
}

// begin starts the director's process and returns when it serves.
func (d *steward) begin(name, dir string) {
	d.t.Helper()
	d.process = spawnSelf(d.t, "director", name, dir, d.file)
	d.t.Cleanup(d.stop) // a killed director would leave its unix socket on the host
	eventually(d.t, name+" serves", func() bool {
		if !d.running() {
			d.t.Fatalf("%s ended: %v", name, d.err)
		}
		_, err := d.client.Status(d.t.Context())
		return err == nil && answers(d.address, 500*time.Millisecond)
	})
}

// try repeats a request that the director refuses during a hand-over.
func (d *steward) try(what string, do func(context.Context) error) {
	d.t.Helper()
	var err error
	defer func() {
		if err != nil {
			d.t.Errorf("%s: %s: %v", d.name, what, err)
		}
	}()
	eventually(d.t, d.name+": "+what, func() bool {
		err = do(d.t.Context())
		var refused *client.Error
		return err == nil || errors.As(err, &refused) && refused.Status < 500
	})
}

func (d *steward) status() (s client.Status) {
	d.t.Helper()
	d.try("its status", func(ctx context.Context) (err error) {
		s, err = d.client.Status(ctx)
		return err
	})
	return s
}

// instance returns an instance as the director sees it.
func (d *steward) instance(name string) (in client.Instance) {
	d.t.Helper()
	d.try("instance "+name, func(ctx context.Context) (err error) {
		in, err = d.client.Instance(ctx, name)
		return err
	})
	return in
}

// restart hands over to a new process, and returns when the new process serves.
func (d *steward) restart() {
	d.t.Helper()
	before := d.status()
	d.try("hand over", func(ctx context.Context) error { return d.client.Restart(ctx) })
	eventually(d.t, d.name+" is handed over", func() bool {
		now, err := d.client.Status(d.t.Context())
		return err == nil && now.PID != before.PID
	})
	after := d.status()
	if after.Digest != before.Digest && !after.Pending && !before.Pending {
		d.t.Errorf("%s uses table %s after the hand-over, want %s as before", d.name, after.Digest, before.Digest)
	}
}

// fleet are directors side by side.
type fleet []*steward

// put adds an instance to all directors with the same ID, and returns the last answer.
func (f fleet) put(in vitrine.Instance) (out client.Instance) {
	for _, d := range f {
		d.try("put "+in.Name, func(ctx context.Context) error {
			var err error
			out, err = d.client.Put(ctx, in)
			in.ID = out.ID
			return err
		})
	}
	return out
}

func (f fleet) alter(name string, c client.Change) {
	for _, d := range f {
		d.try("alter "+name, func(ctx context.Context) error {
			_, err := d.client.Alter(ctx, name, c)
			return err
		})
	}
}

func (f fleet) remove(name string) {
	for _, d := range f {
		d.try("remove "+name, func(ctx context.Context) error { return d.client.Remove(ctx, name) })
	}
}

// drain drains an instance at all directors, and returns when it is drained.
func (f fleet) drain(name string) {
	state := vitrine.Draining
	f.alter(name, client.Change{State: &state})
	for _, d := range f {
		eventually(d.t, name+" is drained at "+d.name, func() bool { return d.instance(name).Drained })
	}
}

// agree waits until all directors have the same table.
func (f fleet) agree() {
	eventually(f[0].t, "the directors steer alike", func() bool {
		first := f[0].status()
		for _, d := range f {
			if s := d.status(); s.Pending || s.Digest != first.Digest {
				return false
			}
		}
		return true
	})
}

// metric returns the sum of the director's time series with a name and all the given labels.
func (d *steward) metric(name string, labels ...string) float64 {
	d.t.Helper()
	return hosttest.Metric(d.t, d.metrics(), name, labels...)
}

// metrics returns the director's /metrics.
func (d *steward) metrics() string {
	d.t.Helper()
	res, err := http.Get("http://" + d.control + "/metrics")
	if err != nil {
		d.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		d.t.Fatalf("%s: metrics: %s, %v", d.name, res.Status, err)
	}
	return string(text)
}

// entry returns the table entry of an instance.
func entry(in *instance, id uint16) vitrine.Instance {
	return vitrine.Instance{Name: in.name, Type: in.ty, Address: netip.MustParseAddrPort(in.address), Weight: 100, ID: id}
}
