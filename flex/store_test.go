package flex

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"vitrine/flex/decide"
)

// fakeStores are a store and its members, by address. An address that it does not have does not
// answer.
type fakeStores map[string]StoreHealth

func (s fakeStores) ask(_ context.Context, url string) (StoreHealth, error) {
	h, there := s[url]
	if !there {
		return h, errors.New("connection refused")
	}
	return h, nil
}

// slow sets the operations that are too slow at all stores.
func (s fakeStores) slow(operations ...string) {
	for url, h := range s {
		h.Past, h.Reasons = operations, map[string]string{"put": "3 of 9 requests were refused"}
		s[url] = h
	}
}

const (
	memberless = "store: {url: \"http://127.0.0.1:8070\"}\n"
	memberful  = "store: {url: \"http://127.0.0.1:8070\", member: {url: \"http://127.0.0.1:807${VITRINE_NUMBER}\", max: 2, after: 30s, stable: 2m,\n" +
		"  command: [vitrine, store, run, --engine, redis, --listen, \"127.0.0.1:807${VITRINE_NUMBER}\", --dir, \"${VITRINE_DIR}\"]}}\n"
)

// newStoreRig returns a rig whose store and two possible members answer.
func newStoreRig(t *testing.T, section, engine string) (*rig, fakeStores) {
	t.Helper()
	r, stores := newRig(t, section), fakeStores{}
	for _, url := range []string{"http://127.0.0.1:8070", "http://127.0.0.1:8071", "http://127.0.0.1:8072"} {
		stores[url] = StoreHealth{Engine: engine, Shared: engine != "embedded"}
	}
	r.Store = stores.ask
	return r, stores
}

// members checks which members of the store run.
func (r *rig) members(want ...string) {
	r.t.Helper()
	var got []string
	for _, name := range slices.Sorted(maps.Keys(r.runner.units)) {
		if short, is := strings.CutPrefix(name, servicePrefix+"store-member-"); is {
			got = append(got, short)
		}
	}
	if !slices.Equal(got, want) {
		r.t.Errorf("running members: got %q, want %q: %+v", got, want, r.Events())
	}
}

// TestSlowStoreIsAnAlert checks that the alert names what helps with the engine, and that explain shows it. The
// metric must show the alert until the store is fast again.
func TestSlowStoreIsAnAlert(t *testing.T) {
	for _, c := range []struct{ engine, section, want string }{
		{"embedded", memberless, "keep the records in Redis or etcd"},
		{"embedded", memberful, "keep the records in Redis or etcd"},
		{"redis", memberless, "store.member. If the engine is slow, give it more CPU or a faster disk, or more masters"},
		{"etcd", memberless, "another member of etcd makes writes slower"},
	} {
		t.Run(c.engine, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, stores := newStoreRig(t, c.section, c.engine)
				stores.slow("put")
				r.run(time.Minute)
				r.members()
				if !r.has(EventAlert, "past its threshold for put (3 of 9 requests were refused). ") || !r.has(EventAlert, c.want) || !slices.Equal(r.Status().StorePast, []string{"put"}) {
					t.Errorf("%+v", r.Events())
				}
				e, err := r.Explain("registration")
				if err != nil || !slices.ContainsFunc(e.Events, func(e Event) bool { return e.Kind == EventAlert }) {
					t.Errorf("explained by %+v, error %v, want the alert", e.Events, err)
				}
				if _, err := r.Explain("nobody"); err == nil {
					t.Error("an unknown name is explained by the alert")
				}
				slow := r.Status().alerts
				stores.slow()
				r.run(10 * time.Second)
				if fast := r.Status().alerts; slow != 1 || fast != 0 {
					t.Errorf("got %d alerts that hold while the store is slow, %d after that, want 1 and 0", slow, fast)
				}
				if !r.has(EventBack, "within its threshold") {
					t.Errorf("%+v", r.Events())
				}
			})
		})
	}
}

