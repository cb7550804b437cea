package flex

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"vitrine"
	"vitrine/director/client"
	"vitrine/flex/config"
	"vitrine/flex/decide"
	"vitrine/flex/unit"
	"vitrine/spec"
)

// Fakes replace the runner and the director in these tests, which run in synthetic time. Tests in
// flex/e2e use real ones.

// A fakeRunner runs units that are ready after a time, or fail.
type fakeRunner struct {
	units  map[string]unit.Unit
	orders map[string]unit.Order
	began  map[string]time.Time
	boot   time.Duration
	reason string // why new units fail; empty: they become ready
	only   string // the unit that fails for the reason; empty: all
	err    error
	stuck  error // of Remove
	hangs  bool  // Remove does not return before its context ends, or the time limit of hold.Client
	starts []string
}

func newFakeRunner() *fakeRunner {
	return &fakeRunner{units: map[string]unit.Unit{}, orders: map[string]unit.Order{}, began: map[string]time.Time{}, boot: 2 * time.Second}
}

func (r *fakeRunner) Units(context.Context) ([]unit.Unit, error) {
	if r.err != nil {
		return nil, r.err
	}
	for name, u := range r.units {
		u.Age = time.Since(r.began[name]).Seconds()
		if u.State == unit.Starting && time.Since(r.began[name]) >= r.boot {
			u.State, u.Boot = unit.Ready, r.boot.Seconds()
			u.Address = fmt.Sprintf("127.0.0.1:%d", 5000+len(name))
		}
		r.units[name] = u
	}
	return slices.Collect(maps.Values(r.units)), nil
}

func (r *fakeRunner) Start(_ context.Context, o unit.Order) error {
	r.starts, r.orders[o.Name] = append(r.starts, o.Name), o
	u := unit.Unit{Name: o.Name, Type: o.Type, Size: o.Size, Number: o.Number, Digest: o.Digest(), State: unit.Starting}
	if r.reason != "" && (r.only == "" || r.only == o.Name) {
		u.State, u.Reason = unit.Failed, r.reason
	}
	r.units[o.Name], r.began[o.Name] = u, time.Now()
	return nil
}

func (r *fakeRunner) Remove(ctx context.Context, name string) error {
	if r.hangs {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		<-ctx.Done()
		return ctx.Err()
	}
	if r.stuck != nil {
		return r.stuck
	}
	delete(r.units, name)
	return nil
}

// A fakeDirector has instances and returns the counts that the test sets.
type fakeDirector struct {
	all      map[string]*client.Instance
	inFlight uint64
	dialogs  int64   // open dialogs of each instance
	rate     float64 // transactions/s to the first instance by name
	failing  float64 // share of them that fails
	failed   uint64  // transactions that have failed
	highest  uint16  // ID that an instance may have; 0: it does not tell
	drain    string  // drain of the type; empty: it does not tell
	err      error
	asked    time.Time
	leases   []client.Lease // the type of a lease keeps its active instances
}

func (d *fakeDirector) Leases(context.Context) ([]client.Lease, error) { return d.leases, d.err }

func (d *fakeDirector) Release(_ context.Context, typeName string, token uint64) (client.Lease, error) {
	d.leases = slices.DeleteFunc(slices.Clone(d.leases), func(l client.Lease) bool { return l.Type == typeName && l.Token == token })
	return client.Lease{Type: typeName, Token: token}, d.err
}

func (d *fakeDirector) Types(context.Context) ([]client.Type, error) {
	return []client.Type{{Name: "registration", HighestID: d.highest, Drain: d.drain}}, d.err
}

func (d *fakeDirector) Instances(context.Context) (list []client.Instance, err error) {
	if d.err != nil {
		return nil, d.err
	}
	for i, name := range slices.Sorted(maps.Keys(d.all)) {
		in := d.all[name]
		if i == 0 && !d.asked.IsZero() {
			n := uint64(d.rate * time.Since(d.asked).Seconds())
			in.Transactions += n
			d.failed += uint64(d.failing * float64(n))
			in.Ended = map[string]uint64{"succeeded": in.Transactions - d.failed, "failed": d.failed}
		}
		in.InFlight, in.Dialogs = d.inFlight, d.dialogs
		in.Idle = in.State == vitrine.Draining && d.inFlight == 0
		in.Drained = in.Idle && d.dialogs <= 0
		list = append(list, *in)
	}
	d.asked = time.Now()
	return list, nil
}

func (d *fakeDirector) Put(_ context.Context, in vitrine.Instance) (client.Instance, error) {
	if d.highest > 0 && in.ID > d.highest {
		return client.Instance{}, &client.Error{Status: http.StatusBadRequest}
	}
	d.all[in.Name] = &client.Instance{Instance: in}
	return *d.all[in.Name], d.err
}

func (d *fakeDirector) Alter(_ context.Context, name string, c client.Change) (vitrine.Instance, error) {
	if len(d.leases) > 0 && *c.State != d.all[name].State {
		return vitrine.Instance{}, &client.Error{Status: http.StatusConflict}
	}
	d.all[name].State, d.all[name].Weight = *c.State, *c.Weight
	return d.all[name].Instance, d.err
}

func (d *fakeDirector) Remove(_ context.Context, name string) error {
	if d.all[name] == nil {
		return &client.Error{Status: http.StatusNotFound}
	}
	if len(d.leases) > 0 && d.all[name].State == vitrine.Active {
		return &client.Error{Status: http.StatusConflict}
	}
	delete(d.all, name)
	return d.err
}

// A rig is an orchestrator of one type with fakes.
type rig struct {
	*Orchestrator
	t        *testing.T
	runner   *fakeRunner
	director *fakeDirector
	second   *fakeDirector // nil: there is one director
	file     string
}

func newRig(t *testing.T, more string) *rig {
	t.Helper()
	deployment, err := filepath.Abs("config/testdata/deployment.yaml")
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, runner: newFakeRunner(), director: &fakeDirector{all: map[string]*client.Instance{}}, file: filepath.Join(t.TempDir(), "flex.yaml")}
	text := "directors: [{control: 127.0.0.1:8090}]\ntypes:\n  - name: registration\n    deployment: " + deployment +
		"\n    flavors: [{size: bn1s-sp1s-hs1s-hm1s, rate: 20}]\n    max: 4\n    stable: 10s\n    drain_deadline: 30s\n" + more
	if err := os.WriteFile(r.file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r.begin()
	return r
}

