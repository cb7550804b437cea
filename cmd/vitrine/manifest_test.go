package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vitrine/document"
	"vitrine/fabric/ovs"
	"vitrine/internal/hosttest"
	"vitrine/internal/runstate"
	"vitrine/measure"
	"vitrine/result"
	"vitrine/spec"
	"vitrine/substrate/docker/dockertest"
	"vitrine/testbed"
)

// TestManifestNamesEverySubstrate checks that the manifest names every substrate of a network
// measurement, including those that only Also names, and the accelerators.
func TestManifestNamesEverySubstrate(t *testing.T) {
	run, err := runstate.New(filepath.Join(t.TempDir(), "runs"))
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	b, err := newBackends(run, "", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	accelerator, _, err := b.acceleratorOf(t.Context(), "unikernel", document.Node{})
	hosttest.Need(t, err)
	s := measure.Settings{
		Substrates: []string{"process"}, Fabrics: []string{"bridge"},
		Also: []measure.Combination{{Substrate: "unikernel", Fabric: "macvtap"}, {Substrate: "unikernel", Fabric: "bridge"}},
	}
	m, err := networkManifest(t.Context(), b, s, measure.KernelCPU{}, session{cpus: testbed.CPUs{Function: []int{1}, Generator: []int{0}}, options: new(options)})
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Substrates) != 2 || m.Substrates["process"] != "kernel" || m.Substrates["unikernel"] != b.substrateVersion(t.Context(), "unikernel", document.Node{}) || m.Substrates["unikernel"] == "" {
		t.Errorf("got substrates %v", m.Substrates)
	}
	if len(m.Accelerators) != 1 || m.Accelerators["unikernel"] != accelerator || m.Accelerator != accelerator {
		t.Errorf("got accelerators %v, %q, but the unikernel runs with %q", m.Accelerators, m.Accelerator, accelerator)
	}
	if len(m.Fabrics) != 2 || m.Fabrics[1] != "macvtap" {
		t.Errorf("got fabrics %v", m.Fabrics)
	}
}

