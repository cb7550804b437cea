package spec

import (
	"regexp"

	"github.com/invopop/jsonschema"

	"vitrine/document"
)

// Args is a program and its arguments, any scalars in the file.
type Args []string

// reference is a variable in an argument: ${NAME}.
var reference = regexp.MustCompile(`\$\{([^}]*)\}`)

// Expand replaces each ${NAME} in the text by the variable's value. $NAME stays:
// it is a shell's.
func Expand(text string, variables map[string]string) string {
	return reference.ReplaceAllStringFunc(text, func(match string) string {
		return variables[match[2:len(match)-1]]
	})
}

// Expand is Expand of each argument.
func (a Args) Expand(variables map[string]string) []string {
	out := make([]string, len(a))
	for i, argument := range a {
		out[i] = Expand(argument, variables)
	}
	return out
}

// JSONSchema is the schema of a list of at least one scalar.
func (Args) JSONSchema() *jsonschema.Schema {
	one := uint64(1)
	return &jsonschema.Schema{Type: "array", Items: document.Strings{}.JSONSchema().AdditionalProperties, MinItems: &one}
}
