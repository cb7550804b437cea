package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"vitrine/internal/runstate"
)

func (a *app) cleanCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "clean",
		Short: "Remove what killed runs of this user left on this host",
		Long: "Remove what killed runs of this user left on this host: only objects with the label of a run\n" +
			"that is no longer alive. Live runs are not touched. Run it with sudo for runs of root.",
		Args: args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error { return a.clean(c.Context(), runstate.Roots()) },
	}
}

// clean cleans up after the dead runs below the roots. If it removed nothing, it prints where it looked.
func (a *app) clean(ctx context.Context, roots []string) error {
	var removed bytes.Buffer
	var errs []error
	for _, root := range roots {
		run, err := runstate.New(root)
		if err == nil {
			err = errors.Join(a.cleanUp(ctx, run, io.MultiWriter(a.stdout, &removed)), run.Close())
		}
		errs = append(errs, err)
	}
	err := errors.Join(errs...)
	if err == nil && removed.Len() == 0 {
		fmt.Fprintf(a.stderr, "nothing to remove: no dead run in %s left anything; runs of other users are not searched\n", strings.Join(roots, " or "))
	}
	return err
}

// cleanUp removes what dead runs left, and prints what it removed. If it cannot remove everything
// of a dead run, the run stays on record.
func (a *app) cleanUp(ctx context.Context, run *runstate.Run, out io.Writer) error {
	dead, err := runstate.Dead(run.Root)
	if err != nil {
		return err
	}
	b, err := newBackends(run, "", a.log())
	if err != nil {
		return err
	}
	list, err := b.cleaners(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, cleaner := range list {
		removed, err := cleaner.Clean(ctx)
		for _, what := range removed {
			fmt.Fprintln(out, "removed", what)
		}
		errs = append(errs, err)
	}
	failed := errors.Join(errs...)
	kept, others := runstate.Uncleaned(failed)
	for _, id := range dead {
		if !others && !slices.Contains(kept, id) {
			failed = errors.Join(failed, runstate.Forget(run.Root, id))
		}
	}
	return errors.Join(failed, runstate.ForgetUnnamed(run.Root))
}
