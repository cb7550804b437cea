// Package graph computes the affinity of functions: the messages of a transaction between
// each pair of functions, and the share of a function's messages that reaches each other
// function (Sheoran et al., "Contain-ed", 2017, section 2).
package graph

import (
	"cmp"
	"slices"
	"strings"

	"vitrine/affinity/flow"
)

// A Pair is what two functions send each other in one transaction.
type Pair struct {
	A        string  `json:"a" jsonschema:"required"`        // The function that takes part first.
	B        string  `json:"b" jsonschema:"required"`        // The other one.
	Messages float64 `json:"messages" jsonschema:"required"` // In one transaction, both ways: the mean over the flows of the type.
	Bytes    float64 `json:"bytes,omitempty"`                // The same in bytes; left out: some sizes are not known.
}

// A Reach is the share of a function's messages that reach another function.
type Reach struct {
	Function string  `json:"function" jsonschema:"required"` // Whose messages.
	Incident float64 `json:"incident" jsonschema:"required"` // Messages in one transaction that it sends or receives.
	To       []Share `json:"to" jsonschema:"required"`       // The largest share first.
}

// A Share is one entry of a Reach.
type Share struct {
	Function string  `json:"function" jsonschema:"required"` // Who is reached.
	Messages float64 `json:"messages" jsonschema:"required"` // Messages in one transaction that come from it or go to it, directly or through others.
	Share    float64 `json:"share" jsonschema:"required"`    // Of the incident messages, 0 to 1.
}

// Pairs returns the pairs of functions that exchange messages, in the order of their first
// message. Each flow has the weight of its count.
func Pairs(flows []*flow.Transaction) []Pair {
	index := map[[2]string]int{}
	var pairs []Pair
	order := Functions(flows)
	sized := true
	total := Count(flows)
	for _, t := range flows {
		_, known := t.Bytes()
		sized = sized && known
		weight := float64(t.Count) / total
		for _, m := range t.Messages {
			key := [2]string{m.From, m.To}
			if slices.Index(order, m.From) > slices.Index(order, m.To) {
				key = [2]string{m.To, m.From}
			}
			at, ok := index[key]
			if !ok {
				at = len(pairs)
				index[key] = at
				pairs = append(pairs, Pair{A: key[0], B: key[1]})
			}
			pairs[at].Messages += weight
			pairs[at].Bytes += weight * float64(m.Bytes)
		}
	}
	if !sized {
		for i := range pairs {
			pairs[i].Bytes = 0
		}
	}
	return pairs
}

// Reaches returns for each function in the operator's sites how many of its messages reach
// each other function, in the order in which functions first take part.
//
// A message reaches the function at its other end. A sent message also reaches the
// functions that receive its consequences, until one comes back to the sender. A received
// message also reaches the functions that caused it, back to a message that the receiver
// itself had sent.
func Reaches(flows []*flow.Transaction) []Reach {
	incident := map[string]float64{}
	reached := map[string]map[string]float64{}
	total := Count(flows)
	for _, t := range flows {
		weight := float64(t.Count) / total
		hops := t.Hops()
		names := t.Functions()
		causes := flow.Causes(hops)
		effects := make([][]int, len(hops))
		for i, cause := range causes {
			if cause >= 0 {
				effects[cause] = append(effects[cause], i)
			}
		}
		for i, h := range hops {
			for _, side := range []struct {
				of      int
				reaches map[int]bool
			}{{h.From, forward(hops, effects, i)}, {h.To, back(hops, causes, i)}} {
				of := names[side.of]
				incident[of] += weight
				if reached[of] == nil {
					reached[of] = map[string]float64{}
				}
				for function := range side.reaches {
					reached[of][names[function]] += weight
				}
			}
		}
	}
	var list []Reach
	order := Functions(flows)
	for _, of := range order {
		if Role(flows, of) == flow.Outside {
			continue
		}
		r := Reach{Function: of, Incident: incident[of], To: []Share{}}
		for _, to := range order {
			if n := reached[of][to]; n > 0 {
				r.To = append(r.To, Share{to, n, n / incident[of]})
			}
		}
		slices.SortStableFunc(r.To, func(a, b Share) int { return cmp.Compare(b.Messages, a.Messages) })
		list = append(list, r)
	}
	return list
}

// forward returns the functions that receive message i and its consequences, up to messages
// to its sender.
func forward(hops []flow.Hop, effects [][]int, i int) map[int]bool {
	reaches := map[int]bool{}
	for next := []int{i}; len(next) > 0; next = next[1:] {
		h := hops[next[0]]
		if h.To == hops[i].From {
			continue
		}
		reaches[h.To] = true
		next = append(next, effects[next[0]]...)
	}
	return reaches
}

// back returns the functions that sent message i and its causes, back to a message of its
// receiver.
func back(hops []flow.Hop, causes []int, i int) map[int]bool {
	reaches := map[int]bool{}
	for at := i; at >= 0 && hops[at].From != hops[i].To; at = causes[at] {
		reaches[hops[at].From] = true
	}
	return reaches
}

// Functions returns the functions of all flows, in the order in which they first take part.
func Functions(flows []*flow.Transaction) []string {
	var names []string
	seen := map[string]bool{}
	for _, t := range flows {
		for _, name := range t.Functions() {
			if !seen[name] {
				seen[name] = true
				names = append(names, name)
			}
		}
	}
	return names
}

// Role returns the role of a function: the first role other than Function that a flow gives
// it.
func Role(flows []*flow.Transaction, name string) flow.Role {
	for _, t := range flows {
		if r := t.Role(name); r != flow.Function {
			return r
		}
	}
	return flow.Function
}

// Count returns the sum of the counts of the flows.
func Count(flows []*flow.Transaction) float64 {
	sum := 0.0
	for _, t := range flows {
		sum += float64(t.Count)
	}
	return sum
}

// DOT returns pairs as a Graphviz graph. The members of the aggregate are in one cluster.
func DOT(name string, pairs []Pair, members []string) string {
	var b strings.Builder
	line := func(parts ...string) { b.WriteString(strings.Join(parts, "") + "\n") }
	line("graph ", quote(name), " {")
	line("  node [shape=box];")
	if len(members) > 0 {
		line("  subgraph ", quote("cluster_"+name), " {")
		line("    label=", quote(name), ";")
		for _, m := range members {
			line("    ", quote(m), ";")
		}
		line("  }")
	}
	for _, p := range pairs {
		line("  ", quote(p.A), " -- ", quote(p.B), " [label=", quote(number(p.Messages)), ", weight=", number(max(1, p.Messages)), "];")
	}
	line("}")
	return b.String()
}
