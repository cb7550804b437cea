// Package hold runs units in a separate process, the holder. The holder is the parent of the
// units' processes, has the label and the lock of the run, and answers on a unix socket. So
// instances outlive a restart of the orchestrator on every substrate and fabric, and cleaning
// does not take them for leftovers of a dead run. When the holder dies, its instances die too.
package hold

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"vitrine"
	"vitrine/flex/unit"
	"vitrine/monitor"
	"vitrine/spec"
	"vitrine/substrate"
	"vitrine/testbed"
	"vitrine/testbed/deploy"
)

// A Config configures a Holder.
type Config struct {
	Testbed  testbed.Config
	Choice   spec.Choice
	CPUs     []int  // CPUs that instances may run on; empty: any
	Dir      string // folder of the logs, with a folder for each unit
	Services string // folder with a folder for the files of each service
	Digest   string // digest of the substrate and fabric options
	// Parse parses the deployment file in an order. path resolves relative paths in it.
	Parse func(path string, text []byte) (*spec.Deployment, error)
	Log   *slog.Logger
}

// A Holder runs units. Its methods may be called from any goroutine.
type Holder struct {
	config Config
	site   *testbed.Site
	prober *testbed.Instance // readiness probes run in its network namespace
	ctx    context.Context   // parent of the units' contexts; it ends with stop
	stop   context.CancelFunc
	group  sync.WaitGroup // goroutines of the units

	mu     sync.Mutex
	units  map[string]*held
	served map[string]bool // services that were started
	ended  bool            // Start refuses orders
}

// proberName is the name of the prober instance. No unit may use it.
const proberName = "prober"

// Open opens the site. The units run until Close or until ctx ends.
func Open(ctx context.Context, c Config) (*Holder, error) {
	site, err := testbed.Open(ctx, c.Testbed, c.Choice)
	if err != nil {
		return nil, err
	}
	h := &Holder{config: c, site: site, units: map[string]*held{}, served: map[string]bool{}}
	placed, err := site.Place(ctx, c.Dir, testbed.Spec{OnHost: true, Spec: substrate.Spec{Name: proberName, Component: proberName}})
	if err != nil {
		return nil, errors.Join(err, site.Close(context.WithoutCancel(ctx)))
	}
	h.prober = placed.Instances[0]
	h.ctx, h.stop = context.WithCancel(ctx)
	h.prune()
	return h, nil
}

// Close removes all units and closes the site. The files of services stay.
func (h *Holder) Close(ctx context.Context) error {
	h.mu.Lock()
	h.ended = true
	for _, u := range h.units {
		u.remove()
	}
	h.mu.Unlock()
	h.stop() // takeDown no longer retries, so that the holder ends even if a back end is gone
	h.group.Wait()
	return h.site.Close(ctx)
}

// removeFiles removes the files of the services that this holder started. Files that a killed holder
// left stay until their services run again, because a refused start must not lose them.
func (h *Holder) removeFiles() (err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name := range h.served {
		err = errors.Join(err, os.RemoveAll(filepath.Join(h.config.Services, name)))
	}
	_ = os.Remove(h.config.Services) // on error, it has other files, or does not exist
	return err
}

// Bounds on the orders of a holder.
const (
	maxUnits = 20_000 // units in any state
	maxName  = 40     // bytes of a unit's name
)

var namePattern = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)

// Start begins to carry out an order and returns without waiting. It returns nil for an order
// that is already under way, and an error if another order has the name.
func (h *Holder) Start(o unit.Order) error {
	if !namePattern.MatchString(o.Name) || len(o.Name) > maxName || o.Name == proberName {
		return &vitrine.BadInput{File: "name " + o.Name, Found: "not a name of a unit", Want: "want lower-case letters, digits and dashes, a letter first"}
	}
	u := &held{order: o, digest: o.Digest(), began: time.Now(), state: unit.Starting}
	if err := h.prepare(u); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	old := h.units[o.Name]
	switch {
	case h.ended:
		return errors.New("the holder is ending")
	case old != nil && old.digest == u.digest:
		return nil
	case old != nil:
		return &vitrine.BadInput{File: "name " + o.Name, Found: "another unit has the name", Want: "remove it first"}
	case len(h.units) >= maxUnits:
		return fmt.Errorf("the limit of %d units is reached", maxUnits)
	}
	h.units[o.Name] = u
	var ctx context.Context
	ctx, u.cancel = context.WithCancel(h.ctx)
	h.group.Go(func() { h.run(ctx, u) })
	return nil
}

// prepare checks the order of a unit, and parses the deployment of an instance.
func (h *Holder) prepare(u *held) error {
	o := u.order
	if o.Type == "" {
		if len(o.Command) == 0 {
			return &vitrine.BadInput{File: "service " + o.Name, Found: "no command"}
		}
		return nil
	}
	d, err := h.parse(o)
	if err != nil {
		return err
	}
	sizing, err := vitrine.ParseSizing(o.Size)
	if err == nil {
		err = d.CheckSizing(sizing)
	}
	if err != nil {
		return err
	}
	u.function = deploy.Function{Deployment: d, Sizing: sizing, Members: o.Members, Prefix: o.Name + "-", Number: o.Number, Environment: o.Environment}
	return nil
}

