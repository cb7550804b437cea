package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/prometheus/procfs"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"vitrine"
	"vitrine/director/client"
	"vitrine/flex"
	"vitrine/flex/config"
	"vitrine/flex/decide"
	"vitrine/flex/hold"
	"vitrine/flex/policy"
	"vitrine/flex/unit"
	"vitrine/internal/access"
	"vitrine/internal/runstate"
	"vitrine/internal/thread"
	"vitrine/store"
	"vitrine/testbed"
)

func (a *app) flexRun() *cobra.Command {
	var dryRun, keep, asJSON bool
	var rules string
	c := &cobra.Command{
		Use:   "run FILE",
		Short: "Run the aggregates of a file until interrupted, and then stop them",
		Long: "Run the aggregates of a file until interrupted, and then stop them. After SIGKILL, or with\n" +
			"--keep, instances continue to run, and the next run of the same file takes them over.\n" +
			"SIGHUP reads the files of tokens and certificates again.",
		Args: args(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, given []string) error {
			p, err := planFlex(given[0])
			if err != nil {
				return err
			}
			if err := checkReach(p.file); err != nil {
				return err
			}
			if p.policy, err = policyOf(rules); err != nil {
				return err
			}
			p.policyName = rules
			if dryRun {
				return a.printFlexPlan(p, asJSON)
			}
			return a.runFlex(c.Context(), p, keep)
		},
	}
	c.Flags().BoolVar(&dryRun, "dry-run", false, "print what would run, and start nothing")
	c.Flags().BoolVar(&keep, "keep", false, "at the end, leave the instances running for the next run of the file")
	c.Flags().StringVar(&rules, "policy", policy.Flex, "for comparisons, the rules of another autoscaler: "+policy.Forms)
	return jsonFlag(c, &asJSON)
}

// policyOf returns the policy with a name. The policy fixed without a number means the
// type's maximum.
func policyOf(name string) (policy.Policy, error) {
	p, err := policy.New(name, func(t *decide.Type) int { return t.Max })
	if err != nil {
		return nil, &vitrine.BadInput{File: "--policy", Found: err.Error(), Want: "or " + policy.Flex}
	}
	return p, nil
}

// A flexPlan is a checked file, completed with the limits of this host.
type flexPlan struct {
	file   *config.Config
	types  []decide.Type
	limits decide.Limits
	costs  map[string]map[string]flex.Cost // CPU costs from the profiles, by type and size

	policy     policy.Policy
	policyName string
}

// planFlex reads the file. It refuses a file that needs more than this host has.
func planFlex(path string) (p flexPlan, err error) {
	if p.file, err = config.Load(path, knownBackends()); err != nil {
		return p, err
	}
	cpus, err := thread.Allowed()
	if err != nil {
		return p, err
	}
	if named := p.file.Servers.CPUs; len(named) > 0 {
		if err := testbed.CheckCPUs(named, cpus); err != nil {
			return p, err
		}
		cpus = named
	}
	memory, err := hostMemory()
	if err == nil {
		err = p.file.Fits(float64(len(cpus)), memory)
	}
	if err != nil {
		return p, err
	}
	p.limits = flex.LimitsOf(p.file, float64(len(cpus)))
	p.costs = map[string]map[string]flex.Cost{}
	p.types, err = flex.Types(p.file, keepCosts(capacityOf(p.file), p.costs))
	return p, err
}

// checkReach refuses a fabric on which no director reaches the instances. A director with a unix
// socket may be one of the file's services, which are also attached to the fabric.
func checkReach(c *config.Config) error {
	name := fabricName(c.Choice().Fabric)
	if !isolated(name, c.Servers.Parts[name]) {
		return nil
	}
	for _, d := range c.Directors {
		if !strings.HasPrefix(d.Control, "unix:") {
			return c.BadInput("the fabric "+name+" connects instances to their own network, which the director at "+d.Control+" does not reach",
				"use loopback or host; for directors on other hosts, a fabric that leads out, such as macvlan with parent; "+
					"or a director that is one of the services, with control unix:SOCKET", "servers", "fabric")
		}
	}
	return nil
}

