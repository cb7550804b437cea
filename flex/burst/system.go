package burst

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"vitrine/director/client"
	"vitrine/flex"
	"vitrine/internal/access"
	"vitrine/load"
)

// A SystemPlan configures a System.
type SystemPlan struct {
	Program  string  // path of the vitrine program
	Folder   string  // empty folder for files and logs
	Policy   string  // as in vitrine flex run --policy
	Max      int     // most instances
	Rate     float64 // declared capacity of an instance, in transactions/s; a policy fixed=N does not use it
	VCPUs    float64 // CPU limit of each of the two members of an instance
	Overload string  // value of Bono's --overload; empty: its default
}

// A System is a running orchestrator with a director, a store, shared functions and instances
// of one aggregate type, Type. Each instance has a Bono and a Sprout.
type System struct {
	SystemPlan
	addresses
	http    *http.Client
	command *exec.Cmd
	log     *os.File
}

// Type is the type of a System's instances.
const Type = "registration"

// Start starts a system. The caller must call End.
func Start(ctx context.Context, p SystemPlan) (s *System, err error) {
	s = &System{SystemPlan: p, http: &http.Client{Timeout: 5 * time.Second}}
	if s.addresses, err = freeAddresses(ctx); err != nil {
		return nil, err
	}
	if err := s.writeFiles(); err != nil {
		return nil, err
	}
	if s.log, err = os.Create(filepath.Join(p.Folder, "flex.log")); err != nil {
		return nil, err
	}
	// End alone signals the orchestrator, also at Ctrl-C in a terminal: a second signal would end it
	// before its instances.
	c := exec.CommandContext(context.WithoutCancel(ctx), p.Program, "flex", "run", s.file(), "--policy", p.Policy)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Stdout, c.Stderr = s.log, s.log
	if err := c.Start(); err != nil {
		return nil, errors.Join(err, s.log.Close())
	}
	s.command = c
	return s, nil
}

// Time limits, for a busy host.
const (
	beginning = 3 * time.Minute // start of the director, the store and the first instances
	ending    = 2 * time.Minute // end of the whole system
)

// Control returns the control address of the director.
func (s *System) Control() string { return s.control }

// Await waits until all instances are active and the director has applied them.
func (s *System) Await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, beginning)
	defer cancel()
	director, err := client.New(client.Access{URL: s.control})
	if err != nil {
		return err
	}
	for {
		now, err := s.Status(ctx)
		if err == nil && len(now.Types) == 1 && len(now.Instances) > 0 && now.Types[0].Instances["active"] == len(now.Instances) {
			// The director sends requests to an instance from its next epoch on.
			if at, err := director.Status(ctx); err == nil && !at.Pending {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("the instances do not get ready: %w", context.Cause(ctx)), err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// End stops the orchestrator and everything that it runs.
func (s *System) End(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, s.log.Close()) }()
	c := s.command
	_ = c.Process.Signal(syscall.SIGTERM) // it fails only if the process has ended
	timer := time.AfterFunc(ending, func() { _ = c.Process.Kill() })
	defer timer.Stop()
	if err = c.Wait(); err == nil {
		return nil
	}
	// The instances of a killed orchestrator keep running: stop them.
	out, stop := exec.CommandContext(context.WithoutCancel(ctx), s.Program, "flex", "stop", s.file()).CombinedOutput()
	if stop != nil {
		stop = fmt.Errorf("%w: %s", stop, out)
	}
	return errors.Join(fmt.Errorf("vitrine flex run: %w", err), stop)
}

// Status returns the orchestrator's status.
func (s *System) Status(ctx context.Context) (now flex.Status, err error) {
	c := access.Caller{Service: "the orchestrator", HTTP: s.http, Most: 1 << 24}
	return now, c.Call(ctx, http.MethodGet, "http://"+s.flex+"/v1/status", nil, &now)
}

// Generate offers registrations and deregistrations to the director with a generator of
// vitrine. t.Rate is in calls/s; a call has PerCall transactions.
func (s *System) Generate(ctx context.Context, generator string, t load.Trial) (r load.Report, err error) {
	params := map[string]string{"scenario": "reg-dereg", "retransmit": "true", "local": "127.0.0.1", "port": "0"}
	maps.Copy(params, t.Params)
	t.Params, t.Targets, t.Scratch = params, []string{s.sip}, filepath.Join(s.Folder, "calls")
	if err := os.MkdirAll(t.Scratch, 0o700); err != nil {
		return r, err
	}
	command := load.Command([]string{s.Program, "generate", generator}, t)
	c := exec.CommandContext(ctx, command.Args[0], command.Args[1:]...)
	var out, log bytes.Buffer
	c.Env, c.Stdout, c.Stderr = append(os.Environ(), command.Env...), &out, &log
	if err := c.Run(); err != nil {
		return r, fmt.Errorf("the generator %s: %w: %s", generator, err, log.Bytes())
	}
	return load.ParseReport(&out)
}
