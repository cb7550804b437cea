package hold_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"vitrine"
	"vitrine/document"
	"vitrine/fabric"
	"vitrine/fabric/fabrictest"
	"vitrine/fabric/loopback"
	"vitrine/flex/hold"
	"vitrine/flex/unit"
	"vitrine/internal/cgroup"
	"vitrine/internal/hosttest"
	"vitrine/internal/runstate"
	"vitrine/spec"
	"vitrine/substrate"
	"vitrine/substrate/process"
	"vitrine/substrate/substratetest"
	"vitrine/testbed/testbedtest"
)

const limit = time.Minute // far beyond what a busy host needs

// deployment has a front that starts after a back. Both append their names to the file ORDER.
const deployment = `
vnf_name: pair
components:
  - name: front
    short: fr
    command: [sh, -c, 'echo "$VITRINE_INSTANCE $BACK" >>"$ORDER"; exec sleep 600']
    environment: {ORDER: ""}
    ports: {sip: 5060}
    entry: sip
    dependencies: [{component: back, as: BACK, port: http}]
    ready: {command: [grep, -q, front, "${ORDER}"]}
  - name: back
    short: bk
    command: [sh, -c, 'echo "$VITRINE_INSTANCE" >>"$ORDER"; exec sleep 600']
    environment: {ORDER: ""}
    ports: {http: 80}
    ready: {command: [grep, -q, back, "${ORDER}"]}
flavors: [{name: small, vcpus: 0.1, memory: 64MiB}]
mode: {name: custom, sizes: [fr1s-bk1s]}
`

// A rig is a holder that serves its socket, and a client of the holder.
type rig struct {
	t      *testing.T
	run    *runstate.Run
	state  string
	order  string // file
	client *hold.Client
	parsed atomic.Int32       // deployments that the holder has parsed
	torn   atomic.Bool        // a process of the fabric has ended
	stop   context.CancelFunc // ends the holder as a signal does
	ended  chan error
}

// errTorn is the error of a fabric one of whose processes has ended.
var errTorn = errors.New("the switch has ended")

// A fragile is a fabric one of whose processes has ended when torn is set.
type fragile struct {
	fabric.Fabric
	torn *atomic.Bool
}

// Ended implements fabric.Ender.
func (f fragile) Ended() error {
	if f.torn.Load() {
		return errTorn
	}
	return nil
}

func newRig(t *testing.T) *rig {
	t.Helper()
	return newRigOn(t, func(s substrate.Substrate) substrate.Substrate { return s })
}

