package document

import (
	"fmt"
	"maps"
	"math/big"
	"net/url"
	"slices"
	"sort"
	"strconv"
	"strings"

	validator "github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"vitrine"
)

// An explainer translates the validator's errors into errors for the user.
type explainer struct {
	Node
	*Schema
	breaches []breach
}

// A breach is one error at one position in the file. When several breaches share
// a subject, join keeps the one with the lowest rank.
type breach struct {
	*vitrine.BadInput
	subject string
	rank    int
}

func (x *explainer) add(rank int, subject string, bad *vitrine.BadInput) {
	x.breaches = append(x.breaches, breach{bad, subject, rank})
}

func (x *explainer) join() error {
	sort.SliceStable(x.breaches, func(i, j int) bool { return x.breaches[i].rank < x.breaches[j].rank })
	seen := map[string]bool{}
	var errs []*vitrine.BadInput
	for _, b := range x.breaches {
		if !seen[b.subject] {
			errs = append(errs, b.BadInput)
		}
		seen[b.subject] = true
	}
	return join(errs)
}

// explain walks the validator's error tree and adds a breach for each leaf.
func (x *explainer) explain(e *validator.ValidationError) {
	path := slices.Clone(e.InstanceLocation)
	switch k := e.ErrorKind.(type) {
	case *kind.AnyOf:
		x.alternatives(e, path, nil)
	case *kind.OneOf:
		x.alternatives(e, path, k.Subschemas)
	case *kind.Required:
		for _, field := range k.Missing {
			x.add(1, x.Name(path...)+" lacks "+field, x.BadInput(fmt.Sprintf("%s has no %s", x.Name(path...), field), x.description(e, field), path...))
		}
	case *kind.DependentRequired:
		x.add(1, x.Name(path...)+" lacks", x.BadInput(fmt.Sprintf("%s has no %s", x.Name(path...), strings.Join(k.Missing, ", ")), "it goes with "+k.Prop, path...))
	case *kind.AdditionalProperties:
		for _, field := range k.Properties {
			x.unknown(e, path, field)
		}
	case *kind.FalseSchema: // a field of another mode: the published schemas set it to false
		last := len(path) - 1
		want, _ := x.at(e.SchemaURL[:strings.LastIndex(e.SchemaURL, "/properties/")])["description"].(string)
		x.field(1, path[:last], path[last], "does not belong in this", want)
	default:
		if len(e.Causes) > 0 {
			for _, cause := range e.Causes {
				x.explain(cause)
			}
			return
		}
		found, want := x.leaf(e, path)
		x.add(1, x.Name(path...), x.BadInput(found, want, path...))
	}
}

// field adds an error at the key of a mapping.
func (x *explainer) field(rank int, path []string, field, is, want string) {
	at := append(slices.Clone(path), field)
	x.add(rank, x.Name(at...), x.BadKey(fmt.Sprintf("%s %s %s", Word(field), is, x.Name(path...)), want, at...))
}

// unknown adds an error for a key that the mapping's schema does not list, or for
// a key whose format the schema refuses.
func (x *explainer) unknown(e *validator.ValidationError, path []string, field string) {
	schema := x.at(e.SchemaURL)
	for _, f := range x.formats {
		if _, ok := asObject(schema["patternProperties"])[f.Pattern]; ok {
			x.field(0, path, field, "is no name for", f.Want)
			return
		}
	}
	x.field(0, path, field, "is not a field of", Choose(field, slices.Sorted(maps.Keys(asObject(schema["properties"])))))
}

// alternatives explains an anyOf or oneOf by the branch that the user most likely
// meant: the first branch that fails for another reason than a wrong type or
// missing fields of the value itself.
func (x *explainer) alternatives(e *validator.ValidationError, path []string, matched []int) {
	var missing, types []string
	var meant *validator.ValidationError
	for _, branch := range e.Causes {
		all := leaves([]*validator.ValidationError{branch})
		first := all[0]
		here := len(all) == 1 && len(first.InstanceLocation) == len(e.InstanceLocation)
		switch k := first.ErrorKind.(type) {
		case *kind.Required:
			if here {
				missing = append(missing, k.Missing...)
				continue
			}
		case *kind.Type:
			if here {
				types = append(types, x.describeType(first, k))
				continue
			}
		}
		if meant == nil {
			meant = branch
		}
	}
	switch {
	case len(matched) > 0:
		fields := alternativeFields(x.at(e.SchemaURL)["oneOf"])
		x.add(1, x.Name(path...)+" has", x.BadInput(fmt.Sprintf("%s has more than one of %s", x.Name(path...), strings.Join(fields, ", ")), "want exactly one", path...))
	case meant != nil:
		x.explain(meant)
	case len(missing) > 0:
		x.add(1, x.Name(path...)+" lacks", x.BadInput(fmt.Sprintf("%s has none of %s", x.Name(path...), strings.Join(missing, ", ")), "want one of them", path...))
	default:
		x.add(1, x.Name(path...), x.BadInput(fmt.Sprintf("%s is %s", x.Name(path...), describeValue(x.find(path))), "want "+strings.Join(slices.Compact(types), " or "), path...))
	}
}

