package image

import _ "embed"

//go:generate go test -run TestPublishedSchema -update .

//go:embed schema/application.schema.json
var schema []byte

// Schema returns the JSON Schema (draft 2020-12) of an application's description.
func Schema() []byte { return schema }
