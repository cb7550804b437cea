package spec

import "github.com/invopop/jsonschema"

// LoadOptions reads and checks a file of what back ends are told where there is
// no deployment: the part servers of one, with nothing in it but the back ends'
// own parts, which it gives by name. What the user must mend is a
// *vitrine.BadInput, or several joined, as in a deployment.
func LoadOptions(path string, known Known) (map[string]Node, File, error) {
	root, file, err := Read(path)
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
	c, err := compile(whole)
	if err != nil {
		return nil, file, err
	}
	if err := root.check(c); err != nil {
		return nil, file, err
	}
	var options struct {
		Servers map[string]Node
	}
	if err := root.decode(&options); err != nil {
		return nil, file, err
	}
	for name := range options.Servers {
		options.Servers[name] = root.sub("servers", name)
	}
	return options.Servers, file, nil
}
