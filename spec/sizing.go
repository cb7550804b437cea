package spec

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"vitrine"
	"vitrine/document"
)

// Component returns the component with the name, or nil if it does not exist.
func (d *Deployment) Component(name string) *Component {
	for i := range d.Components {
		if d.Components[i].Name == name {
			return &d.Components[i]
		}
	}
	return nil
}

// Entry returns the component that receives the load, and the port number
// there, of a sizing that leaves out no component.
func (d *Deployment) Entry() (*Component, int) {
	for i := range d.Components {
		if c := &d.Components[i]; c.Entry != "" {
			return c, c.Ports[c.Entry]
		}
	}
	return nil, 0 // a loaded deployment always has an entry
}

// EntryOf returns the component that receives the load in a sizing, or nil if the sizing has no
// component with an entry.
func (d *Deployment) EntryOf(s vitrine.Sizing) *Component {
	for i := range d.Components {
		c := &d.Components[i]
		if n, _ := d.Given(c, s); n > 0 && c.Entry != "" {
			return c
		}
	}
	return nil
}

// mayLeaveOut reports whether the sizing may be without the component. The load must be able to go
// to another one, and the component must have an entry or serve only components that the sizing
// leaves out too.
func (d *Deployment) mayLeaveOut(c *Component, s vitrine.Sizing) bool {
	serves := c.Entry != ""
	for i := range d.Components {
		other := &d.Components[i]
		if !slices.ContainsFunc(other.Dependencies, func(on Dependency) bool { return on.Component == c.Name }) {
			continue
		}
		if n, _ := d.Given(other, s); n > 0 {
			return false
		}
		serves = true
	}
	return serves && d.EntryOf(s) != nil
}

// Flavor returns the flavor with the initial.
func (d *Deployment) Flavor(initial byte) (vitrine.Flavor, bool) {
	for _, f := range d.Flavors {
		if f.Name[0] == initial {
			return f.vitrine(), true
		}
	}
	return vitrine.Flavor{}, false
}

// flavor returns the flavor with the name.
func (d *Deployment) flavor(name string) (vitrine.Flavor, bool) {
	for _, f := range d.Flavors {
		if f.Name == name {
			return f.vitrine(), true
		}
	}
	return vitrine.Flavor{}, false
}

// Environment returns the environment of a component's instances of a flavor: the component's,
// with the flavor's values in place of its own.
func (d *Deployment) Environment(c *Component, flavor string) map[string]string {
	at := slices.IndexFunc(d.Flavors, func(f Flavor) bool { return f.Name == flavor })
	all := map[string]string{}
	for name, value := range c.Environment {
		all[name] = value
		if given, ok := d.Flavors[at].Environment[name]; ok {
			all[name] = given
		}
	}
	return all
}

// A Space defines the sizings that a search may choose from.
type Space struct {
	Components []vitrine.Component // scalable components, in the order of the sizing's name
	Counts     map[string]Count    // allowed number of instances, by short name; 0: no bound
	Flavors    []vitrine.Flavor    // allowed flavors, ascending by vCPUs, then memory
	Limit      vitrine.Resources   // of all components together; 0: no limit
}

// Space returns the space that the deployment's mode searches.
func (d *Deployment) Space() Space {
	s := Space{
		Counts: map[string]Count{},
		Limit:  vitrine.Resources{VCPUs: d.Mode.Limit.VCPUs, Memory: int64(d.Mode.Limit.Memory)},
	}
	for _, c := range d.Components {
		if c.Scalable {
			s.Components = append(s.Components, vitrine.Component{Name: c.Name, Short: c.Short, Scalable: true})
			if count, bound := d.Counts[c.Name]; bound {
				s.Counts[c.Short] = count
			}
		}
	}
	for _, f := range d.Flavors {
		if len(d.Mode.Flavors) == 0 || slices.Contains(d.Mode.Flavors, f.Name) {
			s.Flavors = append(s.Flavors, f.vitrine())
		}
	}
	slices.SortStableFunc(s.Flavors, func(a, b vitrine.Flavor) int {
		return cmp.Or(cmp.Compare(a.VCPUs, b.VCPUs), cmp.Compare(a.Memory, b.Memory))
	})
	return s
}

