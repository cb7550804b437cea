package spec

import (
	"bytes"
	_ "embed"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/invopop/jsonschema"
	validator "github.com/santhosh-tekuri/jsonschema/v6"

	"vitrine"
)

// The schemas as they are published: generated from the types of this package
// and their comments, with the back ends' parts left open.
var (
	//go:embed schema/deployment.schema.json
	publishedDeployment []byte
	//go:embed schema/workload.schema.json
	publishedWorkload []byte
	//go:embed schema/profile.schema.json
	publishedProfile []byte
)

// Schema is the JSON Schema (draft 2020-12) of a kind of file, with the names
// and parts of the back ends.
func Schema(kind string, known Known) ([]byte, error) {
	if kind == KindProfile {
		return publishedProfile, nil
	}
	of := map[string]func(Known) (*jsonschema.Schema, error){KindDeployment: deploymentSchema, KindWorkload: workloadSchema}[kind]
	if of == nil {
		return nil, fmt.Errorf("schema of %q: want %s, %s or %s", kind, KindDeployment, KindWorkload, KindProfile)
	}
	s, err := of(known)
	if err != nil {
		return nil, err
	}
	return indented(s)
}

func indented(s *jsonschema.Schema) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(s); err != nil {
		return nil, fmt.Errorf("write schema: %w", err)
	}
	return b.Bytes(), nil
}

func deploymentSchema(known Known) (*jsonschema.Schema, error) {
	s := new(jsonschema.Schema)
	if err := json.Unmarshal(publishedDeployment, s); err != nil {
		return nil, fmt.Errorf("read the published schema: %w", err)
	}
	servers := s.Definitions["Servers"]
	for _, option := range []string{"substrate", "fabric"} {
		back := known.Substrates
		if option == "fabric" {
			back = known.Fabrics
		}
		if back == nil {
			continue
		}
		property, _ := servers.Properties.Get(option)
		for _, branch := range property.AnyOf {
			if branch.Items != nil {
				branch = branch.Items
			}
			for _, name := range names(back) {
				branch.Enum = append(branch.Enum, name)
			}
		}
		for _, name := range names(back) {
			if back[name] == nil && option == "fabric" {
				continue // most have no options; a substrate's part may be there, and empty
			}
			servers.Properties.Set(name, part(back[name], "Options of "+name+"."))
		}
	}
	for _, name := range names(known.Servers) {
		servers.Properties.Set(name, part(known.Servers[name], "Options of "+name+"."))
	}
	if known.Substrates != nil && known.Fabrics != nil {
		servers.AdditionalProperties = jsonschema.FalseSchema
	}
	return s, nil
}

func workloadSchema(known Known) (*jsonschema.Schema, error) {
	s := new(jsonschema.Schema)
	if err := json.Unmarshal(publishedWorkload, s); err != nil {
		return nil, fmt.Errorf("read the published schema: %w", err)
	}
	for _, name := range names(known.Generators) {
		s.AllOf = append(s.AllOf, when("generator", name, properties("parameters", part(known.Generators[name], "Parameters of "+name+"."))))
	}
	if known.Generators != nil {
		// A script is told its parameters as text.
		builtIn := &jsonschema.Schema{Properties: properties("generator", &jsonschema.Schema{}).Properties}
		for _, name := range names(known.Generators) {
			generator, _ := builtIn.Properties.Get("generator")
			generator.Enum = append(generator.Enum, name)
		}
		s.AllOf = append(s.AllOf, &jsonschema.Schema{If: builtIn, Else: properties("parameters", Strings{}.shape())})
	}
	return s, nil
}

// properties is a schema of one property.
func properties(name string, s *jsonschema.Schema) *jsonschema.Schema {
	p := jsonschema.NewProperties()
	p.Set(name, s)
	return &jsonschema.Schema{Properties: p}
}

// when is the schema "if the property is value, then".
func when(property, value string, then *jsonschema.Schema) *jsonschema.Schema {
	is := properties(property, &jsonschema.Schema{Const: value})
	is.Required = []string{property}
	return &jsonschema.Schema{If: is, Then: then}
}

// part is the schema of a back end's part; nil has no fields.
func part(of any, description string) *jsonschema.Schema {
	if of == nil {
		of = struct{}{}
	}
	s := reflectPart(of)
	s.Version, s.Description = "", description
	return s
}

// reflectPart is the schema of one type, whole in itself.
func reflectPart(of any) *jsonschema.Schema {
	r := reflector()
	r.DoNotReference = true
	return formatted(r.ReflectFromType(reflect.TypeOf(of)))
}

// reflectFile is the schema of a file, one definition per type. Comments, by
// type and field, become descriptions.
func reflectFile(of any, title string, comments map[string]string) *jsonschema.Schema {
	r := reflector()
	r.ExpandedStruct = true
	r.CommentMap = comments
	s := formatted(refined(r.ReflectFromType(reflect.TypeOf(of))))
	s.Title = title
	return s
}

// reflectProfile is the schema of what vitrine.ParseProfile reads.
func reflectProfile(comments map[string]string) *jsonschema.Schema {
	r := &jsonschema.Reflector{Anonymous: true, ExpandedStruct: true, RequiredFromJSONSchemaTags: true, CommentMap: comments}
	s := r.Reflect(vitrine.Profile{})
	s.Title = "Vitrine profile"
	version, _ := s.Properties.Get("profile")
	version.Const = vitrine.ProfileVersion
	return s
}

