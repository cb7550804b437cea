package spec

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"vitrine"
	"vitrine/document"
)

// A validator collects the errors of a deployment.
type validator struct{ document.Errors }

// checkDeployment checks what the schema cannot express.
func checkDeployment(root document.Node, d *Deployment) error {
	v := &validator{document.Errors{Node: root}}
	v.names(d)
	for i := range d.Components {
		v.component(d, i)
	}
	v.flavors(d)
	v.entry(d)
	if _, cycle := d.order(); cycle != nil {
		i := slices.IndexFunc(d.Components, func(c Component) bool { return c.Name == cycle[0] })
		v.Bad("a cycle of dependencies: "+strings.Join(cycle, " -> "), "each component starts after those that it depends on: remove one of them", "components", i, "dependencies")
	}
	v.servers(d.Servers)
	v.install(d)
	v.counts(d)
	if v.Len() == 0 { // sizes depend on valid components and flavors
		v.mode(d)
	}
	return v.Join()
}

func (v *validator) names(d *Deployment) {
	var full, short, flavors, initials []string
	for _, c := range d.Components {
		full, short = append(full, c.Name), append(short, c.Short)
	}
	for _, f := range d.Flavors {
		flavors, initials = append(flavors, f.Name), append(initials, f.Name[:1])
	}
	at := func(list, field string) func(int) []any {
		return func(i int) []any { return []any{list, i, field} }
	}
	v.Unique("component", full, at("components", "name"))
	v.Unique("short name", short, at("components", "short"))
	before := v.Len()
	v.Unique("flavor", flavors, at("flavors", "name"))
	if v.Len() == before { // a repeated name also repeats its initial
		v.Unique("a flavor with the initial", initials, at("flavors", "name"))
	}
	for i, name := range full {
		switch name {
		case "generator":
			v.Bad("a component named generator", "that is what the load generator's instance is called: choose another name", "components", i, "name")
		case "host":
			v.Bad("a component named host", "that is what the machine is called in the readings of a run: choose another name", "components", i, "name")
		}
	}
	if !slices.ContainsFunc(d.Components, func(c Component) bool { return c.Scalable }) {
		v.Bad("no component is scalable", "sizes are made of scalable components: at least one is needed", "components")
	}
}

func (v *validator) component(d *Deployment, i int) {
	c := d.Components[i]
	at := func(path ...any) []any { return append([]any{"components", i}, path...) }
	switch _, known := d.flavor(c.Flavor); {
	case c.Scalable && c.Flavor != "":
		v.Bad(fmt.Sprintf("%s has a fixed flavor, but is scalable", c.Name), "set scalable: false, or leave the flavor to the sizes", at("flavor")...)
	case !c.Scalable && c.Flavor == "":
		v.Bad(fmt.Sprintf("%s is not scalable and has no flavor", c.Name), "name the flavor that it always has: "+strings.Join(flavorNames(d), ", "), at()...)
	case !c.Scalable && !known:
		v.Unknown(c.Flavor, flavorNames(d), at("flavor")...)
	}
	port := func(of *Component, name string, path ...any) {
		if _, ok := of.Ports[name]; name != "" && !ok {
			v.Unknown(name, slices.Sorted(maps.Keys(of.Ports)), at(path...)...)
		}
	}
	port(&c, c.Entry, "entry")
	for j, dependency := range c.Dependencies {
		if on := d.Component(dependency.Component); on == nil {
			v.Unknown(dependency.Component, componentNames(d), at("dependencies", j, "component")...)
		} else {
			port(on, dependency.Port, "dependencies", j, "port")
		}
	}
	if c.Cluster != nil {
		port(&c, c.Cluster.Port, "cluster", "port")
	}
	if r := c.Ready; r != nil {
		port(&c, r.TCP, "ready", "tcp")
		port(&c, r.SIP, "ready", "sip")
		if r.HTTP != nil {
			port(&c, r.HTTP.Port, "ready", "http", "port")
		}
		v.program(d, c, r.Command, at("ready", "command", 0)...)
	}
	v.environment(c, i)
	v.variables(c, i)
	v.program(d, c, c.Command, at("command", 0)...)
}

// program reports a program path that cannot be executed. With an image, the
// path is inside the image and is not checked.
func (v *validator) program(d *Deployment, c Component, command Args, path ...any) {
	if len(command) == 0 || c.Image != "" || !isPath(command[0]) {
		return
	}
	if why := whyNotExecutable(d.Resolve(command[0])); why != "" {
		v.Bad(fmt.Sprintf("program %s: %s", document.Word(command[0]), why), "want an executable; paths start from the file's folder", path...)
	}
}

