package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"vitrine"
	"vitrine/director/client"
	"vitrine/flex/config"
	"vitrine/flex/hold"
	"vitrine/flex/unit"
	"vitrine/internal/pidfd"
	"vitrine/internal/runstate"
	"vitrine/spec"
	"vitrine/substrate"
)

// holdVerb starts this program as the holder of a file's instances.
const holdVerb = "hold"

// flexHold returns the command of the holder. The holder runs the instances, and continues without
// an orchestrator. It gets the text of the file from the orchestrator, because the file may have
// changed since the orchestrator read it.
func (a *app) flexHold() *cobra.Command {
	return &cobra.Command{
		Use:    holdVerb + " FILE",
		Short:  "Hold the instances of a file, whose text is on standard input, for an orchestrator",
		Hidden: true,
		Args:   args(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, given []string) error {
			outlive(syscall.SIGHUP) // `systemctl kill -s HUP` reaches the holder too, which is in the orchestrator's cgroup
			text, err := io.ReadAll(c.InOrStdin())
			if err != nil {
				return fmt.Errorf("read the text of %s from standard input: %w", given[0], err)
			}
			file, err := config.Parse(given[0], text, knownBackends())
			if err != nil {
				return err
			}
			return a.hold(c.Context(), file)
		},
	}
}

// hold runs units until a client, a signal or the end of the fabric's processes ends it.
func (a *app) hold(ctx context.Context, c *config.Config) (err error) {
	log := a.logFrom(slog.LevelInfo)
	lock, err := runstate.LockFile(filepath.Join(c.State, hold.LockFile), runstate.Owner{PID: os.Getpid(), Command: os.Args})
	if err != nil {
		return fmt.Errorf("hold the instances of %s: %w", c.Path, err)
	}
	label, err := runstate.New(runstate.DefaultRoot())
	if err != nil {
		return errors.Join(err, lock.Close())
	}
	// The lock ends before the run, because the next holder may start as soon as the run has ended.
	defer func() { err = errors.Join(err, lock.Close(), a.leave(ctx, label, err)) }()
	if err := a.cleanUp(ctx, label, a.stderr); err != nil {
		log.Warn("cleaning up after earlier runs", "error", err)
	}
	b, err := newBackends(label, c.Resolve("."), log)
	if err != nil {
		return err
	}
	if b.impair, err = impairment(c.Servers.Parts, c.MemberNames()); err != nil {
		return err
	}
	h, err := hold.Open(ctx, hold.Config{
		Testbed: b.testbed(c.Servers.Parts), Choice: c.Choice(), CPUs: c.Servers.CPUs, Digest: serversDigest(c), Log: log,
		Dir: filepath.Join(c.State, "logs"), Services: filepath.Join(c.State, "services"),
		Parse: func(path string, text []byte) (*spec.Deployment, error) {
			return spec.ParseDeployment(path, text, knownBackends())
		},
	})
	if err != nil {
		return err
	}
	l, err := hold.Listen(ctx, label.Dir())
	if err == nil {
		err = hold.Record{Run: label.ID, Root: label.Root, Socket: l.Addr().String(), PID: os.Getpid()}.Save(c.State)
	}
	if err != nil {
		return errors.Join(err, h.Close(context.WithoutCancel(ctx)))
	}
	return h.Serve(ctx, l)
}

