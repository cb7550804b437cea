package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"vitrine/fabric/impair"
	"vitrine/measure"
	"vitrine/measure/chain"
	"vitrine/result"
	"vitrine/spec"
)

// options is what the back ends of a measurement are told: in a campaign, its
// deployment says that. The zero value tells them nothing.
type options struct {
	path   string // of the file; empty: there is none
	file   spec.File
	parts  map[string]spec.Node // by back end
	impair *impair.Config
}

// register gives the verb the flag.
func (o *options) register(c *cobra.Command, of string) {
	c.Flags().StringVar(&o.path, "options", "", of+"a file with what substrates and fabrics are told, as under servers in a deployment: macvlan's parent, impair")
	_ = c.MarkFlagFilename("options", "yaml", "yml", "json")
}

// The components that links of instances are named by, beside generator.
func networkComponents() []string { return []string{"receiver"} }
func chainComponents() []string   { return []string{chain.Receiver, chain.Hop} }

// load reads the file, and gives the options as settings keep them. Links are
// those of instances of the components.
func (o *options) load(components []string) (measure.Options, error) {
	if o.path == "" {
		return nil, nil
	}
	var err error
	if o.parts, o.file, err = spec.LoadOptions(o.path, known()); err != nil {
		return nil, err
	}
	if part, ok := o.parts[impairPart]; ok {
		links, err := impair.Read(part, components)
		if err != nil {
			return nil, err
		}
		o.impair = &links
	}
	given := measure.Options{}
	for name, part := range o.parts {
		var fields map[string]any
		if err := part.Decode(&fields); err != nil {
			return nil, err
		}
		if given[name], err = json.Marshal(fields); err != nil {
			return nil, err
		}
	}
	return given, nil
}

// folder is what relative paths of the options start from; empty: there are none.
func (o *options) folder() string {
	if o.path == "" {
		return ""
	}
	return o.file.Resolve(".")
}

// specs are how a manifest keeps the options, so that a run is continued with
// the same.
func (o *options) specs() []result.Spec {
	if o.path == "" {
		return nil
	}
	return []result.Spec{result.NewSpec("options", o.file.Path, o.file.Raw)}
}

// printOptions is how a plan shows them.
func printOptions(w io.Writer, given measure.Options) {
	for name, said := range given.All() {
		fmt.Fprintf(w, "options of %s: %s\n", name, said)
	}
}
