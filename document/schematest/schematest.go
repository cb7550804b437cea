// Package schematest compares published schema files with the types that they are
// generated from.
package schematest

import (
	"bytes"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/invopop/jsonschema"

	"vitrine/document"
)

// Comments returns the comments of a package's types in the given folders, keyed
// by "package.Type.Field", for document.FileSchema.
func Comments(t *testing.T, pkg string, folders ...string) map[string]string {
	t.Helper()
	r := new(jsonschema.Reflector)
	for _, folder := range folders {
		if err := r.AddGoComments(pkg, folder); err != nil {
			t.Fatal(err)
		}
	}
	comments := map[string]string{}
	for name, text := range r.CommentMap {
		comments[name] = strings.ReplaceAll(text, "\n", " ")
	}
	return comments
}

// Members returns the names of the members that a struct has in JSON, sorted.
func Members(v any) (names []string) {
	for _, f := range reflect.VisibleFields(reflect.TypeOf(v)) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Published checks that the file contains exactly the schema and that the schema
// contains words, a text from some comment. With update, it writes the file first.
func Published(t *testing.T, update bool, path string, schema *jsonschema.Schema, words string) {
	t.Helper()
	got, err := document.Indent(schema)
	if err != nil {
		t.Fatal(err)
	}
	if update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is stale: run go generate in its package", path)
	}
	if !bytes.Contains(got, []byte(words)) {
		t.Errorf("%s does not describe %q", path, words)
	}
}
