package spec

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"vitrine"
	"vitrine/document"
)

// docker stands for the options of a back end.
type docker struct {
	Network string        `yaml:"network" jsonschema:"enum=host,enum=none"`
	Memory  document.Size `yaml:"memory"`
}

type sip struct {
	Scenario    string        `yaml:"scenario" jsonschema:"required,enum=reg-dereg,enum=reg-invite"`
	Subscribers int           `yaml:"subscribers" jsonschema:"minimum=1"`
	Timeout     time.Duration `yaml:"timeout"`
}

// known returns the back ends of the tests.
func known() Known {
	return Known{
		Substrates: map[string]any{"process": nil, "docker": docker{}},
		Fabrics:    map[string]any{"auto": nil, "loopback": nil, "bridge": nil},
		Generators: map[string]any{"sip": sip{}, "sipp": nil},
	}
}

func load(t *testing.T, name string) *Deployment {
	t.Helper()
	d, err := LoadDeployment(filepath.Join("testdata", "good", name), known())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestDeploymentInYAMLAndJSON(t *testing.T) {
	y, j := load(t, "ims.yaml"), load(t, "ims.json")
	if diff := cmp.Diff(y, j, cmpopts.IgnoreTypes(document.File{}), cmp.Comparer(func(a, b document.Node) bool {
		x, errX := a.Strings()
		y, errY := b.Strings()
		return errX == nil && errY == nil && cmp.Equal(x, y)
	})); diff != "" {
		t.Errorf("YAML (-) and JSON (+) differ:\n%s", diff)
	}
}

func TestDeploymentFields(t *testing.T) {
	d := load(t, "ims.yaml")
	here, err := filepath.Abs("testdata/good")
	if err != nil {
		t.Fatal(err)
	}
	bono, homer := d.Component("bono"), d.Component("homer")
	for _, c := range []struct {
		what      string
		got, want any
	}{
		{"name", d.VNFName, "ims"},
		{"stateful", d.Stateful, true},
		{"scalable by default", bono.Scalable, true},
		{"not scalable", homer.Scalable, false},
		{"vitrine stays as it is", bono.Command[0], "vitrine"},
		{"arguments are text", bono.Command[8], "50"},
		{"environment is text", bono.Environment, document.Strings{"GOGC": "200", "DEBUG": "false", "REALM": "${ADDRESS}"}},
		{"a program with a slash is resolved", homer.Command, Args{here + "/homer.sh"}},
		{"the program of a check is resolved", homer.Ready.Command, Args{here + "/homer.sh", "--check"}},
		{"the time to get ready", bono.Ready.Timeout, 10 * time.Second},
		{"the default time to get ready", homer.Ready.Timeout, DefaultReadyTimeout},
		{"a check by HTTP", *d.Component("homestead").Ready.HTTP, ReadyHTTP{"http", "/ping"}},
		{"no cluster", bono.Cluster == nil, true},
		{"a cluster", *d.Component("sprout").Cluster, Cluster{"PEERS", "cluster"}},
		{"flavor", d.Flavors[2], Flavor{Name: "large", VCPUs: 0.3, Memory: 1 << 30, Pin: true}},
		{"CPUs", d.Servers.CPUs, document.CPUs{1, 2, 3}},
		{"the generator's CPUs", d.Servers.GeneratorCPUs, document.CPUs{0}},
		{"scripts are resolved", d.Install[0], Install{"sprout", here + "/install.sh", 90 * time.Second}},
		{"counts", d.Counts, map[string]Count{"homer": {2, 2}, "sprout": {0, 4}}},
		{"mode", d.Mode, Mode{Name: Directed, Scaling: ScaleUp, ScaleOn: vitrine.CPU, Objective: MostCapacity, Limit: Limit{0.6, 4 << 30}, Reach: 300}},
	} {
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.what, diff)
		}
	}
	raw, err := os.ReadFile("testdata/good/ims.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if string(d.Raw) != string(raw) || len(d.Digest) != 64 {
		t.Errorf("the file is not kept as it was: %d bytes, digest %s", len(d.Raw), d.Digest)
	}
	if c, port := d.Entry(); c != bono || port != 5060 {
		t.Errorf("entry is %v, %d", c, port)
	}
}

