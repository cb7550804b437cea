package config

import (
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"vitrine"
	"vitrine/document"
	"vitrine/spec"
)

// A validator collects errors that the JSON Schema cannot express.
type validator struct{ document.Errors }

func check(root document.Node, c *Config) error {
	v := &validator{document.Errors{Node: root}}
	v.names(c)
	for i := range c.Types {
		v.members(c, i)
		v.redline(c, i)
	}
	v.servers(c.Servers)
	v.services(c)
	v.storeMember(c)
	v.access(c)
	if v.Len() == 0 { // sizes, impaired links and limits depend on valid members
		for i := range c.Types {
			v.flavors(c, i)
		}
		v.impairment(c)
	}
	if v.Len() == 0 {
		v.limits(c)
	}
	return v.Join()
}

func (v *validator) names(c *Config) {
	var directors, types, services []string
	for _, d := range c.Directors {
		directors = append(directors, strings.TrimSuffix(strings.TrimPrefix(c.control(d), "http://"), "/"))
	}
	for _, t := range c.Types {
		types = append(types, t.Name)
	}
	for _, s := range c.Services {
		services = append(services, s.Name)
	}
	v.Unique("director", directors, func(i int) []any { return []any{"directors", i, "control"} }) // its readings would count twice
	v.Unique("type", types, func(i int) []any { return []any{"types", i, "name"} })
	v.Unique("service", services, func(i int) []any { return []any{"services", i, "name"} })
	for i, t := range c.Types {
		if t.Min > t.Max {
			v.Bad(fmt.Sprintf("min %d above max %d", t.Min, t.Max), "want min at most max", "types", i, "min")
		}
		if len(t.Name) > maxTypeName {
			v.Bad(fmt.Sprintf("a name of %d characters", len(t.Name)), fmt.Sprintf("instances are named after the type: want at most %d", maxTypeName), "types", i, "name")
		}
	}
}

// maxTypeName leaves room for "-" and the instance number: names in the director have at most
// 32 characters.
const maxTypeName = 20

// members sets the members of a type, and checks that each member gets the addresses of its
// dependencies.
func (v *validator) members(c *Config, i int) {
	t := &c.Types[i]
	d := c.DeploymentOf(t)
	at := func(path ...any) []any { return append([]any{"types", i}, path...) }
	var all []string
	for _, component := range d.Components {
		all = append(all, component.Name)
	}
	switch {
	case t.Affinity != nil && len(t.Members) > 0:
		v.Bad("members and affinity", "give one of them", at("affinity")...)
		return
	case t.Affinity != nil:
		given, err := membersOf(c.Resolve(t.Affinity.File), t.Affinity.Aggregate)
		if err != nil {
			v.Bad(err.Error(), "", at("affinity")...)
			return
		}
		for _, name := range given {
			t.Members = append(t.Members, componentLike(name, all))
		}
	case len(t.Members) == 0:
		t.Members = all
	}
	known := true
	for k, name := range t.Members {
		if !slices.Contains(all, name) {
			known = false
			if t.Affinity != nil {
				v.Bad("the analysis has member "+document.Word(name), document.Choose(name, all)+"; vitrine affinity --names gives functions the names of components", at("affinity")...)
			} else {
				v.Unknown(name, all, at("members", k)...)
			}
		}
	}
	v.Unique("member", t.Members, func(k int) []any { return at("members", k) })
	if entry, _ := d.Entry(); known && !slices.Contains(t.Members, entry.Name) {
		v.Bad("an instance without "+entry.Name, "it is the component with the entry, which the director sends to: make it a member", at("members")...)
	}
	v.addresses(d, t, at)
	v.environment(t, at)
}

// componentLike returns the component with the function's name, ignoring case. Without one it
// returns the function's name.
func componentLike(function string, components []string) string {
	for _, c := range components {
		if strings.EqualFold(c, function) {
			return c
		}
	}
	return function
}

