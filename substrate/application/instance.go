package application

import (
	"context"
	"slices"

	"vitrine"
	"vitrine/image"
	"vitrine/substrate"
)

// An instance is one whose substrate does not know what its image runs.
type instance struct {
	substrate.Instance
	content image.Content
	inside  []string     // before a command; empty: nothing
	remove  func() error // what was unpacked for it; nil: nothing
}

// Start runs the command, or what the image says.
func (in *instance) Start(ctx context.Context, c vitrine.Command) (substrate.Process, error) {
	if len(c.Args) == 0 {
		c.Args = in.content.Command
	}
	return in.Instance.Start(ctx, in.command(c))
}

// Run runs a command beside it.
func (in *instance) Run(ctx context.Context, c vitrine.Command) error {
	return in.Instance.Run(ctx, in.command(c))
}

// command is the command in the image: with its environment, below the
// command's own.
func (in *instance) command(c vitrine.Command) vitrine.Command {
	c.Env = substrate.MergeEnvironment(in.content.Environment, c.Env)
	if len(in.inside) > 0 {
		c.Args = slices.Concat(in.inside, []string{c.Dir}, c.Args)
		c.Dir = ""
	}
	return c
}

// Remove removes the instance, then what was unpacked for it.
func (in *instance) Remove(ctx context.Context) error {
	err := in.Instance.Remove(ctx)
	if err == nil && in.remove != nil {
		err = in.remove()
	}
	return err
}
