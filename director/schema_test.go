package director

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
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

// TestExamplesOfTheGuides checks that the first file of each guide is valid, and names no further
// files, which a reader who copies it would lack.
func TestExamplesOfTheGuides(t *testing.T) {
	for _, page := range []string{"director.md", "director-gtpc.md", "director-s1ap.md"} {
		text, err := os.ReadFile(filepath.Join("..", "docs", page))
		if err != nil {
			t.Fatal(err)
		}
		_, rest, opened := strings.Cut(string(text), "```yaml\n")
		example, _, closed := strings.Cut(rest, "```")
		if !opened || !closed {
			t.Errorf("docs/%s has no example", page)
			continue
		}
		c, err := Load(write(t, filepath.Join(t.TempDir(), "director.yaml"), example))
		if err != nil {
			t.Errorf("docs/%s: %v", page, err)
		} else if c.Keys.File != "" || c.Control.TokenFile != "" || c.Control.Certificate != "" || c.Control.Clients != "" {
			t.Errorf("docs/%s names further files: %+v, %+v", page, c.Keys, c.Control)
		}
	}
}
