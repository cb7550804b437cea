package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"vitrine"
	"vitrine/affinity"
	"vitrine/director"
	"vitrine/document"
	"vitrine/flex/config"
	"vitrine/image"
	"vitrine/spec"
)

func (a *app) validateCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "validate FILE...",
		Short: "Check files: deployments, workloads, and those of flex, director, image, --names and --options",
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

// A fileKind is a kind of file that users write.
type fileKind struct {
	name   string
	fields []string // at the top of the file
	check  func(path string) error
}

// fileKinds returns all kinds. If a file has as many fields of two kinds, the first of them counts.
func fileKinds() []fileKind {
	return []fileKind{
		{"file of options", []string{"servers"}, checkOptions},
		{spec.KindDeployment, document.Fields[spec.Deployment](), checkDeployment},
		{spec.KindWorkload, document.Fields[spec.Workload](), loads(loadWorkload)},
		{"flex file", document.Fields[config.Config](), checkFlex},
		{"director file", document.Fields[director.Config](), loads(director.Load)},
		{kindApplication, document.Fields[image.Application](), loads(image.Load)},
		{"file of names", document.Fields[affinity.Names](), loads(affinity.LoadNames)},
	}
}

// validate detects the kind of the file and checks the file, including the options of back ends. A
// file is of the kind that has the most of its top-level fields.
func validate(path string) (kind string, err error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() && !info.IsDir() {
		return "", &vitrine.BadInput{File: path, Found: "a pipe or a device", Want: "name a file, because validate reads it twice"}
	}
	file, err := document.ReadLong(path, "an input") // check refuses a long file of another kind
	if err != nil {
		return "", err
	}
	var best fileKind
	most := 0
	for _, k := range fileKinds() {
		n := 0
		for _, field := range k.fields {
			if !file.Root().Sub(field).IsZero() {
				n++
			}
		}
		if n > most {
			best, most = k, n
		}
	}
	if most == 0 {
		return "", file.BadInput("no kind of file that vitrine validate knows",
			"a deployment has vnf_name, components, flavors and mode; a workload generator, range, increase and duration; a flex file directors and types; "+
				"a director file listen and rules; an application name and command; a file of names functions; a file of options servers")
	}
	return best.name, best.check(path)
}

// loads returns a check that loads the file.
func loads[T any](load func(path string) (T, error)) func(path string) error {
	return func(path string) error {
		_, err := load(path)
		return err
	}
}

func checkDeployment(path string) error {
	d, err := spec.LoadDeployment(path, knownBackends())
	if err == nil {
		_, err = deploymentOptions(d)
	}
	return err
}

func checkFlex(path string) error {
	_, err := config.Load(path, knownBackends())
	return err
}

// checkOptions checks a file of --options. Impaired links may have the names of every measurement.
func checkOptions(path string) error {
	_, err := (&options{path: path}).load(chainComponents())
	return err
}
