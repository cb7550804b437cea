package spec

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"vitrine"
)

// A meaning gathers what is wrong beyond a file's form.
type meaning struct {
	Node
	errs []*vitrine.BadInput
}

// bad is an error at the value that path leads to; its tokens are field names
// and indexes.
func (m *meaning) bad(found, want string, path ...any) {
	m.errs = append(m.errs, m.BadInput(found, want, tokens(path)...))
}

// unknown is an error at a value that names nothing known.
func (m *meaning) unknown(name string, known []string, path ...any) {
	m.bad(fmt.Sprintf("%s is %s", m.name(tokens(path)), quote(name)), choose(name, slices.Compact(known)), path...)
}

// add takes in an error, or several joined.
func (m *meaning) add(err error) {
	var bad *vitrine.BadInput
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			m.add(e)
		}
	} else if errors.As(err, &bad) {
		m.errs = append(m.errs, bad)
	} else {
		m.errs = append(m.errs, m.BadInput(err.Error(), ""))
	}
}

func tokens(path []any) []string {
	out := make([]string, len(path))
	for i, token := range path {
		out[i] = fmt.Sprint(token)
	}
	return out
}

// unique reports every name that was already given.
func (m *meaning) unique(what string, given []string, path func(i int) []any) {
	first := map[string]int{}
	for i, name := range given {
		if j, taken := first[name]; taken {
			at := m.find(tokens(path(j)))
			m.bad(fmt.Sprintf("%s %s again", what, name), fmt.Sprintf("it is already given on line %d", at.Line), path(i)...)
			continue
		}
		first[name] = i
	}
}

// checkDeployment checks what the schema cannot say.
func checkDeployment(root Node, d *Deployment) error {
	m := &meaning{Node: root}
	m.names(d)
	for i := range d.Components {
		m.component(d, i)
	}
	m.entry(d)
	if _, cycle := d.order(); cycle != nil {
		i := slices.IndexFunc(d.Components, func(c Component) bool { return c.Name == cycle[0] })
		m.bad("a cycle of dependencies: "+strings.Join(cycle, " -> "), "each component starts after those that it depends on: remove one of them", "components", i, "dependencies")
	}
	m.servers(d.Servers)
	m.install(d)
	m.counts(d)
	if len(m.errs) == 0 { // sizes mean nothing while components or flavors are wrong
		m.mode(d)
	}
	return join(m.errs)
}

func (m *meaning) names(d *Deployment) {
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
	m.unique("component", full, at("components", "name"))
	m.unique("short name", short, at("components", "short"))
	before := len(m.errs)
	m.unique("flavor", flavors, at("flavors", "name"))
	if len(m.errs) == before { // the same name has the same initial
		m.unique("a flavor with the initial", initials, at("flavors", "name"))
	}
	if i := slices.Index(full, "generator"); i >= 0 {
		m.bad("a component named generator", "that is what the load generator's instance is called: choose another name", "components", i, "name")
	}
	if !slices.ContainsFunc(d.Components, func(c Component) bool { return c.Scalable }) {
		m.bad("no component is scalable", "sizes are made of scalable components: at least one is needed", "components")
	}
}

