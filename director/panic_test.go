package director

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"vitrine/director/client"
	"vitrine/director/table"
	"vitrine/internal/hosttest"
)

const four = `
listen: {sip: ["udp://127.0.0.1:0"], control: "127.0.0.1:0"}
types: [{name: registration, protocol: sip}, {name: session, protocol: sip}]
rules: [{method: REGISTER, type: registration}, {type: session}]
instances:
  - {name: reg-1, type: registration, address: "127.0.0.1:15061", weight: 300}
  - {name: reg-2, type: registration, address: "127.0.0.1:15062"}
  - {name: reg-3, type: registration, address: "127.0.0.1:15063"}
  - {name: reg-4, type: registration, address: "127.0.0.1:15064"}
  - {name: reg-5, type: registration, address: "127.0.0.1:15065", state: draining}
  - {name: ses-1, type: session, address: "127.0.0.1:15066"}
  - {name: ses-2, type: session, address: "127.0.0.1:15067"}
transition: 2s
health: {sip: "off"}
`

// find records the health checks of a type's instances: those named in away fail, the others pass.
// Then it publishes the result.
func find(t *testing.T, d *Director, typePrefix string, away ...string) {
	t.Helper()
	for name, in := range d.watch.watched {
		if !strings.HasPrefix(name, typePrefix) {
			continue
		}
		err := error(nil)
		if slices.Contains(away, name) {
			err = io.EOF
		}
		d.watch.record(in, err, Health{Fail: 1, Rise: 1})
	}
	publishNow(t, d)
}

func publishNow(t *testing.T, d *Director) {
	t.Helper()
	until(t, "it is published", func() bool {
		wait, err := d.publish()
		if err != nil {
			t.Fatal(err)
		}
		return wait == 0
	})
}