// restart closes the orchestrator and begins a new one.
func (r *rig) restart() {
	r.t.Helper()
	if err := r.Close(); err != nil {
		r.t.Fatal(err)
	}
	r.begin()
}

// addDirector adds a second director to the file, and restarts the orchestrator.
func (r *rig) addDirector() {
	r.t.Helper()
	r.edit("8090}", "8090}, {control: 127.0.0.1:8091}")
	r.second = &fakeDirector{all: map[string]*client.Instance{}}
	r.restart()
}

// edit replaces a text in the rig's file, which the next orchestrator reads.
func (r *rig) edit(old, text string) {
	r.t.Helper()
	before, err := os.ReadFile(r.file)
	if err != nil {
		r.t.Fatal(err)
	}
	if !strings.Contains(string(before), old) {
		r.t.Fatalf("the file has no %q", old)
	}
	if err := os.WriteFile(r.file, []byte(strings.Replace(string(before), old, text, 1)), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// meetForeign lets the director answer, with registration-1 of another orchestrator.
func (r *rig) meetForeign() vitrine.Instance {
	other := vitrine.Instance{Name: "registration-1", Type: "registration", Address: netip.MustParseAddrPort("192.0.2.1:5060"), Weight: 20, ID: 1}
	r.director.all[other.Name], r.director.err = &client.Instance{Instance: other}, nil
	return other
}

// begin makes a new orchestrator for the rig's file, as a restart does.
func (r *rig) begin() {
	r.t.Helper()
	c, err := config.Load(r.file, spec.Known{})
	if err != nil {
		r.t.Fatal(err)
	}
	if err := os.MkdirAll(c.State, 0o700); err != nil {
		r.t.Fatal(err)
	}
	types, err := Types(c, func(_ *config.Type, f config.Flavor) (Capacity, error) { return Capacity{Rate: f.Rate}, nil })
	if err != nil {
		r.t.Fatal(err)
	}
	directors := []Director{r.director}
	if r.second != nil {
		directors = append(directors, r.second)
	}
	r.Orchestrator, err = New(Options{File: c, Types: types, Limits: LimitsOf(c, 8), Runner: r.runner, Directors: directors, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = r.Close() }) // errors do not matter: a test may have closed it
}

// run runs the orchestrator for the duration, or until it ends.
func (r *rig) run(d time.Duration) {
	ctx, cancel := context.WithTimeout(r.t.Context(), d)
	defer cancel()
	_ = r.Run(ctx) // it ends with the context
}

func (r *rig) has(kind, text string) bool {
	return slices.ContainsFunc(r.Events(), func(e Event) bool { return e.Kind == kind && strings.Contains(e.Reason, text) })
}

func (r *rig) inState(s decide.State) (n int) {
	for _, in := range r.instances {
		if in.State == s {
			n++
		}
	}
	return n
}

func TestDirectorAwayChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "")
		r.director.rate = 50
		r.run(30 * time.Second)
		if n := r.inState(decide.Active); n != 3 {
			t.Fatalf("got %d instances for 50/s at 20/s each, want 3: %+v", n, r.Events())
		}
		if r.has("hold", "no fresh metrics") {
			t.Errorf("the figures of a new instance count as unknown: %+v", r.Events())
		}
		r.types["registration"].rate = 7 // messages that no instance got, per second, at the last answer
		r.director.err, r.director.rate = errors.New("no route to host"), 0
		starts := len(r.runner.starts)
		r.run(5 * time.Minute)
		if len(r.runner.starts) != starts || r.inState(decide.Active) != 3 || len(r.Status().Away) != 1 || !r.has(EventAway, "no route to host") {
			t.Errorf("got %d more starts, %d active instances, unhealthy %q", len(r.runner.starts)-starts, r.inState(decide.Active), r.Status().Away)
		}
		if got := r.Status().Types[0]; got.Known || got.Rate != 0 || got.Refused != 0 {
			t.Errorf("got %+v, want no figures while they are unknown", got)
		}
		r.director.err = nil
		r.run(5 * time.Minute)
		if r.inState(decide.Active) != 1 || len(r.runner.units) != 1 || len(r.director.all) != 1 || !r.has(EventBack, "director") {
			t.Errorf("recovered without load: got %d active instances, %d units, %d in the director", r.inState(decide.Active), len(r.runner.units), len(r.director.all))
		}
	})
}

// TestFiguresAfterAnOutageAreNew checks that transactions that were slow while no director answered do not
// show in the latency after the outage.
func TestFiguresAfterAnOutageAreNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "")
		r.director.rate = 10
		r.run(30 * time.Second)
		r.director.err = errors.New("no route to host")
		r.run(time.Minute)
		r.director.all["registration-1"].Latencies.Add(100, 1000) // about 0.4 s each
		r.director.err = nil
		r.run(3 * time.Second)
		if s := r.Status().Instances; len(s) != 1 || !s[0].Known || s[0].P99 != 0 {
			t.Errorf("got %+v, want one instance with known figures and no latency since the outage", s)
		}
	})
}

// TestUnknownCPUStaysUnknown checks that the policy can tell an unknown CPU use from an idle instance.
func TestUnknownCPUStaysUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "")
		r.run(10 * time.Second)
		before := r.view(time.Now()).Instances[0]
		u := r.runner.units["registration-1"]
		u.Use = new(0.0)
		r.runner.units["registration-1"] = u
		r.step(t.Context())
		if after := r.view(time.Now()).Instances[0]; before.CPUKnown || !after.CPUKnown {
			t.Errorf("got known %v without a figure, %v with one", before.CPUKnown, after.CPUKnown)
		}
	})
}