func (m *meaning) component(d *Deployment, i int) {
	c := d.Components[i]
	at := func(path ...any) []any { return append([]any{"components", i}, path...) }
	switch _, known := d.flavor(c.Flavor); {
	case c.Scalable && c.Flavor != "":
		m.bad(fmt.Sprintf("%s has a fixed flavor, but is scalable", c.Name), "set scalable: false, or leave the flavor to the sizes", at("flavor")...)
	case !c.Scalable && c.Flavor == "":
		m.bad(fmt.Sprintf("%s is not scalable and has no flavor", c.Name), "name the flavor that it always has: "+strings.Join(flavorNames(d), ", "), at()...)
	case !c.Scalable && !known:
		m.unknown(c.Flavor, flavorNames(d), at("flavor")...)
	}
	port := func(of *Component, name string, path ...any) {
		if _, ok := of.Ports[name]; name != "" && !ok {
			m.unknown(name, names(of.Ports), at(path...)...)
		}
	}
	port(&c, c.Entry, "entry")
	for j, dependency := range c.Dependencies {
		if on := d.Component(dependency.Component); on == nil {
			m.unknown(dependency.Component, componentNames(d), at("dependencies", j, "component")...)
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
		m.program(d, c, r.Command, at("ready", "command", 0)...)
	}
	m.environment(c, i)
	m.variables(c, i)
	m.program(d, c, c.Command, at("command", 0)...)
}

// program reports a program by a path that cannot be run. With an image, the
// path is inside it.
func (m *meaning) program(d *Deployment, c Component, command Args, path ...any) {
	if len(command) == 0 || c.Image != "" || !isPath(command[0]) {
		return
	}
	if why := executable(d.Resolve(command[0])); why != "" {
		m.bad(fmt.Sprintf("program %s: %s", word(command[0]), why), "want an executable; paths start from the file's folder", path...)
	}
}

// reserved are the variables that every instance is given.
func reserved() []string {
	return []string{"ADDRESS", "VITRINE_DIR", "VITRINE_INDEX", "VITRINE_INSTANCE", "VITRINE_SIZING", "VITRINE_SPEC"}
}

// environment reports variables that would be set twice.
func (m *meaning) environment(c Component, i int) {
	set := map[string]string{}
	for _, name := range reserved() {
		set[name] = "every instance is given it"
	}
	give := func(name, by string, at *vitrine.BadInput) {
		if name == "" {
			return
		}
		if other, taken := set[name]; taken {
			at.Found, at.Want = fmt.Sprintf("variable %s again", name), other+": choose another name"
			m.errs = append(m.errs, at)
			return
		}
		set[name] = by
	}
	place := func(path ...any) *vitrine.BadInput {
		return m.BadInput("", "", tokens(append([]any{"components", i}, path...))...)
	}
	for j, dependency := range c.Dependencies {
		give(dependency.As, fmt.Sprintf("dependencies[%d] sets it", j), place("dependencies", j, "as"))
	}
	if c.Cluster != nil {
		give(c.Cluster.As, "cluster sets it", place("cluster", "as"))
	}
	for _, name := range names(c.Environment) {
		give(name, "environment sets it", place("environment", name))
	}
}

// given are the variables that an instance is given: those of every one, and
// the addresses of others.
func given(c Component) []string {
	all := reserved()
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

// references reports every ${NAME} in the text that is not known.
func (m *meaning) references(text, in string, known []string, path ...any) {
	for _, match := range reference.FindAllStringSubmatch(text, -1) {
		if !slices.Contains(known, match[1]) {
			m.bad(fmt.Sprintf("%s in %s", word(match[0]), in), choose(match[1], known)+"; a shell's own is written $NAME", path...)
		}
	}
}

// variables reports references, in commands and in the environment, to what the
// instance is not given.
func (m *meaning) variables(c Component, i int) {
	known := given(c)
	for _, name := range names(c.Environment) {
		m.references(c.Environment[name], "the environment of "+c.Name, known, "components", i, "environment", name)
	}
	known = append(known, names(c.Environment)...)
	slices.Sort(known)
	known = slices.Compact(known)
	for j, argument := range c.Command {
		m.references(argument, "the command of "+c.Name, known, "components", i, "command", j)
	}
	if c.Ready != nil {
		for j, argument := range c.Ready.Command {
			m.references(argument, "the readiness check of "+c.Name, known, "components", i, "ready", "command", j)
		}
	}
}

func (m *meaning) entry(d *Deployment) {
	first := -1
	for i, c := range d.Components {
		switch {
		case c.Entry == "":
		case first < 0:
			first = i
		default:
			m.bad(fmt.Sprintf("%s has an entry, and so has %s", c.Name, d.Components[first].Name), "the load goes to exactly one component", "components", i, "entry")
		}
	}
	if first < 0 {
		m.bad("no component has an entry", "name the port that the load goes to at one component: entry: PORT", "components")
	}
}

func (m *meaning) servers(s Servers) {
	seen := map[time.Duration]bool{}
	for i, period := range s.CFSPeriod {
		path := []any{"servers", "cfs_period", i}
		if period < time.Millisecond || period > time.Second {
			m.bad(fmt.Sprintf("a CFS period of %s", period), "the kernel takes 1ms to 1s", path...)
		}
		if seen[period] {
			m.bad(fmt.Sprintf("a CFS period of %s again", period), "give each once", path...)
		}
		seen[period] = true
	}
	for _, cpu := range s.GeneratorCPUs {
		if slices.Contains(s.CPUs, cpu) {
			m.bad(fmt.Sprintf("CPU %d is the generator's and the function's", cpu), "they must not share a CPU: the generator would slow what it measures", "servers", "generator_cpus")
			return
		}
	}
}

func (m *meaning) install(d *Deployment) {
	for i, script := range d.Install {
		if d.Component(script.Component) == nil {
			m.unknown(script.Component, componentNames(d), "install", i, "component")
		}
		if why := executable(d.Resolve(script.Script)); why != "" {
			m.bad(fmt.Sprintf("script %s: %s", word(script.Script), why), "want an executable; paths start from the file's folder", "install", i, "script")
		}
	}
}

func (m *meaning) counts(d *Deployment) {
	for _, name := range names(d.Counts) {
		count, c := d.Counts[name], d.Component(name)
		switch {
		case c == nil:
			at := m.key([]string{"instances"}, name)
			m.errs = append(m.errs, &vitrine.BadInput{File: m.file, Line: at.Line, Column: at.Column,
				Found: fmt.Sprintf("instances names %s", word(name)), Want: choose(name, slices.Compact(componentNames(d)))})
		case count.Max > 0 && count.Min > count.Max:
			m.bad(fmt.Sprintf("instances.%s has min %d above max %d", name, count.Min, count.Max), "want min at most max", "instances", name)
		case !c.Scalable && count.Min != count.Max:
			m.bad(fmt.Sprintf("instances.%s has bounds, but %s is not scalable", name, name), "want one number", "instances", name)
		}
	}
}

func (m *meaning) mode(d *Deployment) {
	mode := d.Mode
	if mode.Name == Custom {
		m.sizes(d)
		return
	}
	for i, name := range mode.Flavors {
		if _, known := d.flavor(name); !known {
			m.unknown(name, flavorNames(d), "mode", "flavors", i)
		}
	}
	m.unique("flavor", mode.Flavors, func(i int) []any { return []any{"mode", "flavors", i} })
	if len(m.errs) > 0 {
		return
	}
	space := d.Space()
	if mode.Name == Model {
		m.objective(d, space)
	}
	if mode.Name == Directed && mode.Scaling == ScaleOut && len(space.Flavors) > 1 {
		m.bad(fmt.Sprintf("scaling out with %d flavors", len(space.Flavors)), "scaling out has one flavor (NFV-VITAL, III.A): name it in mode.flavors, as in flavors: ["+space.Flavors[0].Name+"]", "mode", "scaling")
	}
	smallest := space.Smallest()
	if needs := d.Resources(smallest); !needs.Within(space.Limit) {
		m.bad(fmt.Sprintf("the limit is below the smallest size, %s", smallest),
			fmt.Sprintf("it needs %.4g vCPUs and %.4g MiB", needs.VCPUs, float64(needs.Memory)/(1<<20)), "mode", "limit")
	}
}

// objective checks what mode model is to look for.
func (m *meaning) objective(d *Deployment, space Space) {
	mode := d.Mode
	switch {
	case mode.Objective == MostCapacity && mode.Reach > 0:
		m.bad(fmt.Sprintf("a rate to reach, %g, but the objective is capacity", mode.Reach), "leave reach away, or choose the objective vcpus or price", "mode", "reach")
	case mode.Objective != MostCapacity && mode.Reach == 0:
		m.bad(fmt.Sprintf("the objective %s has no rate to reach", mode.Objective), "say what is to be carried, as in reach: 300", "mode")
	}
	if mode.Objective != LowestPrice {
		return
	}
	for i, f := range d.Flavors {
		used := slices.ContainsFunc(space.Flavors, func(v vitrine.Flavor) bool { return v.Name == f.Name })
		if used && f.Price == 0 {
			m.bad(fmt.Sprintf("flavor %s has no price", f.Name), "the objective price needs one of every flavor that sizes may have", "flavors", i)
		}
	}
}

// sizes checks the sizes of mode custom.
func (m *meaning) sizes(d *Deployment) {
	for i, text := range d.Mode.Sizes {
		s, err := vitrine.ParseSizing(text)
		switch {
		case err != nil:
			m.bad(err.Error(), "", "mode", "sizes", i)
		case s.String() != text:
			m.bad("size "+text, "write "+s.String(), "mode", "sizes", i)
		default:
			if bad := d.checkSizing(s); bad != nil {
				m.bad(bad.Found, bad.Want, "mode", "sizes", i)
			}
		}
	}
	m.unique("size", d.Mode.Sizes, func(i int) []any { return []any{"mode", "sizes", i} })
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
