package wire

import (
	"slices"
)

// Operators of filters: ConditionOperator and ComparisonOperator, TS 29.598
// clauses 6.1.6.3.4 and 6.1.6.3.5.
const (
	And = "AND"
	Or  = "OR"
	Not = "NOT"

	Equal          = "EQ"
	NotEqual       = "NEQ"
	Greater        = "GT"
	GreaterOrEqual = "GTE"
	Less           = "LT"
	LessOrEqual    = "LTE"
)

// A Filter is a SearchExpression (TS 29.598 clause 6.1.6.2.8). It is exactly one of: a condition
// (Cond and Units), a comparison (Op, Tag and Value), or a list of IDs.
type Filter struct {
	Cond  string   `json:"cond,omitempty"` // And, Or, or Not with one unit
	Units []Filter `json:"units,omitempty"`

	Op    string  `json:"op,omitempty"` // Equal ... LessOrEqual
	Tag   *string `json:"tag,omitempty"`
	Value *string `json:"value,omitempty"`

	RecordIDList []string `json:"recordIdList,omitempty"`

	SchemaID string `json:"schemaId,omitempty"` // refused: there are no meta schemas
}

// Compare returns a comparison of a tag's values with one value.
func Compare(op, tag, value string) Filter { return Filter{Op: op, Tag: &tag, Value: &value} }

// All returns the filter that matches every record: GTE of the empty tag and value, TS 29.598
// clause 6.1.3.2.3.2.
func All() Filter { return Compare(GreaterOrEqual, "", "") }

// IsAll reports whether the filter is All.
func (f *Filter) IsAll() bool {
	return f.Op == GreaterOrEqual && *f.Tag == "" && *f.Value == ""
}

// ParseFilter parses a filter. The error is a *Problem.
func ParseFilter(data []byte, l Limits) (*Filter, error) {
	if depth := nesting(data); depth > 2*l.Depth+2 { // each condition is an object and an array
		return nil, badFilter("conditions nest deeper than %d", l.Depth)
	}
	var f Filter
	if err := decodeStrict(data, &f); err != nil { // a misspelt member would widen a deletion
		return nil, badFilter("%v", err)
	}
	units := 0
	if err := f.check(l, 1, &units); err != nil {
		return nil, err
	}
	return &f, nil
}

func badFilter(format string, args ...any) *Problem {
	return BadParam(CauseQueryIncorrect, "filter", format, args...)
}

// nesting returns the depth of brackets outside strings, so that a hostile filter is refused before
// it is decoded.
func nesting(data []byte) int {
	depth, deepest, quoted := 0, 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
			deepest = max(deepest, depth)
		case c == '}' || c == ']':
			depth--
		}
	}
	return deepest
}

func (f *Filter) check(l Limits, depth int, units *int) error {
	*units += 1 + len(f.RecordIDList)
	if *units > l.Units {
		return badFilter("more than %d units", l.Units)
	}
	if depth > l.Depth {
		return badFilter("conditions nest deeper than %d", l.Depth)
	}
	condition := f.Cond != "" || f.Units != nil
	comparison := f.Op != "" || f.Tag != nil || f.Value != nil
	list := f.RecordIDList != nil
	switch {
	case f.SchemaID != "":
		return badFilter("schemaId: meta schemas are not supported")
	case condition && !comparison && !list:
		return f.checkCondition(l, depth, units)
	case comparison && !condition && !list:
		return f.checkComparison()
	case list && !condition && !comparison:
		return f.checkList(l)
	}
	return badFilter("needs exactly one of: cond and units; op, tag and value; recordIdList")
}

func (f *Filter) checkCondition(l Limits, depth int, units *int) error {
	switch {
	case f.Cond != And && f.Cond != Or && f.Cond != Not:
		return badFilter("cond is %q, not AND, OR or NOT", f.Cond)
	case len(f.Units) == 0:
		return badFilter("cond %s without units", f.Cond)
	case f.Cond == Not && len(f.Units) != 1:
		return badFilter("cond NOT takes one unit, not %d", len(f.Units))
	}
	for i := range f.Units {
		if err := f.Units[i].check(l, depth+1, units); err != nil {
			return err
		}
	}
	return nil
}

func (f *Filter) checkComparison() error {
	switch f.Op {
	case Equal, NotEqual, Greater, GreaterOrEqual, Less, LessOrEqual:
	default:
		return badFilter("op is %q, not EQ, NEQ, GT, GTE, LT or LTE", f.Op)
	}
	switch {
	case f.Tag == nil || f.Value == nil:
		return badFilter("op %s needs tag and value", f.Op)
	case *f.Tag == "" && !f.IsAll():
		return badFilter("the tag is empty; that is allowed only for GTE of the empty tag and value, which matches everything")
	}
	return nil
}

func (f *Filter) checkList(l Limits) error {
	if len(f.RecordIDList) == 0 {
		return badFilter("recordIdList is empty")
	}
	for _, id := range f.RecordIDList {
		if err := CheckID("recordIdList", id, l); err != nil {
			return err
		}
	}
	return nil
}

// Matches reports whether the filter matches an ID and tags. A comparison holds if it holds for any
// value of the tag. Values compare as byte strings.
func (f *Filter) Matches(id string, tags Tags) bool {
	switch {
	case f.RecordIDList != nil:
		return slices.Contains(f.RecordIDList, id)
	case f.Op != "":
		return f.IsAll() || slices.ContainsFunc(tags[*f.Tag], f.compares)
	case f.Cond == Not:
		return !f.Units[0].Matches(id, tags)
	}
	for i := range f.Units { // And: no unit may fail; Or: one must hold
		if f.Units[i].Matches(id, tags) != (f.Cond == And) {
			return f.Cond == Or
		}
	}
	return f.Cond == And
}

func (f *Filter) compares(v string) bool {
	switch f.Op {
	case Equal:
		return v == *f.Value
	case NotEqual:
		return v != *f.Value
	case Greater:
		return v > *f.Value
	case GreaterOrEqual:
		return v >= *f.Value
	case Less:
		return v < *f.Value
	default:
		return v <= *f.Value
	}
}