// TestManifestNamesTheSwitch checks that the manifest has Open vSwitch, its datapath and its CPUs, but no
// version of a fabric of the kernel.
func TestManifestNamesTheSwitch(t *testing.T) {
	cpus := document.CPUs{0, 1}
	want, err := ovs.Version(t.Context(), ovs.Config{RunCPUs: cpus})
	hosttest.Need(t, err)
	b, err := newBackends(nil, "", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	b.cpus = cpus
	m := b.manifest(t.Context(), testbed.CPUs{}, nil, []string{"bridge", "ovs"}, nil)
	if len(m.FabricVersions) != 1 || m.FabricVersions["ovs"] != want || !strings.Contains(want, "datapath ") || !strings.Contains(want, "on CPUs 0-1") {
		t.Errorf("got %q, want ovs: %q", m.FabricVersions, want)
	}
}

// TestManifestNamesTheTransport checks that a run records the transport of S1AP, because only one
// of the transports is S1AP's own.
func TestManifestNamesTheTransport(t *testing.T) {
	for text, want := range map[string]string{
		"generator: s1ap\nrange: [1, 2]\nduration: 1s\n":                                   "S1AP frames over TCP (not SCTP)",
		"generator: s1ap\nparameters: {transport: tcp}\nrange: [1, 2]\nduration: 1s\n":     "S1AP frames over TCP (not SCTP)",
		"generator: s1ap\nparameters: {transport: sctp}\nrange: [1, 2]\nduration: 1s\n":    "SCTP",
		"generator: sip\nparameters: {scenario: reg-dereg}\nrange: [1, 2]\nduration: 1s\n": "",
	} {
		w, err := spec.ParseWorkload("workload.yaml", []byte(text), knownBackends())
		if err != nil {
			t.Fatal(err)
		}
		if got := generatorTransport(w); got != want {
			t.Errorf("%q: got transport %q, want %q", text, got, want)
		}
	}
}

// TestManifestNamesTheEngine checks that the manifest names the container engine of the deployment,
// even if DOCKER_HOST names another one.
func TestManifestNamesTheEngine(t *testing.T) {
	host := dockertest.Start(t)
	t.Setenv("DOCKER_HOST", "unix:///nowhere")
	b, err := newBackends(nil, "", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	file, err := document.Parse("deployment.yaml", []byte("servers: {docker: {host: \""+host+"\"}}\n"), "a deployment's")
	if err != nil {
		t.Fatal(err)
	}
	m := b.manifest(t.Context(), testbed.CPUs{}, []string{"docker"}, nil, map[string]document.Node{"docker": file.Root().Sub("servers", "docker")})
	if got := m.Substrates["docker"]; !strings.HasPrefix(got, "Docker Engine, version ") || !strings.HasSuffix(got, ", "+host) {
		t.Errorf("got %q, want Docker Engine, its version and %s", got, host)
	}
}

// TestManifestHasTheGenerator checks that a changed generator, or a changed file of a parameter, makes
// another run.
func TestManifestHasTheGenerator(t *testing.T) {
	dir := t.TempDir()
	write := writerInto(t, dir)
	read := func() result.Manifest {
		t.Helper()
		w, err := spec.LoadWorkload(filepath.Join(dir, "workload.yaml"), knownBackends())
		if err != nil {
			t.Fatal(err)
		}
		return result.Manifest{Specs: generatorSpecs(w)}
	}
	write("workload.yaml", "generator: ./load\nparameters: {users_file: users}\nrange: [1, 2]\nduration: 1s\n")
	for _, name := range []string{"load", "users"} {
		write("load", "#!/bin/sh\n")
		write("users", "a\n")
		then := read()
		if err := then.SameSpecs(read()); err != nil || len(then.Specs) != 2 {
			t.Errorf("%+v, %v", then.Specs, err)
		}
		write(name, "#!/bin/sh\n# changed\n")
		if err := then.SameSpecs(read()); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s changed: %v", name, err)
		}
	}
}

// writerInto returns a function that writes executable files into the folder.
func writerInto(t *testing.T, dir string) func(name, text string) {
	return func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
}

// TestManifestHasTheFunction checks that a changed program of a component, or a changed install script, makes
// another run. The manifest must have only the digest of a program, and of a script that is no text.
func TestManifestHasTheFunction(t *testing.T) {
	dir := t.TempDir()
	write := writerInto(t, dir)
	read := func() result.Manifest {
		t.Helper()
		d, err := spec.LoadDeployment(filepath.Join(dir, "deployment.yaml"), knownBackends())
		if err != nil {
			t.Fatal(err)
		}
		return result.Manifest{Specs: functionSpecs(d)}
	}
	write("deployment.yaml", `vnf_name: front
components:
  - {name: front, short: fr, command: [./proxy], ports: {http: 80}, entry: http}
  - {name: back, short: ba, command: [vitrine]}
  - {name: other, short: ot, command: [./proxy], image: "proxy:1"}
flavors: [{name: small, vcpus: 0.1, memory: 64MiB}]
install: [{component: front, script: text}, {component: front, script: binary}]
mode: {name: custom, sizes: [fr1s-ba1s-ot1s]}
`)
	for _, name := range []string{"proxy", "text", "binary"} {
		write("proxy", "#!/bin/sh\n")
		write("text", "#!/bin/sh\n")
		write("binary", "\x7fELF\xff")
		then := read()
		if err := then.SameSpecs(read()); err != nil || len(then.Specs) != 3 {
			t.Fatalf("%+v, %v", then.Specs, err)
		}
		for _, s := range then.Specs {
			if kept := s.Text != ""; kept != (s.Role == "install front") {
				t.Errorf("%s has the text %q", s.Role, s.Text)
			}
		}
		write(name, "#!/bin/sh\n# changed\n")
		if err := then.SameSpecs(read()); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s changed: %v", name, err)
		}
	}
}
