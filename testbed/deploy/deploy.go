// Package deploy runs a deployment's components in the instances of a placement. It gives each
// instance its environment and the addresses of the others, and starts the components in the order
// of their dependencies.
package deploy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"vitrine"
	"vitrine/spec"
	"vitrine/substrate"
	"vitrine/testbed"
)

const stopGrace = 2 * time.Second

// A Function is some or all components of a deployment, to deploy at one sizing.
type Function struct {
	Deployment  *spec.Deployment
	Sizing      vitrine.Sizing
	Members     []string          // components to deploy; nil: all
	Prefix      string            // of the instances' names; empty: none
	Number      uint16            // VITRINE_NUMBER of every instance, which distinguishes several functions; 0 counts as 1
	Environment map[string]string // overrides variables of every instance; values may refer to variables that every instance gets
}

// A Planned is one instance to place, and its component.
type Planned struct {
	testbed.Spec
	Component *spec.Component
	Flavor    vitrine.Flavor
	Index     int // 1, 2, ... among the component's instances
}

// Plan lists the function's instances, in the order in which components start.
func (f Function) Plan() []Planned {
	var all []Planned
	for _, c := range f.Deployment.Order() {
		if f.Members != nil && !slices.Contains(f.Members, c.Name) {
			continue
		}
		count, flavor := f.Deployment.Given(c, f.Sizing)
		for i := 1; i <= count; i++ {
			all = append(all, Planned{Component: c, Flavor: flavor, Index: i, Spec: testbed.Spec{Spec: substrate.Spec{
				Name: fmt.Sprintf("%s%s-%d", f.Prefix, c.Name, i), Component: c.Name, Image: c.Image, VCPUs: flavor.VCPUs, Memory: flavor.Memory,
				User: c.User, AllowPrivilegeEscalation: c.AllowPrivilegeEscalation,
			}}})
		}
	}
	return all
}

// A Deployment is a function whose instances are placed on a site.
type Deployment struct {
	*testbed.Placement
	function  Function
	self      string
	patience  int         // factor of the time limits of install scripts, and until instances are ready
	instances []*instance // in the order of placement
}

// emulatedPatience is the patience with emulated machines, which run programs many times slower.
const emulatedPatience = 4

// An instance is one running copy of a component.
type instance struct {
	*testbed.Instance
	component *spec.Component
	own       map[string]string // environment that the component and the flavor set
	vars      map[string]string // values of ${VAR} in its command
	env       []string
}

// Place places the planned instances of a function on a site. self is the path of this executable,
// which runs in place of the program "vitrine".
func Place(ctx context.Context, site *testbed.Site, dir, self string, f Function, all []Planned) (*Deployment, error) {
	specs := make([]testbed.Spec, len(all))
	for i, p := range all {
		specs[i] = p.Spec
	}
	placed, err := site.Place(ctx, dir, specs...)
	if err != nil {
		return nil, err
	}
	d := &Deployment{Placement: placed, function: f, self: self, patience: 1}
	if site.Accelerator == vitrine.Emulation {
		d.patience = emulatedPatience
	}
	for i, p := range all {
		d.instances = append(d.instances, &instance{Instance: placed.Instances[i], component: p.Component, own: f.Deployment.Environment(p.Component, p.Flavor.Name)})
	}
	for i, in := range d.instances { // after the loop above, all addresses are known
		in.vars = map[string]string{
			"ADDRESS":          in.Endpoint.Addr.String(),
			"VITRINE_INSTANCE": in.Name,
			"VITRINE_INDEX":    strconv.Itoa(all[i].Index),
			"VITRINE_NUMBER":   strconv.Itoa(int(max(f.Number, 1))),
			"VITRINE_DIR":      in.Scratch(),
			"VITRINE_SIZING":   f.Sizing.String(),
			"VITRINE_SPEC":     f.Deployment.Resolve("."),
		}
		d.setVariables(in)
	}
	return d, nil
}

// setVariables adds variables to the instance: the addresses of other components, the instance's
// own environment and the function's.
func (d *Deployment) setVariables(in *instance) {
	c := in.component
	reserved := maps.Clone(in.vars)
	for _, dep := range c.Dependencies {
		if dep.As != "" {
			in.vars[dep.As] = d.addresses(dep.Component, dep.Port)
		}
	}
	if c.Cluster != nil {
		in.vars[c.Cluster.As] = d.addresses(c.Name, c.Cluster.Port)
	}
	given := maps.Clone(in.vars) // values may refer to these variables, but not to each other
	for name, value := range in.own {
		in.vars[name] = spec.Expand(value, given)
	}
	for name, value := range d.function.Environment {
		in.vars[name] = spec.Expand(value, reserved)
	}
	for name, value := range in.vars {
		in.env = append(in.env, name+"="+value)
	}
	slices.Sort(in.env)
}

