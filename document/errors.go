package document

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"vitrine"
)

// Errors collects errors in a part of a file that the schema check cannot find.
// Path tokens are field names and indexes.
type Errors struct {
	Node
	found []*vitrine.BadInput
}

// Bad adds an error at the value that path leads to.
func (e *Errors) Bad(found, want string, path ...any) {
	e.found = append(e.found, e.BadInput(found, want, tokens(path)...))
}

// BadName adds an error at the key that path leads to.
func (e *Errors) BadName(found, want string, path ...any) {
	e.found = append(e.found, e.BadKey(found, want, tokens(path)...))
}

// Unknown adds an error at a name that is not one of the known names.
func (e *Errors) Unknown(name string, known []string, path ...any) {
	e.Bad(fmt.Sprintf("%s is %s", e.Name(tokens(path)...), Quote(name)), Choose(name, slices.Compact(known)), path...)
}

// Unique adds an error for every repeated name. path returns the path of the
// i-th name.
func (e *Errors) Unique(what string, given []string, path func(i int) []any) {
	first := map[string]int{}
	for i, name := range given {
		if j, taken := first[name]; taken {
			line := e.BadInput("", "", tokens(path(j))...).Line
			e.Bad(fmt.Sprintf("%s %s again", what, name), fmt.Sprintf("it is already given on line %d", line), path(i)...)
			continue
		}
		first[name] = i
	}
}

// Add adds an error, or each error of a joined error.
func (e *Errors) Add(err error) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, each := range joined.Unwrap() {
			e.Add(each)
		}
	} else if bad, ok := errors.AsType[*vitrine.BadInput](err); ok {
		e.found = append(e.found, bad)
	} else {
		e.Bad(err.Error(), "")
	}
}

// Len returns the number of errors so far.
func (e *Errors) Len() int { return len(e.found) }

// Join joins the errors in the order of their positions. It returns nil if
// there are no errors.
func (e *Errors) Join() error { return join(e.found) }

func tokens(path []any) []string {
	out := make([]string, len(path))
	for i, token := range path {
		out[i] = fmt.Sprint(token)
	}
	return out
}

// join joins the errors in the order of their positions, or returns nil.
func join(errs []*vitrine.BadInput) error {
	slices.SortStableFunc(errs, func(a, b *vitrine.BadInput) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		if a.Column != b.Column {
			return a.Column - b.Column
		}
		return strings.Compare(a.Found, b.Found)
	})
	all := make([]error, len(errs))
	for i, e := range errs {
		all[i] = e
	}
	return errors.Join(all...)
}
