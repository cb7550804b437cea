package trial

import (
	"context"
	"errors"
	"fmt"

	"vitrine"
	"vitrine/document"
	"vitrine/fabric"
	"vitrine/spec"
	"vitrine/substrate"
)

// Backends makes what a campaign runs on. The command line fills it in from
// its explicit lists.
type Backends struct {
	// Substrate makes the choice's substrate; part is its own part of the deployment.
	Substrate func(ctx context.Context, choice spec.Choice, part document.Node) (substrate.Substrate, error)
	// Host makes the substrate that the generator runs on.
	Host func(ctx context.Context, choice spec.Choice) (substrate.Substrate, error)
	// Fabric makes the choice's fabric; "auto" is the best this host can do.
	Fabric func(ctx context.Context, choice spec.Choice, part document.Node) (fabric.Fabric, error)
	// Generator is the program of the workload's generator with its first arguments.
	Generator func(name string) ([]string, error)
	// Self is this very executable: what a command's program "vitrine" stands for.
	Self string
}

// A site is where one combination of options is measured: the function's
// substrate, the fabric, and the generator beside it.
type site struct {
	choice   spec.Choice
	function substrate.Substrate
	host     substrate.Substrate
	fabric   fabric.Fabric
	gen      *instance
	awake    []*awake // what keeps the function's CPUs awake

	accelerator string // of the function's virtual machines; empty: it has none
	unlimited   bool   // the function's instances boot without their quota
}

// openSite makes the back ends of one combination and puts the generator in place.
func openSite(ctx context.Context, c *Config, o spec.Choice) (_ *site, err error) {
	s := &site{choice: o}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close(context.WithoutCancel(ctx)))
		}
	}()
	function, err := c.Backends.Substrate(ctx, o, c.Deployment.Servers.Parts[o.Substrate])
	if err != nil {
		return nil, fmt.Errorf("substrate %s: %w", o.Substrate, err)
	}
	s.function, s.unlimited = function, substrate.BootsUnlimited(function)
	if s.accelerator, err = substrate.AcceleratorOf(ctx, function); err != nil {
		return nil, fmt.Errorf("substrate %s: %w", o.Substrate, err)
	}
	host, err := c.Backends.Host(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("the generator's place: %w", err)
	}
	s.host = host
	wiring, err := c.Backends.Fabric(ctx, o, c.Deployment.Servers.Parts[o.Fabric])
	if err != nil {
		return nil, fmt.Errorf("fabric %s: %w", o.Fabric, err)
	}
	s.fabric = wiring
	in := &instance{name: vitrine.Generator, dir: c.Results.LogDir(vitrine.Generator)}
	s.gen = in
	err = in.create(ctx, s.host, s.fabric, substrate.Spec{
		Run: c.RunID, Name: in.name, Component: in.name, CPUs: c.CPUs.Generator, Dir: in.dir,
	})
	if err == nil && o.KeepAwake {
		err = s.keepAwake(ctx, c)
	}
	return s, err
}

func (s *site) close(ctx context.Context) error {
	errs := []error{s.sleep(ctx)}
	if s.gen != nil {
		errs = append(errs, s.gen.remove(ctx, s.fabric))
	}
	if s.fabric != nil {
		errs = append(errs, s.fabric.Close(ctx))
	}
	for _, sub := range []substrate.Substrate{s.function, s.host} {
		if sub != nil {
			errs = append(errs, sub.Close(ctx))
		}
	}
	return errors.Join(errs...)
}

// vantages lists where the use of the generator and the instances can be read.
func (s *site) vantages(d *deployment) []vitrine.Vantage {
	all := []vitrine.Vantage{s.gen.place.Vantage()}
	for _, in := range d.instances {
		all = append(all, in.place.Vantage())
	}
	return all
}
