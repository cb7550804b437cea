package main

import (
	"github.com/spf13/cobra"

	"vitrine/trial"
)

// awakeCommand is what campaigns with keep_awake run on the function's CPUs.
func (a *app) awakeCommand() *cobra.Command {
	return &cobra.Command{
		Use:    trial.AwakeVerb,
		Short:  "Keep the CPU that it runs on from going idle, until it is ended",
		Args:   args(cobra.NoArgs),
		Hidden: true,
		RunE:   func(c *cobra.Command, _ []string) error { return trial.Spin(c.Context()) },
	}
}