// TestForeignInstancesOfALateDirectorAreLeftAlone starts an orchestrator while the director does not
// answer. The director then has an instance of another orchestrator with a name that this one uses too.
func TestForeignInstancesOfALateDirectorAreLeftAlone(t *testing.T) {
	for name, before := range map[string]func(*rig){
		"the own instance runs": func(*rig) {},
		"the own instance died": func(r *rig) { delete(r.runner.units, "registration-1") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, "")
				r.director.err = errors.New("no route to host")
				r.run(10 * time.Second)
				before(r)
				r.run(10 * time.Second)
				other := r.meetForeign()
				r.run(time.Minute)
				if got := r.director.all[other.Name]; len(r.director.all) != 1 || got == nil || got.Instance != other || !r.has(EventAway, "did not start: registration-1;") || len(r.Status().Away) != 1 {
					t.Errorf("the director has %+v, unhealthy %q: %+v", r.director.all, r.Status().Away, r.Events())
				}
				delete(r.director.all, other.Name)
				r.run(10 * time.Second)
				if len(r.director.all) != 1 || r.inState(decide.Active) != 1 || len(r.Status().Away) != 0 {
					t.Errorf("after the other orchestrator's end, the director has %+v: %+v", r.director.all, r.Events())
				}
			})
		})
	}
}

// TestForeignInstancesOutliveTheirNamesake takes over from a state file while the director does not
// answer. The director then has another orchestrator's instance of the name, and the own one dies.
func TestForeignInstancesOutliveTheirNamesake(t *testing.T) {
	for name, boot := range map[string]time.Duration{"the own instance is ready": 2 * time.Second, "the own instance starts": 2 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, "")
				r.runner.boot, r.director.err = boot, errors.New("no route to host")
				r.run(10 * time.Second)
				r.restart()
				r.run(10 * time.Second)
				other := r.meetForeign()
				r.run(10 * time.Second)
				delete(r.runner.units, "registration-1")
				r.run(time.Minute)
				if got := r.director.all[other.Name]; len(r.director.all) != 1 || got == nil || got.Instance != other {
					t.Errorf("the director has %+v: %+v", r.director.all, r.Events())
				}
			})
		})
	}
}

// TestForeignInstancesOutliveARemovedNamesake registers an instance, which dies while the director does
// not answer. After a takeover, the director has another orchestrator's instance of the name.
func TestForeignInstancesOutliveARemovedNamesake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "")
		r.run(10 * time.Second)
		delete(r.runner.units, "registration-1")
		r.director.err = errors.New("no route to host")
		r.run(10 * time.Second)
		r.restart()
		own := r.director.all["registration-1"]
		other := r.meetForeign()
		r.run(time.Minute)
		if got := r.director.all[other.Name]; len(r.director.all) != 1 || got == nil || got.Instance != other || !r.has(EventAway, "did not start: registration-1;") {
			t.Errorf("the director has %+v: %+v", r.director.all, r.Events())
		}
		r.director.all[other.Name] = own
		r.run(10 * time.Second)
		if r.director.all["registration-1"] != nil || r.director.all["registration-2"] == nil {
			t.Errorf("the director has %+v, want the own instance that runs and not the removed one: %+v", r.director.all, r.Events())
		}
	})
}

// TestARemovedInstanceThatReturnsIsRemoved gives the director a removed instance again, as from a copy of its
// state. The orchestrator must remove the instance, and a restarted one must not take it for another's.
func TestARemovedInstanceThatReturnsIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "")
		r.run(10 * time.Second)
		old := *r.director.all["registration-1"]
		delete(r.runner.units, "registration-1")
		r.run(10 * time.Second)
		for _, before := range []func(){func() {}, r.restart} {
			before()
			again := old
			r.director.all["registration-1"] = &again
			if foreign, err := r.Foreign(t.Context()); err != nil || len(foreign) > 0 {
				t.Errorf("got the foreign instances %q, error %v", foreign, err)
			}
			r.run(10 * time.Second)
			if r.director.all["registration-1"] != nil || len(r.director.all) != 1 {
				t.Errorf("the director has %+v, want only registration-2", r.director.all)
			}
		}
		r.next["registration"] += keptGone
		r.run(2 * time.Second)
		if len(r.gone) > 0 {
			t.Errorf("after %d more instances, %v is remembered", keptGone, r.gone)
		}
	})
}

// TestRestoredTimesKeepTheirAges checks that times from the state file get this process's monotonic
// clock. It runs in real time, because synthetic time has no monotonic clock.
func TestRestoredTimesKeepTheirAges(t *testing.T) {
	r := newRig(t, "")
	at := time.Now().Add(-time.Minute)
	r.memory = decide.Memory{At: at, Types: map[string]*decide.Track{"registration": {Part: at, Known: at, Drained: at, Failed: at}, "session": {}}}
	r.save(time.Now(), true)
	r.restart()
	k := r.memory.Types["registration"]
	for name, got := range map[string]time.Time{"at": r.memory.At, "part": k.Part, "known": k.Known, "drained": k.Drained, "failed": k.Failed} {
		if wall := got.Round(0); !strings.Contains(got.String(), " m=") || !wall.Equal(at.Round(0)) {
			t.Errorf("%s: got %v, want %v with a monotonic clock", name, got, at)
		}
	}
	if drained := r.memory.Types["session"].Drained; !drained.IsZero() {
		t.Errorf("a time that was never set is %v", drained)
	}
}

// TestNewInstancesHideNoRate checks that the rate of a burst does not seem to fall while new
// instances become active or when a measurement ends.
func TestNewInstancesHideNoRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRedlineRig(t, redlineType)
		r.orchestrate(30 * time.Second)
		r.director.rates["registration"] = 75
		active := r.inState(decide.Active)
		for range 150 {
			time.Sleep(time.Second)
			r.step(t.Context())
			rates := r.memory.Types["registration"].Rates
			if last := rates[len(rates)-1]; last < 65 { // counts are whole numbers
				t.Errorf("measured %.4g/s of 75/s with %d active instances", last, r.inState(decide.Active))
			}
		}
		if after := r.inState(decide.Active); after <= active || !r.has(EventMeasured, "") {
			t.Errorf("got %d active instances after a burst, %d before: %+v", after, active, r.Events())
		}
		r.endRedline()
	})
}

func TestMemoryIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "limits: {memory: 1100MiB}\n") // two instances of 512 MiB
		r.director.rate = 70
		r.run(time.Minute)
		if n := len(r.instances); n != 2 || !r.has("hold", "76 of 1100 MiB") {
			t.Errorf("got %d instances, want 2: %+v", n, r.Events())
		}
	})
}

// TestMemoryIsLeftToSmallerInstances checks that a type whose instances do not fit does not take the
// only start from a type whose instances do.
func TestMemoryIsLeftToSmallerInstances(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		deployment, err := filepath.Abs("config/testdata/deployment.yaml")
		if err != nil {
			t.Fatal(err)
		}
		r := newRedlineRig(t, "  - name: session\n    deployment: "+deployment+"\n    members: [bono]\n    environment: {SPROUT: \"127.0.0.1:5054\"}\n"+
			"    flavors: [{size: bn1s-sp1s-hs1s-hm1s, rate: 20}]\n    max: 4\n"+
			"limits: {memory: 1300MiB, starting: 1}\n") // two instances of 512 MiB and two of 128 MiB
		r.director.rates = map[string]float64{"registration": 90, "session": 30}
		r.run(2 * time.Minute)
		got := map[string]int{}
		for _, in := range r.instances {
			got[in.Type]++
		}
		if want := map[string]int{"registration": 2, "session": 2}; !maps.Equal(got, want) || !r.has("hold", "of 1300 MiB") {
			t.Errorf("got %v, want %v: %+v", got, want, r.Events())
		}
	})
}

// TestHoldsAreNotRepeated lets a policy hold a type every few seconds, as at the edge of a limit. The
// log must have one event, and another one only after a pause.
func TestHoldsAreNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "")
		var steps int
		r.Policy = func(decide.View, *decide.Memory) []decide.Action {
			if steps++; steps%5 != 0 {
				return nil
			}
			return []decide.Action{{Kind: decide.Hold, Type: "registration", Cause: decide.CauseMaximum, Reason: "the maximum is reached"}}
		}
		for _, want := range []int{1, 2} {
			r.run(2 * time.Minute)
			n := 0
			for _, e := range r.Events() {
				if e.Kind == decide.Hold.String() {
					n++
				}
			}
			if n != want {
				t.Errorf("got %d events, want %d: %+v", n, want, r.Events())
			}
			time.Sleep(2 * sameHold)
		}
	})
}

func TestRunnerAwayChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "")
		r.run(10 * time.Second)
		u := r.runner.units["registration-1"]
		u.Use, u.Members = new(0.5), []unit.Member{{Name: "registration-1-sprout-1", CPU: new(0.5)}}
		r.runner.units["registration-1"] = u
		r.step(t.Context())
		r.runner.err = errors.New("connection refused")
		r.director.rate = 50
		r.run(time.Minute)
		if len(r.director.all) != 1 || r.director.all["registration-1"].State != vitrine.Active || !r.has(EventAway, "connection refused") {
			t.Errorf("%+v", r.director.all)
		}
		if got := r.Status().Types[0]; !got.Known || got.Rate < 45 || !slices.Equal(got.Why, []string{"hold: runner: the runner of instances does not answer, so everything stays as it is"}) {
			t.Errorf("the status has %+v, want the 50/s that the director counts now, and why nothing starts", got)
		}
		if got := r.Status().Instances[0]; got.CPU != nil || len(got.Members) != 1 || got.Members[0].CPU != nil {
			t.Errorf("the status has %+v, want no CPU use of before the outage", got)
		}
		r.director.err = errors.New("no route to host")
		r.run(10 * time.Second)
		if s := r.Status(); s.Types[0].Known || len(s.Away) != 2 || !r.has(EventAway, "no route to host") {
			t.Errorf("with the director away too: got %+v, away %q", s.Types[0], s.Away)
		}
	})
}

// TestDrainsWaitForTheRunner asks for drains while the runner does not answer, one of them several
// times. Both instances must be drained when it answers again.
func TestDrainsWaitForTheRunner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "")
		r.director.rate = 30
		r.run(30 * time.Second)
		if n := r.inState(decide.Active); n < 2 {
			t.Fatalf("got %d active instances, want 2 or more: %+v", n, r.Events())
		}
		r.runner.err = errors.New("connection refused")
		r.run(5 * time.Second)
		for _, name := range []string{"registration-1", "registration-1", "registration-1", "registration-2"} {
			if err := r.Drain(name); err != nil {
				t.Fatal(err)
			}
		}
		r.run(5 * time.Second)
		r.runner.err = nil
		r.run(5 * time.Second)
		var drained []string
		for _, e := range r.Events() {
			if e.Kind == EventDrain && e.Cause == "asked" {
				drained = append(drained, e.Instance)
			}
		}
		if want := []string{"registration-1", "registration-2"}; !slices.Equal(drained, want) {
			t.Errorf("drained %q, want %q", drained, want)
		}
	})
}

// TestTheOnlyInstanceIsReplacedFirst drains the only instance while the rate rises. The director must always
// have an active one. If the limits leave no room for a second one, the drain comes first.
func TestTheOnlyInstanceIsReplacedFirst(t *testing.T) {
	for name, c := range map[string]struct {
		limits string
		rate   float64
		gap    bool
		left   int // instances in the end
	}{
		"room for all":      {"", 10, false, 1},
		"room for two of 4": {"limits: {instances: 2}\n", 70, false, 2},
		"room for one":      {"limits: {instances: 1}\n", 10, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, c.limits)
				r.director.rate = 10
				r.run(10 * time.Second)
				r.director.rate = c.rate
				if err := r.Drain("registration-1"); err != nil {
					t.Fatal(err)
				}
				gap := false
				for range 20 {
					r.step(t.Context())
					gap = gap || !slices.ContainsFunc(slices.Collect(maps.Values(r.director.all)), func(in *client.Instance) bool { return in.State == vitrine.Active })
					time.Sleep(period)
				}
				if gap != c.gap || len(r.runner.units) != c.left || r.inState(decide.Active) != c.left || r.instances["registration-2"] == nil {
					t.Errorf("without an active instance: %t; in the end %d units: %+v", gap, len(r.runner.units), r.Events())
				}
				if !r.has(EventDrain, "it is drained when another one is active") {
					t.Errorf("no event says that the drain waits: %+v", r.Events())
				}
			})
		})
	}
}