func reflector() *jsonschema.Reflector {
	return &jsonschema.Reflector{
		Anonymous:                  true,
		FieldNameTag:               "yaml",
		KeyNamer:                   strings.ToLower, // as yaml does to fields without a tag
		RequiredFromJSONSchemaTags: true,
		Mapper: func(t reflect.Type) *jsonschema.Schema {
			if t.Name() == "Duration" && t.ConvertibleTo(reflect.TypeFor[time.Duration]()) { // time's, and back ends' own
				return &jsonschema.Schema{Type: "string", Format: "whole-duration", Examples: []any{"3s"}}
			}
			if s, ok := reflect.Zero(t).Interface().(shaped); ok {
				return s.shape()
			}
			if reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
				return &jsonschema.Schema{Type: "string"}
			}
			return nil
		},
	}
}

// refined adds to the deployment's schema what tags cannot say.
func refined(s *jsonschema.Schema) *jsonschema.Schema {
	component := s.Definitions["Component"]
	if component == nil {
		return s
	}
	component.AnyOf = required("command", "image")
	ports, _ := component.Properties.Get("ports")
	keyed(ports, "name", &jsonschema.Schema{Type: "integer", Minimum: "1", Maximum: "65535"})
	environment, _ := component.Properties.Get("environment")
	keyed(environment, "environment-name", scalar())
	s.Definitions["Dependency"].DependentRequired = map[string][]string{"as": {"port"}, "port": {"as"}}
	s.Definitions["Ready"].OneOf = required("tcp", "sip", "http", "command")
	s.Definitions["Servers"].AdditionalProperties = &jsonschema.Schema{Type: "object"}
	one := uint64(1)
	s.Definitions["Limit"].MinProperties = &one

	mode := s.Definitions["Mode"]
	custom := only(mode, Custom, "sizes")
	custom.Required = []string{"sizes"}
	exhaustive := only(mode, Exhaustive, "limit", "flavors")
	exhaustive.Required = []string{"limit"}
	directed := only(mode, Directed, "limit", "reach", "scaling", "scale_on", "flavors")
	directed.AnyOf = required("limit", "reach")
	model := only(mode, Model, "limit", "reach", "objective", "flavors")
	model.Required = []string{"limit"}
	mode.AllOf = []*jsonschema.Schema{
		when("name", Custom, custom), when("name", Exhaustive, exhaustive), when("name", Directed, directed), when("name", Model, model),
	}
	return s
}

// required are schemas that want one field each.
func required(fields ...string) (all []*jsonschema.Schema) {
	for _, f := range fields {
		all = append(all, &jsonschema.Schema{Required: []string{f}})
	}
	return all
}

// keyed makes s a mapping from text of the format to values.
func keyed(s *jsonschema.Schema, format string, values *jsonschema.Schema) {
	for _, f := range formats() {
		if f.name == format {
			s.PatternProperties = map[string]*jsonschema.Schema{f.pattern: values}
		}
	}
	s.AdditionalProperties = jsonschema.FalseSchema
}

// only refuses the mode's fields that do not belong to the mode called name.
func only(mode *jsonschema.Schema, name string, fields ...string) *jsonschema.Schema {
	s := &jsonschema.Schema{Properties: jsonschema.NewProperties(), Description: fmt.Sprintf("%s takes %s", name, strings.Join(fields, ", "))}
	for p := mode.Properties.Oldest(); p != nil; p = p.Next() {
		if p.Key != "name" && !slices.Contains(fields, p.Key) {
			s.Properties.Set(p.Key, jsonschema.FalseSchema)
		}
	}
	return s
}

// formatted gives every named format its pattern, for readers that do not know
// the name.
func formatted(s *jsonschema.Schema) *jsonschema.Schema {
	if s == nil {
		return nil
	}
	for _, f := range formats() {
		if s.Format == f.name {
			s.Pattern = f.pattern
		}
	}
	for _, list := range [][]*jsonschema.Schema{s.AllOf, s.AnyOf, s.OneOf} {
		for _, each := range list {
			formatted(each)
		}
	}
	for _, each := range s.Definitions {
		formatted(each)
	}
	for _, each := range []*jsonschema.Schema{s.Items, s.AdditionalProperties} {
		formatted(each)
	}
	for p := s.Properties.Oldest(); p != nil; p = p.Next() {
		formatted(p.Value)
	}
	return s
}

// A checker is a schema that is ready to check values, and its own JSON, to
// look up what it allows.
type checker struct {
	schema *validator.Schema
	json   any
}

// where is the name under which a schema is compiled; it is never fetched.
const where = "vitrine:///schema.json"

func compile(s *jsonschema.Schema) (*checker, error) {
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
	for _, f := range formats() {
		c.RegisterFormat(&validator.Format{Name: f.name, Validate: f.check()})
	}
	if err := c.AddResource(where, value); err != nil {
		return nil, fmt.Errorf("add schema: %w", err)
	}
	schema, err := c.Compile(where)
	if err != nil {
		return nil, fmt.Errorf("compile schema: %w", err)
	}
	return &checker{schema: schema, json: value}, nil
}

// check says whether a value is text of the format; what is no text is for the
// schema's type to refuse.
func (f format) check() func(any) error {
	pattern := f.regexp()
	return func(v any) error {
		s, ok := v.(string)
		if ok && (!pattern.MatchString(s) || f.parse != nil && f.parse(s) != nil) {
			return errors.New(f.want)
		}
		return nil
	}
}

// at is the part of the schema's JSON that a location from the validator leads
// to (a JSON pointer, RFC 6901).
func (c *checker) at(location string) map[string]any {
	_, pointer, _ := strings.Cut(location, "#")
	at := c.json
	for token := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		if token == "" {
			continue
		}
		at = step(at, unescape(token))
	}
	m, _ := at.(map[string]any)
	return m
}
