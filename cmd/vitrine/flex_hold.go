package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"vitrine"
	"vitrine/flex/config"
	"vitrine/flex/hold"
	"vitrine/internal/runstate"
	"vitrine/spec"
	"vitrine/substrate"
)

// holdVerb starts this program as the holder of a file's instances.
const holdVerb = "hold"

// flexHold returns the command of the holder. The holder runs the instances, and continues without
// an orchestrator.
func (a *app) flexHold() *cobra.Command {
	return &cobra.Command{
		Use:    holdVerb + " FILE",
		Short:  "Hold the instances of a file for an orchestrator",
		Hidden: true,
		Args:   args(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, given []string) error {
			file, err := config.Load(given[0], knownBackends())
			if err != nil {
				return err
			}
			return a.hold(c.Context(), file)
		},
	}
}

// holderLock is the file in a state folder that the holder locks. Only this lock shows a holder
// that starts and has no record yet.
const holderLock = "holder.lock"

// hold runs units until a client or a signal ends it.
func (a *app) hold(ctx context.Context, c *config.Config) (err error) {
	log := a.logFrom(slog.LevelInfo)
	lock, err := runstate.LockFile(filepath.Join(c.State, holderLock), runstate.Owner{PID: os.Getpid(), Command: os.Args})
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

// holderStarts limits the time until a new holder answers.
const holderStarts = time.Minute

// startHolder starts a holder and waits until it answers. The holder gets its own session,
// so that signals to the orchestrator do not reach it.
func startHolder(ctx context.Context, c *config.Config) (*hold.Client, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program's own file: %w", err)
	}
	path := filepath.Join(c.State, "holder.log")
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	log, err := substrate.OpenOutput(path)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the holder has its own descriptor
	cmd := exec.CommandContext(context.WithoutCancel(ctx), self, "flex", holdVerb, c.Path)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
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

// holderEnded explains why a holder ended before it answered.
func holderEnded(log string, err error) error {
	text := substrate.LastOutput(log, 2048)
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == exitUnsupported {
		return &vitrine.Unsupported{What: "running the instances", Missing: text}
	}
	return fmt.Errorf("the holder of the instances ended: %w: %s", err, text)
}