// newRigOn returns a rig whose instances are on the substrate that wrap returns.
func newRigOn(t *testing.T, wrap func(substrate.Substrate) substrate.Substrate) *rig {
	t.Helper()
	_, err := cgroup.Detect()
	hosttest.Need(t, err)
	root, err := os.MkdirTemp("", "vt") // short: a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) }) // in the temporary folder
	r := &rig{t: t, run: fabrictest.NewRun(t, root), state: filepath.Join(root, "state"), ended: make(chan error, 1)}
	if err := os.Mkdir(r.state, 0o700); err != nil {
		t.Fatal(err)
	}
	r.order = filepath.Join(t.TempDir(), "order")
	bed := testbedtest.Local(r.run)
	bed.Host = func(context.Context, spec.Choice) (substrate.Substrate, error) {
		return process.New(process.Config{Run: r.run, Environ: os.Environ(), Network: process.NetworkHost})
	}
	bed.Substrate = func(ctx context.Context, choice spec.Choice, _ document.Node) (substrate.Substrate, error) {
		s, err := bed.Host(ctx, choice)
		return wrap(s), err
	}
	bed.Fabric = func(context.Context, spec.Choice, document.Node) (fabric.Fabric, error) {
		return fragile{loopback.New(loopback.Config{Run: r.run}), &r.torn}, nil
	}
	h, err := hold.Open(t.Context(), hold.Config{
		Testbed: bed, Choice: spec.Choice{Substrate: "process", Fabric: "loopback"}, Digest: "d",
		Dir: filepath.Join(r.state, "logs"), Services: filepath.Join(r.state, "services"),
		Parse: func(path string, text []byte) (*spec.Deployment, error) {
			r.parsed.Add(1)
			return spec.ParseDeployment(path, text, spec.Known{})
		},
		Log: slog.New(slog.DiscardHandler),
	})
	hosttest.Need(t, err)
	if _, err := hold.Find(t.Context(), r.state); !errors.Is(err, hold.ErrNone) {
		t.Errorf("Find without a holder: got %v, want ErrNone", err)
	}
	l, err := hold.Listen(t.Context(), r.run.Dir())
	if err == nil {
		err = hold.Record{Run: r.run.ID, Root: root, Socket: l.Addr().String(), PID: os.Getpid()}.Save(r.state)
	}
	if err != nil {
		t.Fatal(errors.Join(err, h.Close(t.Context())))
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	r.stop = stop
	go func() { r.ended <- h.Serve(ctx, l) }()
	if r.client, err = hold.Find(t.Context(), r.state); err != nil || r.client.About.Run != r.run.ID || r.client.About.Digest != "d" {
		t.Fatalf("%+v, %v", r.client, err)
	}
	return r
}

// end asks the holder to end, and checks that the holder leaves nothing behind.
func (r *rig) end() {
	r.t.Helper()
	if err := r.client.End(r.t.Context()); err != nil {
		r.t.Error(err)
	}
	r.awaitEnd(nil)
}

// awaitEnd waits until the holder has ended with the error, and checks that the holder leaves nothing behind.
func (r *rig) awaitEnd(want error) {
	r.t.Helper()
	select {
	case err := <-r.ended:
		if !errors.Is(err, want) {
			r.t.Errorf("the holder ended with %v, want %v", err, want)
		}
	case <-time.After(limit):
		r.t.Fatal("the holder did not stop")
	}
	if left, err := substratetest.Left(r.run.ID); err != nil || len(left) != 0 {
		r.t.Errorf("resources left: %v, error %v", left, err)
	}
}

func (r *rig) pair(name string) unit.Order {
	return unit.Order{
		Name: name, Type: "pair", Path: filepath.Join(r.state, "pair.yaml"), Deployment: deployment, Size: "fr1s-bk1s",
		Members: []string{"front", "back"}, Environment: map[string]string{"ORDER": r.order}, Deadline: limit,
	}
}

func (r *rig) start(o unit.Order) {
	r.t.Helper()
	if err := r.client.Start(r.t.Context(), o); err != nil {
		r.t.Fatal(err)
	}
}

// kill kills the process of a member.
func (r *rig) kill(m unit.Member) {
	r.t.Helper()
	if err := syscall.Kill(m.PID, syscall.SIGKILL); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) remove(name string) {
	r.t.Helper()
	if err := r.client.Remove(r.t.Context(), name); err != nil {
		r.t.Fatal(err)
	}
}

// await waits until a unit is in a state, and returns it. The empty state means that the unit is
// removed.
func (r *rig) await(name string, state unit.State) (u unit.Unit) {
	r.t.Helper()
	hosttest.Until(r.t, limit, name+" is "+string(state), func() bool {
		all, err := r.client.Units(r.t.Context())
		if err != nil {
			r.t.Fatal(err)
		}
		u = unit.Unit{}
		for _, each := range all {
			if each.Name == name {
				u = each
			}
		}
		return u.State == state
	})
	return u
}

// TestMembersLiveAndStopTogether checks that members start in the order of their dependencies. The
// death of a member must end the others, and the unit must say why.
func TestMembersLiveAndStopTogether(t *testing.T) {
	r := newRig(t)
	r.start(r.pair("pair-1"))
	u := r.await("pair-1", unit.Ready)
	if len(u.Members) != 2 || u.Boot <= 0 || !strings.HasSuffix(u.Address, ":5060") || u.Digest != r.pair("other").Digest() {
		t.Errorf("%+v", u)
	}
	text, err := os.ReadFile(r.order)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if err != nil || len(lines) != 2 || lines[0] != "pair-1-back-1" || !strings.HasPrefix(lines[1], "pair-1-front-1 127.") {
		t.Errorf("started processes %q, error %v", lines, err)
	}
	r.start(r.pair("pair-1")) // repeating an order is no error
	other := r.pair("pair-1")
	other.Size = "fr2s-bk1s"
	if err := r.client.Start(t.Context(), other); err == nil {
		t.Error("Start accepted another order under the same name")
	}

	hosttest.Until(t, limit, "its use is known", func() bool { return r.await("pair-1", unit.Ready).Use != nil })
	r.kill(u.Members[1])
	failed := r.await("pair-1", unit.Failed)
	if !strings.Contains(failed.Reason, u.Members[1].Name+" ended (signal: killed)") {
		t.Errorf("got reason %q", failed.Reason)
	}
	hosttest.Until(t, limit, u.Members[0].Name+" stops too", func() bool { return syscall.Kill(u.Members[0].PID, 0) != nil })
	r.remove("pair-1")
	r.await("pair-1", "")
	r.end()
}

// A slow is a substrate whose instances cannot be removed before freed is closed.
type slow struct {
	substrate.Substrate
	freed <-chan struct{}
}

func (s slow) Create(ctx context.Context, of substrate.Spec) (substrate.Instance, error) {
	in, err := s.Substrate.Create(ctx, of)
	if err != nil {
		return nil, err
	}
	return slowInstance{in, s.freed}, nil
}

type slowInstance struct {
	substrate.Instance
	freed <-chan struct{}
}

func (in slowInstance) Remove(ctx context.Context) error {
	<-in.freed
	return in.Instance.Remove(ctx)
}

// TestADeploymentIsParsedOnce orders several instances of a deployment, as in a burst, and one of a
// changed deployment. Each deployment must be parsed once, because that takes longer than the rest of an order.
func TestADeploymentIsParsedOnce(t *testing.T) {
	r := newRig(t)
	for _, name := range []string{"pair-1", "pair-2", "pair-3"} {
		r.start(r.pair(name))
	}
	changed := r.pair("pair-4")
	changed.Deployment = strings.Replace(deployment, "64MiB", "32MiB", 1)
	r.start(changed)
	if n := r.parsed.Load(); n != 2 {
		t.Errorf("2 deployments were parsed %d times", n)
	}
	r.end()
}

// TestFailsBeforeItsRemoval checks that a unit with a dead member has failed while its resources
// cannot be freed yet, and is listed until they are.
func TestFailsBeforeItsRemoval(t *testing.T) {
	freed := make(chan struct{})
	r := newRigOn(t, func(s substrate.Substrate) substrate.Substrate { return slow{s, freed} })
	r.start(r.pair("pair-1"))
	u := r.await("pair-1", unit.Ready)
	r.kill(u.Members[1])
	failed := r.await("pair-1", unit.Failed)
	if failed.Address != "" || !strings.Contains(failed.Reason, u.Members[1].Name+" ended (signal: killed)") {
		t.Errorf("%+v", failed)
	}
	r.remove("pair-1")
	if all, err := r.client.Units(t.Context()); err != nil || len(all) != 1 || all[0].State != unit.Failed {
		t.Errorf("units before the resources are freed: %+v, error %v", all, err)
	}
	close(freed)
	r.await("pair-1", "")
	r.end()
}

// errStuck is the error of a back end that is gone.
var errStuck = errors.New("the back end does not answer")

// A stuck is a substrate that cannot remove instances before its own end.
type stuck struct{ substrate.Substrate }

func (s stuck) Create(ctx context.Context, of substrate.Spec) (substrate.Instance, error) {
	in, err := s.Substrate.Create(ctx, of)
	if err != nil {
		return nil, err
	}
	return stuckInstance{in}, nil
}

type stuckInstance struct{ substrate.Instance }

func (stuckInstance) Remove(context.Context) error { return errStuck }

// TestEndsAlthoughARemovalFails checks that a holder ends, with the error, although the resources of a
// unit cannot be freed. Only then may cleaning free them.
func TestEndsAlthoughARemovalFails(t *testing.T) {
	r := newRigOn(t, func(s substrate.Substrate) substrate.Substrate { return stuck{s} })
	r.start(r.pair("pair-1"))
	r.await("pair-1", unit.Ready)
	if err := r.client.End(t.Context()); err != nil {
		t.Error(err)
	}
	select {
	case err := <-r.ended:
		if !errors.Is(err, errStuck) {
			t.Errorf("the holder ended with %v, want %v", err, errStuck)
		}
	case <-time.After(limit):
		t.Fatal("the holder did not end")
	}
}

// TestEndsWithTheFabric checks that a holder whose fabric has lost a process ends with that error and leaves nothing. Before
// its end it must not answer: the orchestrator would take units under removal for stopped ones.
func TestEndsWithTheFabric(t *testing.T) {
	freed := make(chan struct{})
	r := newRigOn(t, func(s substrate.Substrate) substrate.Substrate { return slow{s, freed} })
	r.start(r.pair("pair-1"))
	r.await("pair-1", unit.Ready)
	r.torn.Store(true)
	hosttest.Until(t, limit, "the holder does not answer", func() bool {
		_, err := r.client.Units(t.Context())
		return err != nil
	})
	close(freed)
	r.awaitEnd(errTorn)
}

// TestNotReadyInTime checks that a unit that is not ready at its deadline fails, and leaves no
// process.
func TestNotReadyInTime(t *testing.T) {
	r := newRig(t)
	o := r.pair("slow-1")
	o.Deployment = strings.Replace(deployment, "[grep, -q, front,", "[grep, -q, never,", 1)
	o.Deadline = 2 * time.Second
	r.start(o)
	if u := r.await("slow-1", unit.Failed); !strings.Contains(u.Reason, "not ready within 2s") {
		t.Errorf("got reason %q", u.Reason)
	}
	r.end()
}

func TestServices(t *testing.T) {
	r := newRig(t)
	r.start(unit.Order{
		Name: "service-a", Folder: r.state, Command: []string{"sh", "-c", `echo "$A $VITRINE_SERVICE" >>"$0"; exec sleep 600`, r.order},
		Environment: map[string]string{"A": "${VITRINE_SPEC}"}, Deadline: limit,
	})
	r.await("service-a", unit.Ready)
	hosttest.Until(t, limit, "it has run with its folder and its name", func() bool {
		text, err := os.ReadFile(r.order)
		return err == nil && strings.TrimSpace(string(text)) == r.state+" service-a"
	})
	r.start(unit.Order{Name: "service-b", Command: []string{"false"}, Deadline: limit})
	if u := r.await("service-b", unit.Failed); !strings.Contains(u.Reason, "exit status 1") {
		t.Errorf("got reason %q", u.Reason)
	}
	r.end()
}

// TestServicesFindTheirFilesAgain checks that a service has the files that it wrote before it was
// killed, and that none is left when the holder has ended.
func TestServicesFindTheirFilesAgain(t *testing.T) {
	r := newRig(t)
	services := filepath.Join(r.state, "services")
	for starts := 1; starts <= 2; starts++ {
		r.start(unit.Order{Name: "service-a", Command: []string{"sh", "-c", `echo started >>"$0/starts"; exec sleep 600`, "${VITRINE_DIR}"}, Deadline: limit})
		u := r.await("service-a", unit.Ready)
		hosttest.Until(t, limit, "its file has a line for each start", func() bool {
			text, err := os.ReadFile(filepath.Join(services, "service-a", "starts"))
			return err == nil && strings.Count(string(text), "\n") == starts
		})
		r.kill(u.Members[0])
		r.await("service-a", unit.Failed)
		r.remove("service-a")
		r.await("service-a", "")
	}
	r.end()
	if _, err := os.Stat(services); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the files of services after the end of the holder: error %v, want none to exist", err)
	}
}

