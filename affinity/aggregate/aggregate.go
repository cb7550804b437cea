// Package aggregate decides which functions should share a host. For each type of
// transaction it finds the set of functions that leaves the fewest messages between sites
// on the critical path, and among those the fewest messages in total (Sheoran et al.,
// "Contain-ed", 2017, sections 2 and 3.2).
package aggregate

import (
	"fmt"
	"slices"
	"strings"

	"vitrine"
	"vitrine/affinity/flow"
)

// The names of the searches.
const (
	Exact     = "exact"       // branch and bound over all sets
	Heuristic = "shrink-swap" // drop functions from the full set, then add, drop and swap
)

// A Type is one kind of transaction and its flows.
type Type struct {
	Name  string
	Flows []*flow.Transaction
}

// Types groups flows by their type, in the order in which the types first appear.
func Types(flows []*flow.Transaction) []Type {
	var types []Type
	for _, t := range flows {
		at := slices.IndexFunc(types, func(x Type) bool { return x.Name == t.Type })
		if at < 0 {
			at = len(types)
			types = append(types, Type{Name: t.Type})
		}
		types[at].Flows = append(types[at].Flows, t)
	}
	return types
}

// Resources is what a function needs, or what a host has.
type Resources struct {
	VCPUs  float64 `json:"vcpus,omitempty"`        // CPUs.
	Memory int64   `json:"memory_bytes,omitempty"` // Memory.
}

func (r Resources) plus(s Resources) Resources {
	return Resources{r.VCPUs + s.VCPUs, r.Memory + s.Memory}
}

// within reports whether r fits into limit, in which 0 means unlimited.
func (r Resources) within(limit Resources) bool {
	const rounding = 1e-9
	return (limit.VCPUs == 0 || r.VCPUs <= limit.VCPUs+rounding) && (limit.Memory == 0 || r.Memory <= limit.Memory)
}

// share returns the larger of the shares of both limits.
func (r Resources) share(limit Resources) float64 {
	share := 0.0
	if limit.VCPUs > 0 {
		share = r.VCPUs / limit.VCPUs
	}
	if limit.Memory > 0 {
		share = max(share, float64(r.Memory)/float64(limit.Memory))
	}
	return share
}

// Limits is the host that members must fit into. The zero value means no limit.
type Limits struct {
	Host  Resources
	Needs map[string]Resources // by function; required for all that may join when Host has a limit
}

// An Outcome says what an aggregate does for one type.
type Outcome struct {
	Type     string     `json:"type" jsonschema:"required"`                               // The type of transaction.
	Members  []string   `json:"members" jsonschema:"required"`                            // The functions of its aggregate, in the order in which they take part.
	Outside  []string   `json:"outside" jsonschema:"required"`                            // The other functions in the operator's sites.
	Path     Change     `json:"critical_path" jsonschema:"required"`                      // Messages between sites on the critical path.
	Messages Change     `json:"messages" jsonschema:"required"`                           // Messages between sites.
	Search   string     `json:"search" jsonschema:"required,enum=exact,enum=shrink-swap"` // How the members were found.
	Gap      *Gap       `json:"gap,omitempty"`                                            // Only for shrink-swap: how far the members may be from the best ones.
	Needs    *Resources `json:"needs,omitempty"`                                          // What the members need together; left out: not known.
}

// A Change is a count in the mean transaction, with each function on a site of its
// own and with the aggregate on one.
type Change struct {
	Before float64 `json:"before" jsonschema:"required"` // Each function on a site of its own.
	After  float64 `json:"after" jsonschema:"required"`  // The aggregate on one site.
}

// Saved returns the difference.
func (c Change) Saved() float64 { return c.Before - c.After }

// A Gap compares members with a bound that no members can beat: all functions that
// may join on one host without limits.
type Gap struct {
	Path     float64 `json:"critical_path" jsonschema:"required"` // Messages on the critical path above the bound.
	Messages float64 `json:"messages" jsonschema:"required"`      // Messages that others wait for above the bound.
}

