package spec

import (
	"fmt"
	"slices"
	"strings"

	"github.com/invopop/jsonschema"

	"vitrine"
	"vitrine/document"
)

// reflectFile returns the schema of a file of this package.
func reflectFile(of any, title string, comments map[string]string) *jsonschema.Schema {
	return refine(document.FileSchema(of, title, comments, Formats()...))
}

// reflectProfile returns the schema of the input of vitrine.ParseProfile.
func reflectProfile(comments map[string]string) *jsonschema.Schema {
	r := &jsonschema.Reflector{Anonymous: true, ExpandedStruct: true, RequiredFromJSONSchemaTags: true, CommentMap: comments}
	s := r.Reflect(vitrine.Profile{})
	s.Title = "Vitrine profile"
	version, _ := s.Properties.Get("profile")
	version.Const = vitrine.ProfileVersion
	return s
}

// refine adds to the deployment's schema what tags cannot express.
func refine(s *jsonschema.Schema) *jsonschema.Schema {
	component := s.Definitions["Component"]
	if component == nil {
		return s
	}
	component.AnyOf = required("command", "image")
	ports, _ := component.Properties.Get("ports")
	restrictKeys(ports, "name", &jsonschema.Schema{Type: "integer", Minimum: "1", Maximum: "65535"})
	for _, of := range []*jsonschema.Schema{component, s.Definitions["Flavor"]} {
		environment, _ := of.Properties.Get("environment")
		restrictKeys(environment, "environment-name", document.Strings{}.JSONSchema().AdditionalProperties)
	}
	s.Definitions["Dependency"].DependentRequired = map[string][]string{"as": {"port"}, "port": {"as"}}
	s.Definitions["Ready"].OneOf = required("tcp", "sip", "http", "command")
	s.Definitions["Servers"].AdditionalProperties = &jsonschema.Schema{Type: "object"}
	one := uint64(1)
	s.Definitions["Limit"].MinProperties = &one

	mode := s.Definitions["Mode"]
	custom := forbidOtherFields(mode, Custom, "sizes", "interleave")
	custom.Required = []string{"sizes"}
	exhaustive := forbidOtherFields(mode, Exhaustive, "limit", "flavors")
	exhaustive.Required = []string{"limit"}
	directed := forbidOtherFields(mode, Directed, "limit", "reach", "scaling", "scale_on", "flavors")
	directed.AnyOf = required("limit", "reach")
	model := forbidOtherFields(mode, Model, "limit", "reach", "objective", "flavors")
	model.Required = []string{"limit"}
	mode.AllOf = []*jsonschema.Schema{
		ifThen("name", Custom, custom), ifThen("name", Exhaustive, exhaustive), ifThen("name", Directed, directed), ifThen("name", Model, model),
	}
	return s
}

// required returns one schema per field; each schema requires its field.
func required(fields ...string) (all []*jsonschema.Schema) {
	for _, f := range fields {
		all = append(all, &jsonschema.Schema{Required: []string{f}})
	}
	return all
}

// restrictKeys makes s a mapping whose keys match the format.
func restrictKeys(s *jsonschema.Schema, format string, values *jsonschema.Schema) {
	for _, f := range append(document.Formats(), Formats()...) {
		if f.Name == format {
			s.PatternProperties = map[string]*jsonschema.Schema{f.Pattern: values}
		}
	}
	s.AdditionalProperties = jsonschema.FalseSchema
}

// forbidOtherFields returns a schema that refuses the fields of mode that do not belong to
// the mode called name.
func forbidOtherFields(mode *jsonschema.Schema, name string, fields ...string) *jsonschema.Schema {
	s := &jsonschema.Schema{Properties: jsonschema.NewProperties(), Description: fmt.Sprintf("%s takes %s", name, strings.Join(fields, ", "))}
	for p := mode.Properties.Oldest(); p != nil; p = p.Next() {
		if p.Key != "name" && !slices.Contains(fields, p.Key) {
			s.Properties.Set(p.Key, jsonschema.FalseSchema)
		}
	}
	return s
}