// TestAHungRunnerDelaysAStepOnce lets the runner hang while several units are removed. Together they
// must not take longer than one time limit.
func TestAHungRunnerDelaysAStepOnce(t *testing.T) {
	for name, remove := range map[string]func(*rig){
		"instances": func(r *rig) {
			for _, in := range r.instances {
				r.enter(in, decide.Stopping, time.Now())
			}
			r.stop(r.t.Context())
		},
		"services": func(r *rig) {
			units := maps.Clone(r.runner.units)
			for _, name := range []string{"service-store", "service-director"} {
				u := units[name]
				u.State = unit.Failed
				units[name] = u
			}
			r.runServices(r.t.Context(), time.Now(), units)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, "services: [{name: store, command: [store]}, {name: director, command: [director]}]\n")
				r.director.rate = 50
				r.run(time.Minute)
				if n := r.inState(decide.Active); n != 3 {
					t.Fatalf("got %d active instances, want 3: %+v", n, r.Events())
				}
				r.runner.hangs = true
				began := time.Now()
				remove(r)
				if took := time.Since(began); took != callLimit {
					t.Errorf("the removal took %v, want %v", took, callLimit)
				}
			})
		})
	}
}

// TestOutdatedInstancesAreCounted checks that an instance is outdated if its order was another one.
func TestOutdatedInstancesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "")
		r.director.rate = 30
		r.run(30 * time.Second)
		before := r.Status().Types[0].Outdated
		u := r.runner.units["registration-1"]
		u.Digest = "of older files"
		r.runner.units["registration-1"] = u
		r.step(t.Context())
		if after := r.Status().Types[0].Outdated; before != 0 || after != 1 || r.inState(decide.Active) < 2 {
			t.Errorf("got %d and then %d outdated instances of %d, want 0 and then 1 of 2 or more", before, after, r.inState(decide.Active))
		}
	})
}

// TestOutdatedServicesAreReported checks that status and one event tell of a service that runs by another
// version of the file.
func TestOutdatedServicesAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "services: [{name: director, command: [director]}]\n")
		r.run(20 * time.Second)
		if r.Status().Services[0].Outdated || r.has(EventService, "another version") {
			t.Errorf("an unchanged service is outdated: %+v", r.Events())
		}
		u := r.runner.units["service-director"]
		u.Digest = "of another file"
		r.runner.units["service-director"] = u
		r.run(10 * time.Second)
		n := 0
		for _, e := range r.Events() {
			if strings.Contains(e.Reason, "another version") {
				n++
			}
		}
		if !r.Status().Services[0].Outdated || n != 1 {
			t.Errorf("status %+v, %d events, want an outdated service and 1 event", r.Status().Services, n)
		}
	})
}

func TestDrainDeadlineReportsWhatIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "")
		r.run(10 * time.Second)
		r.director.inFlight = 3
		if err := r.Drain("registration-1"); err != nil {
			t.Fatal(err)
		}
		r.run(25 * time.Second)
		if _, there := r.runner.units["registration-1"]; !there || r.has(EventLost, "") {
			t.Errorf("the instance was stopped before the deadline: %+v", r.Events())
		}
		r.run(15 * time.Second)
		if _, there := r.runner.units["registration-1"]; there || !r.has(EventLost, "3 transactions are in flight") {
			t.Errorf("the instance was not stopped at the deadline: %+v", r.Events())
		}
		if n := r.inState(decide.Active); n != 1 || r.instances["registration-2"] == nil {
			t.Errorf("got %d active instances, want 1 and registration-2 as the replacement", n)
		}
		if err := r.Drain("registration-9"); err == nil {
			t.Error("Drain accepted an instance that does not exist")
		}
	})
}

// TestDialogsAtTheDrainDeadlineAreCounted drains an instance with open dialogs and nothing in flight. The
// calls get no BYE, so an alert must be able to see them.
func TestDialogsAtTheDrainDeadlineAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "    drain: dialog\n")
		r.run(10 * time.Second)
		r.director.dialogs = 50
		if err := r.Drain("registration-1"); err != nil {
			t.Fatal(err)
		}
		r.run(40 * time.Second)
		transactions := testutil.ToFloat64(r.counted.losses.WithLabelValues("registration"))
		dialogs := testutil.ToFloat64(r.counted.cut.WithLabelValues("registration"))
		if transactions != 0 || dialogs != 50 || !r.has(EventLost, "50 dialogs are open") {
			t.Errorf("counted %g transactions and %g dialogs, want 0 and 50: %+v", transactions, dialogs, r.Events())
		}
	})
}

// TestDialogsEndAtAnotherDirector drains an instance whose three dialogs began at one director and ended at the
// other. It is drained before the deadline only if all three have ended.
func TestDialogsEndAtAnotherDirector(t *testing.T) {
	for _, ended := range []int64{3, 2} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, "    drain: dialog\n")
			r.addDirector()
			r.run(10 * time.Second)
			r.director.dialogs, r.second.dialogs = 3, -ended
			if err := r.Drain("registration-1"); err != nil {
				t.Fatal(err)
			}
			r.run(40 * time.Second)
			if r.has(EventDrained, "") != (ended == 3) || r.has(EventLost, "1 dialogs are open") != (ended == 2) {
				t.Errorf("after %d of 3 dialogs have ended: %+v", ended, r.Events())
			}
		})
	}
}

// TestAnotherDrainAtADirectorAlerts checks that a director whose drain of the type differs from the file's
// causes one alert, and that the alert ends with the difference.
func TestAnotherDrainAtADirectorAlerts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "    drain: dialog\n")
		for i, drain := range []string{"", config.DrainTransactions, config.DrainDialogs, config.DrainTransactions} {
			r.director.drain = drain
			r.run(5 * time.Second)
			n, alerts := (i+1)/2, 0
			for _, e := range r.Events() {
				if e.Kind == EventAlert && e.Type == "registration" && strings.Contains(e.Reason, "drain: transaction") {
					alerts++
				}
			}
			if alerts != n || r.Status().alerts != i%2 {
				t.Errorf("after drain %q: got %d alerts, of which %d hold, want %d and %d", drain, alerts, r.Status().alerts, n, i%2)
			}
		}
	})
}

