package trial

import (
	"context"
	"errors"
	"fmt"
	"maps"
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
)

// A deployment is one sizing, up.
type deployment struct {
	site      *site
	config    *Config
	sizing    vitrine.Sizing
	order     []*spec.Component
	instances []*instance // in the order of components
	booted    time.Duration
}

// deploy makes a place for every instance of the sizing, wires them and boots
// them. When it fails nothing stays.
func deploy(ctx context.Context, c *Config, s *site, sizing vitrine.Sizing) (_ *deployment, err error) {
	d := &deployment{site: s, config: c, sizing: sizing, order: c.Deployment.Order()}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.remove(context.WithoutCancel(ctx)))
		}
	}()
	specs, err := d.specs(c.Results.LogDir(s.choice.Substrate, s.choice.Options, sizing.String()))
	if err != nil {
		return nil, err
	}
	group, gctx := errgroup.WithContext(ctx)
	for i, in := range d.instances {
		group.Go(func() error { return in.create(gctx, s.function, s.fabric, specs[i]) })
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for _, in := range d.instances {
		d.equip(in)
	}
	return d, d.boot(ctx)
}

// specs lists the instances of the sizing, each with a folder below root, and
// what each is given.
func (d *deployment) specs(root string) ([]substrate.Spec, error) {
	c := d.config
	var specs []substrate.Spec
	var demands []demand
	for _, comp := range d.order {
		count, flavor := c.Deployment.Given(comp, d.sizing)
		for i := 1; i <= count; i++ {
			in := &instance{name: fmt.Sprintf("%s-%d", comp.Name, i), index: i, component: comp}
			in.dir = filepath.Join(root, in.name)
			d.instances = append(d.instances, in)
			demands = append(demands, demand{in.name, flavor.VCPUs, flavor.Pin})
			specs = append(specs, substrate.Spec{
				Run: c.RunID, Name: in.name, Component: comp.Name, Image: comp.Image,
				VCPUs: flavor.VCPUs, Memory: flavor.Memory, CFSPeriod: d.site.choice.CFSPeriod, Dir: in.dir,
			})
		}
	}
	cpus, err := assign(c.CPUs.Function, d.site.choice.Pinning, demands)
	if err != nil {
		return nil, fmt.Errorf("sizing %s: %w", d.sizing, err)
	}
	for i := range specs {
		specs[i].CPUs = cpus[specs[i].Name]
	}
	return specs, nil
}

// equip works out the instance's environment once all addresses are known.
func (d *deployment) equip(in *instance) {
	c := in.component
	in.vars = map[string]string{
		"ADDRESS":          in.endpoint.Addr.String(),
		"VITRINE_INSTANCE": in.name,
		"VITRINE_INDEX":    strconv.Itoa(in.index),
		"VITRINE_DIR":      filepath.Join(in.dir, scratchDir),
		"VITRINE_SIZING":   d.sizing.String(),
		"VITRINE_SPEC":     d.config.Deployment.Resolve("."),
	}
	for _, dep := range c.Dependencies {
		if dep.As == "" {
			continue
		}
		in.vars[dep.As] = d.addresses(dep.Component, dep.Port)
	}
	if c.Cluster != nil {
		in.vars[c.Cluster.As] = d.addresses(c.Name, c.Cluster.Port)
	}
	given := maps.Clone(in.vars) // values refer to these, not to each other
	for name, value := range c.Environment {
		in.vars[name] = spec.Expand(value, given)
	}
	in.env = in.env[:0]
	for name, value := range in.vars {
		in.env = append(in.env, name+"="+value)
	}
	slices.Sort(in.env)
}

// addresses lists addr:port of the component's instances, in their order.
func (d *deployment) addresses(component, port string) string {
	var all []string
	for _, in := range d.instances {
		if in.component.Name == component {
			all = append(all, in.at(in.component, port).String())
		}
	}
	return strings.Join(all, ",")
}

