package image

import (
	"flag"
	"testing"

	"vitrine/spec"
	"vitrine/spec/schematest"
)

var update = flag.Bool("update", false, "write the published schema anew")

// The published schema is what the types and their comments say today.
func TestPublishedSchema(t *testing.T) {
	schema, err := spec.SchemaOf(Application{}, "Vitrine application", schematest.Comments(t, "vitrine/image", "."))
	if err != nil {
		t.Fatal(err)
	}
	schematest.Published(t, *update, "schema/application.schema.json", schema, "What its images are called.")
}