// parse parses the deployment of an instance. A burst orders many instances of one deployment, so
// units share it. Nothing changes a Deployment.
func (h *Holder) parse(o unit.Order) (*spec.Deployment, error) {
	h.mu.Lock()
	for _, u := range h.units {
		if d := u.function.Deployment; d != nil && u.order.Path == o.Path && u.order.Deployment == o.Deployment {
			h.mu.Unlock()
			return d, nil
		}
	}
	h.mu.Unlock()
	return h.config.Parse(o.Path, []byte(o.Deployment))
}

// Remove begins to stop a unit and returns without waiting. Units lists the unit until all its
// resources are freed. Removing a missing unit is no error.
func (h *Holder) Remove(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if u := h.units[name]; u != nil {
		u.remove()
	}
}

// Units returns the units in the order of their names.
func (h *Holder) Units() []unit.Unit {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]unit.Unit, 0, len(h.units))
	for _, name := range slices.Sorted(maps.Keys(h.units)) {
		all = append(all, h.units[name].view())
	}
	return all
}

// A held is a unit of a Holder.
type held struct {
	order    unit.Order
	digest   string
	function deploy.Function // what to deploy; only for instances
	began    time.Time
	cancel   context.CancelFunc

	mu      sync.Mutex
	state   unit.State
	reason  string
	removed bool // Remove or Close was called
	address string
	boot    time.Duration
	members []unit.Member
	gauge   *monitor.Gauge // nil: not ready, or ended
	read    time.Time      // last time of reading the gauge
}

// remove begins the removal of the unit. A failed unit stays Failed until it is gone.
func (u *held) remove() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.removed = true
	if u.state != unit.Failed {
		u.state = unit.Removing
	}
	u.cancel()
}

// run runs a unit to its end. A failed unit stays listed, with the reason, until Remove.
func (h *Holder) run(ctx context.Context, u *held) {
	h.live(ctx, u)
	<-ctx.Done()
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.units, u.order.Name)
	h.prune()
}

// keptLogs is the number of log folders of removed units to keep.
const keptLogs = 50

// prune removes the oldest log folders of removed units. The caller holds h.mu, or has not
// shared the Holder yet.
func (h *Holder) prune() {
	entries, err := os.ReadDir(h.config.Dir)
	if err != nil {
		return // the folder does not exist yet
	}
	type folder struct {
		path string
		at   time.Time
	}
	var old []folder
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && e.IsDir() && h.units[e.Name()] == nil && e.Name() != proberName {
			old = append(old, folder{filepath.Join(h.config.Dir, e.Name()), info.ModTime()})
		}
	}
	slices.SortFunc(old, func(a, b folder) int { return a.at.Compare(b.at) })
	for _, f := range old[:max(0, len(old)-keptLogs)] {
		if err := os.RemoveAll(f.path); err != nil {
			h.config.Log.Warn("remove old logs", "folder", f.path, "error", err)
		}
	}
}

// live starts the unit, waits for its end, and frees its resources. A unit fails before its
// resources are freed, because freeing them may take long, and nobody replaces a Ready unit.
func (h *Holder) live(ctx context.Context, u *held) {
	sctx, cancel := context.WithTimeoutCause(ctx, u.order.Deadline, fmt.Errorf("it was not ready within %s", u.order.Deadline))
	defer cancel()
	running, failed := h.start(sctx, u)
	if failed != nil && ctx.Err() == nil && sctx.Err() != nil && !errors.Is(failed, context.Cause(sctx)) {
		failed = errors.Join(context.Cause(sctx), failed)
	}
	if failed == nil {
		failed = running.Await(ctx, nil)
	}
	if failed != nil && ctx.Err() == nil {
		u.fail(failed)
	}
	u.end()
	if running != nil {
		h.takeDown(ctx, u, running)
	}
}

// start places the unit and starts its members. If running is not nil, the caller must remove
// it, also after an error.
func (h *Holder) start(ctx context.Context, u *held) (running *testbed.Placement, err error) {
	if u.order.Type == "" {
		return h.startService(ctx, u)
	}
	plan := u.function.Plan()
	for i := range plan {
		plan[i].CPUs = h.config.CPUs
	}
	d, err := deploy.Place(ctx, h.site, filepath.Join(h.config.Dir, u.order.Name), h.config.Testbed.Self, u.function, plan)
	if err != nil {
		return nil, err
	}
	if _, err := d.Boot(ctx, h.prober); err != nil {
		return d.Placement, err
	}
	u.ready(d.Targets()[0], d.Vantages())
	return d.Placement, nil
}