// hostMemory returns the memory of this host, in bytes.
func hostMemory() (int64, error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, fmt.Errorf("read the host's memory: %w", err)
	}
	m, err := fs.Meminfo()
	if err != nil || m.MemTotalBytes == nil {
		return 0, errors.Join(errors.New("read the host's memory"), err)
	}
	return int64(*m.MemTotalBytes), nil
}

// printFlexPlan prints what would run.
func (a *app) printFlexPlan(p flexPlan, asJSON bool) error {
	if asJSON {
		return printJSON(a.stdout, p.document())
	}
	choice := p.file.Choice()
	fmt.Fprintf(a.stdout, "%s: %d types on substrate %s, fabric %s\n", p.file.Path, len(p.types), choice.Substrate, fabricName(choice.Fabric))
	if p.policyName != policy.Flex {
		fmt.Fprintf(a.stdout, "policy %s: its rules decide instead of the orchestrator's own, for a comparison\n", p.policyName)
	}
	for _, s := range p.file.Services {
		fmt.Fprintf(a.stdout, "service %s: %s\n", s.Name, strings.Join(s.Command, " "))
	}
	if s := p.file.Store; s != nil && s.Member != nil {
		fmt.Fprintf(a.stdout, "members of the store: at most %d: %s\n", s.Member.Max, strings.Join(s.Member.Command, " "))
	}
	t := tabwriter.NewWriter(a.stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "TYPE\tMIN-MAX\tSIZE\tCAPACITY\tVCPUS\tMEMBERS")
	for i := range p.types {
		y, of := p.types[i], &p.file.Types[i]
		for _, f := range y.Flavors {
			fmt.Fprintf(t, "%s\t%d-%d\t%s\t%.4g/s\t%.4g\t%s\n", y.Name, y.Min, y.Max, f.Name, f.Capacity, f.CPUs, strings.Join(of.Members, " "))
		}
	}
	return t.Flush()
}

// runFlex runs the orchestrator until ctx ends, which is no error.
func (a *app) runFlex(ctx context.Context, p flexPlan, keep bool) (err error) {
	log := a.logFrom(slog.LevelInfo)
	reload, _, stop := serviceSignals()
	defer stop()
	lock, err := lockFlex(p.file)
	if err != nil {
		return err
	}
	defer lock.Close() // nothing is buffered
	clients, err := directorsOf(p.file)
	if err != nil {
		return err
	}
	askStore, rereadStore, err := storeOf(p.file)
	if err != nil {
		return err
	}
	runner := &holderRunner{file: p.file, log: log}
	o, err := flex.New(flex.Options{
		File: p.file, Types: p.types, Limits: p.limits, Runner: runner, Store: askStore, Log: log,
		Directors: steering(clients), Redline: measurerOf(p.file, clients), Costs: p.costs,
		Policy: p.policy, PolicyName: p.policyName,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.Close()) }()
	if _, err := runner.connect(ctx); err != nil { // may start a holder, so the steps above must have succeeded
		return err
	}
	foreign, err := o.Foreign(ctx)
	if err == nil && len(foreign) > 0 {
		err = p.file.BadInput("a director has instances that this orchestrator did not start: "+strings.Join(foreign, ", "),
			"another orchestrator may run; if not, remove them with vitrine director instances remove", "directors")
	}
	if err == nil {
		files := []func() error{rereadStore}
		for _, d := range clients {
			files = append(files, d.Refresh)
		}
		err = a.serveFlex(ctx, p.file, o, log, reload, files...)
	}
	refused := err != nil && ctx.Err() == nil && o.Status().PID == 0 // before the first step
	if keep || refused && runner.tookOver() {
		return err
	}
	ending := context.WithoutCancel(ctx)
	o.Leave(ending)
	return errors.Join(err, runner.end(ending))
}

