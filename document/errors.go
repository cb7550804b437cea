package document

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"vitrine"
)

// Errors gathers what is wrong with a part of a file beyond its form. Tokens of
// paths are field names and indexes.
type Errors struct {
	Node
	found []*vitrine.BadInput
}

// Bad adds an error at the value that path leads to.
func (e *Errors) Bad(found, want string, path ...any) {
	e.found = append(e.found, e.BadInput(found, want, tokens(path)...))
}

// Unknown adds an error at a name that is none of the known.
func (e *Errors) Unknown(name string, known []string, path ...any) {
	e.Bad(fmt.Sprintf("%s is %s", e.Name(tokens(path)...), Quote(name)), Choose(name, slices.Compact(known)), path...)
}

// Unique adds an error for every name that was already given; path leads to the
// i-th of them.
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

// Add adds an error, or several joined.
func (e *Errors) Add(err error) {
	var bad *vitrine.BadInput
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, each := range joined.Unwrap() {
			e.Add(each)
		}
	} else if errors.As(err, &bad) {
		e.found = append(e.found, bad)
	} else {
		e.Bad(err.Error(), "")
	}
}

// Len is the number of errors so far.
func (e *Errors) Len() int { return len(e.found) }

// Join joins the errors in the order of their places; nil when there are none.
func (e *Errors) Join() error { return join(e.found) }

func tokens(path []any) []string {
	out := make([]string, len(path))
	for i, token := range path {
		out[i] = fmt.Sprint(token)
	}
	return out
}

// join joins the errors in the order of their places.
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
