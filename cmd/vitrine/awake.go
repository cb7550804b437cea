package main

import (
	"github.com/spf13/cobra"

	"vitrine/trial"
)

// awakeCommand keeps the function's CPUs busy in campaigns with keep_awake.
func (a *app) awakeCommand() *cobra.Command {
	return &cobra.Command{
		Use:    trial.AwakeVerb + " FILE",
		Short:  "Keep the CPU that it runs on from going idle, until it is ended, and write its CPU time into a file",
		Args:   args(cobra.ExactArgs(1)),
		Hidden: true,
		RunE:   func(c *cobra.Command, given []string) error { return trial.Spin(c.Context(), given[0]) },
	}
}
