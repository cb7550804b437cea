package gtpc

import "vitrine/director/table"

// Memories are the workers' steerings, in the order that Worker made them: what
// a restart hands over. They may be touched before the workers run and after.
func (d *Director) Memories() []*table.Steering {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make([]*table.Steering, len(d.workers))
	for i, w := range d.workers {
		all[i] = w.steering
	}
	return all
}
