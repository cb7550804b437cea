package main

import (
	"github.com/spf13/cobra"

	"vitrine/spec"
)

func (a *app) schemaCommand() *cobra.Command {
	c := &cobra.Command{
		Use:       "schema deployment|workload|profile",
		Short:     "Print the JSON Schema of a file that users write, back ends' parts included, or of a capacity profile",
		Args:      args(cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs)),
		ValidArgs: []string{spec.KindDeployment, spec.KindWorkload, spec.KindProfile},
		RunE: func(_ *cobra.Command, given []string) error {
			text, err := spec.Schema(given[0], known())
			if err != nil {
				return err
			}
			_, err = a.stdout.Write(text)
			return err
		},
	}
	return c
}
