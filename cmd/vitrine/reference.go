package main

import (
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"runtime"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"vitrine/load"
)

// A program is a command inside the binary that parses its own arguments.
type program func(ctx context.Context, args []string, stdout, stderr io.Writer) error

// programCommand returns a command that runs one of the programs. Its first argument is the name
// of the program. The program gets the other arguments.
func (a *app) programCommand(use, short string, programs map[string]program) *cobra.Command {
	c := &cobra.Command{
		Use:                use,
		Short:              short,
		DisableFlagParsing: true,
		ValidArgs:          slices.Sorted(maps.Keys(programs)),
	}
	c.RunE = func(c *cobra.Command, given []string) error {
		if len(given) == 0 || given[0] == "--help" || given[0] == "-h" {
			return c.Help()
		}
		p, ok := programs[given[0]]
		if !ok {
			return oneOf(c.CommandPath(), given[0], c.ValidArgs)
		}
		err := p(c.Context(), given[1:], a.stdout, a.stderr)
		if errors.Is(err, pflag.ErrHelp) {
			return nil
		}
		return err
	}
	c.Long = short + ".\n\nOne of:"
	for _, name := range c.ValidArgs {
		c.Long += " " + name
	}
	return c
}

func (a *app) referenceCommand() *cobra.Command {
	return a.programCommand("reference NAME [FLAG...]", "Run a component of the reference functions", references())
}

func (a *app) generateCommand() *cobra.Command {
	programs := map[string]program{}
	for name, kind := range generators() {
		programs[name] = func(ctx context.Context, args []string, stdout, stderr io.Writer) error {
			t, err := load.ReadTrial(args, os.Environ())
			if err != nil {
				return err
			}
			// One goroutine of a generator does all the work, and more threads of the runtime would
			// only spin.
			runtime.GOMAXPROCS(1)
			return kind.run(ctx, t, stdout, stderr)
		}
	}
	c := a.programCommand("generate NAME [OPTION...]", "Run a built-in load generator for one trial, with the interface of generator scripts", programs)
	c.Long += "\n\nOptions: --rate R --duration S --warmup S --targets ADDR:PORT,... --scratch DIR --seed N --param NAME=VALUE"
	return c
}
