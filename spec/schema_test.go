package spec

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/invopop/jsonschema"
	"go.yaml.in/yaml/v3"

	"vitrine/document"
	"vitrine/document/schematest"
)

var update = flag.Bool("update", false, "write the published schemas and golden files anew")

// TestPublishedSchema checks that the published schemas match the types and
// their comments.
func TestPublishedSchema(t *testing.T) {
	comments := schematest.Comments(t, "vitrine/spec", ".", "..")
	for name, s := range map[string]*jsonschema.Schema{
		KindDeployment: reflectFile(Deployment{}, "Vitrine deployment", comments),
		KindWorkload:   reflectFile(Workload{}, "Vitrine workload", comments),
		KindProfile:    reflectProfile(comments),
	} {
		schematest.Published(t, *update, "schema/"+name+".schema.json", s, "description")
	}
}

// TestPublishedDefaults checks that the published schemas have the defaults
// that loading applies.
func TestPublishedDefaults(t *testing.T) {
	var got []string
	for _, published := range [][]byte{publishedDeployment, publishedWorkload} {
		s := new(jsonschema.Schema)
		if err := json.Unmarshal(published, s); err != nil {
			t.Fatal(err)
		}
		for _, name := range append(slices.Sorted(maps.Keys(s.Definitions)), "") {
			of := s
			if name != "" {
				of = s.Definitions[name]
			}
			for p := of.Properties.Oldest(); p != nil; p = p.Next() {
				d := p.Value.Default
				if d == nil {
					d = p.Value.Extras["default"]
				}
				if d != nil {
					got = append(got, fmt.Sprintf("%s.%s=%v", name, p.Key, d))
				}
			}
		}
	}
	component, install, ready, mode := Component{}, Install{}, Ready{}, Mode{}
	for _, into := range []any{&component, &install, &ready, &mode} {
		if err := yaml.Unmarshal([]byte("{}"), into); err != nil {
			t.Fatal(err)
		}
	}
	s := DefaultServers()
	w, err := ParseWorkload("w.yaml", []byte(`{generator: sip, range: [1, 2], duration: 1s}`), Known{})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		fmt.Sprintf("Component.scalable=%v", component.Scalable),
		fmt.Sprintf("Component.allow_privilege_escalation=%v", component.AllowPrivilegeEscalation),
		"Flavor.pin=false",
		"Install.time_limit=" + seconds(install.TimeLimit),
		fmt.Sprintf("Mode.interleave=%v", mode.Interleave),
		"Mode.scaling=" + mode.Scaling, "Mode.scale_on=" + mode.ScaleOn, "Mode.objective=" + mode.Objective,
		"Ready.timeout=" + seconds(ready.Timeout),
		"Servers.substrate=" + s.Substrate[0], "Servers.fabric=" + s.Fabric[0],
		"Servers.pinning=" + s.Pinning[0].String(), "Servers.cfs_period=" + s.CFSPeriod[0].String(),
		"Servers.keep_awake=" + s.KeepAwake[0].String(),
		".stateful=false",
		".unit=" + w.Unit, fmt.Sprintf(".repeat=%d", w.Repeat), ".warmup=" + seconds(w.Warmup), ".settle=" + seconds(w.Settle), ".search=" + w.Search,
		fmt.Sprintf(".allow_privilege_escalation=%v", w.AllowPrivilegeEscalation),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("published defaults (-loaded +published):\n%s", diff)
	}
}

func seconds(d time.Duration) string { return fmt.Sprintf("%gs", d.Seconds()) }

// TestFullSchemas checks that the full schemas name the back ends, contain
// their parts and are valid schemas. The validator checks them against the JSON
// Schema metaschema.
func TestFullSchemas(t *testing.T) {
	deployment, err := Schema(KindDeployment, known())
	if err != nil {
		t.Fatal(err)
	}
	workload, err := Schema(KindWorkload, known())
	if err != nil {
		t.Fatal(err)
	}
	for text, parts := range map[string][]string{
		string(deployment): {`"docker"`, `"loopback"`, `"network"`, `draft/2020-12/schema"`},
		string(workload):   {`"sipp"`, `"scenario"`, `"reg-invite"`},
	} {
		for _, part := range parts {
			if !strings.Contains(text, part) {
				t.Errorf("the schema does not say %s", part)
			}
		}
		s := new(jsonschema.Schema)
		if err := json.Unmarshal([]byte(text), s); err != nil {
			t.Fatal(err)
		}
		if _, err := document.Compile(s, Formats()...); err != nil {
			t.Error(err)
		}
	}
}

// TestNothingKnown checks that a file loads without a list of back ends.
func TestNothingKnown(t *testing.T) {
	for _, name := range []string{"ims.yaml", "ims.json"} {
		if _, err := LoadDeployment(filepath.Join("testdata", "good", name), Known{}); err != nil {
			t.Error(err)
		}
	}
	if _, err := LoadWorkload("testdata/good/calls.yaml", Known{}); err != nil {
		t.Error(err)
	}
}
