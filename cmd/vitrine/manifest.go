package main

import (
	"context"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"vitrine"
	"vitrine/document"
	"vitrine/result"
	"vitrine/spec"
	"vitrine/testbed"
	"vitrine/trial"
)

// manifest returns the common part of every run's manifest: time, tool, host,
// CPUs, substrates and fabrics (wiring). parts are the options of the back ends.
func (b *backends) manifest(ctx context.Context, cpus testbed.CPUs, substrates, wiring []string, parts map[string]document.Node) result.Manifest {
	m := result.Manifest{
		Tool: "vitrine " + toolVersion(), Go: runtime.Version(), Command: os.Args, Started: time.Now().UTC(),
		Host: result.ReadHost("/"), CPUs: result.Reservation(cpus),
		Substrates: map[string]string{}, FabricVersions: map[string]string{}, Accelerator: "none",
	}
	m.Accelerators, m.Unconfined = b.accelerators(ctx, substrates, parts)
	for _, name := range substrates {
		m.Substrates[name] = b.substrateVersion(ctx, name, parts[name])
	}
	for _, name := range m.Accelerators {
		if m.Accelerator == "none" || vitrine.NotComparable(name) != "" {
			m.Accelerator = name
		}
	}
	for _, name := range wiring {
		if name = fabricName(name); slices.Contains(m.Fabrics, name) {
			continue
		}
		m.Fabrics = append(m.Fabrics, name)
		if version := fabrics()[name].version; version != nil {
			m.FabricVersions[name] = version(ctx, b, parts[name])
		}
	}
	m.NotIsolated = result.NotIsolated(m.Host, m.CPUs)
	return m
}

// campaignManifest returns the manifest of a campaign.
func campaignManifest(ctx context.Context, cfg *trial.Config, b *backends) result.Manifest {
	d, w := cfg.Deployment, cfg.Workload
	m := b.manifest(ctx, cfg.CPUs, d.Servers.Substrate, d.Servers.Fabric, d.Servers.Parts)
	m.VNF, m.Unit, m.Thresholds, m.Seed = d.VNFName, w.Unit, w.Thresholds, cfg.Seed
	m.Generator = result.Generator{Name: w.Generator, Version: generatorVersion(ctx, w), Transport: generatorTransport(w)}
	m.Specs = []result.Spec{
		result.NewSpec("deployment", d.Path, d.Raw),
		result.NewSpec("workload", w.Path, w.Raw),
	}
	m.Specs = append(m.Specs, generatorSpecs(w)...)
	for _, c := range d.Components {
		m.Components = append(m.Components, result.Component{Name: c.Name, Short: c.Short, Scalable: c.Scalable})
	}
	scripts := map[string]int{} // number of scripts by component
	for _, i := range d.Install {
		role := "install " + i.Component
		if scripts[i.Component]++; scripts[i.Component] > 1 {
			role += " " + strconv.Itoa(scripts[i.Component])
		}
		if text, err := os.ReadFile(i.Script); err == nil { // if it is unreadable, the install step reports it
			m.Specs = append(m.Specs, result.NewSpec(role, i.Script, text))
		}
	}
	for _, period := range d.Servers.CFSPeriod {
		m.CFSPeriods = append(m.CFSPeriods, period.String())
	}
	return m
}

// generatorSpecs returns a workload's own generator and the files that its parameters name. Of
// parameters' files, which may hold passwords, of binaries and of large files it keeps only the
// digest.
func generatorSpecs(w *spec.Workload) (all []result.Spec) {
	add := func(role, path string, keep bool) {
		if !isFile(w.Resolve(path)) {
			return
		}
		text, err := os.ReadFile(w.Resolve(path))
		if err != nil {
			return // the trials report it
		}
		s := result.NewSpec(role, path, text)
		if !keep || len(text) > document.MaxFile || !utf8.Valid(text) {
			s.Text = ""
		}
		all = append(all, s)
	}
	if w.Program != "" {
		add("generator", w.Generator, true)
	}
	given, err := w.Parameters.Strings()
	if err != nil {
		return all // the campaign reports it
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if spec.IsFileParameter(name) {
			add("parameter "+name, given[name], false)
		}
	}
	return all
}