// serveFlex runs the orchestrator's loop and its control interface until ctx ends. It reads tokens
// and certificates again every 30 s, and at each value from reload. files reads those of clients.
func (a *app) serveFlex(ctx context.Context, c *config.Config, o *flex.Orchestrator, log *slog.Logger, reload <-chan struct{}, files ...func() error) error {
	door, err := openFlex(ctx, c, log)
	if err != nil {
		return err
	}
	door.reload = append(door.reload, files...)
	server := &http.Server{
		Handler: o.Handler(door.guard), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: time.Minute,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 1 << 16, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	fmt.Fprintf(a.stdout, "%s: running; vitrine flex status %s shows it\n", c.Path, c.Path)
	group, gctx := errgroup.WithContext(ctx)
	for _, l := range door.listeners {
		group.Go(func() error {
			if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("serve control: %w", err)
			}
			return nil
		})
	}
	group.Go(func() error {
		access.Reread(gctx, reload, log, door.reload...)
		return nil
	})
	group.Go(func() error {
		defer server.Close()
		return o.Run(gctx)
	})
	if err = group.Wait(); errors.Is(err, context.Cause(ctx)) {
		return nil
	}
	return err
}

// A flexDoor is the control interface of an orchestrator.
type flexDoor struct {
	listeners []net.Listener
	guard     access.Guard
	reload    []func() error // read tokens and certificates again
}

// openFlex opens the unix socket, and the file's control address if there is one.
func openFlex(ctx context.Context, c *config.Config, log *slog.Logger) (d flexDoor, err error) {
	if err := runstate.MakeRoot(runstate.DefaultRoot()); err != nil {
		return d, err
	}
	socket := flexSocket(c.State)
	if err := os.MkdirAll(filepath.Dir(socket), 0o700); err != nil {
		return d, err
	}
	local, err := access.OpenSocket("unix", socket, "orchestrator", "use another state folder")
	if err != nil {
		return d, err
	}
	tokens, err := access.ReadTokenFile(c.Control.TokenFile)
	if err != nil {
		return d, err
	}
	d = flexDoor{
		listeners: []net.Listener{local}, reload: []func() error{tokens.Reload},
		guard: access.Guard{Service: "orchestrator", Tokens: tokens.Tokens, Socket: socket, Log: log},
	}
	if c.Control.Listen == "" {
		return d, nil
	}
	return d, d.listen(ctx, c)
}

// listen opens the file's control address.
func (d *flexDoor) listen(ctx context.Context, c *config.Config) error {
	var secure *access.ServerTLS
	if c.Control.Certificate != "" {
		var err error
		secure, err = access.LoadTLS(c.Control.Certificate, c.Control.Key, c.Control.Clients)
		if bad := (*access.TLSError)(nil); errors.As(err, &bad) {
			return c.BadInput(bad.Error(), bad.Want, "control", bad.Option)
		}
		d.reload = append(d.reload, secure.Reload)
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", c.Control.Listen)
	if err != nil {
		return fmt.Errorf("listen for control: %w", err)
	}
	if secure != nil {
		l = tls.NewListener(l, secure.Config())
	}
	d.listeners = append(d.listeners, l)
	return nil
}

// directorsOf returns clients for the file's directors.
func directorsOf(c *config.Config) (all []*client.Client, err error) {
	for _, d := range c.Directors {
		k, err := client.New(client.Access{URL: d.Control, TokenFile: d.TokenFile, Authorities: d.Authorities, Certificate: d.Certificate, Key: d.Key})
		if err != nil {
			return nil, err
		}
		all = append(all, k)
	}
	return all, nil
}

// steering converts the clients to the orchestrator's interface.
func steering(clients []*client.Client) (all []flex.Director) {
	for _, c := range clients {
		all = append(all, c)
	}
	return all
}

// storeOf returns a function that queries a store, which is nil if the file has no store, and one
// that reads the certificates again. After an error the old certificates stay in use.
func storeOf(c *config.Config) (ask func(context.Context, string) (flex.StoreHealth, error), reread func() error, err error) {
	if c.Store == nil {
		return nil, func() error { return nil }, nil
	}
	var web atomic.Pointer[http.Client]
	reread = func() error {
		secure, err := access.ClientTLS(c.Store.Certificate, c.Store.Key, c.Store.Authorities)
		if err == nil {
			web.Store(&http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: secure}})
		}
		return err
	}
	ask = func(ctx context.Context, url string) (flex.StoreHealth, error) {
		return readHealth(ctx, web.Load(), url)
	}
	return ask, reread, reread()
}