// addresses lists addr:port of the component's instances, in their order.
func (d *Deployment) addresses(component, port string) string {
	var all []string
	for _, in := range d.instances {
		if in.component.Name == component {
			all = append(all, in.at(port).String())
		}
	}
	return strings.Join(all, ",")
}

// at returns the address of one of the component's ports on this instance.
func (in *instance) at(port string) netip.AddrPort { return in.At(uint16(in.component.Ports[port])) }

// Targets lists addr:port of the entry component's instances.
func (d *Deployment) Targets() []string {
	entry := d.function.Deployment.EntryOf(d.function.Sizing)
	return strings.Split(d.addresses(entry.Name, entry.Entry), ",")
}

// Vantages lists the vantages of the instances.
func (d *Deployment) Vantages() (all []vitrine.Vantage) {
	for _, in := range d.instances {
		all = append(all, in.Vantage())
	}
	return all
}

// Boot installs and starts the components in the order of their dependencies. A component starts
// when the components that it needs are ready. Boot returns the time that this took. It probes
// readiness from the network namespace of the instance from.
func (d *Deployment) Boot(ctx context.Context, from *testbed.Instance) (took time.Duration, err error) {
	began := time.Now()
	for _, c := range d.function.Deployment.Order() {
		group, gctx := errgroup.WithContext(ctx)
		for _, in := range d.instances {
			if in.component == c {
				group.Go(func() error { return d.bootInstance(gctx, in, from) })
			}
		}
		if err := group.Wait(); err != nil {
			return 0, err
		}
	}
	return time.Since(began), nil
}

func (d *Deployment) bootInstance(ctx context.Context, in *instance, from *testbed.Instance) error {
	for _, install := range d.function.Deployment.Install {
		if install.Component != in.component.Name {
			continue
		}
		if err := d.install(ctx, in, install); err != nil {
			return fmt.Errorf("install %s by %s: %w", in.Name, install.Script, err)
		}
	}
	command := vitrine.Command{Args: d.expand(in, in.component.Command), Env: in.env, Dir: in.Scratch()}
	if err := in.Start(ctx, command); err != nil {
		return err
	}
	return d.awaitReady(ctx, in, from)
}

func (d *Deployment) install(ctx context.Context, in *instance, i spec.Install) error {
	late := fmt.Sprintf("took longer than its time_limit of %s", i.TimeLimit)
	if d.patience > 1 {
		late += fmt.Sprintf(", %d times because of emulation", d.patience)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, time.Duration(d.patience)*i.TimeLimit, errors.New(late))
	defer cancel()
	text, err := os.ReadFile(i.Script)
	if err != nil {
		return err
	}
	// A container sees only the instance's own folder, so the script must be there. The scratch folder is a
	// part of the name, because root in a container may replace it by a link.
	name := filepath.Join(filepath.Base(in.Scratch()), filepath.Base(i.Script))
	if err := substrate.WriteFile(in.Dir, name, text, 0o755); err != nil {
		return err
	}
	script := filepath.Join(in.Dir, name)
	err = in.Run(ctx, vitrine.Command{Args: []string{script}, Env: in.env, Dir: in.Scratch()})
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// awaitReady probes the instance as its component specifies.
func (d *Deployment) awaitReady(ctx context.Context, in *instance, from *testbed.Instance) error {
	r := in.component.Ready
	if r == nil {
		return nil
	}
	limit := time.Duration(d.patience) * r.Timeout
	if len(r.Command) > 0 {
		return in.Await(ctx, limit, func(ctx context.Context) error {
			return in.Run(ctx, vitrine.Command{Args: d.expand(in, r.Command), Env: in.env})
		})
	}
	var sip testbed.SIPProber
	defer sip.Close()
	return in.Await(ctx, limit, func(ctx context.Context) error {
		return from.Inside(func() error {
			switch {
			case r.TCP != "":
				return testbed.ProbeTCP(ctx, in.at(r.TCP))
			case r.SIP != "":
				return sip.Probe(ctx, in.at(r.SIP))
			case r.HTTP != nil:
				return testbed.ProbeHTTP(ctx, in.at(r.HTTP.Port), r.HTTP.Path)
			}
			return nil
		})
	})
}

// Clear prepares a fresh deployment on the same places. It ends the processes, empties the scratch
// folders and restores the images. docs/decisions/0003-places-outlive-processes.md says what stays.
func (d *Deployment) Clear(ctx context.Context) error {
	if err := d.Stop(ctx, stopGrace); err != nil {
		return err
	}
	var errs []error
	for _, in := range d.instances {
		errs = append(errs, in.ClearScratch())
	}
	return errors.Join(errs...)
}

// expand replaces variables in a command's arguments with the instance's values, and the program
// "vitrine" with this executable. Without arguments, the image's own command runs.
func (d *Deployment) expand(in *instance, args []string) []string {
	out := spec.Args(args).Expand(in.vars)
	if len(out) > 0 && out[0] == "vitrine" {
		out[0] = d.self
	}
	return out
}
