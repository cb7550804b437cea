// Package policy implements the rules of other autoscalers, for comparisons with package
// decide. The simulator and the orchestrator use the same implementation. It is pure: its only
// input is the decide.View, including the time.
//
// docs/flex.md gives the sources of the rules.
package policy

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"vitrine/flex/decide"
)

// A Policy returns the actions for each second, as decide.Decide does. It does not retain the
// view. Only Flex uses the given Memory. The other policies keep their state in the process and
// lose it at a restart.
type Policy func(v decide.View, m *decide.Memory) []decide.Action

// Flex is the name of decide.Decide as a policy.
const Flex = "flex"

// Forms describes the names that New takes.
const Forms = "fixed, fixed=N, hpa, hpa=UTILIZATION, knative or knative=UTILIZATION"

// New returns the policy with a name: Flex, or one of Forms. For "fixed" without a number,
// enough returns the number of instances.
func New(name string, enough func(t *decide.Type) int) (Policy, error) {
	kind, value, given := strings.Cut(name, "=")
	number := 0.0
	if given {
		var err error
		if number, err = strconv.ParseFloat(value, 64); err != nil || !(number > 0) || number > 1e6 {
			return nil, fmt.Errorf("%q: want a number above 0 behind =", name)
		}
	}
	count := func(of func(t *decide.Type) rules) (Policy, error) {
		return (&counter{label: name, of: of, types: map[string]*track{}}).decide, nil
	}
	switch {
	case name == Flex:
		return decide.Decide, nil
	case kind == "fixed" && given && (number < 1 || number != math.Trunc(number)):
		return nil, fmt.Errorf("%q: want a whole number of instances behind =", name)
	case kind == "fixed" && given:
		return count(func(*decide.Type) rules { return fixed(number) })
	case kind == "fixed":
		return count(func(t *decide.Type) rules { return fixed(enough(t)) })
	case number > 1:
		return nil, fmt.Errorf("%q: want a utilization above 0 and up to 1 behind =", name)
	case kind == "hpa":
		return count(func(*decide.Type) rules { return newHPA(number) })
	case kind == "knative":
		return count(func(*decide.Type) rules { return newKPA(number) })
	}
	return nil, fmt.Errorf("%q: want %s", name, Forms)
}

// rules compute the desired number of instances of one type.
type rules interface {
	// wanted returns the desired number. It is called once a second. why has the figures, for
	// people.
	wanted(s *sight) (n int, why string)
}

// fixed are rules with a constant number of instances.
type fixed int

func (n fixed) wanted(*sight) (int, string) {
	return int(n), fmt.Sprintf("the size is fixed at %d instances", n)
}
