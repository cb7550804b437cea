package director

import _ "embed"

//go:generate go test -run ^TestPublishedSchema$ . -update

// published is the schema that is made from the types here and their comments.
//
//go:embed schema/director.schema.json
var published []byte

// Schema returns the JSON Schema (draft 2020-12) of the configuration file.
func Schema() []byte { return published }