// Decide finds the members of the aggregate of a type.
func Decide(t Type, limits Limits) (Outcome, error) {
	s := newShape(t.Flows)
	p := &problem{shape: s, candidates: s.candidates(), limit: limits.Host, needs: make([]Resources, len(s.names))}
	o := Outcome{Type: t.Name, Members: []string{}, Outside: []string{}, Search: Exact}
	for _, c := range p.candidates {
		need, known := limits.Needs[s.names[c]]
		if !known && limits.Host != (Resources{}) {
			return o, &vitrine.BadInput{File: t.Flows[0].Source, Found: "it is not known what " + s.names[c] + " needs, and there is a host to fit into",
				Want: "add its vcpus and memory to the file of --names, or leave out host"}
		}
		p.needs[c] = need
	}
	best := p.exactOr(&o)
	if best.in == nil {
		best.in = make([]bool, len(s.names))
	}
	for i, name := range s.names {
		switch {
		case best.in[i]:
			o.Members = append(o.Members, name)
		case s.roles[i] != flow.Outside:
			o.Outside = append(o.Outside, name)
		}
	}
	none := make([]bool, len(s.names))
	o.Path = Change{float64(s.cost(none).path) / s.total, float64(s.cost(best.in).path) / s.total}
	o.Messages = Change{s.all(none), s.all(best.in)}
	o.Needs = sumNeeds(o.Members, limits.Needs)
	return o, nil
}

// exactOr searches exactly, or by the heuristic if there are more than maxExact candidates.
func (p *problem) exactOr(o *Outcome) selection {
	if len(p.candidates) <= maxExact {
		return p.exact()
	}
	o.Search = Heuristic
	best := p.improve(p.shrink())
	if best.in == nil {
		return best
	}
	full := make([]bool, len(p.names))
	for _, c := range p.candidates {
		full[c] = true
	}
	bound := p.cost(full)
	o.Gap = &Gap{float64(best.cost.path-bound.path) / p.total, float64(best.cost.messages-bound.messages) / p.total}
	return best
}

// sumNeeds returns the sum of the members' needs, or nil if the needs of a member are
// unknown.
func sumNeeds(members []string, needs map[string]Resources) *Resources {
	var sum Resources
	for _, m := range members {
		need, known := needs[m]
		if !known {
			return nil
		}
		sum = sum.plus(need)
	}
	if len(members) == 0 {
		return nil
	}
	return &sum
}

// An Aggregate is a set of functions that together serve one or more types.
type Aggregate struct {
	Name    string   `json:"name" jsonschema:"required"`    // The names of its types, joined by dashes.
	Types   []string `json:"types" jsonschema:"required"`   // The types of transaction that it serves.
	Members []string `json:"members" jsonschema:"required"` // Its functions.
}

// Merge returns the aggregates of the outcomes. Types with the same members share an
// aggregate, as in table 1 of Contain-ed; if apart is true, each type has its own. A type
// without members has no aggregate.
func Merge(outcomes []Outcome, apart bool) []Aggregate {
	var list []Aggregate
	index := map[string]int{}
	for _, o := range outcomes {
		if len(o.Members) == 0 {
			continue
		}
		key := strings.Join(slices.Sorted(slices.Values(o.Members)), "\x00")
		if apart {
			key = fmt.Sprint(len(list))
		}
		at, ok := index[key]
		if !ok {
			at = len(list)
			index[key] = at
			list = append(list, Aggregate{Members: o.Members})
		}
		list[at].Types = append(list[at].Types, o.Type)
		list[at].Name = strings.Join(list[at].Types, "-")
	}
	return list
}

// Conflict returns an error if two flows give a function contradicting roles.
func Conflict(flows []*flow.Transaction) error {
	first := map[string]*flow.Transaction{}
	for _, t := range flows {
		for _, name := range t.Functions() {
			before, ok := first[name]
			if !ok {
				first[name] = t
				continue
			}
			a, b := t.Role(name), before.Role(name)
			if a != b && (!a.Joins() || !b.Joins()) {
				return &vitrine.BadInput{File: t.Source, Found: fmt.Sprintf("%s is %s here, and %s in %s", name, a, b, before.Source),
					Want: "give it the same role in all files, or in the file of --names"}
			}
		}
	}
	return nil
}