// TestDrainWaitsForALease asks for a drain while the directors hold a lease, as redline does. They
// refuse the drain and go on sending transactions, so the instance must run past its deadline.
func TestDrainWaitsForALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "    min: 2\n") // the other one serves, so the drain need not wait for a replacement
		r.run(10 * time.Second)
		r.director.inFlight, r.director.leases = 3, []client.Lease{{Type: "registration", Holder: "redline"}}
		if err := r.Drain("registration-1"); err != nil {
			t.Fatal(err)
		}
		r.run(5 * time.Minute)
		if _, there := r.runner.units["registration-1"]; !there || r.has(EventLost, "") || len(r.runner.starts) != 2 {
			t.Errorf("during the lease: runs %t, %d starts, %+v", there, len(r.runner.starts), r.Events())
		}
		r.director.inFlight, r.director.leases = 0, nil
		r.run(time.Minute)
		if _, there := r.runner.units["registration-1"]; there || r.has(EventLost, "") || r.inState(decide.Active) != 2 {
			t.Errorf("after the lease: runs %t, %d active, %+v", there, r.inState(decide.Active), r.Events())
		}
	})
}

// TestADeathEndsALease lets an instance die during a measurement by hand. Until its lease is over, the director
// would keep the dead instance, and no replacement could start.
func TestADeathEndsALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "    min: 2\n")
		r.run(10 * time.Second)
		r.director.leases = []client.Lease{{Type: "registration", Token: 7, Holder: "redline"}}
		r.run(10 * time.Second)
		if len(r.director.leases) != 1 || r.inState(decide.Active) != 2 {
			t.Fatalf("before the death: leases %+v, %d active", r.director.leases, r.inState(decide.Active))
		}
		u := r.runner.units["registration-1"]
		u.State, u.Reason = unit.Failed, "exit status 1"
		r.runner.units[u.Name] = u
		r.run(10 * time.Second)
		if len(r.director.leases) != 0 || r.director.all["registration-1"] != nil || r.inState(decide.Active) != 2 || !r.has(EventMeasured, "the lease of redline ends") {
			t.Errorf("leases %+v, %d active, the director has %+v: %+v", r.director.leases, r.inState(decide.Active), r.director.all, r.Events())
		}
	})
}

// TestAdoptedInstancesKeepNameAndWork restarts the orchestrator without its state file. The running
// instances must stay active at the director, and a new one must get a new name.
func TestAdoptedInstancesKeepNameAndWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "    warm: 30s\n")
		r.director.rate = 30
		r.run(2 * time.Minute)
		if err := errors.Join(r.Close(), os.Remove(filepath.Join(r.File.State, StateFile))); err != nil {
			t.Fatal(err)
		}
		before := slices.Clone(r.runner.starts)
		r.begin()
		r.run(5 * time.Second)
		for name, in := range r.director.all {
			if in.State != vitrine.Active {
				t.Errorf("%s, which had been active, is %s after the restart", name, in.State)
			}
		}
		r.director.rate = 70
		r.run(2 * time.Minute)
		started := r.runner.starts[len(before):]
		if len(started) == 0 || slices.ContainsFunc(started, func(name string) bool { return slices.Contains(before, name) }) {
			t.Errorf("the starts are %q and then %q, want new names", before, started)
		}
	})
}

// TestDeathLoopBacksOff checks that instances whose members end at once are started with growing
// pauses. The reason must be shown.
func TestDeathLoopBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "")
		r.runner.reason = "sprout ended (exit status 1)"
		r.run(5 * time.Minute)
		if n := len(r.runner.starts); n < 2 || n > 30 {
			t.Errorf("got %d starts in 5 minutes, want 2 to 30", n)
		}
		e, err := r.Explain("registration")
		if err != nil || !r.has(EventFail, "exit status 1") || e.Type == nil || !strings.Contains(strings.Join(e.Type.Why, "\n"), "back-off") {
			t.Errorf("%+v, %v", e, err)
		}
	})
}

func TestRestartStartsNothingTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "")
		r.director.rate = 50
		r.run(30 * time.Second)
		starts := len(r.runner.starts)
		for _, lose := range []bool{false, true} { // with and without the state file
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
			if lose {
				if err := os.Remove(filepath.Join(r.File.State, StateFile)); err != nil {
					t.Fatal(err)
				}
			}
			r.begin()
			r.run(8 * time.Second)
			if n := len(r.runner.starts); n != starts || r.inState(decide.Active) != 3 || len(r.director.all) != 3 {
				t.Errorf("without state, %v: got %d starts, %d active instances, %d in the director", lose, n-starts, r.inState(decide.Active), len(r.director.all))
			}
		}
	})
}

// TestAnOlderStateIsRead takes over with a state file of an earlier version, which has no addresses. Its
// instance has died meanwhile, and must leave the director.
func TestAnOlderStateIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "")
		r.run(10 * time.Second)
		const older = `{"version": 1, "next": {"registration": 1}, "number": 1, "gone": ["registration-0"], "memory": {}, "instances": [
			{"name": "registration-1", "type": "registration", "size": "bn1s-sp1s-hs1s-hm1s", "id": 1, "state": 2, "in_state_seconds": 7}]}`
		if err := errors.Join(r.Close(), os.WriteFile(filepath.Join(r.File.State, StateFile), []byte(older), 0o600)); err != nil {
			t.Fatal(err)
		}
		delete(r.runner.units, "registration-1")
		r.begin()
		r.run(10 * time.Second)
		if r.director.all["registration-1"] != nil || r.director.all["registration-2"] == nil || len(r.Status().Away) != 0 {
			t.Errorf("the director has %+v, want only registration-2; unhealthy %q", r.director.all, r.Status().Away)
		}
	})
}

