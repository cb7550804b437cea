package image

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/invopop/jsonschema"

	"vitrine/spec"
)

var update = flag.Bool("update", false, "write the published schema anew")

// The published schema is what the types and their comments say today.
func TestPublishedSchema(t *testing.T) {
	r := new(jsonschema.Reflector)
	if err := r.AddGoComments("vitrine/image", "."); err != nil {
		t.Fatal(err)
	}
	comments := map[string]string{}
	for name, text := range r.CommentMap {
		comments[name] = strings.ReplaceAll(text, "\n", " ")
	}
	got, err := spec.SchemaOf(Application{}, "Vitrine application", comments)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("schema", "application.schema.json")
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
		t.Errorf("%s is stale: run go generate ./image", path)
	}
	if !bytes.Contains(got, []byte("What its images are called.")) {
		t.Error("the schema has no descriptions")
	}
}
