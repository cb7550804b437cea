package main

import (
	"github.com/spf13/cobra"

	"vitrine/trial"
)

// awakeCommand keeps the function's CPUs busy in campaigns with keep_awake.
func (a *app) awakeCommand() *cobra.Command {
	return &cobra.Command{
		Use:    trial.AwakeVerb + " FILE",
		Short:  "Keep the current CPU from becoming idle until stopped, and write the CPU time used into a file",
		Args:   args(cobra.ExactArgs(1)),
		Hidden: true,
		RunE:   func(c *cobra.Command, given []string) error { return trial.Spin(c.Context(), given[0]) },
	}
}
