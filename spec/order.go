package spec

import "slices"

// Order is the components in the order in which to start them: each after
// those that it depends on, otherwise as in the file.
func (d *Deployment) Order() []*Component {
	order, _ := d.order()
	return order
}

// order walks the dependencies depth first. A cycle is returned as the names
// along it, the first one again at its end.
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