// TestADamagedStateIsRefused reads state files that save cannot have written.
func TestADamagedStateIsRefused(t *testing.T) {
	dir := t.TempDir()
	for _, text := range []string{
		``,
		`{"version": 1, "instances": [`,
		`{"version": 1, "instances": [null]}`,
		`{"version": 1, "instances": [{"type": "registration", "state": 2}]}`,
		`{"version": 1, "instances": [{"name": "registration-1", "type": "registration", "state": 7}]}`,
		`{"version": 1, "memory": {"types": {"registration": null}}}`,
		`{"version": 2}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, StateFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readState(dir); !vitrine.IsBadInput(err) {
			t.Errorf("%s: got error %v, want bad input", text, err)
		}
	}
}

// TestDeathAfterATakeoverIsADeath takes over an instance, which dies before or after that. Only after
// it, the death counts against the type.
func TestDeathAfterATakeoverIsADeath(t *testing.T) {
	for name, c := range map[string]struct {
		after time.Duration // from the takeover to the death
		want  string
		count float64
	}{
		"before": {0, "while no orchestrator ran", 0},
		"after":  {10 * time.Second, "nobody stopped it", 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, "")
				r.run(10 * time.Second)
				r.restart()
				if c.after > 0 {
					r.run(c.after)
				}
				delete(r.runner.units, "registration-1")
				r.run(10 * time.Second)
				if n := testutil.ToFloat64(r.counted.deaths.WithLabelValues("registration")); !r.has(EventFail, c.want) || n != c.count || r.inState(decide.Active) != 1 {
					t.Errorf("counted %g deaths, want %g: %+v", n, c.count, r.Events())
				}
			})
		})
	}
}

// TestServicesComeFirst checks that instances wait for services. A service that ends must be
// started again with pauses.
func TestServicesComeFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "services: [{name: store, command: [store]}, {name: director, command: [director]}]\n")
		r.run(20 * time.Second)
		if want := []string{"service-store", "service-director", "registration-1"}; !slices.Equal(r.runner.starts, want) {
			t.Errorf("started %q, want %q", r.runner.starts, want)
		}
		r.runner.reason = "it cannot bind"
		u := r.runner.units["service-store"]
		u.State, u.Reason = unit.Failed, r.runner.reason
		r.runner.units["service-store"] = u
		r.run(5 * time.Minute)
		if n := len(r.runner.starts) - 3; n < 3 || n > 12 || r.inState(decide.Active) != 1 || !r.has(EventService, "it cannot bind") {
			t.Errorf("got %d more starts, %d active instances", n, r.inState(decide.Active))
		}
		r.runner.only = "service-store"
		r.restart()
		r.run(10 * time.Second)
		delete(r.runner.units, "service-director")
		r.run(10 * time.Second)
		delete(r.runner.units, "registration-1")
		r.run(10 * time.Second)
		if r.instances["registration-2"] == nil || r.inState(decide.Active) != 1 || r.runner.units["service-director"].State != unit.Ready {
			t.Errorf("after a restart, while the store does not start: want a director and a replacement: %+v", r.Events())
		}
	})
}

// TestServicesComeFirstInANewHolder ends the holder, and with it all units. The next one must get the services before
// the instances too, and the status must say what is waited for. Until then, figures must not stay known without
// a director that answers.
func TestServicesComeFirstInANewHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "services: [{name: store, command: [store]}, {name: director, command: [director]}]\n")
		r.run(20 * time.Second)
		clear(r.runner.units)
		r.runner.starts = nil
		r.step(t.Context())
		if why := r.Status().Types[0].Why; len(why) != 1 || !strings.Contains(why[0], "service store has not been ready yet") {
			t.Errorf("the status gives the reasons %q", why)
		}
		r.director.err = errors.New("no route to host")
		r.step(t.Context())
		if s := r.Status(); s.Types[0].Known || len(s.Away) != 1 {
			t.Errorf("the director does not answer: got figures %+v, unhealthy %q", s.Types[0], s.Away)
		}
		r.director.err = nil
		r.run(20 * time.Second)
		if want := []string{"service-store", "service-director", "registration-2"}; !slices.Equal(r.runner.starts, want) {
			t.Errorf("started %q, want %q", r.runner.starts, want)
		}
	})
}

// showService checks the metric of the only service.
func (r *rig) showService(name string, state unit.State) {
	r.t.Helper()
	want := "# HELP vitrine_flex_services Services and members of the store: 1 for the state that each is in.\n# TYPE vitrine_flex_services gauge\n"
	for _, s := range []unit.State{unit.Starting, unit.Ready, unit.Failed, unit.Removing} {
		is := 0
		if s == state {
			is = 1
		}
		want += fmt.Sprintf("vitrine_flex_services{service=%q,state=%q} %d\n", name, s, is)
	}
	if err := testutil.CollectAndCompare(&collector{r.Orchestrator}, strings.NewReader(want), prefix+"services"); err != nil {
		r.t.Error(err)
	}
}

// TestServiceIsRemovedAgain checks that a failed service starts again although the runner could not
// remove it at first. The metrics must show both.
func TestServiceIsRemovedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "services: [{name: director, command: [director]}]\n")
		r.run(20 * time.Second)
		u := r.runner.units["service-director"]
		u.State, u.Reason = unit.Failed, "it cannot bind"
		r.runner.units["service-director"], r.runner.stuck = u, errors.New("no answer")
		r.run(20 * time.Second)
		if got := r.runner.units["service-director"].State; got != unit.Failed {
			t.Errorf("the service is %s while it cannot be removed", got)
		}
		r.showService("director", unit.Failed)
		r.runner.stuck = nil
		r.run(20 * time.Second)
		if got := r.runner.units["service-director"].State; got != unit.Ready {
			t.Errorf("the service is %s, want %s: %+v", got, unit.Ready, r.Events())
		}
		r.showService("director", unit.Ready)
	})
}

// TestEventsAreBounded checks the bounds of the log on disk and in memory. A truncated line must do
// no harm, also to the next event.
func TestEventsAreBounded(t *testing.T) {
	dir := t.TempDir()
	e, err := openEvents(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", 64<<10)
	for range 300 {
		e.add(Event{Kind: EventFail, Reason: long})
	}
	for range eventsInMemory {
		e.add(Event{Kind: EventStart, Reason: "short"})
	}
	if err := errors.Join(e.failed, e.close()); err != nil {
		t.Fatal(err)
	}
	var size int64
	for _, name := range []string{EventsFile, EventsBefore} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		size += info.Size()
	}
	if size > 2*eventsOnDisk+1<<20 || len(e.all()) != eventsInMemory {
		t.Errorf("got %d bytes on disk, %d events in memory", size, len(e.all()))
	}
	f, err := os.OpenFile(filepath.Join(dir, EventsFile), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"kind":"sta`); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := openEvents(dir, slog.New(slog.DiscardHandler))
	if all := again.all(); err != nil || len(all) != eventsInMemory || all[len(all)-1].Reason != "short" {
		t.Errorf("got %d events, error %v", len(all), err)
	}
	again.add(Event{Kind: EventStart, Reason: "after the crash"})
	if err := errors.Join(again.failed, again.close()); err != nil {
		t.Error(err)
	}
	last := readEvents(filepath.Join(dir, EventsFile))
	if n := len(last); n == 0 || last[n-1].Reason != "after the crash" {
		t.Errorf("the file ends with %+v, want the event after the crash", last[max(0, n-1):])
	}
}

