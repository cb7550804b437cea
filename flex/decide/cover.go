package decide

import (
	"cmp"
	"math"
	"slices"
)

// cover returns the number of instances of each flavor that carry need transactions/s with the
// fewest CPUs, and on a tie with the fewest instances. If no choice of at most most instances
// carries the need, cover uses only the largest flavor. If a flavor has no CPU limit, cover
// minimizes the total capacity instead of CPUs.
func cover(need float64, flavors []Flavor, most int) []int {
	counts := make([]int, len(flavors))
	if need <= 0 || most <= 0 {
		return counts
	}
	c := coverer{flavors: flavors, order: make([]int, len(flavors)), now: make([]int, len(flavors)), best: counts, price: math.Inf(1), most: most}
	unpriced := slices.ContainsFunc(flavors, func(f Flavor) bool { return f.CPUs <= 0 })
	c.cost = func(i int) float64 {
		if unpriced {
			return flavors[i].Capacity
		}
		return flavors[i].CPUs
	}
	for i := range c.order {
		c.order[i] = i
	}
	// Sort by capacity per CPU, the highest first, and then by capacity.
	slices.SortStableFunc(c.order, func(a, b int) int {
		return cmp.Or(cmp.Compare(c.cost(a)/flavors[a].Capacity, c.cost(b)/flavors[b].Capacity), cmp.Compare(flavors[b].Capacity, flavors[a].Capacity))
	})
	c.fill(0, need, 0, 0)
	if !math.IsInf(c.price, 1) {
		return c.best
	}
	largest := 0
	for i := range flavors {
		if flavors[i].Capacity > flavors[largest].Capacity {
			largest = i
		}
	}
	counts[largest] = most
	if n := math.Ceil(need / flavors[largest].Capacity); n < float64(most) {
		counts[largest] = int(n)
	}
	return counts
}

// A coverer searches for the cheapest counts by branch and bound.
type coverer struct {
	flavors []Flavor
	order   []int // indexes of flavors, the highest capacity per CPU first
	cost    func(flavor int) float64
	most    int

	now   []int
	best  []int
	price float64
	count int // instances in best
}

// exchanged bounds how many instances of a cheaper flavor the search replaces by more
// expensive flavors. So the search is exhaustive for small fleets. In large fleets other
// flavors can only improve the remainder of the division by the cheapest flavor.
const exchanged = 32

// fill tries all counts of the flavors order[at:] that carry the remaining need.
func (c *coverer) fill(at int, need, spent float64, count int) {
	if count > c.most || spent > c.price {
		return
	}
	if need <= 1e-9 {
		if spent < c.price || count < c.count {
			c.price, c.count = spent, count
			copy(c.best, c.now)
		}
		return
	}
	if at == len(c.order) {
		return
	}
	i := c.order[at]
	// Lower bound of the cost: flavor i is the cheapest of the remaining flavors per capacity.
	if spent+need*c.cost(i)/c.flavors[i].Capacity > c.price {
		return
	}
	whole := math.Ceil(need / c.flavors[i].Capacity)
	if at == len(c.order)-1 {
		if whole <= float64(c.most-count) {
			c.now[i] = int(whole)
			c.fill(at+1, 0, spent+whole*c.cost(i), count+int(whole))
			c.now[i] = 0
		}
		return
	}
	top := int(min(whole, float64(c.most-count)))
	for n := top; n >= 0 && n >= top-exchanged; n-- {
		c.now[i] = n
		c.fill(at+1, need-float64(n)*c.flavors[i].Capacity, spent+float64(n)*c.cost(i), count+n)
	}
	c.now[i] = 0
}
