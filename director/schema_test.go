package director

import (
	"flag"
	"testing"

	"vitrine/document"
	"vitrine/document/schematest"
)

var update = flag.Bool("update", false, "write the published schema anew")

// TestPublishedSchema checks that the published schema matches the types and their
// comments.
func TestPublishedSchema(t *testing.T) {
	schema := document.FileSchema(Config{}, "Vitrine director", schematest.Comments(t, "vitrine/director", "."))
	schematest.Published(t, *update, "schema/director.schema.json", schema, "Which transactions it gets.")
}