// TestSlowStoreGetsMembers checks when members start and stop, and that a member that is needed
// again soon after its stop stays for longer.
func TestSlowStoreGetsMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, stores := newStoreRig(t, memberful, "redis")
		stores.slow("put", "get")
		r.run(25 * time.Second)
		r.members()
		r.run(10 * time.Second)
		r.members("1")
		r.run(20 * time.Second)
		r.members("1")
		r.run(15 * time.Second)
		r.members("1", "2")
		if got := r.runner.orders["service-store-member-2"].Command; !slices.Contains(got, "127.0.0.1:8072") || !slices.Contains(got, "${VITRINE_DIR}") {
			t.Errorf("member 2 was started with %q", got)
		}
		if !r.has(EventService, "past its threshold for get, put (3 of 9 requests were refused), for 30s: member 1 of 2 starts") {
			t.Errorf("%+v", r.Events())
		}
		if r.has(EventAlert, "") {
			t.Errorf("alert although the last member could still help: %+v", r.Events())
		}
		r.run(30 * time.Second)
		if !r.has(EventAlert, "All 2 members run") {
			t.Errorf("%+v", r.Events())
		}
		stores.slow()
		r.run(110 * time.Second)
		r.members("1", "2")
		r.run(20 * time.Second)
		r.members("1")
		r.run(130 * time.Second)
		r.members()
		stores.slow("put")
		r.run(45 * time.Second)
		r.members("1")
		stores.slow()
		r.run(3 * time.Minute)
		r.members("1")
		r.run(2 * time.Minute)
		r.members()
		if len(r.Status().Away) != 0 || r.runner.units["registration-1"].Name == "" {
			t.Errorf("unhealthy: %q, units: %+v", r.Status().Away, r.runner.units)
		}
	})
}

// TestMembersOutliveTheOrchestrator checks that an orchestrator without state takes members over,
// and stops those that the file does not have any more.
func TestMembersOutliveTheOrchestrator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, stores := newStoreRig(t, memberful, "etcd")
		stores.slow("put")
		r.run(70 * time.Second)
		r.members("1", "2")
		restart := func() {
			t.Helper()
			if err := errors.Join(r.Close(), os.Remove(filepath.Join(r.File.State, StateFile))); err != nil {
				t.Fatal(err)
			}
			r.begin()
			r.Store = stores.ask
		}
		starts := len(r.runner.starts)
		restart()
		stores.slow()
		r.run(100 * time.Second)
		r.members("1", "2")
		if len(r.runner.starts) != starts || len(r.Status().Services) != 2 {
			t.Errorf("started %q, services %+v", r.runner.starts[starts:], r.Status().Services)
		}
		r.run(30 * time.Second)
		r.members("1")
		text, err := os.ReadFile(r.file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(r.file, []byte(strings.Replace(string(text), memberful, memberless, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		restart()
		r.run(10 * time.Second)
		r.members()
	})
}

// TestSilentStoreIsAnAlert checks that a store or a member that never answers is reported once, with
// what to do, and again after it has answered. Nothing starts or stops because of it.
func TestSilentStoreIsAnAlert(t *testing.T) {
	for silent, want := range map[string]string{
		"http://127.0.0.1:8070": "the store at http://127.0.0.1:8070 has given no usable answer for 30s: connection refused. Check store.url in ",
		"http://127.0.0.1:8071": "store-member-1 at http://127.0.0.1:8071 has given no usable answer for 30s: connection refused. Check that store.member in ",
	} {
		t.Run(silent, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, stores := newStoreRig(t, memberful, "redis")
				stores.slow("put")
				r.run(32 * time.Second)
				r.members("1")
				stores.slow()
				alerts := func() (n int) {
					for _, e := range r.Events() {
						if e.Kind == EventAlert && strings.Contains(e.Reason, want) {
							n++
						}
					}
					return n
				}
				units, starts := len(r.runner.units), len(r.runner.starts)
				for times := range 2 {
					delete(stores, silent)
					r.run(25 * time.Second)
					if got := alerts(); got != times {
						t.Errorf("got %d alerts before the limit, want %d: %+v", got, times, r.Events())
					}
					r.run(5 * time.Minute)
					if got := alerts(); got != times+1 {
						t.Errorf("got %d alerts, want %d: %+v", got, times+1, r.Events())
					}
					if len(r.runner.units) != units || len(r.runner.starts) != starts {
						t.Errorf("something started or stopped: %q, %+v", r.runner.starts[starts:], r.runner.units)
					}
					stores[silent] = StoreHealth{Engine: "redis", Shared: true}
					r.run(10 * time.Second)
				}
			})
		})
	}
}