// alternativeFields lists the fields of a oneOf that wants exactly one of them.
func alternativeFields(oneOf any) []string {
	var fields []string
	branches, _ := oneOf.([]any)
	for _, branch := range branches {
		required, _ := asObject(branch)["required"].([]any)
		fields = append(fields, toStrings(required)...)
	}
	return fields
}

// leaves returns the errors without causes in the given trees.
func leaves(errs []*validator.ValidationError) []*validator.ValidationError {
	var ends []*validator.ValidationError
	for _, e := range errs {
		if len(e.Causes) == 0 {
			ends = append(ends, e)
		} else {
			ends = append(ends, leaves(e.Causes)...)
		}
	}
	return ends
}

// leaf describes an error in a single value.
func (x *explainer) leaf(e *validator.ValidationError, path []string) (found, want string) {
	at := x.find(path)
	found = fmt.Sprintf("%s is %s", x.Name(path...), describeValue(at))
	switch k := e.ErrorKind.(type) {
	case *kind.Enum:
		if at.Kind == 0 || len(at.Content) > 0 {
			return found, Choose("", toStrings(k.Want))
		}
		return found, Choose(at.Value, toStrings(k.Want))
	case *kind.UniqueItems:
		list := x.Name(path...)
		return fmt.Sprintf("%s[%d] repeats %s[%d]", list, k.Duplicates[1], list, k.Duplicates[0]), "give each once"
	}
	return found, x.describeLimit(e)
}

// describeLimit describes the values that a leaf of the schema allows.
func (x *explainer) describeLimit(e *validator.ValidationError) string {
	switch k := e.ErrorKind.(type) {
	case *kind.Type:
		return "want " + x.describeType(e, k)
	case *kind.Format:
		return k.Err.Error()
	case *kind.Pattern:
		return "want text that matches " + k.Want
	case *kind.Minimum:
		return "want at least " + formatDecimal(k.Want)
	case *kind.Maximum:
		return "want at most " + formatDecimal(k.Want)
	case *kind.ExclusiveMinimum:
		return "want more than " + formatDecimal(k.Want)
	case *kind.ExclusiveMaximum:
		return "want less than " + formatDecimal(k.Want)
	case *kind.MinItems:
		return fmt.Sprintf("want at least %d in the list, not %d", k.Want, k.Got)
	case *kind.MaxItems:
		return fmt.Sprintf("want at most %d in the list, not %d", k.Want, k.Got)
	case *kind.MinProperties:
		return "want at least one of " + strings.Join(slices.Sorted(maps.Keys(asObject(x.at(e.SchemaURL)["properties"]))), ", ")
	case *kind.MinLength:
		return "want text that is not empty"
	}
	return fmt.Sprintf("want what the schema says at %s", strings.TrimPrefix(e.SchemaURL, schemaURL))
}

// description asks for a missing field, with the description from its schema.
func (x *explainer) description(e *validator.ValidationError, field string) string {
	schema := x.at(e.SchemaURL)
	text, _ := asObject(asObject(schema["properties"])[field])["description"].(string)
	if text == "" {
		text, _ = schema["description"].(string)
	}
	return "add it: " + strings.TrimSuffix(text, ".")
}

// describeType names the type that the schema wants. It lists the enum values or adds an
// example if the schema has them.
func (x *explainer) describeType(e *validator.ValidationError, k *kind.Type) string {
	schema := x.at(e.SchemaURL)
	if values, _ := schema["enum"].([]any); len(values) > 0 {
		return strings.Join(toStrings(values), " or ")
	}
	words := map[string]string{"object": "a mapping", "array": "a list", "string": "text", "number": "a number",
		"integer": "a whole number", "boolean": "true or false", "null": "nothing"}
	out := make([]string, len(k.Want))
	for i, t := range k.Want {
		out[i] = words[t]
	}
	want := strings.Join(out, " or ")
	if examples, _ := schema["examples"].([]any); len(examples) > 0 {
		want += fmt.Sprintf(" such as %q", fmt.Sprint(examples[0]))
	}
	return want
}

func formatDecimal(r *big.Rat) string {
	if r.IsInt() {
		return r.Num().String()
	}
	f, _ := r.Float64()
	return strconv.FormatFloat(f, 'g', -1, 64)
}

func toStrings(values []any) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = fmt.Sprint(v)
	}
	return out
}

func asObject(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

// member returns a member of a JSON object or list, or nil if it does not exist.
func member(v any, token string) any {
	if list, ok := v.([]any); ok {
		if i, err := strconv.Atoi(token); err == nil && i < len(list) {
			return list[i]
		}
		return nil
	}
	return asObject(v)[token]
}

// unescape decodes a token of a JSON pointer in a URL (RFC 6901, section 6).
func unescape(token string) string {
	if plain, err := url.PathUnescape(token); err == nil {
		token = plain
	}
	return strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
}
