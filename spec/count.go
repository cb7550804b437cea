package spec

import (
	"fmt"

	"github.com/invopop/jsonschema"
	"go.yaml.in/yaml/v3"

	"vitrine/document"
)

// A Count is the allowed number of instances of a component. A bound of 0 means
// no bound.
type Count struct {
	Min int `yaml:"min" jsonschema:"minimum=1,maximum=10000"` // Least number of instances.
	Max int `yaml:"max" jsonschema:"minimum=1,maximum=10000"` // Largest number of instances.
}

// UnmarshalYAML reads {min: 1, max: 4}, or 3 for exactly three.
func (c *Count) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		err := n.Decode(&c.Min)
		c.Max = c.Min
		return err
	}
	type plain Count
	return n.Decode((*plain)(c))
}

// JSONSchema returns the schema of a number or of bounds.
func (Count) JSONSchema() *jsonschema.Schema {
	type plain Count
	bounds := document.SchemaOf(plain{})
	least := uint64(1)
	bounds.MinProperties = &least
	return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{{Type: "integer", Minimum: "1", Maximum: "10000"}, bounds}}
}

// String describes the bounds in words.
func (c Count) String() string {
	switch {
	case c.Min == c.Max && c.Min > 0:
		return fmt.Sprintf("exactly %d", c.Min)
	case c.Max == 0:
		return fmt.Sprintf("at least %d", max(1, c.Min))
	}
	return fmt.Sprintf("%d to %d", max(1, c.Min), c.Max)
}