// addresses reports dependencies of members that are not members themselves, unless the
// environment has their address.
func (v *validator) addresses(d *spec.Deployment, t *Type, at func(...any) []any) {
	for _, name := range t.Members {
		member := d.Component(name)
		if member == nil {
			continue
		}
		for _, dependency := range member.Dependencies {
			if slices.Contains(t.Members, dependency.Component) || dependency.As == "" {
				continue
			}
			if _, given := t.Environment[dependency.As]; !given {
				v.Bad(fmt.Sprintf("%s needs %s, which is no member", name, dependency.Component),
					fmt.Sprintf("make it a member, or give its address in environment: {%s: ADDRESS:PORT}", dependency.As), at()...)
			}
		}
	}
}

// reserved returns the environment variables that vitrine sets for every member.
func reserved() []string {
	return []string{"ADDRESS", "VITRINE_DIR", "VITRINE_INDEX", "VITRINE_INSTANCE", "VITRINE_NUMBER", "VITRINE_SIZING", "VITRINE_SPEC"}
}

var (
	reference    = regexp.MustCompile(`\$\{([^}]*)\}`)
	variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

func (v *validator) environment(t *Type, at func(...any) []any) {
	for _, name := range slices.Sorted(maps.Keys(t.Environment)) {
		switch {
		case slices.Contains(reserved(), name):
			v.BadName("variable "+name, "every member is given it: choose another name", at("environment", name)...)
		case !variableName.MatchString(name):
			v.BadName("variable "+document.Word(name), "want letters, digits and underscores, no digit first", at("environment", name)...)
		}
		v.references(t.Environment[name], reserved(), at("environment", name)...)
	}
}

// references reports every ${NAME} in the text that is not a known variable.
func (v *validator) references(text string, known []string, path ...any) {
	for _, match := range reference.FindAllStringSubmatch(text, -1) {
		if !slices.Contains(known, match[1]) {
			v.Bad(document.Word(match[0]), document.Choose(match[1], known), path...)
		}
	}
}

func (v *validator) flavors(c *Config, i int) {
	t := &c.Types[i]
	d := c.DeploymentOf(t)
	var sizes []string
	for k, f := range t.Flavors {
		at := func(path ...any) []any { return append([]any{"types", i, "flavors", k}, path...) }
		sizes = append(sizes, f.Size)
		sizing, err := vitrine.ParseSizing(f.Size)
		if err == nil {
			err = d.CheckSizing(sizing)
		}
		if err != nil {
			v.Bad(err.Error(), "", at("size")...)
		} else {
			v.quotas(c, t, sizing, at("size"))
			entry, _ := d.Entry()
			if n, _ := d.Given(entry, sizing); n != 1 {
				v.Bad(fmt.Sprintf("size %s has %d copies of %s", f.Size, n, entry.Name), "it has the entry, and an instance has one address in the directors: want 1", at("size")...)
			}
		}
		switch {
		case f.Rate > 0 && f.Profile != "":
			v.Bad("rate and profile", "give one of them", at("profile")...)
		case f.Rate > 0 && f.Transactions != 1:
			v.Bad("transactions_per_call with rate", "it goes with profile: rate counts transactions already", at("transactions_per_call")...)
		case f.Rate == 0 && f.Profile == "":
			v.Bad("a flavor without its capacity", "give rate, or profile: the folder of a vitrine characterize of this size", at()...)
		}
	}
	v.Unique("size", sizes, func(k int) []any { return []any{"types", i, "flavors", k, "size"} })
}

// quotas reports the flavors of members for which the kernel accepts no quota.
func (v *validator) quotas(c *Config, t *Type, sizing vitrine.Sizing, path []any) {
	d := c.DeploymentOf(t)
	reported := map[string]bool{}
	for _, name := range t.Members {
		_, flavor := d.Given(d.Component(name), sizing)
		if found, want := spec.WrongQuota(flavor, c.Servers.CFSPeriod[0]); found != "" && !reported[found] {
			v.Bad(found, want, path...)
			reported[found] = true
		}
	}
}

func (v *validator) servers(s spec.Servers) {
	for _, o := range []struct {
		name   string
		values int
	}{{"substrate", len(s.Substrate)}, {"fabric", len(s.Fabric)}, {"cfs_period", len(s.CFSPeriod)}, {"pinning", len(s.Pinning)}, {"keep_awake", len(s.KeepAwake)}, {"impairment", len(s.Impairment)}} {
		if o.values > 1 {
			v.Bad(fmt.Sprintf("%s has %d values", o.name, o.values), "instances run in one way: want one value", "servers", o.name)
		}
	}
	if period := s.CFSPeriod[0]; period < time.Millisecond || period > time.Second {
		v.Bad(fmt.Sprintf("a CFS period of %s", period), "the kernel takes 1ms to 1s", "servers", "cfs_period")
	}
	const measured = "it serves measurements alone: leave it out"
	if s.Pinning[0] {
		v.Bad("pinning", measured, "servers", "pinning")
	}
	if s.KeepAwake[0] {
		v.Bad("keep_awake", measured, "servers", "keep_awake")
	}
	if len(s.GeneratorCPUs) > 0 {
		v.Bad("generator_cpus", measured, "servers", "generator_cpus")
	}
}

func (v *validator) services(c *Config) {
	for i, s := range c.Services {
		at := func(path ...any) []any { return append([]any{"services", i}, path...) }
		v.command(s.Command, s.Environment, []string{"VITRINE_DIR", "VITRINE_SPEC"}, at)
		if s.Ready == "" {
			continue
		}
		if _, err := netip.ParseAddrPort(s.Ready); err != nil {
			v.Bad(document.Word(s.Ready), "want an IP address and a port, such as 127.0.0.1:8090", "services", i, "ready")
		}
	}
}

// command reports unknown variables in a command and in its environment.
func (v *validator) command(command []string, environment map[string]string, known []string, at func(...any) []any) {
	for k, argument := range command {
		v.references(argument, known, at("command", k)...)
	}
	for _, name := range slices.Sorted(maps.Keys(environment)) {
		v.references(environment[name], known, at("environment", name)...)
	}
}

// access checks that TLS certificates and keys come in pairs, and that an address beyond
// loopback has TLS and authentication.
func (v *validator) access(c *Config) {
	pair := func(certificate, key string, path ...any) {
		if (certificate == "") != (key == "") {
			v.Bad("only one of certificate and key", "give both", path...)
		}
	}
	for i, d := range c.Directors {
		pair(d.Certificate, d.Key, "directors", i)
	}
	if c.Store != nil {
		pair(c.Store.Certificate, c.Store.Key, "store")
	}
	pair(c.Control.Certificate, c.Control.Key, "control")
	if c.Control.Listen == "" {
		return
	}
	at, err := netip.ParseAddrPort(c.Control.Listen)
	switch {
	case err != nil:
		v.Bad(document.Word(c.Control.Listen), "want an IP address and a port, such as 127.0.0.1:8092", "control", "listen")
	case !at.Addr().IsLoopback() && (c.Control.Certificate == "" || c.Control.TokenFile == "" && c.Control.Clients == ""):
		v.Bad(c.Control.Listen+" is beyond loopback", "it needs certificate and key, and token_file or clients", "control", "listen")
	case c.Control.Clients != "" && c.Control.Certificate == "":
		v.Bad("clients without certificate", "client certificates need TLS: give certificate and key", "control", "clients")
	}
}

// limits checks that the minimum of all types together is within the limits.
func (v *validator) limits(c *Config) {
	var needs vitrine.Resources
	instances := 0
	for i := range c.Types {
		t := &c.Types[i]
		least := c.Resources(t, c.Smallest(t))
		instances += t.Min
		needs.VCPUs += float64(t.Min) * least.VCPUs
		needs.Memory += int64(t.Min) * least.Memory
	}
	if c.Limits.Instances > 0 && instances > c.Limits.Instances {
		v.Bad(fmt.Sprintf("at most %d instances, but the min of all types together is %d", c.Limits.Instances, instances), "raise the limit, or lower min", "limits", "instances")
	}
	if !needs.Within(vitrine.Resources{VCPUs: c.Limits.VCPUs, Memory: int64(c.Limits.Memory)}) {
		v.Bad(fmt.Sprintf("the min of all types together needs %.4g vCPUs and %.4g MiB", needs.VCPUs, float64(needs.Memory)/(1<<20)), "raise the limits, or lower min", "limits")
	}
}
