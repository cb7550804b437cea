package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"vitrine"
	"vitrine/document"
	"vitrine/fabric/host"
	"vitrine/fabric/impair"
	"vitrine/fabric/ovs"
	"vitrine/fabric/segment"
	"vitrine/fabric/sriov"
	"vitrine/image"
	"vitrine/spec"
	"vitrine/substrate"
	"vitrine/substrate/application"
	"vitrine/substrate/docker"
	"vitrine/substrate/process"
	"vitrine/substrate/qemu"
	"vitrine/substrate/qemu/machine"
	"vitrine/substrate/unikernel"
)

// A substrateKind is one type of substrate.
type substrateKind struct {
	config any // type of the part servers.NAME of a deployment
	// open opens the substrate for a run; the part may be the zero Node.
	open func(ctx context.Context, b *backends, network string, part document.Node) (place, error)
	// version returns the version of the software that the substrate drives, or "" if
	// it is unknown; the part may be the zero Node.
	version func(ctx context.Context, part document.Node) string
	// machines is true if instances are virtual machines, which run with an
	// accelerator.
	machines bool
	memory   int64         // least memory of an instance, in bytes
	userless bool          // an instance has no users
	deploy   time.Duration // approximate time to deploy and end two instances on two CPUs, emulated if they are machines
}

// A place is a complete substrate. It creates instances, cleans up after dead runs, and
// checks what this host supports.
type place interface {
	substrate.Substrate
	vitrine.Cleaner
	vitrine.Checker
}

// substrates returns all substrates. A new substrate is one entry.
func substrates() map[string]substrateKind {
	return map[string]substrateKind{
		"process":   {config: process.Config{}, open: openProcess, version: kernelVersion, memory: process.MinMemory, deploy: 1500 * time.Millisecond},
		"docker":    {config: docker.Config{}, open: openDocker, version: dockerVersion, memory: docker.MinMemory, deploy: 4 * time.Second},
		"qemu":      {config: qemu.Config{}, open: openQEMU, version: machineVersion, machines: true, memory: qemu.MinMemory, deploy: 15 * time.Second},
		"unikernel": {config: unikernel.Config{}, open: openUnikernel, version: machineVersion, machines: true, memory: unikernel.MinMemory, userless: true, deploy: 10 * time.Second},
	}
}

// machines reports whether a substrate's instances are virtual machines.
func machines(name string) bool { return substrates()[name].machines }

// wires reports whether a fabric can connect the instances of the named substrate. A virtual machine
// needs an interface of its own.
func wires(fabric, of string) bool { return !machines(of) || !fabrics()[fabric].shared }

func substrateNames() []string { return slices.Sorted(maps.Keys(substrates())) }

// substrate opens the substrate of the choice.
func (b *backends) substrate(ctx context.Context, o spec.Choice, part document.Node) (substrate.Substrate, error) {
	kind, ok := substrates()[o.Substrate]
	if !ok {
		return nil, oneOf("substrate", o.Substrate, substrateNames())
	}
	name, network := fabricName(o.Fabric), process.NetworkAuto
	if !wires(name, o.Substrate) {
		return nil, &vitrine.Unsupported{What: "virtual machines on the fabric " + name, Missing: "an interface of the machine's own", Do: "use a fabric of network namespaces, such as bridge"}
	}
	if fabrics()[name].shared {
		network = process.NetworkHost
	}
	p, err := kind.open(ctx, b, network, part)
	if err != nil {
		return nil, err
	}
	return b.applications(o.Substrate, p)
}

func openProcess(_ context.Context, b *backends, network string, part document.Node) (place, error) {
	c := process.Config{Network: network, Run: b.run, Logger: b.log, Environ: os.Environ()}
	if err := part.Decode(&c); err != nil {
		return nil, err
	}
	return process.New(c)
}

func openDocker(ctx context.Context, b *backends, network string, part document.Node) (place, error) {
	c := dockerConfig()
	c.Network, c.Folder, c.Run = network, b.folder, b.run
	if err := part.Decode(&c); err != nil {
		return nil, err
	}
	return docker.New(ctx, c)
}

// dockerConfig returns a configuration for the engine in DOCKER_HOST, as the docker
// command uses it.
func dockerConfig() docker.Config { return docker.Config{Host: os.Getenv("DOCKER_HOST")} }

func openQEMU(_ context.Context, b *backends, _ string, part document.Node) (place, error) {
	cache, err := image.FindCache("", environment)
	if err != nil {
		return nil, err
	}
	c := qemu.Config{
		Run: b.run, Logger: b.log, Environ: os.Environ(), Folder: b.folder,
		Cache: cache, Prober: b.prober, Agent: []string{b.self, guestVerb},
	}
	if err := part.Decode(&c); err != nil {
		return nil, err
	}
	return qemu.New(c)
}

