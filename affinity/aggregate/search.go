package aggregate

import (
	"cmp"
	"slices"
)

// maxExact is the largest number of functions for which the search is exact.
const maxExact = 20

// A selection is a set of functions with its cost.
type selection struct {
	in   []bool // by function of the shape
	cost cost
	size int
}

// better orders selections by lower cost, then by fewer functions, then by functions that
// take part earlier. So no two different selections are equal.
func (a selection) better(b selection) bool {
	switch {
	case b.in == nil:
		return true
	case a.cost != b.cost:
		return a.cost.less(b.cost)
	case a.size != b.size:
		return a.size < b.size
	}
	for i := range a.in {
		if a.in[i] != b.in[i] {
			return a.in[i]
		}
	}
	return false
}

// A problem is the search for the members of one type.
type problem struct {
	*shape
	candidates []int
	limit      Resources // zero: no limit
	needs      []Resources
}

// fits reports whether the functions together fit one host.
func (p *problem) fits(in []bool) bool {
	var sum Resources
	for i, member := range in {
		if member {
			sum = sum.plus(p.needs[i])
		}
	}
	return sum.within(p.limit)
}

func (p *problem) evaluate(in []bool) selection {
	return selection{slices.Clone(in), p.cost(in), size(in)}
}

func size(in []bool) int {
	n := 0
	for _, member := range in {
		if member {
			n++
		}
	}
	return n
}

// exact finds the best selection of at least one function that fits. It is a branch and
// bound over the candidates, one after the other. The bound of a branch is the cost with
// all undecided functions in the selection, because the cost never grows when a function
// joins.
func (p *problem) exact() selection {
	best := p.improve(p.shrink()) // a good first solution prunes from the start
	in := make([]bool, len(p.names))
	for _, c := range p.candidates {
		in[c] = true
	}
	var decide func(at, chosen int, used Resources)
	decide = func(at, chosen int, used Resources) {
		bound := p.cost(in)
		if best.in != nil && (best.cost.less(bound) || bound == best.cost && chosen > best.size) {
			return
		}
		if at == len(p.candidates) {
			if s := (selection{in, bound, chosen}); chosen > 0 && s.better(best) {
				best = p.evaluate(in)
			}
			return
		}
		c := p.candidates[at]
		if with := used.plus(p.needs[c]); with.within(p.limit) {
			decide(at+1, chosen+1, with)
		}
		in[c] = false
		decide(at+1, chosen, used)
		in[c] = true
	}
	decide(0, 0, Resources{})
	return best
}

// shrink starts with all functions that fit the host alone. It drops the function whose
// loss costs least, and of equal ones the function that frees most space, until the rest
// fits one host and every further drop would increase the cost.
func (p *problem) shrink() selection {
	in := make([]bool, len(p.names))
	for _, c := range p.candidates {
		if p.needs[c].within(p.limit) {
			in[c] = true
		}
	}
	current := p.evaluate(in)
	for current.size > 1 {
		fit := p.fits(in)
		drop, least := -1, selection{}
		for _, c := range slices.Backward(p.candidates) { // of equal functions, drop the last
			if !in[c] {
				continue
			}
			in[c] = false
			if s := p.evaluate(in); drop < 0 || p.cheaper(s, c, least, drop, fit) {
				drop, least = c, s
			}
			in[c] = true
		}
		if fit && current.cost.less(least.cost) {
			break
		}
		in[drop] = false
		current = least
	}
	return current
}

// cheaper reports whether dropping function c is better than dropping d. If the costs are
// equal and the rest does not fit yet, the function that frees more space is better.
func (p *problem) cheaper(after selection, c int, other selection, d int, fit bool) bool {
	if after.cost != other.cost {
		return after.cost.less(other.cost)
	}
	return !fit && cmp.Compare(p.needs[c].share(p.limit), p.needs[d].share(p.limit)) > 0
}

// improve adds, drops and swaps functions as long as this improves the selection.
func (p *problem) improve(s selection) selection {
	if s.size == 0 {
		return selection{} // no function fits by itself
	}
	try := func(in []bool) bool {
		if size(in) == 0 || !p.fits(in) {
			return false
		}
		if next := p.evaluate(in); next.better(s) {
			s = next
			return true
		}
		return false
	}
	for again := true; again; {
		again = false
		for _, a := range p.candidates {
			in := slices.Clone(s.in)
			in[a] = !in[a]
			again = try(in) || again
			for _, b := range p.candidates {
				if b == a || s.in[a] == s.in[b] {
					continue
				}
				in := slices.Clone(s.in)
				in[a], in[b] = in[b], in[a]
				again = try(in) || again
			}
		}
	}
	return s
}