// takers returns the names of the instances that get keys of a type, in order.
func takers(d *Director, ty table.Type) string {
	v := d.epochs.View()
	got := map[string]bool{}
	for key := range uint64(2000) {
		if i, ok := v.Table.Pick(ty, table.Key([]byte{byte(key), byte(key >> 8)}), 0, v.Health); ok {
			got[v.Table.Instance(i).Name] = true
		}
	}
	var names []string
	for name := range got {
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// TestPanic checks that a type is steered as if all its instances were healthy if more than the
// configured share of them is unhealthy. Other types must not be affected.
func TestPanic(t *testing.T) {
	const everybody = "reg-1 reg-2 reg-3 reg-4"
	for _, c := range []struct {
		what, panic, override string
		away                  []string
		want                  string
		panics                bool
	}{
		{"off by default, all away", "", "", []string{"reg-1", "reg-2", "reg-3", "reg-4"}, "", false},
		{"half away", "panic: 50%", "", []string{"reg-1", "reg-2"}, "reg-3 reg-4", false},
		{"more than half away", "panic: 50%", "", []string{"reg-1", "reg-2", "reg-3"}, everybody, true},
		{"all away", "panic: 50%", "", []string{"reg-1", "reg-2", "reg-3", "reg-4"}, everybody, true},
		{"one draining counts not", "panic: 50%", "", []string{"reg-1", "reg-2", "reg-5"}, "reg-3 reg-4", false},
		{"nearly all away", "panic: 100%", "", []string{"reg-1", "reg-2", "reg-3"}, "reg-4", false},
		{"all away at 100%", "panic: 100%", "", []string{"reg-1", "reg-2", "reg-3", "reg-4"}, everybody, true},
		{"the type's own share", "panic: 50%", ", panic: 20%", []string{"reg-1"}, everybody, true},
		{"the type's own off", "panic: 50%", `, panic: "off"`, []string{"reg-1", "reg-2", "reg-3"}, "reg-4", false},
	} {
		t.Run(c.what, func(t *testing.T) {
			text := strings.Replace(four, "name: registration, protocol: sip", "name: registration, protocol: sip"+c.override, 1)
			d := newDirector(t, text+c.panic+"\n")
			find(t, d, "reg-", c.away...)
			if got := takers(d, 0); got != c.want {
				t.Errorf("keys of the type go to %q, want %q", got, c.want)
			}
			if got := slices.Contains(d.status().Panic, "registration"); got != c.panics {
				t.Errorf("got types in panic %v", d.status().Panic)
			}
			v := d.epochs.View()
			for key := range uint64(200) { // as any other director would
				i, _ := v.Table.Pick(0, key<<40, 0, v.Health)
				if j, _ := v.Table.Pick(0, key<<40, 0, nil); c.panics && i != j {
					t.Fatalf("key %d goes to instance %d, want %d as in the full table", key, i, j)
				}
			}
			find(t, d, "ses-", "ses-1")
			if got := takers(d, 1); got != "ses-2" {
				t.Errorf("keys of the other type go to %q, want ses-2", got)
			}
		})
	}
}

// TestPanicIsShown checks that status, metrics and explain show the panic. The log must have one
// line for its begin and one for its end. A reload must change the share.
func TestPanicIsShown(t *testing.T) {
	log := new(hosttest.Output)
	d := newDirector(t, four+"panic: 50%\n", func(o *Options) { o.Log = log.Logger() })
	metric := func() string {
		w := httptest.NewRecorder()
		d.metricsHandler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		_, rest, _ := strings.Cut(w.Body.String(), `vitrine_director_panic{type="registration"} `)
		value, _, _ := strings.Cut(rest, "\n")
		return value
	}
	shows := func(want string, entries, ends int) {
		t.Helper()
		if got := metric(); got != want {
			t.Errorf("panic metric: got %q, want %s", got, want)
		}
		if e, x := strings.Count(log.String(), "type is in panic"), strings.Count(log.String(), "type is no longer in panic"); e != entries || x != ends {
			t.Errorf("log lines: %d about the start of panic and %d about its end, want %d and %d", e, x, entries, ends)
		}
	}
	shows("0", 0, 0)
	find(t, d, "reg-", "reg-1", "reg-2", "reg-3")
	find(t, d, "reg-", "reg-1", "reg-2", "reg-3", "reg-4")
	shows("1", 1, 0)
	e, err := d.explain(client.Question{Type: "registration", Key: "x"})
	if err != nil || e.Instance == "" || !strings.Contains(strings.Join(e.Steps, "\n"), "registration is in panic") {
		t.Errorf("%+v %v", e, err)
	}
	find(t, d, "reg-", "reg-1", "reg-2")
	shows("0", 1, 1)
	write(t, d.options.Path, four+"panic: 40%\n")
	if err := d.reload(); err != nil {
		t.Fatal(err)
	}
	shows("1", 2, 1)
}

// TestPanicKeepsDialogs checks that in panic a dialog stays at its instance, even if the instance
// is unhealthy.
func TestPanicKeepsDialogs(t *testing.T) {
	for text, want := range map[string]bool{"panic: 50%\n": true, "": false} {
		d := newDirector(t, four+text)
		find(t, d, "reg-", "reg-1", "reg-2", "reg-3")
		s := table.NewSteering(d.epochs, 64)
		id := d.epochs.View().Table.ByName("reg-1").ID
		target, ok := s.Resume(time.Hour, 0, id, 7, 0, true)
		if !ok || (target.Name == "reg-1") != want {
			t.Errorf("%q: the dialog resumed at %+v, found %v", text, target, ok)
		}
	}
}

func TestBadPanic(t *testing.T) {
	for _, text := range []string{"0%", "101%", "50", "0.5", "half", "-1%"} {
		if _, err := Load(write(t, t.TempDir()+"/director.yaml", four+"panic: "+text+"\n")); err == nil {
			t.Errorf("panic: Load accepted %s", text)
		}
	}
}
