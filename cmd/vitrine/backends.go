package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"

	"vitrine"
	"vitrine/fabric"
	"vitrine/fabric/bridge"
	"vitrine/fabric/loopback"
	"vitrine/internal/netns"
	"vitrine/internal/runs"
	"vitrine/load"
	"vitrine/load/simulated"
	"vitrine/load/sip"
	"vitrine/load/sipp"
	"vitrine/monitor"
	"vitrine/reference/forwarder"
	"vitrine/reference/ims/bono"
	"vitrine/reference/ims/homer"
	"vitrine/reference/ims/homestead"
	"vitrine/reference/ims/ralf"
	"vitrine/reference/ims/sprout"
	"vitrine/spec"
	"vitrine/substrate"
	"vitrine/substrate/docker"
	"vitrine/substrate/process"
	"vitrine/trial"
)

// The lists in this file are the only place that knows which back ends there
// are. A new one is one line.

// known is what the back ends add to the files that users write.
func known() spec.Known {
	return spec.Known{
		Substrates: map[string]any{"process": process.Config{}, "docker": docker.Config{}},
		Fabrics:    map[string]any{"auto": nil, "loopback": nil, "bridge": nil},
		Generators: map[string]any{"simulated": simulated.Params{}, "sip": sip.Params{}, "sipp": sipp.Params{}},
	}
}

// A backends makes the substrates and fabrics of one run.
type backends struct {
	run    *runs.Run
	log    *slog.Logger
	self   string // this executable
	folder string // of the deployment file
}

func newBackends(run *runs.Run, d *spec.Deployment, log *slog.Logger) (*backends, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program's own file: %w", err)
	}
	return &backends{run: run, log: log, self: self, folder: d.Resolve(".")}, nil
}

// substrate makes the choice's substrate. Loopback addresses are the host's, so
// with them instances share its network.
func (b *backends) substrate(ctx context.Context, o spec.Choice, part spec.Node) (substrate.Substrate, error) {
	network := process.NetworkAuto
	if fabricName(o.Fabric) == "loopback" {
		network = process.NetworkHost
	}
	switch o.Substrate {
	case "process":
		c := process.Config{Network: network, Run: b.run, Logger: b.log, Environ: os.Environ()}
		if err := part.Decode(&c); err != nil {
			return nil, err
		}
		return process.New(c)
	case "docker":
		c := dockerConfig()
		c.Network, c.Folder = network, b.folder
		if err := part.Decode(&c); err != nil {
			return nil, err
		}
		return docker.New(ctx, c)
	}
	return nil, oneOf("substrate", o.Substrate, substrateNames())
}

// dockerConfig is the engine that the environment names, as for the docker command.
func dockerConfig() docker.Config { return docker.Config{Host: os.Getenv("DOCKER_HOST")} }

// fabricName resolves auto: a bridge where instances can have network
// namespaces of their own, else loopback addresses.
func fabricName(name string) string {
	switch {
	case name != "auto":
		return name
	case netns.Possible() == nil:
		return "bridge"
	}
	return "loopback"
}

// fabric makes the choice's fabric.
func (b *backends) fabric(_ context.Context, o spec.Choice, _ spec.Node) (fabric.Fabric, error) {
	switch fabricName(o.Fabric) {
	case "bridge":
		return bridge.New(bridge.Config{Run: b.run})
	case "loopback":
		return loopback.New(loopback.Config{Run: b.run}), nil
	}
	return nil, oneOf("fabric", o.Fabric, slices.Sorted(maps.Keys(known().Fabrics)))
}

// forTrials is what a campaign needs of them.
func (b *backends) forTrials() trial.Backends {
	return trial.Backends{
		Substrate: b.substrate,
		Host: func(ctx context.Context, o spec.Choice) (substrate.Substrate, error) {
			o.Substrate = "process"
			return b.substrate(ctx, o, spec.Node{})
		},
		Fabric: b.fabric,
		Generator: func(name string) ([]string, error) {
			return []string{b.self, "generate", name}, nil
		},
		Self: b.self,
	}
}

// A generator runs one trial and prints its report.
type generator func(ctx context.Context, t load.Trial, stdout, stderr io.Writer) error

// generators are the built-in ones, run as `vitrine generate NAME`.
func generators() map[string]generator {
	return map[string]generator{"simulated": simulated.Run, "sip": sip.Run, "sipp": sipp.Run}
}

// references are the components of the reference functions, and of simulated
// ones, run as
// `vitrine reference NAME`.
func references() map[string]program {
	return map[string]program{
		"bono": bono.Run, "sprout": sprout.Run, "homestead": homestead.Run, "homer": homer.Run, "ralf": ralf.Run,
		"simulated": simulated.Serve, "forwarder": forwarder.Run,
	}
}

// cleaners remove what dead runs left behind. A back end that this host does
// not have left nothing.
func cleaners(ctx context.Context, run *runs.Run, log *slog.Logger) ([]substrate.Cleaner, error) {
	var list []substrate.Cleaner
	p, err := process.New(process.Config{Run: run, Logger: log})
	if err != nil {
		return nil, err
	}
	list = append(list, p)
	d, err := docker.New(ctx, dockerConfig())
	if err != nil && !vitrine.IsUnsupported(err) {
		return nil, err
	}
	if err == nil {
		list = append(list, d)
	}
	return list, nil
}

// checks say what of the back ends this host can do.
func checks(ctx context.Context) ([]substrate.Check, error) {
	p, err := process.New(process.Config{})
	if err != nil {
		return nil, err
	}
	return slices.Concat(p.Check(ctx), bridge.Check(ctx), docker.Check(ctx, dockerConfig()), monitor.Checker{}.Check(ctx), sipp.Check(ctx)), nil
}

// substrateVersion is the version of what the substrate drives.
func substrateVersion(ctx context.Context, name string) string {
	if name == "docker" {
		for _, c := range docker.Check(ctx, dockerConfig()) {
			if c.OK {
				return c.Detail
			}
		}
		return ""
	}
	return "kernel"
}

// generatorVersion is that of the program that makes the load.
func generatorVersion(ctx context.Context, w *spec.Workload) string {
	switch w.Generator {
	case "sip", "simulated":
		return toolVersion()
	case "sipp":
		version, _ := sipp.Version(ctx)
		return version
	}
	return ""
}

func substrateNames() []string { return slices.Sorted(maps.Keys(known().Substrates)) }

// oneOf is the error of a name that is not in the list; nil when it is.
func oneOf(what, name string, list []string) error {
	if slices.Contains(list, name) {
		return nil
	}
	return &vitrine.BadInput{File: what, Found: fmt.Sprintf("%q", name), Want: "want one of " + strings.Join(list, ", ")}
}