// targets lists addr:port of the entry component's instances.
func (d *deployment) targets() []string {
	entry, _ := d.config.Deployment.Entry()
	return strings.Split(d.addresses(entry.Name, entry.Entry), ",")
}

// boot installs and starts the components in the order of their dependencies,
// each ready before those that need it. It notes how long that took.
func (d *deployment) boot(ctx context.Context) error {
	began := time.Now()
	defer func() { d.booted = time.Since(began) }()
	for _, c := range d.order {
		group, gctx := errgroup.WithContext(ctx)
		for _, in := range d.instances {
			if in.component == c {
				group.Go(func() error { return d.bootInstance(gctx, in) })
			}
		}
		if err := group.Wait(); err != nil {
			return err
		}
	}
	return nil
}

func (d *deployment) bootInstance(ctx context.Context, in *instance) error {
	for _, install := range d.config.Deployment.Install {
		if install.Component != in.component.Name {
			continue
		}
		if err := d.install(ctx, in, install); err != nil {
			return fmt.Errorf("install %s by %s: %w", in.name, install.Script, err)
		}
	}
	err := in.start(ctx, vitrine.Command{
		Args: d.expand(in, in.component.Command), Env: in.env, Dir: in.vars["VITRINE_DIR"],
	})
	if err != nil {
		return err
	}
	return d.waitReady(ctx, in)
}

func (d *deployment) install(ctx context.Context, in *instance, i spec.Install) error {
	ctx, cancel := context.WithTimeoutCause(ctx, i.TimeLimit, fmt.Errorf("took longer than its time_limit of %s", i.TimeLimit))
	defer cancel()
	// Into the instance's own folder, which is all that a container sees.
	script := filepath.Join(in.vars["VITRINE_DIR"], filepath.Base(i.Script))
	text, err := os.ReadFile(i.Script)
	if err != nil {
		return err
	}
	if err := os.WriteFile(script, text, 0o755); err != nil {
		return err
	}
	err = in.place.Run(ctx, vitrine.Command{Args: []string{script}, Env: in.env, Dir: in.vars["VITRINE_DIR"]})
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// restart is a fresh deployment on the same places: every process is ended,
// what it wrote is gone, and all are booted again.
func (d *deployment) restart(ctx context.Context) error {
	if err := d.stop(ctx); err != nil {
		return err
	}
	for _, in := range d.instances {
		scratch := in.vars["VITRINE_DIR"]
		if err := errors.Join(os.RemoveAll(scratch), os.MkdirAll(scratch, 0o755)); err != nil {
			return fmt.Errorf("empty %s's folder: %w", in.name, err)
		}
	}
	return d.boot(ctx)
}

func (d *deployment) stop(ctx context.Context) error {
	var group errgroup.Group
	for _, in := range d.instances {
		group.Go(func() error {
			if err := in.place.Stop(ctx, stopGrace); err != nil {
				return fmt.Errorf("stop %s: %w", in.name, err)
			}
			return nil
		})
	}
	return group.Wait()
}

func (d *deployment) remove(ctx context.Context) error {
	errs := make([]error, len(d.instances))
	var group errgroup.Group
	for i, in := range d.instances {
		group.Go(func() error {
			errs[i] = in.remove(ctx, d.site.fabric)
			return nil
		})
	}
	_ = group.Wait()
	return errors.Join(errs...)
}

// died says which instance has ended, if one has.
func (d *deployment) died() error {
	for _, in := range d.instances {
		select {
		case <-in.process.Done():
			return in.ended()
		default:
		}
	}
	return nil
}

// expand puts the instance's variables into a command's arguments; the program
// "vitrine" is this very executable. No arguments stand for the image's own.
func (d *deployment) expand(in *instance, args []string) []string {
	out := spec.Args(args).Expand(in.vars)
	if len(out) > 0 && out[0] == "vitrine" {
		out[0] = d.config.Backends.Self
	}
	return out
}
