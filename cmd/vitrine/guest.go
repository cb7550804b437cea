package main

import (
	"os"

	"github.com/spf13/cobra"

	"vitrine/substrate/qemu/guest"
)

// guestVerb makes this program the agent inside a virtual machine.
const guestVerb = "guest"

func (a *app) guestCommand() *cobra.Command {
	return &cobra.Command{
		Use:    guestVerb + " VERB",
		Short:  "Run the agent inside a virtual machine",
		Hidden: true,
		Args:   args(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, given []string) error {
			return guest.Main(c.Context(), []string{os.Args[0], guestVerb}, given[0])
		},
	}
}
