package spec

import (
	"github.com/invopop/jsonschema"

	"vitrine/document"
)

// LoadOptions reads and checks an options file, which configures back ends when
// there is no deployment. The file contains the servers section of a
// deployment, with only the back ends' own parts. LoadOptions returns the parts
// by name. A mistake in the file is a *vitrine.BadInput, or several joined, as
// in a deployment.
func LoadOptions(path string, known Known) (map[string]document.Node, document.File, error) {
	file, err := document.Read(path, "an option")
	if err != nil {
		return nil, file, err
	}
	schema, err := deploymentSchema(known)
	if err != nil {
		return nil, file, err
	}
	servers := schema.Definitions["Servers"]
	for _, field := range document.Fields[Servers]() { // without a deployment, these come from elsewhere, for example from flags
		servers.Properties.Delete(field)
	}
	servers.Description = "Options of back ends, by their names."
	whole := properties("servers", servers)
	whole.Type, whole.Required, whole.AdditionalProperties = "object", []string{"servers"}, jsonschema.FalseSchema
	compiled, err := document.Compile(whole, Formats()...)
	if err != nil {
		return nil, file, err
	}
	root := file.Root()
	var options struct {
		Servers map[string]document.Node
	}
	if err := compiled.Decode(root, &options); err != nil {
		return nil, file, err
	}
	for name := range options.Servers {
		options.Servers[name] = root.Sub("servers", name)
	}
	return options.Servers, file, nil
}
