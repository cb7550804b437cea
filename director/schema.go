package director

import _ "embed"

//go:generate go test -run ^TestPublishedSchema$ . -update

// published is the schema, generated from the types of this package and their comments.
//
//go:embed schema/director.schema.json
var published []byte

// Schema returns the JSON Schema (draft 2020-12) of the configuration file.
func Schema() []byte { return published }