// TestEventsBeforeARotationAreRead restarts the log soon after its rotation.
func TestEventsBeforeARotationAreRead(t *testing.T) {
	dir := t.TempDir()
	e, err := openEvents(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	e.add(Event{Kind: EventStart, Reason: "before"})
	if err := e.turn(); err != nil {
		t.Fatal(err)
	}
	e.add(Event{Kind: EventStart, Reason: "after"})
	if err := errors.Join(e.failed, e.close()); err != nil {
		t.Fatal(err)
	}
	again, err := openEvents(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if all := again.all(); len(all) != 2 || all[0].Reason != "before" || all[1].Reason != "after" {
		t.Errorf("got the events %+v, want the one before the rotation and the one after it", all)
	}
	if err := again.close(); err != nil {
		t.Error(err)
	}
}

// TestUnwrittenEventsAreReported lets the file of events fail, as on a full disk. The log must report it
// once, and the end of it, and the events must be counted.
func TestUnwrittenEventsAreReported(t *testing.T) {
	var log strings.Builder
	e, err := openEvents(t.TempDir(), slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	if err := e.close(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		e.add(Event{Kind: EventStart, Reason: "unwritten"})
	}
	if n := strings.Count(log.String(), "level=ERROR"); n != 1 || e.unwritten() != 3 || len(e.all()) != 3 {
		t.Errorf("got %d unwritten events, %d in memory, and the log\n%s", e.unwritten(), len(e.all()), log.String())
	}
	if err := e.open(); err != nil {
		t.Fatal(err)
	}
	e.add(Event{Kind: EventStart, Reason: "written"})
	if err := e.close(); err != nil || e.unwritten() != 3 || !strings.Contains(log.String(), "events are written to disk again") {
		t.Errorf("after the failure: got error %v, %d unwritten events, and the log\n%s", err, e.unwritten(), log.String())
	}
}

// TestEventsAreLogged checks that the log has each event with its reason, and a warning for a death.
func TestEventsAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		r := newRig(t, "")
		r.events.log = slog.New(slog.NewTextHandler(&log, nil))
		r.runner.reason = "sprout ended (exit status 1)"
		r.run(5 * time.Second)
		for _, want := range []string{
			`level=INFO msg="event: start" type=registration instance=registration-1 cause=minimum reason="0 instances run or start`,
			`level=WARN msg="event: fail" type=registration instance=registration-1 reason="sprout ended (exit status 1)"`,
		} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("the log lacks %s:\n%s", want, log.String())
			}
		}
	})
}

// TestEachInstanceHasANumberOfItsOwn starts instances beside one from the director's file. All
// numbers must differ. After a restart without the state file, the orchestrator must find the same
// numbers again.
func TestEachInstanceHasANumberOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "")
		other := vitrine.Instance{Name: "session-9", Type: "session", ID: 2}
		r.director.all["session-9"] = &client.Instance{Instance: other}
		r.run(10 * time.Second)
		r.director.rate = 30
		r.run(30 * time.Second)
		numbers := func() map[string]uint16 {
			all := map[string]uint16{}
			for name, in := range r.instances {
				all[name] = in.ID
				if got := r.director.all[name]; got == nil || got.ID != in.ID || r.runner.units[name].Number != in.ID {
					t.Errorf("%s has ID %d, but %+v in the director and number %d in its order", name, in.ID, got, r.runner.units[name].Number)
				}
			}
			return all
		}
		before := numbers()
		if want := map[string]uint16{"registration-1": 1, "registration-2": 3}; !maps.Equal(before, want) {
			t.Errorf("got IDs %v, want %v", before, want)
		}
		if err := os.Remove(filepath.Join(r.File.State, StateFile)); err != nil {
			t.Fatal(err)
		}
		r.begin()
		r.run(5 * time.Second)
		if after := numbers(); !maps.Equal(after, before) {
			t.Errorf("got IDs %v after a restart without state, want %v", after, before)
		}
	})
}

// TestNumbersAreGivenInTurn checks that instances get consecutive numbers, even above lastNumber,
// and that the number of a removed instance is used again, but not at once.
func TestNumbersAreGivenInTurn(t *testing.T) {
	o := &Orchestrator{instances: map[string]*instance{}}
	for n := range lastCode {
		id := o.freeNumber(lastCode)
		if id != uint16(n+1) {
			t.Fatalf("instance %d got ID %d", n+1, id)
		}
		o.instances[fmt.Sprint(n)] = &instance{ID: id}
	}
	if id := o.freeNumber(lastCode); id != 0 {
		t.Errorf("got ID %d, although none is free", id)
	}
	delete(o.instances, "6")
	if id := o.freeNumber(lastCode); id != 7 {
		t.Errorf("next ID: got %d, want the only free one, 7", id)
	}
	o.instances["6"] = &instance{ID: 7}
	if id := o.freeNumber(0); id != 256 {
		t.Errorf("next ID while no director tells the highest: got %d, want 256", id)
	}
	o.next = map[string]int{"call": 3} // three starts, whose instances are gone
	if id := o.freeNumber(65535); id != 259 {
		t.Errorf("next ID above %d: got %d, want 259, the fourth", lastCode, id)
	}
}
