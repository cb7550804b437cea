package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"vitrine/internal/runstate"
)

func (a *app) cleanCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "clean",
		Short: "Remove what killed runs left on this host",
		Long:  "Remove what killed runs left on this host: only objects with the label of a run that is\nno longer alive. Live runs are not touched.",
		Args:  args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			run, err := runstate.New(runstate.DefaultRoot())
			if err != nil {
				return err
			}
			return errors.Join(a.cleanUp(c.Context(), run, a.stdout), run.Close())
		},
	}
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
