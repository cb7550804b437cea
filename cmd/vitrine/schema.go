package main

import (
	"github.com/spf13/cobra"

	"vitrine/affinity"
	"vitrine/flex/config"
	"vitrine/image"
	"vitrine/spec"
)

// The kinds of files in addition to those of package spec.
const (
	kindApplication = "application" // images are built from it
	kindAffinity    = "affinity"    // affinity.json
	kindNames       = "names"       // --names of affinity
)

func (a *app) schemaCommand() *cobra.Command {
	c := &cobra.Command{
		Use:       "schema deployment|workload|application|names|profile|affinity|flex",
		Short:     "Print the JSON Schema of an input file, including the options of back ends, of a capacity profile or of affinity.json",
		Args:      args(cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs)),
		ValidArgs: []string{spec.KindDeployment, spec.KindWorkload, kindApplication, kindNames, spec.KindProfile, kindAffinity, config.Kind},
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
	switch kind {
	case kindApplication:
		return image.Schema(), nil
	case kindNames:
		return affinity.NamesSchema(), nil
	case kindAffinity:
		return affinity.Schema(), nil
	case config.Kind:
		return config.Schema(knownBackends())
	}
	return spec.Schema(kind, knownBackends())
}
