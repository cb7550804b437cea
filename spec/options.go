package spec

import (
	"github.com/invopop/jsonschema"

	"vitrine/document"
)

// LoadOptions reads and checks a file of what back ends are told where there is
// no deployment: the part servers of one, with nothing in it but the back ends'
// own parts, which it gives by name. What the user must mend is a
// *vitrine.BadInput, or several joined, as in a deployment.
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
	for field := range fieldsOf[Servers]() { // who names no deployment says these in some other way
		servers.Properties.Delete(field)
	}
	servers.Description = "Options of back ends, by their names."
	whole := properties("servers", servers)
	whole.Type, whole.Required, whole.AdditionalProperties = "object", []string{"servers"}, jsonschema.FalseSchema
	compiled, err := document.Compile(whole, formats()...)
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
