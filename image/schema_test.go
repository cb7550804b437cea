package image

import (
	"flag"
	"testing"

	"vitrine/document"
	"vitrine/document/schematest"
)

var update = flag.Bool("update", false, "write the published schema anew")

// TestPublishedSchema checks that the published schema matches the types and their comments.
func TestPublishedSchema(t *testing.T) {
	schema := document.FileSchema(Application{}, "Vitrine application", schematest.Comments(t, "vitrine/image", "."))
	schematest.Published(t, *update, "schema/application.schema.json", schema, "Name of the images.")
}
