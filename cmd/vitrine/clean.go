package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"vitrine/internal/runs"
)

func (a *app) cleanCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "clean",
		Short: "Remove what runs that were killed left on this host",
		Long:  "Remove what runs that were killed left on this host: only what carries the label of a\nrun that is no longer alive. Runs that go on are not touched.",
		Args:  args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			return a.cleanUp(c.Context(), a.stdout)
		},
	}
}

// cleanUp removes what dead runs left, and says what it removed.
func (a *app) cleanUp(ctx context.Context, out io.Writer) error {
	root := runs.DefaultRoot()
	dead, err := runs.Dead(root)
	if err != nil {
		return err
	}
	var errs []error
	for _, cleaner := range a.cleaners(ctx) {
		removed, err := cleaner.Clean(ctx)
		for _, what := range removed {
			fmt.Fprintln(out, "removed", what)
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, id := range dead {
		if err := runs.Forget(root, id); err != nil {
			return err
		}
	}
	return nil
}
