package spec

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/invopop/jsonschema"
)

var update = flag.Bool("update", false, "write the published schemas and golden files anew")

// The published schemas are what the types and their comments say today.
func TestPublishedSchema(t *testing.T) {
	r := new(jsonschema.Reflector)
	if err := r.AddGoComments("vitrine/spec", "."); err != nil {
		t.Fatal(err)
	}
	comments := map[string]string{}
	for name, text := range r.CommentMap {
		comments[name] = strings.ReplaceAll(text, "\n", " ")
	}
	for name, of := range map[string]any{"deployment": Deployment{}, "workload": Workload{}} {
		got, err := indented(reflectFile(of, "Vitrine "+name, comments))
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join("schema", name+".schema.json")
		if *update {
			if err := os.WriteFile(path, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is stale: run go generate ./spec", path)
		}
	}
}