// TestUnknownStoresChangeNothing checks that no member starts or stops while a store does not
// answer, or has another engine.
func TestUnknownStoresChangeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, stores := newStoreRig(t, memberful, "redis")
		delete(stores, "http://127.0.0.1:8071")
		stores.slow("put")
		r.run(5 * time.Minute)
		r.members("1")
		if away := strings.Join(r.Status().Away, "\n"); !strings.Contains(away, "store-member-1: connection refused") {
			t.Errorf("unhealthy: got %q", away)
		}
		stores["http://127.0.0.1:8071"] = StoreHealth{Engine: "embedded"}
		stores.slow()
		r.run(5 * time.Minute)
		r.members("1")
		if away := strings.Join(r.Status().Away, "\n"); !strings.Contains(away, "store-member-1: its engine is embedded, but that of the first store is redis") {
			t.Errorf("unhealthy: got %q", away)
		}
		for range 2 { // the time without an answer does not count
			stores["http://127.0.0.1:8071"] = StoreHealth{Engine: "redis", Shared: true}
			r.run(time.Minute)
			delete(stores, "http://127.0.0.1:8071")
			r.run(5 * time.Minute)
		}
		stores["http://127.0.0.1:8071"] = StoreHealth{Engine: "redis", Shared: true}
		r.run(110 * time.Second)
		r.members("1")
		r.run(20 * time.Second)
		r.members()
		if len(r.Status().Away) != 0 {
			t.Errorf("unhealthy: got %q, want none", r.Status().Away)
		}
	})
}

// TestStoreAwayDrainsNothing checks that instances start by the directors' rates while no store
// answers, and that none is drained. One store that answers is enough to drain.
func TestStoreAwayDrainsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, stores := newStoreRig(t, memberful, "redis")
		active := func(when string, want int) {
			t.Helper()
			if got := r.inState(decide.Active); got != want {
				t.Errorf("%s: got %d active instances, want %d: %+v", when, got, want, r.Events())
			}
		}
		stores.slow("put")
		r.director.rate = 25
		r.run(40 * time.Second)
		r.members("1")
		active("at 25/s", 2)
		if !r.view(time.Now()).StoreSlow {
			t.Error("the policy does not see that the store is slow")
		}
		stores.slow()
		all := maps.Clone(stores)
		clear(stores)
		r.director.rate = 45
		r.run(30 * time.Second)
		active("at 45/s without a store", 3)
		r.director.rate = 0
		r.run(3 * time.Minute)
		active("at 0/s without a store", 3)
		if why := strings.Join(r.Status().Types[0].Why, "\n"); !strings.Contains(why, "hold: store: no store answers") {
			t.Errorf("explained with %q, want that no store answers", why)
		}
		if !r.has(EventAlert, "While no store answers, no instance is drained") {
			t.Errorf("%+v", r.Events())
		}
		stores["http://127.0.0.1:8071"] = all["http://127.0.0.1:8071"]
		r.run(9 * time.Second)
		active("within the stable time after a member answers", 3)
		r.run(time.Minute)
		active("at 0/s with a member", 1)
	})
}