func TestDefaults(t *testing.T) {
	d, err := ParseDeployment("d.yaml", []byte(`{vnf_name: f, components: [{name: a, short: a, image: x, ports: {p: 1}, entry: p}, {name: b, short: b, command: [b], user: "nobody:1000", allow_privilege_escalation: true}],
flavors: [{name: small, vcpus: 1, memory: 1GB}], mode: {name: custom, sizes: [a1s-b1s]}}`), known())
	if err != nil {
		t.Fatal(err)
	}
	if a, b := d.Components[0], d.Components[1]; a.User != "" || a.AllowPrivilegeEscalation || b.User != "nobody:1000" || !b.AllowPrivilegeEscalation {
		t.Errorf("users and their privileges: %+v, %+v", a, b)
	}
	want := Servers{Substrate: []string{"process"}, Fabric: []string{"auto"}, Pinning: []document.Switch{false}, CFSPeriod: []time.Duration{20 * time.Millisecond}, KeepAwake: []document.Switch{false}}
	if diff := cmp.Diff(want, d.Servers); diff != "" {
		t.Errorf("servers (-want +got):\n%s", diff)
	}
	w, err := ParseWorkload("w.yaml", []byte(`{generator: sip, parameters: {scenario: reg-dereg}, range: [1, 2], increase: 1, duration: 1s}`), known())
	if err != nil {
		t.Fatal(err)
	}
	if w.Unit != "calls/s" || w.Repeat != 1 || w.Warmup != 0 || w.Settle != time.Second || w.Search != Adaptive || !cmp.Equal(w.Thresholds, []float64{0.9}) || w.StopWhen() != nil {
		t.Errorf("defaults are %+v", w)
	}
}

func TestChoices(t *testing.T) {
	choices := load(t, "ims.yaml").Servers.Choices()
	var got []string
	for _, c := range choices {
		got = append(got, c.Substrate+" "+c.Options)
	}
	want := []string{
		"process pinning=off,cfs_period=20ms", "process pinning=off,cfs_period=100ms", "process pinning=on,cfs_period=20ms", "process pinning=on,cfs_period=100ms",
		"docker pinning=off,cfs_period=20ms", "docker pinning=off,cfs_period=100ms", "docker pinning=on,cfs_period=20ms", "docker pinning=on,cfs_period=100ms",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("choices (-want +got):\n%s", diff)
	}
	if last := choices[7]; !last.Pinning || last.CFSPeriod != 100*time.Millisecond || last.Fabric != "auto" {
		t.Errorf("the last choice is %+v", last)
	}
	varied := DefaultServers()
	varied.Impairment = []string{"near", "far"}
	if two := varied.Choices(); len(two) != 2 || two[0].Options != "impairment=near" || two[1].Impairment != "far" {
		t.Errorf("two impairments, but the choices are %+v", two)
	}
	if one := DefaultServers().Choices(); len(one) != 1 || one[0].Options != "" {
		t.Errorf("nothing varies, but the choices are %+v", one)
	}
}

