package application

import (
	"context"
	"slices"
	"sync/atomic"

	"vitrine"
	"vitrine/image"
	"vitrine/substrate"
)

// An instance adds its image's command and environment to each command.
type instance struct {
	substrate.Instance
	content image.Content
	account *substrate.Account // that commands in an unpacked image run as; nil: the substrate knows
	inside  []string           // words before a command; empty: none
	unpack  func() error       // unpacks the image again; nil: it is not unpacked
	used    atomic.Bool        // a command may have changed the unpacked files
	remove  func() error       // removes the unpacked image; nil: none
}

// Start runs the command, or the image's own command when c has none.
func (in *instance) Start(ctx context.Context, c vitrine.Command) (substrate.Process, error) {
	if len(c.Args) == 0 {
		c.Args = in.content.Command
	}
	in.used.Store(true)
	return in.Instance.Start(ctx, in.command(c))
}

// Run runs a command beside the one that Start started.
func (in *instance) Run(ctx context.Context, c vitrine.Command) error {
	in.used.Store(true)
	return in.Instance.Run(ctx, in.command(c))
}

// Restore unpacks the image again if a command may have changed its files. A container and a
// unikernel start from their image each time.
func (in *instance) Restore() error {
	if in.unpack == nil || !in.used.Load() {
		return nil
	}
	err := in.unpack()
	in.used.Store(err != nil) // the files may be incomplete now
	return err
}

// command returns the command as it runs in the image. The command's variables override the
// image's.
func (in *instance) command(c vitrine.Command) vitrine.Command {
	c.Env = substrate.MergeEnvironment(in.content.Environment, c.Env)
	if len(in.inside) > 0 {
		c.Args = slices.Concat(in.inside, []string{c.Dir}, c.Args)
		c.Dir = ""
	}
	return c
}

// Own gives a file or folder to the user that commands run as.
func (in *instance) Own(path string) error {
	if in.account != nil {
		return in.account.Own(path)
	}
	return substrate.Own(in.Instance, path)
}

// Logs returns the substrate's own logs of the instance.
func (in *instance) Logs() []string { return substrate.Logs(in.Instance) }

// Remove removes the instance, then its unpacked image.
func (in *instance) Remove(ctx context.Context) error {
	err := in.Instance.Remove(ctx)
	if err == nil && in.remove != nil {
		err = in.remove()
	}
	return err
}
