package config

import (
	"flag"
	"testing"

	"vitrine/document"
	"vitrine/document/schematest"
)

var update = flag.Bool("update", false, "write the published schema and golden files anew")

// TestPublishedSchema checks that the published schema matches the types and their
// comments.
func TestPublishedSchema(t *testing.T) {
	comments := schematest.Comments(t, "vitrine/flex/config", ".")
	for name, text := range schematest.Comments(t, "vitrine/spec", "../../spec") {
		comments[name] = text
	}
	schema := document.FileSchema(Config{}, "Vitrine flex", comments, formats()...)
	schematest.Published(t, *update, "schema/flex.schema.json", schema, "Fewest instances.")
}