func TestOrder(t *testing.T) {
	var got []string
	for _, c := range load(t, "ims.yaml").Order() {
		got = append(got, c.Name)
	}
	if diff := cmp.Diff([]string{"homestead", "sprout", "homer", "bono"}, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

func TestResources(t *testing.T) {
	d := load(t, "ims.yaml")
	s, err := vitrine.ParseSizing("bn1s-sp2m-hs1l")
	if err != nil {
		t.Fatal(err)
	}
	if err := d.CheckSizing(s); err != nil {
		t.Error(err)
	}
	near := cmpopts.EquateApprox(0, 1e-9)
	if diff := cmp.Diff(vitrine.Resources{VCPUs: 0.675, Memory: (256 + 1024 + 1024) << 20}, d.Resources(s), near); diff != "" {
		t.Errorf("scalable (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(vitrine.Resources{VCPUs: 0.825, Memory: (256 + 1024 + 1024 + 512) << 20}, d.Total(s), near); diff != "" {
		t.Errorf("all (-want +got):\n%s", diff)
	}
	space := d.Space()
	if got := space.Smallest().String(); got != "bn1s-sp1s-hs1s" {
		t.Errorf("the smallest is %s", got)
	}
	if diff := cmp.Diff(map[string]Count{"sp": {0, 4}}, space.Counts); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}

func TestCheckSizing(t *testing.T) {
	d := load(t, "ims.yaml")
	for text, want := range map[string]string{
		"bn1s-sp1s":           "leaves out hs",
		"bn1s-sp1s-hs1s-hm1s": "names hm",
		"bn1s-sp1s-hs1x":      "names flavor x: allowed: s (small), m (medium), l (large)",
		"sp1s-bn1s-hs1s":      "write bn1s-sp1s-hs1s",
		"bn1s-sp5s-hs1s":      "has 5 of sprout: instances allows 1 to 4",
	} {
		s, err := vitrine.ParseSizing(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.CheckSizing(s); err == nil || !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}

// TestSizesMayLeaveOutTheFront checks which sizes of a function with a director in front of an
// aggregate are allowed, and where the load goes.
func TestSizesMayLeaveOutTheFront(t *testing.T) {
	d, err := ParseDeployment("pool.yaml", []byte(`
vnf_name: pool
components:
  - {name: director, short: ad, command: [director], ports: {sip: 5060}, entry: sip, dependencies: [{component: bono}, {component: extra}]}
  - {name: bono, short: bn, command: [bono], ports: {sip: 5060}, entry: sip, dependencies: [{component: sprout}]}
  - {name: extra, short: ex, command: [extra]}
  - {name: sprout, short: sp, command: [sprout]}
  - {name: probe, short: pr, command: [probe]}
flavors: [{name: small, vcpus: 0.1, memory: 64MiB}]
servers: {substrate: process}
mode: {name: custom, sizes: [ad1s-bn1s-ex1s-sp1s-pr1s, bn1s-sp1s-pr1s]}
`), known())
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"ad1s-bn1s-ex1s-sp1s-pr1s": "director",
		"bn1s-ex1s-sp1s-pr1s":      "bono",
		"bn1s-sp1s-pr1s":           "bono",
		"ad1s-bn1s-sp1s-pr1s":      "leaves out ex", // the director needs it
		"bn1s-pr1s":                "leaves out sp",
		"bn1s-sp1s":                "leaves out pr",
		"sp1s-pr1s":                "leaves out ad", // no entry is left
	} {
		s, err := vitrine.ParseSizing(text)
		if err != nil {
			t.Fatal(err)
		}
		var got string
		if err := d.CheckSizing(s); err != nil {
			got = err.Error()
		} else {
			got = d.EntryOf(s).Name
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}

func TestNode(t *testing.T) {
	d := load(t, "ims.yaml")
	part := d.Servers.Parts["docker"]
	into := docker{Memory: 5}
	if err := part.Decode(&into); err != nil || into != (docker{"host", 5}) {
		t.Errorf("got %+v, %v", into, err)
	}
	if m, err := part.Strings(); err != nil || m["network"] != "host" {
		t.Errorf("got %v, %v", m, err)
	}
	err := part.Decode(&struct{ Net string }{})
	if want := "testdata/good/ims.yaml:45:12: network is not a field of servers.docker: did you mean net? allowed: net"; err == nil || err.Error() != want || !vitrine.IsBadInput(err) {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	into = docker{Memory: 7}
	if err := d.Servers.Parts["process"].Decode(&into); err != nil || into.Memory != 7 {
		t.Errorf("the zero Node decodes to %+v, %v", into, err)
	}
	if m, err := (document.Node{}).Strings(); err != nil || m != nil {
		t.Errorf("the zero Node as text is %v, %v", m, err)
	}
	if got := part.BadInput("x", "y", "network").Error(); got != "testdata/good/ims.yaml:45:21: x: y" {
		t.Error(got)
	}
}

func TestGenerator(t *testing.T) {
	w, err := LoadWorkload("testdata/good/calls.yaml", known())
	if err != nil {
		t.Fatal(err)
	}
	var p sip
	if err := w.Parameters.Decode(&p); err != nil || p != (sip{"reg-dereg", 5000, 0}) {
		t.Errorf("parameters are %+v, %v", p, err)
	}
	if w.Program != "" || w.Range.Min() != 50 || w.Range.Max() != 400 || w.Search != Bisect {
		t.Errorf("got %+v", w)
	}
	w, err = ParseWorkload("testdata/good/x.yaml", []byte("{generator: load.sh, parameters: {n: 3.0}, range: [1, 2], increase: 1, duration: 1s}"), known())
	if err != nil {
		t.Fatal(err)
	}
	if here, err := filepath.Abs("testdata/good/load.sh"); err != nil || w.Program != here {
		t.Errorf("program is %q, want %q (%v)", w.Program, here, err)
	}
	if m, err := w.Parameters.Strings(); err != nil || m["n"] != "3.0" {
		t.Errorf("parameters are %v, %v", m, err)
	}
}

func TestFileErrors(t *testing.T) {
	folder := t.TempDir()
	big := filepath.Join(folder, "big.yaml")
	if err := os.WriteFile(big, make([]byte, document.MaxFile+1), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		folder: "is a directory", filepath.Join(folder, "none.yaml"): "no such file", big: "larger than 1 MiB",
	} {
		_, err := LoadDeployment(path, known())
		var bad *vitrine.BadInput
		if !errors.As(err, &bad) || bad.File != path || !strings.Contains(bad.Found, want) {
			t.Errorf("%s: got %v, want %s", path, err, want)
		}
	}
}

// TestFlavorsReplaceVariables checks that a flavor changes the values of the variables that a
// component has, and adds none.
func TestFlavorsReplaceVariables(t *testing.T) {
	d := &Deployment{Flavors: []Flavor{{Name: "small"}, {Name: "large", Environment: document.Strings{"WORKERS": "4", "OTHER": "5"}}}}
	c := &Component{Environment: document.Strings{"WORKERS": "1", "GOGC": "200"}}
	for flavor, want := range map[string]map[string]string{
		"small": {"WORKERS": "1", "GOGC": "200"},
		"large": {"WORKERS": "4", "GOGC": "200"},
	} {
		if diff := cmp.Diff(want, d.Environment(c, flavor)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", flavor, diff)
		}
	}
}
