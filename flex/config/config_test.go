package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"vitrine"
	"vitrine/document"
	"vitrine/fabric/impair"
	"vitrine/internal/hosttest"
	"vitrine/spec"
)

func loadGood(t *testing.T) *Config {
	t.Helper()
	c, err := Load("testdata/good.yaml", spec.Known{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestFieldsAndDefaults(t *testing.T) {
	c := loadGood(t)
	if len(c.Types) != 2 || filepath.Base(c.State) != "good.yaml.flex" || !filepath.IsAbs(c.State) {
		t.Errorf("%+v", c)
	}
	r, s := c.Type("registration"), c.Type("session")
	if r.Min != 2 || r.Drain != DrainDialogs || r.DrainDeadline != DefaultDrainDeadline || r.Objective.P99 != 50*time.Millisecond || r.Stable != 30*time.Second {
		t.Errorf("%+v", r)
	}
	if s.Min != 1 || s.Drain != DrainTransactions || s.StartDeadline != DefaultStartDeadline {
		t.Errorf("%+v", s)
	}
	if want := []string{"bono", "sprout", "homestead", "homer"}; !cmp.Equal(r.Members, want) {
		t.Errorf("got members %q, want all components", r.Members)
	}
	if want := []string{"sprout", "bono"}; !cmp.Equal(s.Members, want) {
		t.Errorf("got members %q, want those of the analysis", s.Members)
	}
	for _, path := range []string{c.Directors[0].TokenFile, r.Flavors[1].Profile, c.Store.Authorities, c.Store.Certificate, c.Store.Key} {
		if !filepath.IsAbs(path) {
			t.Errorf("path %q is relative", path)
		}
	}
	if choice := c.Choice(); choice.Substrate != "process" || choice.Fabric != "loopback" {
		t.Errorf("%+v", choice)
	}
}

// TestResourcesAreThoseOfMembers checks that only the members of an aggregate count towards its
// resources.
func TestResourcesAreThoseOfMembers(t *testing.T) {
	c := loadGood(t)
	for name, want := range map[string]float64{"registration": 0.8, "session": 0.4} {
		ty := c.Type(name)
		if got := c.Resources(ty, c.Smallest(ty)).VCPUs; got < want-1e-9 || got > want+1e-9 {
			t.Errorf("%s takes %g vCPUs, want %g", name, got, want)
		}
	}
}

func TestHostTooSmall(t *testing.T) {
	c := loadGood(t)
	if err := c.Fits(2, 4<<30); err != nil {
		t.Error(err)
	}
	for _, host := range []struct {
		cpu    float64
		memory int64
		says   string
	}{{0.9, 4 << 30, "size bn1s-sp2s-hs1s-hm1s, of 1 vCPUs"}, {1.9, 4 << 30, "the min of all types together"}, {2, 1 << 30, "the min of all types together"}} {
		err := c.Fits(host.cpu, host.memory)
		if !vitrine.IsUnsupported(err) || !strings.Contains(err.Error(), host.says) {
			t.Errorf("host with %g CPUs, %d bytes: got %v, want %q", host.cpu, host.memory, err, host.says)
		}
	}
}

// TestBadInput checks that every file in testdata/bad is refused with exactly the errors in
// the golden file beside it, each with its position.
func TestBadInput(t *testing.T) {
	files, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil || len(files) < 12 {
		t.Fatalf("found only %d files (%v), want at least 12", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			_, err := Load(file, spec.Known{})
			if !vitrine.IsBadInput(err) {
				t.Fatalf("got error %v, want bad input", err)
			}
			here, absErr := filepath.Abs("testdata")
			if absErr != nil {
				t.Fatal(absErr)
			}
			got := strings.NewReplacer(here+"/bad/", "", here+"/", "", "testdata/bad/", "").Replace(err.Error()) + "\n"
			hosttest.Golden(t, *update, strings.TrimSuffix(file, ".yaml")+".golden", []byte(got))
		})
	}
}

// TestImpairedNames checks that names in servers.impair are those of members, and that
// servers.impairment is one variant. Other names would impair nothing.
func TestImpairedNames(t *testing.T) {
	const before = `
directors: [{control: 127.0.0.1:8090}]
types: [{name: voice, deployment: deployment.yaml, flavors: [{size: bn1s-sp1s-hs1s-hm1s, rate: 20}], max: 2}]
`
	for servers, want := range map[string]string{
		"impair: {delay: 1ms, links: {sprout: {delay: 2ms, peers: [bono]}}}":                     "",
		"impairment: far, impair: {variants: {far: {links: {sprout: {delay: 1ms}}}}}":            "",
		"impair: {links: {sprout-1: {delay: 1ms}}}":                                              ":4:28: instance sprout-1: instances come and go with the load, so links are named by component: want sprout,",
		"impair: {peers: [bono, sprout-2]}":                                                      ":4:34: instance sprout-2: ",
		"impair: {links: {sprout: {delay: 1ms, peers: [bono-1]}}}":                               ":4:57: instance bono-1: ",
		"impair: {variants: {far: {links: {homr: {delay: 1ms}}}}}":                               ":4:45: no member homr: did you mean homer?",
		"impair: {links: {generator: {}}}":                                                       ":4:28: no member generator: allowed: bono, ",
		"impairment: near, impair: {variants: {far: {delay: 1ms}}}":                              ":4:23: no variant near in servers.impair: ",
		"impairment: [far, far-2], impair: {variants: {far: {delay: 1ms}, far-2: {delay: 2ms}}}": ":4:23: impairment has 2 values: ",
	} {
		file, err := document.Parse("testdata/flex.yaml", []byte(before+"servers: {"+servers+"}\n"), "an orchestrator's")
		if err == nil {
			_, err = load(file, spec.Known{Servers: map[string]any{impairPart: impair.Config{}}})
		}
		if want == "" && err != nil || want != "" && (!vitrine.IsBadInput(err) || !strings.HasPrefix(err.Error(), "testdata/flex.yaml"+want)) {
			t.Errorf("%s: got error %v, want %q", servers, err, want)
		}
	}
}

// TestSocketsOfDirectorsAreBesideTheFile checks that the path of a director's socket does not depend on the working
// directory, and that two spellings of it are one director.
func TestSocketsOfDirectorsAreBesideTheFile(t *testing.T) {
	const types = "\ntypes: [{name: voice, deployment: deployment.yaml, flavors: [{size: bn1s-sp1s-hs1s-hm1s, rate: 20}], max: 2}]\n"
	here, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	c, err := Parse("testdata/flex.yaml", []byte(`directors: [{control: "unix:director.sock"}, {control: "unix:/run/director.sock"}]`+types), spec.Known{})
	if err != nil {
		t.Fatal(err)
	}
	if a, b := c.Directors[0].Control, c.Directors[1].Control; a != "unix:"+here+"/director.sock" || b != "unix:/run/director.sock" {
		t.Errorf("got %q and %q", a, b)
	}
	_, err = Parse("testdata/flex.yaml", []byte(`directors: [{control: "unix:director.sock"}, {control: "unix:./director.sock"}]`+types), spec.Known{})
	if !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), "again") {
		t.Errorf("one socket twice: got error %v", err)
	}
}

// FuzzLoad checks that no file makes loading panic, and that every error names a position or a
// file.
func FuzzLoad(f *testing.F) {
	files, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range append(files, "testdata/good.yaml") {
		text, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := document.Parse("testdata/bad/fuzz.yaml", text, "an orchestrator's")
		if err != nil {
			return
		}
		c, err := load(file, spec.Known{})
		var bad *vitrine.BadInput
		switch {
		case err == nil:
			_ = c.Fits(1, 1<<30)
			for i := range c.Types {
				if ty := &c.Types[i]; len(ty.Members) == 0 || ty.Min > ty.Max || c.DeploymentOf(ty) == nil {
					t.Errorf("Load accepted %+v", ty)
				}
			}
		case !errors.As(err, &bad):
			t.Errorf("got %v, want bad input", err)
		case bad.File == "" || bad.Found == "":
			t.Errorf("the error does not name the file and the value: %#v", bad)
		}
	})
}
