package document

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/invopop/jsonschema"
	"go.yaml.in/yaml/v3"

	"vitrine"
)

// A Node is a part of a file together with its position. Back ends read their
// options from a Node. The zero Node is a part that the user left out.
type Node struct {
	file string
	path []string   // from the file's root
	node *yaml.Node // aliases are already replaced
}

// UnmarshalYAML stores the node without decoding it. The caller gets file and path
// from Sub.
func (n *Node) UnmarshalYAML(node *yaml.Node) error {
	n.node = node
	return nil
}

// IsZero reports whether the user left the part out.
func (n Node) IsZero() bool { return n.node == nil }

// Decode reads the part into a struct or map, according to its yaml and jsonschema
// tags. Unknown fields, wrong types and values that the tags do not allow are
// *vitrine.BadInput errors with their positions. Fields that the part does not
// contain keep their values, so into may hold defaults.
func (n Node) Decode(into any) error {
	if n.node == nil {
		return nil
	}
	schema, err := Compile(SchemaOf(into))
	if err != nil {
		return err
	}
	return schema.Decode(n, into)
}

// Strings reads a mapping of scalars as text, for scripts: 3 becomes "3". The zero
// Node returns nil.
func (n Node) Strings() (map[string]string, error) {
	var m Strings
	err := n.Decode(&m)
	return m, err
}

// BadInput returns an error at the value that path leads to from this part. If the
// value does not exist, the error is at the nearest enclosing value.
func (n Node) BadInput(found, want string, path ...string) *vitrine.BadInput {
	return n.bad(n.find(path), found, want)
}

// BadKey returns an error at the key that path leads to. If the key does not exist,
// the error is at the enclosing mapping.
func (n Node) BadKey(found, want string, path ...string) *vitrine.BadInput {
	last := len(path) - 1
	return n.bad(n.key(path[:last], path[last]), found, want)
}

// BadText returns an error inside the text of this part, at a line (from 1) and
// column (from 0) of the text. Escapes and folded lines hide the position in the
// file; then the error is at the beginning of the text.
func (n Node) BadText(found, want string, line, column int) *vitrine.BadInput {
	bad := n.BadInput(found, want)
	if n.node == nil {
		return bad
	}
	plain := n.node.Style&(yaml.LiteralStyle|yaml.FoldedStyle) == 0 && !strings.ContainsAny(n.node.Value, "\n\\\"'")
	if plain && line == 1 {
		bad.Column += column
		if n.node.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0 {
			bad.Column++
		}
	}
	return bad
}

func (n Node) bad(at *yaml.Node, found, want string) *vitrine.BadInput {
	if at == nil {
		return &vitrine.BadInput{File: n.file, Found: found, Want: want}
	}
	return &vitrine.BadInput{File: n.file, Line: at.Line, Column: at.Column, Found: found, Want: want}
}

// decode reads the part without checking it against a schema.
func (n Node) decode(into any) error {
	if err := n.node.Decode(into); err != nil {
		if t, ok := errors.AsType[*yaml.TypeError](err); ok {
			return n.BadInput(strings.Join(t.Errors, "; "), "")
		}
		return n.BadInput(strings.TrimPrefix(err.Error(), "yaml: "), "")
	}
	return nil
}

// find follows the path as far as the content exists.
func (n Node) find(path []string) *yaml.Node {
	at := n.node
	for _, token := range path {
		next := child(at, token)
		if next == nil {
			break
		}
		at = next
	}
	return at
}

// key returns the key node of name in the mapping at path, or the node nearest to
// it.
func (n Node) key(path []string, name string) *yaml.Node {
	at := n.find(path)
	if at != nil && at.Kind == yaml.MappingNode {
		for i := 0; i < len(at.Content); i += 2 {
			if at.Content[i].Value == name {
				return at.Content[i]
			}
		}
	}
	return at
}

// child returns a member of a mapping or an item of a list, or nil if it does not
// exist.
func child(n *yaml.Node, token string) *yaml.Node {
	if n == nil {
		return nil
	}
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i < len(n.Content); i += 2 {
			if n.Content[i].Value == token {
				return n.Content[i+1]
			}
		}
	case yaml.SequenceNode:
		if i, err := strconv.Atoi(token); err == nil && i >= 0 && i < len(n.Content) {
			return n.Content[i]
		}
	}
	return nil
}

// Name formats path as users write it: components[1].ports.sip.
func (n Node) Name(path ...string) string {
	var b strings.Builder
	for _, token := range n.path {
		b.WriteString("." + token) // a back end's part is below mappings only, never below a list
	}
	at := n.node
	for _, token := range path {
		if at != nil && at.Kind == yaml.SequenceNode {
			b.WriteString("[" + token + "]")
		} else {
			b.WriteString("." + Word(token))
		}
		at = child(at, token)
	}
	if b.Len() == 0 {
		return "the file"
	}
	return strings.TrimPrefix(b.String(), ".")
}

// Sub returns the part that path leads to, or the zero Node if it does not exist.
func (n Node) Sub(path ...string) Node {
	at := n.node
	for _, token := range path {
		at = child(at, token)
	}
	if at == nil {
		return Node{}
	}
	return Node{file: n.file, path: append(slices.Clone(n.path), path...), node: at}
}

// JSONSchema returns a schema that allows any mapping. The owner of the part checks
// the content with Decode.
func (Node) JSONSchema() *jsonschema.Schema { return &jsonschema.Schema{Type: "object"} }