// reservedVariables returns the variables that every instance gets.
func reservedVariables() []string {
	return []string{"ADDRESS", "VITRINE_DIR", "VITRINE_INDEX", "VITRINE_INSTANCE", "VITRINE_NUMBER", "VITRINE_SIZING", "VITRINE_SPEC"}
}

// environment reports variables that are set more than once.
func (v *validator) environment(c Component, i int) {
	set := map[string]string{}
	for _, name := range reservedVariables() {
		set[name] = "every instance is given it"
	}
	give := func(name, by string, path ...any) {
		if name == "" {
			return
		}
		if other, taken := set[name]; taken {
			v.Bad(fmt.Sprintf("variable %s again", name), other+": choose another name", append([]any{"components", i}, path...)...)
			return
		}
		set[name] = by
	}
	for j, dependency := range c.Dependencies {
		give(dependency.As, fmt.Sprintf("dependencies[%d] sets it", j), "dependencies", j, "as")
	}
	if c.Cluster != nil {
		give(c.Cluster.As, "cluster sets it", "cluster", "as")
	}
	for _, name := range slices.Sorted(maps.Keys(c.Environment)) {
		give(name, "environment sets it", "environment", name)
	}
}

// instanceVariables returns the variables that an instance gets: the reserved ones and the
// addresses of other instances.
func instanceVariables(c Component) []string {
	all := reservedVariables()
	for _, dependency := range c.Dependencies {
		if dependency.As != "" {
			all = append(all, dependency.As)
		}
	}
	if c.Cluster != nil {
		all = append(all, c.Cluster.As)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// references reports every ${NAME} in the text that is not a known variable.
func (v *validator) references(text, in string, known []string, path ...any) {
	for _, match := range reference.FindAllStringSubmatch(text, -1) {
		if !slices.Contains(known, match[1]) {
			v.Bad(fmt.Sprintf("%s in %s", document.Word(match[0]), in), document.Choose(match[1], known)+"; a shell's own is written $NAME", path...)
		}
	}
}

// variables reports references to unknown variables in the commands and the
// environment.
func (v *validator) variables(c Component, i int) {
	known := instanceVariables(c)
	for _, name := range slices.Sorted(maps.Keys(c.Environment)) {
		v.references(c.Environment[name], "the environment of "+c.Name, known, "components", i, "environment", name)
	}
	known = append(known, slices.Sorted(maps.Keys(c.Environment))...)
	slices.Sort(known)
	known = slices.Compact(known)
	for j, argument := range c.Command {
		v.references(argument, "the command of "+c.Name, known, "components", i, "command", j)
	}
	if c.Ready != nil {
		for j, argument := range c.Ready.Command {
			v.references(argument, "the readiness check of "+c.Name, known, "components", i, "ready", "command", j)
		}
	}
}

// flavors reports variables of flavors that replace nothing, and references in their values to
// variables that not every instance gets.
func (v *validator) flavors(d *Deployment) {
	for i, f := range d.Flavors {
		for _, name := range slices.Sorted(maps.Keys(f.Environment)) {
			if !slices.ContainsFunc(d.Components, func(c Component) bool { _, ok := c.Environment[name]; return ok }) {
				v.Bad(fmt.Sprintf("variable %s, which no component has", name), "give it to a component's environment too: that is its value for other flavors", "flavors", i, "environment", name)
			}
			v.references(f.Environment[name], "the environment of "+f.Name, reservedVariables(), "flavors", i, "environment", name)
		}
	}
}

func (v *validator) entry(d *Deployment) {
	first, _ := d.Entry()
	if first == nil {
		v.Bad("no component has an entry", "name the port that the load goes to at one component: entry: PORT", "components")
		return
	}
	loaded := map[string]bool{first.Name: true}
	for _, s := range d.Sizings() {
		if c := d.EntryOf(s); c != nil {
			loaded[c.Name] = true
		}
	}
	for i, c := range d.Components {
		if c.Entry != "" && !loaded[c.Name] {
			v.Bad(fmt.Sprintf("%s has an entry, and so has %s", c.Name, first.Name),
				fmt.Sprintf("the load goes to one component: to the first with an entry, so some of mode.sizes must leave out %s", first.Name), "components", i, "entry")
		}
	}
}

func (v *validator) servers(s Servers) {
	seen := map[time.Duration]bool{}
	for i, period := range s.CFSPeriod {
		path := []any{"servers", "cfs_period", i}
		if period < time.Millisecond || period > time.Second {
			v.Bad(fmt.Sprintf("a CFS period of %s", period), "the kernel takes 1ms to 1s", path...)
		}
		if seen[period] {
			v.Bad(fmt.Sprintf("a CFS period of %s again", period), "give each once", path...)
		}
		seen[period] = true
	}
	v.Unique("impairment", s.Impairment, func(i int) []any { return []any{"servers", "impairment", i} })
	for _, cpu := range s.GeneratorCPUs {
		if slices.Contains(s.CPUs, cpu) {
			v.Bad(fmt.Sprintf("CPU %d is the generator's and the function's", cpu), "they must not share a CPU: the generator would slow what it measures", "servers", "generator_cpus")
			return
		}
	}
}

func (v *validator) install(d *Deployment) {
	for i, script := range d.Install {
		if d.Component(script.Component) == nil {
			v.Unknown(script.Component, componentNames(d), "install", i, "component")
		}
		if why := whyNotExecutable(d.Resolve(script.Script)); why != "" {
			v.Bad(fmt.Sprintf("script %s: %s", document.Word(script.Script), why), "want an executable; paths start from the file's folder", "install", i, "script")
		}
	}
}

func (v *validator) counts(d *Deployment) {
	for _, name := range slices.Sorted(maps.Keys(d.Counts)) {
		count, c := d.Counts[name], d.Component(name)
		switch {
		case c == nil:
			v.BadName("instances names "+document.Word(name), document.Choose(name, slices.Compact(componentNames(d))), "instances", name)
		case count.Max > 0 && count.Min > count.Max:
			v.Bad(fmt.Sprintf("instances.%s has min %d above max %d", name, count.Min, count.Max), "want min at most max", "instances", name)
		case !c.Scalable && count.Min != count.Max:
			v.Bad(fmt.Sprintf("instances.%s has bounds, but %s is not scalable", name, name), "want one number", "instances", name)
		}
	}
}

func (v *validator) mode(d *Deployment) {
	mode := d.Mode
	if mode.Name == Custom {
		v.sizes(d)
		return
	}
	for i, name := range mode.Flavors {
		if _, known := d.flavor(name); !known {
			v.Unknown(name, flavorNames(d), "mode", "flavors", i)
		}
	}
	v.Unique("flavor", mode.Flavors, func(i int) []any { return []any{"mode", "flavors", i} })
	if v.Len() > 0 {
		return
	}
	space := d.Space()
	if mode.Name == Model {
		v.objective(d, space)
	}
	if mode.Name == Directed && mode.Scaling == ScaleOut && len(space.Flavors) > 1 {
		v.Bad(fmt.Sprintf("scaling out with %d flavors", len(space.Flavors)), "scaling out has one flavor (NFV-VITAL, III.A): name it in mode.flavors, as in flavors: ["+space.Flavors[0].Name+"]", "mode", "scaling")
	}
	smallest := space.Smallest()
	if needs := d.Resources(smallest); !needs.Within(space.Limit) {
		v.Bad(fmt.Sprintf("the limit is below the smallest size, %s", smallest),
			fmt.Sprintf("it needs %.4g vCPUs and %.4g MiB", needs.VCPUs, float64(needs.Memory)/(1<<20)), "mode", "limit")
	}
}

// objective checks the objective of mode model.
func (v *validator) objective(d *Deployment, space Space) {
	mode := d.Mode
	switch {
	case mode.Objective == MostCapacity && mode.Reach > 0:
		v.Bad(fmt.Sprintf("a rate to reach, %g, but the objective is capacity", mode.Reach), "leave reach away, or choose the objective vcpus or price", "mode", "reach")
	case mode.Objective != MostCapacity && mode.Reach == 0:
		v.Bad(fmt.Sprintf("the objective %s has no rate to reach", mode.Objective), "say what is to be carried, as in reach: 300", "mode")
	}
	if mode.Objective != LowestPrice {
		return
	}
	for i, f := range d.Flavors {
		used := slices.ContainsFunc(space.Flavors, func(given vitrine.Flavor) bool { return given.Name == f.Name })
		if used && f.Price == 0 {
			v.Bad(fmt.Sprintf("flavor %s has no price", f.Name), "the objective price needs one of every flavor that sizes may have", "flavors", i)
		}
	}
}

// sizes checks the sizes of mode custom.
func (v *validator) sizes(d *Deployment) {
	for i, text := range d.Mode.Sizes {
		s, err := vitrine.ParseSizing(text)
		switch {
		case err != nil:
			v.Bad(err.Error(), "", "mode", "sizes", i)
		case s.String() != text:
			v.Bad("size "+text, "write "+s.String(), "mode", "sizes", i)
		default:
			if bad := d.checkSizing(s); bad != nil {
				v.Bad(bad.Found, bad.Want, "mode", "sizes", i)
			}
		}
	}
	v.Unique("size", d.Mode.Sizes, func(i int) []any { return []any{"mode", "sizes", i} })
}

func componentNames(d *Deployment) []string {
	var all []string
	for _, c := range d.Components {
		all = append(all, c.Name)
	}
	return all
}

func flavorNames(d *Deployment) []string {
	var all []string
	for _, f := range d.Flavors {
		all = append(all, f.Name)
	}
	return all
}