func openUnikernel(_ context.Context, b *backends, _ string, part document.Node) (place, error) {
	cache, err := image.FindCache("", environment)
	if err != nil {
		return nil, err
	}
	c := unikernel.Config{
		Run: b.run, Logger: b.log, Environ: os.Environ(), Folder: b.folder, Cache: cache, Prober: b.prober,
	}
	if err := part.Decode(&c); err != nil {
		return nil, err
	}
	return unikernel.New(c)
}

// accelerators returns the accelerators of virtual machines, by substrate, and the missing
// protections of the host. If the accelerator cannot be determined, machines do not start, and the
// trials have the reason.
func (b *backends) accelerators(ctx context.Context, substrates []string, parts map[string]document.Node) (found, unconfined map[string]string) {
	found, unconfined = map[string]string{}, map[string]string{}
	for _, of := range substrates {
		name, missing, err := b.acceleratorOf(ctx, of, parts[of])
		for _, m := range missing {
			unconfined[of+": "+m.What] = m.Missing
		}
		if err != nil {
			b.log.Warn("looking for the accelerator of virtual machines", "substrate", of, "error", err)
		}
		if name != "" {
			found[of] = name
		}
	}
	return found, unconfined
}

// acceleratorOf returns the accelerator of one substrate, and what the host lacks to confine the
// machines. The accelerator is "" if the instances are not virtual machines.
func (b *backends) acceleratorOf(ctx context.Context, of string, part document.Node) (name string, unconfined []*vitrine.Unsupported, err error) {
	if !machines(of) {
		return "", nil, nil
	}
	s, err := b.substrate(ctx, spec.Choice{Substrate: of}, part)
	if err != nil {
		return "", nil, err
	}
	defer func() { err = errors.Join(err, s.Close(ctx)) }()
	if name, err = substrate.AcceleratorOf(ctx, s); err != nil {
		return "", nil, err
	}
	unconfined, err = substrate.Unconfined(ctx, s)
	return name, unconfined, err
}

// place opens a substrate for checks or cleaning, not for a deployment. If this host
// does not support it, the error is a *vitrine.Unsupported.
func (b *backends) place(ctx context.Context, name string) (place, error) {
	return substrates()[name].open(ctx, b, process.NetworkAuto, document.Node{})
}

// substrateChecks returns what this host supports of a substrate.
func (b *backends) substrateChecks(ctx context.Context, name string) []vitrine.Check {
	p, err := b.place(ctx, name)
	if err != nil {
		return []vitrine.Check{{Name: name, Missing: err.Error()}}
	}
	return p.Check(ctx)
}

// substrateVersion returns the version of the software that the substrate drives.
func (b *backends) substrateVersion(ctx context.Context, name string, part document.Node) string {
	return substrates()[name].version(ctx, part)
}

// kernelVersion returns only "kernel", because the manifest has the host's kernel anyway.
func kernelVersion(context.Context, document.Node) string { return "kernel" }

// dockerVersion names the engine of the part. Without an engine, the trials fail with the reason.
func dockerVersion(ctx context.Context, part document.Node) string {
	c := dockerConfig()
	if part.Decode(&c) != nil {
		return ""
	}
	version, _ := docker.Version(ctx, c)
	return version
}

func machineVersion(ctx context.Context, _ document.Node) string {
	version, _ := machine.Version(ctx) // without QEMU, the trials fail with the reason
	return version
}

// cleaners returns cleaners for what dead runs left. Cleaners that return lent interfaces come
// before cleaners that remove the instances. A back end that this host does not support left
// nothing. For a back end that does not answer, the cleaner returns the error.
func (b *backends) cleaners(ctx context.Context) ([]vitrine.Cleaner, error) {
	list := []vitrine.Cleaner{impair.Cleaner{Root: b.run.Root}, ovs.Cleaner{Root: b.run.Root}, segment.Cleaner{Root: b.run.Root}, sriov.Cleaner{Root: b.run.Root}, host.Cleaner{Root: b.run.Root}}
	for _, name := range substrateNames() {
		p, err := b.place(ctx, name)
		if vitrine.IsUnsupported(err) {
			continue
		}
		if err != nil {
			list = append(list, failedCleaner{fmt.Errorf("cleaning %s: %w", name, err)})
			continue
		}
		list = append(list, p)
	}
	return append(list, docker.Cleaner{Root: b.run.Root}, specsCleaner{b.run.Root}, application.Cleaner{Root: b.run.Root}), context.Cause(ctx) // last, when nothing uses the files any more
}

// failedCleaner is the cleaner of a back end that does not answer. It returns the reason.
type failedCleaner struct{ err error }

func (s failedCleaner) Clean(context.Context) (removed []string, err error) { return nil, s.err }