// readHealth reads the health of a store.
func readHealth(ctx context.Context, web *http.Client, url string) (h flex.StoreHealth, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(url, "/")+"/health", nil)
	if err != nil {
		return h, err
	}
	response, err := web.Do(r)
	if err != nil {
		return h, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return h, fmt.Errorf("GET /health: %s", response.Status)
	}
	var health struct {
		Promises store.Promises    `json:"promises"`
		EngineUp *bool             `json:"engine_up"` // nil: the store is of a version that does not ask its engine
		Past     []string          `json:"past_threshold"`
		Reasons  map[string]string `json:"reasons"`
	}
	err = json.NewDecoder(io.LimitReader(response.Body, 1<<20)).Decode(&health)
	if err == nil && health.EngineUp != nil && !*health.EngineUp {
		err = fmt.Errorf("its engine %s does not answer: the store's log says why", health.Promises.Engine)
	}
	return flex.StoreHealth{Engine: health.Promises.Engine, Shared: health.Promises.Shared, Past: health.Past, Reasons: health.Reasons}, err
}

// A holderRunner runs units through the holder of a state folder. It starts a holder if
// there is none.
type holderRunner struct {
	file *config.Config
	log  *slog.Logger

	mu     sync.Mutex
	found  bool // the holder of an earlier run was there
	client *hold.Client
}

// tookOver reports whether the holder of an earlier run was there, with what it runs.
func (r *holderRunner) tookOver() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.found
}

// connect returns a client of the holder, and starts the holder if there is none.
func (r *holderRunner) connect(ctx context.Context) (*hold.Client, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.client != nil {
		return r.client, nil
	}
	c, err := hold.Find(ctx, r.file.State)
	if errors.Is(err, hold.ErrNone) {
		c, err = startHolder(ctx, r.file)
	} else if err == nil {
		r.found = true
		r.log.Info("taking over the running instances", "run", c.About.Run, "pid", c.About.PID)
	}
	if err != nil {
		return nil, err
	}
	if c.About.Digest != serversDigest(r.file) {
		return nil, r.file.BadInput("options that differ from those of the running instances", "stop them first with vitrine flex stop "+r.file.Path, "servers")
	}
	r.client = c
	return c, nil
}

// with calls f with a client of the holder. After an error from a dead holder, the next call looks
// for a holder again.
func (r *holderRunner) with(ctx context.Context, f func(*hold.Client) error) error {
	c, err := r.connect(context.WithoutCancel(ctx)) // otherwise the end of ctx could leave a holder half-started
	if err != nil {
		return err
	}
	err = f(c)
	if err != nil && !c.Alive() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.client == c {
			r.client = nil
		}
	}
	return err
}

// Units lists the units.
func (r *holderRunner) Units(ctx context.Context) (all []unit.Unit, err error) {
	err = r.with(ctx, func(c *hold.Client) (err error) {
		all, err = c.Units(ctx)
		return err
	})
	return all, err
}

// Start starts a unit.
func (r *holderRunner) Start(ctx context.Context, o unit.Order) error {
	return r.with(ctx, func(c *hold.Client) error { return c.Start(ctx, o) })
}

// Remove stops a unit.
func (r *holderRunner) Remove(ctx context.Context, name string) error {
	return r.with(ctx, func(c *hold.Client) error { return c.Remove(ctx, name) })
}

// end ends the holder and everything that it runs.
func (r *holderRunner) end(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.client == nil || !r.client.Alive() {
		return nil
	}
	return endHolder(ctx, r.client)
}