// serversDigest returns a digest of the options with which a holder is started.
func serversDigest(c *config.Config) string {
	parts := map[string]map[string]any{}
	for name, part := range c.Servers.Parts {
		var fields map[string]any
		_ = part.Decode(&fields) // never fails: a loaded file has valid parts
		parts[name] = fields
	}
	text, err := json.Marshal([]any{c.Choice(), c.Servers.CPUs, parts})
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// holderLog returns the path of the log of a file's holder.
func holderLog(c *config.Config) string { return filepath.Join(c.State, "holder.log") }

// openHolderLog begins a new log. It keeps that of the last holder that answered, which may say why that one ended.
func openHolderLog(path string) (*os.File, error) {
	if err := os.Rename(path, path+".1"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return substrate.OpenOutput(path)
}

// holderStarts limits the time until a new holder answers.
const holderStarts = time.Minute

// holderCommand returns the command that starts a holder for a file as it was loaded. self is this program.
// The holder gets its own session, so that signals to the orchestrator do not reach it.
func holderCommand(ctx context.Context, self string, c *config.Config) *exec.Cmd {
	cmd := exec.CommandContext(context.WithoutCancel(ctx), self, "flex", holdVerb, c.Path)
	cmd.Stdin = bytes.NewReader(c.Raw)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd
}

// startHolder starts a holder and waits until it answers.
func startHolder(ctx context.Context, c *config.Config) (*hold.Client, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program's own file: %w", err)
	}
	path := holderLog(c)
	log, err := openHolderLog(path)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the holder has its own descriptor
	cmd := holderCommand(ctx, self, c)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the holder of the instances: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // reaps the holder, even if it ends much later
	ctx, cancel := context.WithTimeoutCause(ctx, holderStarts, fmt.Errorf("the holder of the instances does not answer within %s", holderStarts))
	defer cancel()
	for {
		h, err := hold.Find(ctx, c.State)
		if err == nil {
			return h, nil
		}
		select {
		case err := <-ended:
			return nil, holderEnded(path, err)
		case <-ctx.Done():
			_ = cmd.Process.Signal(syscall.SIGTERM) // on error, the holder has already ended
			<-ended                                 //nolint:errcheck // the signal ended it
			return nil, context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// holderEnded explains why a holder ended before it answered. It removes the log, or the next start would keep
// that one, and not the log of the last holder that answered.
func holderEnded(log string, err error) error {
	text := substrate.LastOutput(log, 2048)
	_ = os.Remove(log) // on error, only the older log is lost
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == exitUnsupported {
		return &vitrine.Unsupported{What: "running the instances", Missing: text}
	}
	return fmt.Errorf("the holder of the instances ended: %w: %s", err, text)
}

// holderEnds limits the time for a holder to remove everything.
const holderEnds = 2 * time.Minute

// endHolder asks a file's holder to end, and waits until it has ended. It returns an error if something
// may be left on the host.
func endHolder(ctx context.Context, c *config.Config, h *hold.Client) error {
	holder := pidfd.Set{}
	defer holder.Close()
	if err := holder.Add(h.About.PID); err != nil {
		return err
	}
	if err := h.End(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, holderEnds)
	defer cancel()
	for h.Alive() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("run %s, pid %d, did not end within %s after the request", h.About.Run, h.About.PID, holderEnds)
		case <-time.After(20 * time.Millisecond):
		}
	}
	if h.OnRecord() {
		_ = holder.Wait(ctx) // a holder that could not remove everything tries once more
	}
	if h.OnRecord() {
		return fmt.Errorf("run %s ended, but could not remove everything: try vitrine clean; the end of %s: %s",
			h.About.Run, holderLog(c), substrate.LastOutput(holderLog(c), 2048))
	}
	return nil
}

// leaveDirectors removes the instances of a holder from the directors, before the holder ends. Otherwise the
// directors would go on sending them traffic, and the orchestrator of another file would be refused.
func (a *app) leaveDirectors(ctx context.Context, c *config.Config, h *hold.Client) {
	const mayStay = "instances may stay in a director; remove them with vitrine director instances remove"
	log := a.logFrom(slog.LevelInfo)
	units, err := h.Units(ctx)
	directors, failed := directorsOf(c)
	if err := errors.Join(err, failed); err != nil {
		log.Warn(mayStay, "error", err)
		return
	}
	for i, d := range directors {
		if err := removeUnits(ctx, d, units); err != nil {
			log.Warn(mayStay, "director", c.Directors[i].Control, "error", err)
		}
	}
}

// removeUnits removes units from a director. Another orchestrator may use the same names, but not the same
// addresses. A failed unit has no address any more, so its instance goes only if the director finds it away.
func removeUnits(ctx context.Context, d *client.Client, units []unit.Unit) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second) // for all units, because a director that hangs does so for each one
	defer cancel()
	all, err := d.Instances(ctx)
	for i := range all {
		in := &all[i]
		isUnit := func(u unit.Unit) bool {
			return u.Name == in.Name && u.Type == in.Type && (u.Address == in.Address.String() || u.State == unit.Failed && in.Health == "away")
		}
		if slices.ContainsFunc(units, isUnit) {
			err = errors.Join(err, d.Remove(ctx, in.Name))
		}
	}
	return err
}

// A holderRunner runs units through the holder of a state folder. It starts a holder if
// there is none.
type holderRunner struct {
	file *config.Config
	log  *slog.Logger

	mu      sync.Mutex
	found   bool // the holder of an earlier run was there
	client  *hold.Client
	started time.Time     // when a holder was last started
	pause   time.Duration // shortest time between that start and the next one
	failure error         // of that start; nil: the holder answered
}

// Pauses between starts of holders double. A holder that lives for longestHolderPause more than the pause ends that.
const (
	firstHolderPause   = time.Second
	longestHolderPause = time.Minute
)

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
		if err = r.mayStart(time.Now()); err == nil {
			c, err = startHolder(ctx, r.file)
			r.failure = err
		}
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

// mayStart records the start of a holder, or returns an error if the start comes too early. Each holder makes a
// fabric and gets the services, so holders whose fabric ends at once must not follow each other every second.
func (r *holderRunner) mayStart(now time.Time) error {
	since := now.Sub(r.started)
	if wait := r.pause - since; wait > 0 {
		why := cmp.Or(r.failure, fmt.Errorf("the holder of the instances ended soon after its start, see %s", holderLog(r.file)))
		return fmt.Errorf("%w; the next one starts in %s", why, wait.Round(time.Second))
	}
	if since < r.pause+longestHolderPause {
		r.pause = min(2*r.pause, longestHolderPause)
	} else {
		r.pause = firstHolderPause
	}
	r.started = now
	return nil
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

// end ends the holder and everything that it runs. It returns an error if a holder that it cannot reach is left.
func (r *holderRunner) end(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.client != nil && r.client.Alive() {
		return endHolder(ctx, r.file, r.client)
	}
	if _, err := hold.Find(ctx, r.file.State); !errors.Is(err, hold.ErrNone) {
		return err // for example, the holder's run has lost its folder, and the instances go on running
	}
	return nil
}
