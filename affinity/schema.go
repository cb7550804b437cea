package affinity

import _ "embed"

//go:generate go test -run ^TestPublishedSchemas$ . -update

// The published schemas, generated from the types here and their comments.
var (
	//go:embed schema/affinity.schema.json
	publishedAnalysis []byte
	//go:embed schema/names.schema.json
	publishedNames []byte
)

// Schema returns the JSON Schema (draft 2020-12) of affinity.json.
func Schema() []byte { return publishedAnalysis }

// NamesSchema returns the JSON Schema (draft 2020-12) of a file of names.
func NamesSchema() []byte { return publishedNames }
