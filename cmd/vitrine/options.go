package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"vitrine"
	"vitrine/document"
	"vitrine/fabric/impair"
	"vitrine/measure"
	"vitrine/measure/chain"
	"vitrine/result"
	"vitrine/spec"
	"vitrine/testbed/quiet"
)

// options configures the back ends of a run. For a campaign they come from its deployment, and for
// a measurement from a file. The zero value has no options.
type options struct {
	path   string                   // of the options file; empty: no file
	specs  []result.Spec            // the file, as a manifest keeps it
	folder string                   // base of relative paths; empty: there are no relative paths
	parts  map[string]document.Node // by back end
	impair *impair.Config
}

// register adds the --options flag. of is a prefix for its help text.
func (o *options) register(c *cobra.Command, of string) {
	c.Flags().StringVar(&o.path, "options", "", of+"file with options of substrates and fabrics, as under servers in a deployment, such as macvlan's parent or impair")
	_ = c.MarkFlagFilename("options", "yaml", "yml", "json")
}

// runFlags are the flags of every run, whatever it measures.
type runFlags struct {
	out    string
	resume bool
	dryRun bool
	json   bool
	cpuSharing
}

// register adds the flags. name is part of the default folder's name. unit is what --resume does
// not repeat. outcome is what --json prints.
func (f *runFlags) register(c *cobra.Command, name, unit, outcome string) {
	c.Flags().StringVar(&f.out, "out", "", "run folder (default runs/"+name+"-TIME)")
	c.Flags().BoolVar(&f.resume, "resume", false, "continue the run in --out; no finished "+unit+" is repeated")
	c.Flags().BoolVar(&f.dryRun, "dry-run", false, "print the plan and its estimated time, and start nothing")
	c.Flags().BoolVar(&f.wait, "wait", false, "wait while another run uses the same CPUs, instead of exiting with status 3")
	c.Flags().BoolVar(&f.shared, "shared-cpus", false, "do not lock the CPUs and do not check for disturbance by other work; the report mentions it")
	f.slowdown = quiet.DefaultSlowdown
	c.Flags().Var(&f.slowdown, "slowdown", "repeat a trial if neighbours slowed fixed work on its CPUs by more than this share")
	c.MarkFlagsMutuallyExclusive("wait", "shared-cpus")
	c.MarkFlagsMutuallyExclusive("slowdown", "shared-cpus")
	c.Flags().BoolVar(&f.json, "json", false, "print "+outcome+" (or the plan) as JSON")
}

// completeFlag makes the shell complete a flag with the given values.
func completeFlag(c *cobra.Command, name string, values []string) {
	_ = c.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// checkPlaces refuses unknown substrates and fabrics, and resolves the fabric
// names in place.
func checkPlaces(substrates, fabrics []string) error {
	for _, name := range substrates {
		if err := oneOf("--substrate", name, substrateNames()); err != nil {
			return err
		}
	}
	for i, name := range fabrics {
		if err := oneOf("--fabric", name, fabricNames()); err != nil {
			return err
		}
		fabrics[i] = fabricName(name)
	}
	return nil
}

// networkComponents returns the components whose instances have numbers. Impaired links may refer to
// them, and to the instance generator.
func networkComponents() []string { return []string{measure.Receiver} }
func chainComponents() []string   { return []string{vitrine.Generator, chain.Receiver, chain.Hop} }

// load reads the options file and returns the options as measurement settings
// store them. Impaired links may name only the given components.
func (o *options) load(components []string) (measure.Options, error) {
	if o.path == "" {
		return nil, nil
	}
	var err error
	var file document.File
	if o.parts, file, err = spec.LoadOptions(o.path, knownBackends()); err != nil {
		return nil, err
	}
	o.folder, o.specs = file.Resolve("."), []result.Spec{result.NewSpec("options", file.Path, file.Raw)}
	if o.impair, err = impairment(o.parts, components); err != nil {
		return nil, err
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

// deploymentOptions returns the options that a deployment sets for its back ends.
func deploymentOptions(d *spec.Deployment) (*options, error) {
	var components []string
	for _, c := range d.Components {
		components = append(components, c.Name)
	}
	links, err := impairment(d.Servers.Parts, components)
	if err == nil {
		err = checkImpairment(d, links)
	}
	return &options{parts: d.Servers.Parts, folder: d.Resolve("."), impair: links}, errors.Join(err, d.CheckQuotas(), checkInstances(d))
}

// checkInstances checks that the substrates can run the deployment's instances.
func checkInstances(d *spec.Deployment) error {
	c := document.Errors{Node: d.Root()}
	for _, name := range d.Servers.Substrate {
		kind := substrates()[name]
		for i, fabric := range d.Servers.Fabric {
			if !wires(fabric, name) {
				c.Bad("fabric "+fabric, "the machines of substrate "+name+" need interfaces of their own: use a fabric of network namespaces, such as bridge", "servers", "fabric", i)
			}
		}
		for i, f := range d.Flavors {
			if d.Uses(f) && int64(f.Memory) < kind.memory {
				has := fmt.Sprintf("%d MiB", f.Memory>>20)
				if f.Memory < 1<<20 {
					has = fmt.Sprintf("%d bytes", f.Memory)
				}
				c.Bad(fmt.Sprintf("flavor %s has %s of memory", f.Name, has), fmt.Sprintf("substrate %s needs at least %d MiB", name, kind.memory>>20), "flavors", i, "memory")
			}
		}
		for i, component := range d.Components {
			if component.User != "" && kind.userless {
				c.Bad("user "+component.User, "substrate "+name+" has no users: leave it out", "components", i, "user")
			}
		}
	}
	return c.Join()
}

// printOptions prints the options as part of a plan.
func printOptions(w io.Writer, given measure.Options) {
	for name, text := range given.All() {
		fmt.Fprintf(w, "options of %s: %s\n", name, text)
	}
}
