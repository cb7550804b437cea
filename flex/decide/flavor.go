package decide

// Lean returns the flavor that carries most per CPU: the one for a policy that knows only
// one.
func (t *Type) Lean() *Flavor {
	best := &t.Flavors[0]
	for i := range t.Flavors {
		if z := &t.Flavors[i]; z.Capacity*best.CPUs > best.Capacity*z.CPUs {
			best = z
		}
	}
	return best
}

// flavorOf returns the index of a flavor. One that is no longer declared counts as the
// flavor with the least capacity.
func (t *Type) flavorOf(name string) int {
	least := 0
	for i := range t.Flavors {
		if t.Flavors[i].Name == name {
			return i
		}
		if t.Flavors[i].Capacity < t.Flavors[least].Capacity {
			least = i
		}
	}
	return least
}

// Used returns what all instances of a view take of its limits. Instances of types that
// the view does not have only count.
func Used(v *View) (used Limits) {
	types := make(map[string]*Type, len(v.Types))
	for i := range v.Types {
		types[v.Types[i].Name] = &v.Types[i].Type
	}
	for i := range v.Instances {
		in := &v.Instances[i]
		if t := types[in.Type]; t != nil {
			used.Add(&t.Flavors[t.flavorOf(in.Flavor)])
		} else {
			used.Instances++
		}
		if in.State <= Warming {
			used.Starting++
		}
	}
	return used
}

// Add counts one more instance.
func (l *Limits) Add(f *Flavor) {
	l.Instances++
	l.CPUs += f.CPUs
	l.Memory += f.Memory
}

// Allow reports whether one more instance may start beside what is used.
func (l *Limits) Allow(used Limits, f *Flavor) bool {
	return (l.Instances == 0 || used.Instances < l.Instances) && (l.Starting == 0 || used.Starting < l.Starting) && l.hold(used, f)
}

// hold reports whether the host holds one more instance beside what is used.
func (l *Limits) hold(used Limits, f *Flavor) bool {
	return (l.CPUs == 0 || used.CPUs+f.CPUs <= l.CPUs+1e-9) && (l.Memory == 0 || used.Memory+f.Memory <= l.Memory)
}
