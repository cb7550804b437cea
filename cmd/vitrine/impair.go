package main

import (
	"os"
	"time"

	"github.com/spf13/cobra"

	"vitrine/fabric/impair"
)

// impairCommand is the network emulator for runs with impaired links.
func (a *app) impairCommand() *cobra.Command {
	return &cobra.Command{
		Use:    impair.Verb,
		Short:  "Move frames between interfaces of this network namespace, late, by the orders on standard input",
		Args:   args(cobra.NoArgs),
		Hidden: true,
		RunE: func(c *cobra.Command, _ []string) error {
			return impair.Serve(c.Context(), time.Now, os.Stdin, a.stdout)
		},
	}
}
