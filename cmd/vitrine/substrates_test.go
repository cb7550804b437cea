package main

import (
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"vitrine"
	"vitrine/document"
	"vitrine/fabric/bridge"
	"vitrine/fabric/fabrictest"
	"vitrine/spec"
	"vitrine/substrate/application"
	"vitrine/substrate/qemu/machine"
)

// TestSubstrateVersions checks that every substrate reports the version of the software that it
// drives. It must not boot a machine.
func TestSubstrateVersions(t *testing.T) {
	b, err := newBackends(nil, "", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	program, err := machine.Version(t.Context())
	if err != nil && !vitrine.IsUnsupported(err) {
		t.Fatal(err)
	}
	if err == nil && !strings.Contains(program, "version ") {
		t.Errorf("version of QEMU: got %q", program)
	}
	for name, want := range map[string]string{"process": "kernel", "qemu": program, "unikernel": program} {
		if got := b.substrateVersion(t.Context(), name, document.Node{}); got != want {
			t.Errorf("%s: got version %q, want %q", name, got, want)
		}
	}
}

// TestMachinesNeedTheirOwnInterfaces checks that a virtual machine on the host's network is refused
// before it is built, as a combination that is left out and not as a mistake.
func TestMachinesNeedTheirOwnInterfaces(t *testing.T) {
	b, err := newBackends(nil, "", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range []string{"qemu", "unikernel"} {
		for _, on := range []string{"loopback", "host"} {
			_, err := b.substrate(t.Context(), spec.Choice{Substrate: of, Fabric: on}, document.Node{})
			if !vitrine.IsUnsupported(err) || !strings.Contains(err.Error(), "virtual machines on the fabric "+on) {
				t.Errorf("%s on %s: got %v, want that it is not possible", of, on, err)
			}
		}
	}
}

// TestPlannedFabricWithoutDevice checks that a plan leaves a fabric out if the user has not chosen its
// device, and that a wrong choice stays a mistake.
func TestPlannedFabricWithoutDevice(t *testing.T) {
	missing := &vitrine.BadInput{File: "fabric sriov", Found: "no parent", Want: "`parent: NAME`, one of eno1"}
	err := withoutDevice("sriov", missing)
	if !vitrine.IsUnsupported(err) || vitrine.IsBadInput(err) || !strings.Contains(err.Error(), "servers.sriov of a file for --options: `parent: NAME`, one of eno1") {
		t.Errorf("no device: got %v", err)
	}
	if err := withoutDevice("bridge", missing); !vitrine.IsBadInput(err) {
		t.Errorf("a fabric that needs no device: got %v", err)
	}
	b, err := newBackends(nil, "", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	b.planned = true
	if _, err := b.fabric(t.Context(), spec.Choice{Fabric: "sriov"}, document.Node{}); !vitrine.IsUnsupported(err) {
		t.Errorf("sriov without options: got %v, want that it is left out", err)
	}
}

// TestAutoHasTheOptionsOfItsFabric checks that the fabric auto uses the options of the fabric that it
// stands for.
func TestAutoHasTheOptionsOfItsFabric(t *testing.T) {
	if name := fabricName("auto"); name != "bridge" {
		t.Skipf("auto is %s here, which has no options", name)
	}
	d, err := spec.ParseDeployment("deployment.yaml", []byte(sharedDeployment+"servers: {bridge: {mtu: 9000}}\n"), knownBackends())
	if err != nil {
		t.Fatal(err)
	}
	run := fabrictest.NewRun(t, filepath.Join(t.TempDir(), "runs"))
	b, err := newBackends(run, "", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	choice := d.Servers.Choices()[0]
	var options bridge.Config
	if err := b.testbed(d.Servers.Parts).Parts[choice.Fabric].Decode(&options); err != nil || options.MTU != 9000 {
		t.Errorf("fabric %s: got the options %+v, %v, want an MTU of 9000", choice.Fabric, options, err)
	}
}

// TestCleanersContinueAfterAnError checks that an unreachable engine gives an error and does not
// stop the other cleaners.
func TestCleanersContinueAfterAnError(t *testing.T) {
	t.Setenv("DOCKER_HOST", "ssh://nowhere")
	run := fabrictest.NewRun(t, filepath.Join(t.TempDir(), "runs"))
	b, err := newBackends(run, "", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	list, err := b.cleaners(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var errs []error
	for _, c := range list {
		if _, err := c.Clean(t.Context()); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) != 1 || !strings.Contains(errs[0].Error(), "docker") {
		t.Errorf("got errors %v of the cleaners, want one of docker", errs)
	}
	if _, ok := list[len(list)-1].(application.Cleaner); !ok {
		t.Errorf("the last cleaner is a %T, want application.Cleaner", list[len(list)-1])
	}
}

// TestAcceleratorAsksOnlyMachines checks that container engines are not asked for an accelerator.
func TestAcceleratorAsksOnlyMachines(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "engine")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	asked := make(chan struct{}, 1)
	go func() {
		if conn, err := l.Accept(); err == nil {
			asked <- struct{}{} // before the client learns that the connection ended
			conn.Close()
		}
	}()
	t.Setenv("DOCKER_HOST", "unix://"+socket)
	b, err := newBackends(nil, "", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if found, unconfined := b.accelerators(t.Context(), []string{"process", "docker"}, nil); len(found)+len(unconfined) > 0 {
		t.Errorf("processes and containers need no accelerator: got %q", found)
	}
	select {
	case <-asked:
		t.Error("the Docker engine got a request")
	default:
	}
}
