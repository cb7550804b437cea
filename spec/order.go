package spec

import "slices"

// Order returns the components in start order: each component after those that
// it depends on, and otherwise in the order of the file.
func (d *Deployment) Order() []*Component {
	order, _ := d.order()
	return order
}

// order walks the dependencies depth first. If it finds a cycle, it returns the
// names along the cycle, with the first name again at the end.
func (d *Deployment) order() (order []*Component, cycle []string) {
	const (
		unseen = iota
		open
		done
	)
	state := map[string]int{}
	var trail []string
	var visit func(c *Component) bool
	visit = func(c *Component) bool {
		switch state[c.Name] {
		case done:
			return true
		case open:
			cycle = append(slices.Clone(trail[slices.Index(trail, c.Name):]), c.Name)
			return false
		}
		state[c.Name] = open
		trail = append(trail, c.Name)
		for _, dependency := range c.Dependencies {
			if on := d.Component(dependency.Component); on != nil && !visit(on) {
				return false
			}
		}
		trail = trail[:len(trail)-1]
		state[c.Name] = done
		order = append(order, c)
		return true
	}
	for i := range d.Components {
		if !visit(&d.Components[i]) {
			return nil, cycle
		}
	}
	return order, nil
}
