package main

import (
	"context"
	"maps"
	"os"
	"path/filepath"
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
	m.Specs = slices.Concat(m.Specs, generatorSpecs(w), functionSpecs(d))
	for _, c := range d.Components {
		m.Components = append(m.Components, result.Component{Name: c.Name, Short: c.Short, Scalable: c.Scalable})
	}
	for _, period := range d.Servers.CFSPeriod {
		m.CFSPeriods = append(m.CFSPeriods, period.String())
	}
	return m
}

// functionSpecs returns a deployment's install scripts and those programs of its components that are
// files of this host. A program that is only a name is looked up where it runs.
func functionSpecs(d *spec.Deployment) (all []result.Spec) {
	scripts := map[string]int{} // number of scripts by component
	for _, i := range d.Install {
		role := "install " + i.Component
		if scripts[i.Component]++; scripts[i.Component] > 1 {
			role += " " + strconv.Itoa(scripts[i.Component])
		}
		all = appendFile(all, d.File, role, i.Script, true)
	}
	for _, c := range d.Components {
		if c.Image == "" && len(c.Command) > 0 && filepath.IsAbs(c.Command[0]) {
			all = appendFile(all, d.File, "program "+c.Name, c.Command[0], false)
		}
	}
	return all
}

// generatorSpecs returns a workload's own generator and the files that its parameters name. Of
// parameters' files, which may hold passwords, it keeps only the digest.
func generatorSpecs(w *spec.Workload) (all []result.Spec) {
	if w.Program != "" {
		all = appendFile(all, w.File, "generator", w.Generator, true)
	}
	given, err := w.Parameters.Strings()
	if err != nil {
		return all // the campaign reports it
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if spec.IsFileParameter(name) {
			all = appendFile(all, w.File, "parameter "+name, given[name], false)
		}
	}
	return all
}

// appendFile appends the file at a path that the user's file names. With keep it keeps the text too, but
// not that of binaries and large files. It omits a file that it cannot read, because the trials report it.
func appendFile(all []result.Spec, user document.File, role, path string, keep bool) []result.Spec {
	file := user.Resolve(path)
	if !isFile(file) {
		return all
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return all
	}
	s := result.NewSpec(role, path, text)
	if !keep || len(text) > document.MaxFile || !utf8.Valid(text) {
		s.Text = ""
	}
	return append(all, s)
}
