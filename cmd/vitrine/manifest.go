package main

import (
	"context"
	"os"
	"runtime"
	"slices"
	"time"

	"vitrine/result"
	"vitrine/trial"
)

// manifest says where the run's numbers come from.
func (a *app) manifest(ctx context.Context, cfg *trial.Config, b *backends) result.Manifest {
	d, w := cfg.Deployment, cfg.Workload
	m := result.Manifest{
		Tool: "vitrine " + toolVersion(), Go: runtime.Version(), Command: os.Args, Started: time.Now().UTC(),
		VNF: d.VNFName, Unit: w.Unit, Thresholds: w.Thresholds, Seed: cfg.Seed,
		Specs: []result.Spec{
			result.NewSpec("deployment", d.Path, d.Raw),
			result.NewSpec("workload", w.Path, w.Raw),
		},
		Host: result.ReadHost("/"), CPUs: result.Reservation(cfg.CPUs),
		Substrates: map[string]string{}, Accelerator: b.accelerator(ctx, d.Servers),
	}
	for _, c := range d.Components {
		m.Components = append(m.Components, result.Component{Name: c.Name, Short: c.Short, Scalable: c.Scalable})
	}
	for _, i := range d.Install {
		if text, err := os.ReadFile(i.Script); err == nil { // gone by now: the install step will say so
			m.Specs = append(m.Specs, result.NewSpec("install", i.Script, text))
		}
	}
	for _, name := range d.Servers.Substrate {
		m.Substrates[name] = b.substrateVersion(ctx, name)
	}
	for _, name := range d.Servers.Fabric {
		if name = fabricName(name); !slices.Contains(m.Fabrics, name) {
			m.Fabrics = append(m.Fabrics, name)
		}
	}
	for _, period := range d.Servers.CFSPeriod {
		m.CFSPeriods = append(m.CFSPeriods, period.String())
	}
	m.Generator = result.Generator{Name: w.Generator, Version: generatorVersion(ctx, w)}
	m.NotIsolated = result.NotIsolated(m.Host, m.CPUs)
	return m
}
