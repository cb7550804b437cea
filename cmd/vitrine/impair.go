package main

import (
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"vitrine/fabric/impair"
)

// impairCommand is the network emulator for runs with impaired links.
func (a *app) impairCommand() *cobra.Command {
	return &cobra.Command{
		Use:    impair.Verb,
		Short:  "Forward frames between interfaces of this network namespace with delay, controlled by standard input",
		Args:   args(cobra.NoArgs),
		Hidden: true,
		RunE: func(c *cobra.Command, _ []string) error {
			outlive(syscall.SIGHUP) // `systemctl kill -s HUP` reaches the emulator too, and its end would end the holder
			return impair.Serve(c.Context(), time.Now, c.InOrStdin(), a.stdout)
		},
	}
}
