package spec

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/invopop/jsonschema"

	"vitrine"
	"vitrine/document"
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
	return document.Indent(s)
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
			for _, name := range slices.Sorted(maps.Keys(back)) {
				branch.Enum = append(branch.Enum, name)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(back)) {
			if back[name] == nil && option == "fabric" {
				continue // most have no options; a substrate's part may be there, and empty
			}
			servers.Properties.Set(name, part(back[name], "Options of "+name+"."))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(known.Servers)) {
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
	for _, name := range slices.Sorted(maps.Keys(known.Generators)) {
		s.AllOf = append(s.AllOf, when("generator", name, properties("parameters", part(known.Generators[name], "Parameters of "+name+"."))))
	}
	if known.Generators != nil {
		// A script is told its parameters as text.
		builtIn := &jsonschema.Schema{Properties: properties("generator", &jsonschema.Schema{}).Properties}
		for _, name := range slices.Sorted(maps.Keys(known.Generators)) {
			generator, _ := builtIn.Properties.Get("generator")
			generator.Enum = append(generator.Enum, name)
		}
		s.AllOf = append(s.AllOf, &jsonschema.Schema{If: builtIn, Else: properties("parameters", document.Strings{}.JSONSchema())})
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
	s := document.SchemaOf(of)
	s.Description = description
	return s
}

// reflectFile is the schema of a file of this package.
func reflectFile(of any, title string, comments map[string]string) *jsonschema.Schema {
	return refined(document.FileSchema(of, title, comments, formats()...))
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
	keyed(environment, "environment-name", document.Strings{}.JSONSchema().AdditionalProperties)
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
	for _, f := range append(document.Formats(), formats()...) {
		if f.Name == format {
			s.PatternProperties = map[string]*jsonschema.Schema{f.Pattern: values}
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

// formats are the kinds of text that only deployments and workloads have.
func formats() []document.Format {
	return []document.Format{
		{Name: "vnf-name", Pattern: `^[A-Za-z0-9][A-Za-z0-9 ._-]{0,63}$`, Want: "want letters, digits, spaces, dots, dashes and underscores, at most 64"},
		{Name: "short-name", Pattern: `^[a-z]{1,8}$`, Want: "want one to eight lower-case letters, such as sp"},
		{Name: "variable", Pattern: `^[A-Z_][A-Z0-9_]*$`, Want: "want capital letters, digits and underscores, such as SPROUT"},
		{Name: "environment-name", Pattern: `^[A-Za-z_][A-Za-z0-9_]*$`, Want: "want letters, digits and underscores, no digit first"},
		{Name: "unit", Pattern: `^[^\x00-\x20"',;][^\x00-\x1f"',;]{0,31}$`, Want: "want a unit such as calls/s, without quotes, commas and semicolons"},
	}
}
