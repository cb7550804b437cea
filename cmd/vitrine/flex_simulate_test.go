package main

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	"vitrine/flex/config"
	"vitrine/flex/profile"
)

// TestMembersOfAFlavor checks that the CPU cost is asked for the instances that run, including those of
// a member that is not scalable.
func TestMembersOfAFlavor(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"flex.yaml": "directors: [{control: 127.0.0.1:1}]\n" +
			"types:\n  - {name: registration, deployment: deployment.yaml, flavors: [{size: fr3s, rate: 20}], max: 2}\n" +
			"servers: {substrate: process, fabric: loopback}\n",
		"deployment.yaml": "vnf_name: front\ncomponents:\n  - {name: front, short: fr, command: [vitrine], ports: {http: 80}, entry: http}\n" +
			"  - {name: helper, short: he, scalable: false, flavor: large, command: [vitrine]}\n" +
			"flavors: [{name: small, vcpus: 0.1, memory: 64MiB}, {name: large, vcpus: 0.4, memory: 64MiB}]\n" +
			"instances: {helper: 2}\nmode: {name: custom, sizes: [fr3s]}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := config.Load(filepath.Join(dir, "flex.yaml"), knownBackends())
	if err != nil {
		t.Fatal(err)
	}
	kind := &c.Types[0]
	want := map[string]profile.Member{"front": {Count: 3, VCPUs: 0.1}, "helper": {Count: 2, VCPUs: 0.4}}
	if got := membersOf(c, kind, kind.Flavors[0]); !maps.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
