package document

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"time"

	"github.com/invopop/jsonschema"
	validator "github.com/santhosh-tekuri/jsonschema/v6"
)

// SchemaOf returns the self-contained JSON Schema (draft 2020-12) of one type,
// built from its yaml and jsonschema tags.
func SchemaOf(of any) *jsonschema.Schema {
	r := reflector()
	r.DoNotReference = true
	s := addPatterns(r.ReflectFromType(reflect.TypeOf(of)), Formats())
	s.Version = ""
	return s
}

// FileSchema returns the JSON Schema of a whole file, with one definition per
// type. The schema may use the given formats in addition to Formats. comments
// maps "package.Type.Field" to Go comments, which become descriptions.
func FileSchema(of any, title string, comments map[string]string, formats ...Format) *jsonschema.Schema {
	r := reflector()
	r.ExpandedStruct = true
	r.CommentMap = comments
	s := addPatterns(r.ReflectFromType(reflect.TypeOf(of)), append(Formats(), formats...))
	s.Title = title
	return s
}

// Indent returns a value as JSON that people read, such as a schema for publication.
func Indent(v any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(v); err != nil {
		return nil, fmt.Errorf("write JSON: %w", err)
	}
	return b.Bytes(), nil
}

// Fields returns the YAML names of a struct's fields.
func Fields[T any]() (names []string) {
	t := reflect.TypeFor[T]()
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("yaml"), ",")
		if name != "" && name != "-" {
			names = append(names, name)
		}
	}
	return names
}

// A schemaProvider is a type that provides its own schema.
type schemaProvider interface{ JSONSchema() *jsonschema.Schema }

func reflector() *jsonschema.Reflector {
	return &jsonschema.Reflector{
		Anonymous:                  true,
		FieldNameTag:               "yaml",
		KeyNamer:                   strings.ToLower, // as yaml does for fields without a tag
		RequiredFromJSONSchemaTags: true,
		Mapper: func(t reflect.Type) *jsonschema.Schema {
			if t.Name() == "Duration" && t.ConvertibleTo(reflect.TypeFor[time.Duration]()) { // time.Duration and the Duration types of back ends
				return &jsonschema.Schema{Type: "string", Format: "whole-duration", Examples: []any{"3s"}}
			}
			switch t {
			case reflect.TypeFor[netip.Prefix]():
				return &jsonschema.Schema{Type: "string", Format: network}
			case reflect.TypeFor[netip.AddrPort]():
				return &jsonschema.Schema{Type: "string", Format: addressPort}
			}
			if s, ok := reflect.Zero(t).Interface().(schemaProvider); ok {
				return s.JSONSchema()
			}
			if reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
				return &jsonschema.Schema{Type: "string"}
			}
			return nil
		},
	}
}

// addPatterns adds the pattern of every named format, for tools that do not know
// the format's name.
func addPatterns(s *jsonschema.Schema, formats []Format) *jsonschema.Schema {
	if s == nil {
		return nil
	}
	for _, f := range formats {
		if s.Format == f.Name {
			s.Pattern = f.Pattern
		}
	}
	for _, list := range [][]*jsonschema.Schema{s.AllOf, s.AnyOf, s.OneOf} {
		for _, each := range list {
			addPatterns(each, formats)
		}
	}
	for _, each := range s.Definitions {
		addPatterns(each, formats)
	}
	for _, each := range []*jsonschema.Schema{s.Items, s.AdditionalProperties} {
		addPatterns(each, formats)
	}
	for p := s.Properties.Oldest(); p != nil; p = p.Next() {
		addPatterns(p.Value, formats)
	}
	return s
}

// A Schema is a compiled JSON Schema. It keeps its JSON, because error messages
// quote the allowed values.
type Schema struct {
	schema  *validator.Schema
	json    any
	formats []Format
}

// schemaURL is the URL under which a schema is compiled; the URL is never fetched.
const schemaURL = "vitrine:///schema.json"

// Compile prepares a schema for Decode. The schema may use the given formats in
// addition to Formats.
func Compile(s *jsonschema.Schema, formats ...Format) (*Schema, error) {
	formats = append(Formats(), formats...)
	text, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("write schema: %w", err)
	}
	value, err := validator.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("read schema: %w", err)
	}
	c := validator.NewCompiler()
	c.AssertFormat()
	for _, f := range formats {
		c.RegisterFormat(f.validator())
	}
	if err := c.AddResource(schemaURL, value); err != nil {
		return nil, fmt.Errorf("add schema: %w", err)
	}
	schema, err := c.Compile(schemaURL)
	if err != nil {
		return nil, fmt.Errorf("compile schema: %w", err)
	}
	return &Schema{schema: schema, json: value, formats: formats}, nil
}

// Decode checks a part of a file against the schema, then reads it into a value.
// Every schema violation is a *vitrine.BadInput with its position.
func (s *Schema) Decode(n Node, into any) error {
	v, err := decodeValue(n.node)
	if err != nil {
		return n.BadInput(err.Error(), "")
	}
	err = s.schema.Validate(v)
	var invalid *validator.ValidationError
	switch {
	case errors.As(err, &invalid):
		x := explainer{Node: n, Schema: s}
		x.explain(invalid)
		return x.join()
	case err != nil:
		return err
	}
	return n.decode(into)
}

// at returns the part of the schema's JSON at a location from the validator (a
// JSON pointer, RFC 6901).
func (s *Schema) at(location string) map[string]any {
	_, pointer, _ := strings.Cut(location, "#")
	at := s.json
	for token := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		if token == "" {
			continue
		}
		at = member(at, unescape(token))
	}
	m, _ := at.(map[string]any)
	return m
}
