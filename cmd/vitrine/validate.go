package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"vitrine/spec"
)

func (a *app) validateCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "validate FILE...",
		Short: "Check deployment and workload files",
		Args:  args(cobra.MinimumNArgs(1)),
		RunE: func(_ *cobra.Command, files []string) error {
			var errs []error
			for _, file := range files {
				kind, err := validate(file)
				if err != nil {
					errs = append(errs, err)
					continue
				}
				fmt.Fprintf(a.stdout, "%s: a valid %s\n", file, kind)
			}
			return errors.Join(errs...)
		},
	}
}

// validate detects the kind of the file and checks the file, including the options of back ends.
func validate(file string) (kind string, err error) {
	kind, err = spec.Kind(file)
	if err != nil {
		return "", err
	}
	if kind == spec.KindWorkload {
		_, err = loadWorkload(file)
		return kind, err
	}
	d, err := spec.LoadDeployment(file, knownBackends())
	if err == nil {
		_, err = deploymentOptions(d)
	}
	return kind, err
}
