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
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"vitrine"
	"vitrine/director/client"
	"vitrine/flex"
	"vitrine/flex/config"
	"vitrine/flex/decide"
	"vitrine/flex/policy"
	"vitrine/internal/access"
	"vitrine/internal/runstate"
	"vitrine/internal/vitals"
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
		Directors: steering(clients), Redline: measurerOf(p, clients), Costs: p.costs,
		Policy: p.policy, PolicyName: p.policyName, Version: toolVersion(),
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.Close()) }()
	if _, err := runner.connect(ctx); err != nil { // may start a holder, so the steps above must have succeeded
		return startError(ctx, err)
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
	} else {
		err = startError(ctx, err)
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
	defer door.removeSocket()
	if err != nil {
		return err
	}
	door.reload = append(door.reload, files...)
	var failed atomic.Bool // the last reload
	server := access.NewServer(o.Handler(door.guard, vitals.Service{ReloadFailed: failed.Load, Expiry: door.expiry}), log)
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
		access.Reread(gctx, reload, log, &failed, door.reload...)
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
	reload    []func() error   // read tokens and certificates again
	expiry    func() time.Time // of the certificate; nil: no TLS
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
	d.listeners, d.guard = []net.Listener{local}, access.Guard{Service: "orchestrator", Socket: socket, Log: log}
	tokens, err := access.ReadTokenFile(c.Control.TokenFile)
	if err != nil {
		return d, err
	}
	d.reload, d.guard.Tokens = []func() error{tokens.Reload}, tokens.Tokens
	if c.Control.Listen == "" {
		return d, nil
	}
	return d, d.listen(ctx, c)
}

// removeSocket removes the unix socket. No other orchestrator has the socket, because this one has locked
// the state folder that the name is from.
func (d *flexDoor) removeSocket() {
	if d.guard.Socket != "" {
		_ = os.Remove(d.guard.Socket) // the user's last session may have ended, and the folder with it
	}
}

// listen opens the file's control address.
func (d *flexDoor) listen(ctx context.Context, c *config.Config) error {
	var secure *access.ServerTLS
	if c.Control.Certificate != "" {
		var err error
		secure, err = access.LoadTLS(c.Control.Certificate, c.Control.Key, c.Control.Clients)
		if bad, ok := errors.AsType[*access.TLSError](err); ok {
			return c.BadInput(bad.Error(), bad.Want, "control", bad.Option)
		}
		d.reload, d.expiry = append(d.reload, secure.Reload), secure.Expiry
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
	var health storeHealth
	err = json.NewDecoder(io.LimitReader(response.Body, 1<<20)).Decode(&health)
	if err == nil && health.EngineUp != nil && !*health.EngineUp {
		err = fmt.Errorf("its engine %s does not answer or takes no writes: the store's log says why", health.Promises.Engine)
	}
	return flex.StoreHealth{Engine: health.Promises.Engine, Shared: health.Promises.Shared, Past: health.Past, Reasons: health.Reasons}, err
}
