package spec

import (
	"regexp"

	"github.com/invopop/jsonschema"

	"vitrine/document"
)

// Args is a program and its arguments. In the file, they may be any scalars.
type Args []string

// reference matches a variable in an argument: ${NAME}.
var reference = regexp.MustCompile(`\$\{([^}]*)\}`)

// Expand replaces each ${NAME} in the text with the value of the variable. $NAME
// stays, because it belongs to a shell.
func Expand(text string, variables map[string]string) string {
	return reference.ReplaceAllStringFunc(text, func(match string) string {
		return variables[match[2:len(match)-1]]
	})
}

// Expand applies the function Expand to each argument.
func (a Args) Expand(variables map[string]string) []string {
	out := make([]string, len(a))
	for i, argument := range a {
		out[i] = Expand(argument, variables)
	}
	return out
}

// JSONSchema returns the schema of a list of at least one scalar.
func (Args) JSONSchema() *jsonschema.Schema {
	one := uint64(1)
	return &jsonschema.Schema{Type: "array", Items: document.Strings{}.JSONSchema().AdditionalProperties, MinItems: &one}
}
