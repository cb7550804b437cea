package director

import (
	"flag"
	"testing"

	"vitrine/spec"
	"vitrine/spec/schematest"
)

var update = flag.Bool("update", false, "write the published schema anew")

// The published schema is what the types and their comments say today.
func TestPublishedSchema(t *testing.T) {
	schema, err := spec.SchemaOf(Config{}, "Vitrine director", schematest.Comments(t, "vitrine/director", "."))
	if err != nil {
		t.Fatal(err)
	}
	schematest.Published(t, *update, "schema/director.schema.json", schema, "Which transactions it gets.")
}
