package main

import (
	"github.com/spf13/cobra"

	"vitrine/image"
	"vitrine/spec"
)

// kindApplication is the kind of file that images are built from.
const kindApplication = "application"

func (a *app) schemaCommand() *cobra.Command {
	c := &cobra.Command{
		Use:       "schema deployment|workload|application|profile",
		Short:     "Print the JSON Schema of an input file, including the options of back ends, or of a capacity profile",
		Args:      args(cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs)),
		ValidArgs: []string{spec.KindDeployment, spec.KindWorkload, kindApplication, spec.KindProfile},
		RunE: func(_ *cobra.Command, given []string) error {
			text, err := schemaOf(given[0])
			if err == nil {
				_, err = a.stdout.Write(text)
			}
			return err
		},
	}
	return c
}

func schemaOf(kind string) ([]byte, error) {
	if kind == kindApplication {
		return image.Schema(), nil
	}
	return spec.Schema(kind, knownBackends())
}
