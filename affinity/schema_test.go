package affinity

import (
	"encoding/json"
	"flag"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/invopop/jsonschema"

	"vitrine/affinity/flow"
	"vitrine/affinity/message"
	"vitrine/document"
	"vitrine/document/schematest"
)

var update = flag.Bool("update", false, "write published schemas anew")

// TestPublishedSchemas checks that the published schemas match the types and their
// comments.
func TestPublishedSchemas(t *testing.T) {
	comments := schematest.Comments(t, "vitrine/affinity", ".")
	for _, below := range []string{"flow", "graph", "aggregate", "correlate", "course", "state", "message", "capture", "stream"} {
		maps.Copy(comments, schematest.Comments(t, "vitrine/affinity", below))
	}
	names := document.FileSchema(Names{}, "Vitrine names of functions", comments)
	schematest.Published(t, *update, "schema/names.schema.json", names, "What the function is called in results.")
	schematest.Published(t, *update, "schema/affinity.schema.json", analysisSchema(comments), "In the order in which they take part.")
}

func analysisSchema(comments map[string]string) *jsonschema.Schema {
	r := &jsonschema.Reflector{Anonymous: true, ExpandedStruct: true, RequiredFromJSONSchemaTags: true, CommentMap: comments, Namer: definition, Mapper: instant}
	s := r.Reflect(Analysis{})
	s.Title = "Vitrine affinity"
	version, _ := s.Properties.Get("affinity")
	version.Const = Version
	return s
}

// instant returns the schema of a time that is an integer in Go; nil for other types.
func instant(t reflect.Type) *jsonschema.Schema {
	if t != reflect.TypeFor[message.Instant]() {
		return nil
	}
	return &jsonschema.Schema{Type: "string", Format: "date-time"}
}

// definition names the definition of a type. Packages that read captures have types of
// equal names.
func definition(t reflect.Type) string {
	of := path.Base(t.PkgPath())
	if slices.Contains([]string{"capture", "stream", "message", "correlate", "course", "state"}, of) {
		return strings.ToUpper(of[:1]) + of[1:] + t.Name()
	}
	return t.Name()
}

// TestAnalysesFitTheSchema: what Analyse returns is valid under the published
// schema.
func TestAnalysesFitTheSchema(t *testing.T) {
	for _, group := range flow.Groups() {
		flows, err := flow.Find(group)
		if err != nil {
			t.Fatal(err)
		}
		flows[0].Duration = &flow.Times{P50: 20, P95: 31}
		flows[0].Messages[1].After = &flow.Times{P50: 1, P95: 2}
		a, err := Analyse(flows, Options{Delay: 5 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		validate(t, a)
	}
}

// TestParse checks that versions 1 and 2 of affinity.json are read with the same times, and that no other
// version is read.
func TestParse(t *testing.T) {
	const at = 1763900000123456789
	for text, want := range map[string]string{
		`{"affinity": 1, "captured": {"read": {"begin": 1763900000123456789}}}`:              "",
		`{"affinity": 2, "captured": {"read": {"begin": "2025-11-23T12:13:20.123456789Z"}}}`: "",
		`{"affinity": 3}`: "affinity.json of version 3: want 1 to 2",
		`{}`:              "affinity.json of version 0: want 1 to 2",
	} {
		a, err := Parse([]byte(text))
		switch {
		case want != "":
			if err == nil || err.Error() != want {
				t.Errorf("%s: got error %v, want %q", text, err, want)
			}
		case err != nil || a.Captured.Read.Begin != at:
			t.Errorf("%s: got %+v, error %v, want begin %d", text, a, err, at)
		}
	}
}

// validate checks an analysis against the published schema.
func validate(t *testing.T, a *Analysis) {
	t.Helper()
	schema := new(jsonschema.Schema)
	if err := json.Unmarshal(Schema(), schema); err != nil {
		t.Fatal(err)
	}
	compiled, err := document.Compile(schema)
	if err != nil {
		t.Fatal(err)
	}
	text, err := a.JSON()
	if err != nil {
		t.Fatal(err)
	}
	file, err := document.Parse("affinity.json", text, "an analysis")
	if err != nil {
		t.Fatal(err)
	}
	var read any
	if err := compiled.Decode(file.Root(), &read); err != nil {
		t.Error(err)
	}
}