// ServiceVariable is the environment variable with the name of a service. The holder waits for the
// process that it started, and then ends all of the service's processes. So a director that finds the
// variable must not hand over to a new process.
const ServiceVariable = "VITRINE_SERVICE"

// startService starts a service on the host, and waits until it is ready. The service finds its
// files again when it is started again, so they are not in the scratch folder.
func (h *Holder) startService(ctx context.Context, u *held) (running *testbed.Placement, err error) {
	o := u.order
	dir := filepath.Join(h.config.Services, o.Name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	h.mu.Lock()
	h.served[o.Name] = true
	h.mu.Unlock()
	p, err := h.site.Place(ctx, h.config.Dir, testbed.Spec{OnHost: true, Spec: substrate.Spec{Name: o.Name, Component: o.Name}})
	if err != nil {
		return nil, err
	}
	in := p.Instances[0]
	vars := map[string]string{"VITRINE_DIR": dir, "VITRINE_SPEC": o.Folder}
	command := vitrine.Command{Args: spec.Args(o.Command).Expand(vars), Dir: o.Folder}
	if command.Args[0] == "vitrine" {
		command.Args[0] = h.config.Testbed.Self
	}
	for _, name := range slices.Sorted(maps.Keys(o.Environment)) {
		command.Env = append(command.Env, name+"="+spec.Expand(o.Environment[name], vars))
	}
	command.Env = append(command.Env, ServiceVariable+"="+o.Name)
	if err := in.Start(ctx, command); err != nil {
		return p, err
	}
	if o.Ready != "" {
		at, err := netip.ParseAddrPort(o.Ready)
		if err != nil {
			return p, err
		}
		err = in.Await(ctx, o.Deadline, func(ctx context.Context) error {
			return in.Inside(func() error { return testbed.ProbeTCP(ctx, at) })
		})
		if err != nil {
			return p, err
		}
	}
	u.ready(o.Ready, []vitrine.Vantage{in.Vantage()})
	return p, nil
}

// takeDown frees the resources of a unit. It retries until that succeeds or the holder ends. Until
// the end, the resources have the label of a live run and cleaning does not remove them.
func (h *Holder) takeDown(ctx context.Context, u *held, running *testbed.Placement) {
	ctx = context.WithoutCancel(ctx)
	for pause := time.Second; ; pause = min(2*pause, time.Minute) {
		err := running.Remove(ctx)
		if err == nil {
			return
		}
		h.config.Log.Error("cannot remove a unit; retrying", "unit", u.order.Name, "error", err)
		u.explain("it cannot be removed: " + err.Error())
		select {
		case <-time.After(pause):
		case <-h.ctx.Done():
			return // Site.Close tries once more; after that, cleaning can remove them
		}
	}
}

// ready records that all members are ready.
func (u *held) ready(address string, vantages []vitrine.Vantage) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.address, u.boot, u.read = address, time.Since(u.began), time.Now()
	for _, v := range vantages {
		u.members = append(u.members, unit.Member{Name: v.Instance, Component: v.Component, PID: v.PID, VCPUs: v.VCPUs})
	}
	u.gauge = monitor.NewGauge(vantages)
	if !u.removed {
		u.state = unit.Ready
	}
}

// end closes the gauge and clears the PIDs, because the kernel may reuse them from now on.
func (u *held) end() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.gauge != nil {
		u.gauge.Close()
		u.gauge = nil
	}
	for i := range u.members {
		u.members[i].PID, u.members[i].CPU, u.members[i].Memory = 0, nil, nil
	}
}

func (u *held) fail(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.state, u.address = unit.Failed, ""
	u.reason = strings.TrimSpace(err.Error())
}

// explain sets the reason of the state. A failed unit keeps the reason of its failure.
func (u *held) explain(reason string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.state != unit.Failed {
		u.reason = reason
	}
}

// gaugeEvery is the shortest interval over which CPU use is averaged.
const gaugeEvery = 900 * time.Millisecond

// view returns the unit's state, with CPU and memory use.
func (u *held) view() unit.Unit {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.gauge != nil && time.Since(u.read) >= gaugeEvery {
		u.read = time.Now()
		uses := u.gauge.Read()
		for i := range u.members {
			m := &u.members[i]
			m.CPU, m.Memory = uses[m.Name].CPU, uses[m.Name].Memory
		}
	}
	v := unit.Unit{
		Name: u.order.Name, Type: u.order.Type, Size: u.order.Size, Number: u.order.Number, Digest: u.digest, State: u.state, Reason: u.reason,
		Address: u.address, Age: time.Since(u.began).Seconds(), Boot: u.boot.Seconds(), Members: slices.Clone(u.members),
	}
	for _, m := range v.Members {
		if m.CPU == nil || m.VCPUs == 0 {
			continue
		}
		if use := *m.CPU / m.VCPUs; v.Use == nil || use > *v.Use {
			v.Use = &use
		}
	}
	return v
}
