package aggregate

import (
	"vitrine/affinity/flow"
	"vitrine/affinity/graph"
)

// A shape has the flows of one type, with functions as indexes.
type shape struct {
	names []string
	roles []flow.Role
	flows []counted
	ready []int // scratch of flow.Length
	total float64
}

type counted struct {
	hops  []flow.Hop
	count int
}

func newShape(flows []*flow.Transaction) *shape {
	s := &shape{names: graph.Functions(flows), total: graph.Count(flows)}
	index := map[string]int{}
	for i, name := range s.names {
		index[name] = i
		s.roles = append(s.roles, graph.Role(flows, name))
	}
	s.ready = make([]int, len(s.names))
	for _, t := range flows {
		c := counted{count: t.Count}
		for _, m := range t.Messages {
			c.hops = append(c.hops, flow.Hop{From: index[m.From], To: index[m.To], Async: m.Async})
		}
		s.flows = append(s.flows, c)
	}
	return s
}

// candidates returns the functions that may join an aggregate.
func (s *shape) candidates() []int {
	var list []int
	for i, r := range s.roles {
		if r.Joins() {
			list = append(list, i)
		}
	}
	return list
}

// A cost counts the messages between sites with a given aggregate, over all transactions of
// a type.
type cost struct {
	path     int // messages on the critical paths
	messages int // messages that others wait for
}

// less orders costs: time before traffic.
func (c cost) less(d cost) bool {
	if c.path != d.path {
		return c.path < d.path
	}
	return c.messages < d.messages
}

// between returns 1 for a message between two sites, and 0 for one within a site. Each
// function outside of the aggregate has a site of its own. Messages between functions that
// are not in the operator's sites, such as UE and eNodeB, do not count.
func (s *shape) between(h flow.Hop, in []bool) int {
	if in[h.From] && in[h.To] || s.roles[h.From] == flow.Outside && s.roles[h.To] == flow.Outside {
		return 0
	}
	return 1
}

// cost returns the cost of the aggregate with the functions in. It never grows when a
// function joins; the exact search depends on this.
func (s *shape) cost(in []bool) cost {
	var c cost
	for _, f := range s.flows {
		path := flow.Length(f.hops, s.ready, func(h flow.Hop) int { return s.between(h, in) })
		messages := 0
		for _, h := range f.hops {
			if !h.Async {
				messages += s.between(h, in)
			}
		}
		c.path += f.count * path
		c.messages += f.count * messages
	}
	return c
}

// all returns the number of messages between sites in the mean transaction, including
// messages that nobody waits for.
func (s *shape) all(in []bool) float64 {
	sum := 0
	for _, f := range s.flows {
		for _, h := range f.hops {
			sum += f.count * s.between(h, in)
		}
	}
	return float64(sum) / s.total
}