// Smallest returns the sizing with the fewest instances of the smallest flavor.
func (s Space) Smallest() vitrine.Sizing {
	var sizing vitrine.Sizing
	for _, c := range s.Components {
		sizing = append(sizing, vitrine.Part{Short: c.Short, Count: max(1, s.Counts[c.Short].Min), Initial: s.Flavors[0].Initial()})
	}
	return sizing
}

// Sizings returns the sizes of mode custom, in the order of the file.
func (d *Deployment) Sizings() []vitrine.Sizing {
	var all []vitrine.Sizing
	for _, text := range d.Mode.Sizes {
		if s, err := vitrine.ParseSizing(text); err == nil { // sizes were checked when the deployment was loaded
			all = append(all, s)
		}
	}
	return all
}

// Given returns how many instances the component has in a sizing, and their
// flavor. A component that is not scalable has the same in every sizing.
func (d *Deployment) Given(c *Component, s vitrine.Sizing) (int, vitrine.Flavor) {
	if !c.Scalable {
		f, _ := d.flavor(c.Flavor)
		return max(1, d.Counts[c.Name].Min), f
	}
	p := s.Part(c.Short)
	if p == nil {
		return 0, vitrine.Flavor{}
	}
	f, _ := d.Flavor(p.Initial)
	return p.Count, f
}

// Resources returns the total resources of a sizing's scalable components, by
// which the paper compares sizes. CheckSizing must accept the sizing.
func (d *Deployment) Resources(s vitrine.Sizing) vitrine.Resources {
	return d.resources(s, false)
}

// Total returns the total resources of all components, scalable or not, which
// the host must have.
func (d *Deployment) Total(s vitrine.Sizing) vitrine.Resources {
	return d.resources(s, true)
}

func (d *Deployment) resources(s vitrine.Sizing, all bool) vitrine.Resources {
	var r vitrine.Resources
	for i := range d.Components {
		if c := &d.Components[i]; c.Scalable || all {
			n, f := d.Given(c, s)
			r.VCPUs += float64(n) * f.VCPUs
			r.Memory += int64(n) * f.Memory
		}
	}
	return r
}

// CheckSizing checks that the sizing fits this deployment. It must contain
// every scalable component once, in the order of the file, with known flavors
// and an allowed number of instances. If several components have an entry, it may
// leave out the first ones, and what only these depend on. The error is a
// *vitrine.BadInput.
func (d *Deployment) CheckSizing(s vitrine.Sizing) error {
	if bad := d.checkSizing(s); bad != nil {
		return bad
	}
	return nil
}

func (d *Deployment) checkSizing(s vitrine.Sizing) *vitrine.BadInput {
	bad := func(found, want string) *vitrine.BadInput {
		return &vitrine.BadInput{File: d.Path, Found: fmt.Sprintf("size %s %s", s, found), Want: want}
	}
	var shorts, initials []string
	left := map[string]bool{}
	for i := range d.Components {
		if c := &d.Components[i]; c.Scalable {
			shorts = append(shorts, c.Short)
			left[c.Short] = s.Part(c.Short) == nil && d.mayLeaveOut(c, s)
		}
	}
	for _, f := range d.Flavors {
		initials = append(initials, fmt.Sprintf("%c (%s)", f.Name[0], f.Name))
	}
	var ordered vitrine.Sizing
	for _, short := range shorts {
		p := s.Part(short)
		if left[short] {
			continue
		}
		if p == nil {
			return bad("leaves out "+short, "every scalable component is in it: "+strings.Join(shorts, ", "))
		}
		ordered = append(ordered, *p)
	}
	for _, p := range s {
		if !slices.Contains(shorts, p.Short) {
			return bad("names "+p.Short, document.Choose(p.Short, shorts))
		}
		if _, ok := d.Flavor(p.Initial); !ok {
			return bad(fmt.Sprintf("names flavor %c", p.Initial), "allowed: "+strings.Join(initials, ", "))
		}
	}
	for i, p := range s {
		if ordered[i] != p {
			return bad("has another order than the components", "write "+ordered.String())
		}
	}
	for _, c := range d.Components {
		n := d.Counts[c.Name]
		if p := s.Part(c.Short); c.Scalable && p != nil && (p.Count < n.Min || n.Max > 0 && p.Count > n.Max) {
			return bad(fmt.Sprintf("has %d of %s", p.Count, c.Name), fmt.Sprintf("instances allows %s", n))
		}
	}
	return nil
}
