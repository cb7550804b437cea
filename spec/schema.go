package spec

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/invopop/jsonschema"

	"vitrine/document"
)

// The published schemas, generated from the types of this package and their
// comments. They leave the parts of back ends open.
var (
	//go:embed schema/deployment.schema.json
	publishedDeployment []byte
	//go:embed schema/workload.schema.json
	publishedWorkload []byte
	//go:embed schema/profile.schema.json
	publishedProfile []byte
)

// Schema returns the JSON Schema (draft 2020-12) of a kind of file, with the
// names and parts of the back ends.
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
	DescribeServers(s.Definitions["Servers"], known)
	return s, nil
}

// DescribeServers adds the names and the parts of the back ends to the schema of
// Servers.
func DescribeServers(servers *jsonschema.Schema, known Known) {
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
				continue // most fabrics have no options; the part of a substrate may be present but empty
			}
			servers.Properties.Set(name, partSchema(back[name], "Options of "+name+"."))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(known.Servers)) {
		servers.Properties.Set(name, partSchema(known.Servers[name], "Options of "+name+"."))
	}
	if known.Substrates != nil && known.Fabrics != nil {
		servers.AdditionalProperties = jsonschema.FalseSchema
	}
}

func workloadSchema(known Known) (*jsonschema.Schema, error) {
	s := new(jsonschema.Schema)
	if err := json.Unmarshal(publishedWorkload, s); err != nil {
		return nil, fmt.Errorf("read the published schema: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(known.Generators)) {
		s.AllOf = append(s.AllOf, ifThen("generator", name, properties("parameters", partSchema(known.Generators[name], "Parameters of "+name+"."))))
	}
	if known.Generators != nil {
		// A script gets its parameters as text.
		builtIn := &jsonschema.Schema{Properties: properties("generator", &jsonschema.Schema{}).Properties}
		for _, name := range slices.Sorted(maps.Keys(known.Generators)) {
			generator, _ := builtIn.Properties.Get("generator")
			generator.Enum = append(generator.Enum, name)
		}
		s.AllOf = append(s.AllOf, &jsonschema.Schema{If: builtIn, Else: properties("parameters", document.Strings{}.JSONSchema())})
	}
	return s, nil
}

// properties returns a schema with one property.
func properties(name string, s *jsonschema.Schema) *jsonschema.Schema {
	p := jsonschema.NewProperties()
	p.Set(name, s)
	return &jsonschema.Schema{Properties: p}
}

// ifThen returns the schema "if the property has the value, then ...".
func ifThen(property, value string, then *jsonschema.Schema) *jsonschema.Schema {
	is := properties(property, &jsonschema.Schema{Const: value})
	is.Required = []string{property}
	return &jsonschema.Schema{If: is, Then: then}
}

// partSchema returns the schema of a back end's part. A nil part has no fields.
func partSchema(of any, description string) *jsonschema.Schema {
	if of == nil {
		of = struct{}{}
	}
	s := document.SchemaOf(of)
	s.Description = description
	return s
}

// Formats returns the text formats that deployments and workloads use besides those of
// package document.
func Formats() []document.Format {
	return []document.Format{
		{Name: "vnf-name", Pattern: `^[A-Za-z0-9][A-Za-z0-9 ._-]{0,63}$`, Want: "want letters, digits, spaces, dots, dashes and underscores, at most 64"},
		{Name: "short-name", Pattern: `^[a-z]{1,8}$`, Want: "want one to eight lower-case letters, such as sp"},
		{Name: "user", Pattern: `^([A-Za-z_][A-Za-z0-9_.-]{0,30}\$?|[0-9]{1,10})(:([A-Za-z_][A-Za-z0-9_.-]{0,30}|[0-9]{1,10}))?$`, Want: "want USER or USER:GROUP, by name or number, such as nobody or 1000:1000"},
		{Name: "variable", Pattern: `^[A-Z_][A-Z0-9_]*$`, Want: "want capital letters, digits and underscores, such as SPROUT"},
		{Name: "environment-name", Pattern: `^[A-Za-z_][A-Za-z0-9_]*$`, Want: "want letters, digits and underscores, no digit first"},
		{Name: "unit", Pattern: `^[^\x00-\x20"',;][^\x00-\x1f"',;]{0,31}$`, Want: "want a unit such as calls/s, without quotes, commas and semicolons"},
	}
}