// TestFilesOfServicesSurvive checks which ends of a holder leave the files of services: a holder that was
// asked to end, but did not start the service, as in a refused start after a crash, and one that a signal or
// the end of the fabric's processes ended.
func TestFilesOfServicesSurvive(t *testing.T) {
	for name, end := range map[string]func(*rig){
		"asked, with a service of an earlier holder": (*rig).end,
		"ended by a signal": func(r *rig) {
			r.start(unit.Order{Name: "service-a", Command: []string{"sleep", "600"}, Deadline: limit})
			r.await("service-a", unit.Ready)
			r.stop()
			r.awaitEnd(nil)
		},
		"ended with the fabric": func(r *rig) {
			r.start(unit.Order{Name: "service-a", Command: []string{"sleep", "600"}, Deadline: limit})
			r.await("service-a", unit.Ready)
			r.torn.Store(true)
			r.awaitEnd(errTorn)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			records := filepath.Join(r.state, "services", "service-a", "records")
			err := os.MkdirAll(filepath.Dir(records), 0o700)
			if err == nil {
				err = os.WriteFile(records, nil, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			end(r)
			if _, err := os.Stat(records); err != nil {
				t.Errorf("the service's file has not survived the holder: %v", err)
			}
		})
	}
}

// TestBadOrders checks that orders that cannot be carried out are refused at once.
func TestBadOrders(t *testing.T) {
	r := newRig(t)
	for name, change := range map[string]func(*unit.Order){
		"not a name":   func(o *unit.Order) { o.Name = "../x" },
		"no command":   func(o *unit.Order) { *o = unit.Order{Name: "x"} },
		"bad size":     func(o *unit.Order) { o.Size = "fr1x" },
		"bad file":     func(o *unit.Order) { o.Deployment = "vnf_name: 7" },
		"taken prober": func(o *unit.Order) { o.Name = "prober" },
	} {
		o := r.pair("pair-1")
		change(&o)
		if err := r.client.Start(t.Context(), o); err == nil {
			t.Errorf("%s: the holder accepted the order", name)
		}
	}
	r.end()
	if err := r.client.Start(t.Context(), r.pair("pair-1")); err == nil || vitrine.IsBadInput(err) {
		t.Errorf("Start after the holder stopped: got %v", err)
	}
}
