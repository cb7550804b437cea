package affinity

import (
	"cmp"
	"fmt"
	"net/netip"
	"os"

	"vitrine"
	"vitrine/affinity/aggregate"
	"vitrine/affinity/flow"
	"vitrine/document"
)

// Names is a file that says what functions are called, where they may run and what
// they need.
type Names struct {
	Functions []Named `yaml:"functions"` // Functions that need more than the name that a flow gives them.
	Host      *Host   `yaml:"host"`      // The host that an aggregate must fit into; left out: any number of functions fits.

	file   document.File
	called map[string]string // the name of a function, by each of its names
}

// Named is what is to be known of one function.
type Named struct {
	Name    string        `yaml:"name" jsonschema:"required,minLength=1,example=MME"`                        // What the function is called in results.
	Also    []string      `yaml:"also"`                                                                      // Other names that flows have for it. Functions with one name are one function: messages between them are left out.
	Role    string        `yaml:"role" jsonschema:"enum=function,enum=front-end,enum=database,enum=outside"` // Where it may run: function and front-end may join an aggregate; database is shared and outside is not the operator's. Left out: as the flows say.
	VCPUs   float64       `yaml:"vcpus" jsonschema:"exclusiveMinimum=0,maximum=10000"`                       // CPUs that it needs.
	Memory  document.Size `yaml:"memory"`                                                                    // Memory that it needs.
	Profile string        `yaml:"profile" jsonschema:"example=runs/mme/profile.json"`                        // A capacity profile of this function, in place of vcpus and memory: it needs the smallest size that carries the rate.
	Rate    float64       `yaml:"rate" jsonschema:"exclusiveMinimum=0"`                                      // With profile: the rate to carry, in the profile's unit.
}

// Host is a host's resources.
type Host struct {
	VCPUs  float64       `yaml:"vcpus" jsonschema:"exclusiveMinimum=0,maximum=10000"` // CPUs; left out: no limit.
	Memory document.Size `yaml:"memory"`                                              // Memory; left out: no limit.
}

// LoadNames reads and checks a file of names.
func LoadNames(path string) (*Names, error) {
	file, err := document.ReadLong(path, "a names")
	if err != nil {
		return nil, err
	}
	return parseNames(file)
}

func parseNames(file document.File) (*Names, error) {
	n := &Names{file: file, called: map[string]string{}}
	schema, err := document.Compile(document.FileSchema(Names{}, "", nil))
	if err != nil {
		return nil, err
	}
	if err := schema.Decode(file.Root(), n); err != nil {
		return nil, err
	}
	errs := document.Errors{Node: file.Root()}
	for i, f := range n.Functions {
		for _, name := range append([]string{f.Name}, f.Also...) {
			read := canonical(name)
			if other, taken := n.called[read]; taken {
				errs.Bad(fmt.Sprintf("%s is a name of %s already", document.Word(name), other), "give each name once", "functions", i)
			}
			n.called[read], n.called[name] = f.Name, f.Name
		}
		switch {
		case f.Profile != "" && f.Rate == 0:
			errs.Bad("a profile without rate", "add the rate to carry, in the profile's unit", "functions", i)
		case f.Profile == "" && f.Rate != 0:
			errs.Bad("a rate without profile", "add the capacity profile that says what the rate needs", "functions", i, "rate")
		case f.Profile != "" && (f.VCPUs != 0 || f.Memory != 0):
			errs.Bad("a profile, and vcpus or memory", "give one of them", "functions", i, "profile")
		}
	}
	return n, errs.Join()
}

// canonical returns a name as captures have it: an address, or address:port, in its shortest spelling.
func canonical(name string) string {
	if a, err := netip.ParseAddr(name); err == nil {
		return a.Unmap().String()
	}
	if a, err := netip.ParseAddrPort(name); err == nil {
		return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()).String()
	}
	return name
}

// Apply renames the functions of the flows and gives them their roles.
func (n *Names) Apply(flows []*flow.Transaction) error {
	roles := map[string]flow.Role{}
	for _, f := range n.Functions {
		if f.Role != "" {
			roles[f.Name] = flow.Role(f.Role)
		}
	}
	for _, t := range flows {
		t.Rename(func(name string) string { return cmp.Or(n.Called(name), name) })
		if len(t.Messages) == 0 {
			return &vitrine.BadInput{File: n.file.Path, Found: "it gives all functions of " + t.Source + " one name", Want: "name at least two functions differently"}
		}
		for name, role := range roles {
			t.Roles[name] = role
		}
	}
	return nil
}

// unmatched returns the functions of the file that neither the flows nor the captures have.
func (n *Names) unmatched(flows []*flow.Transaction, c *Captured) []string {
	seen := map[string]bool{}
	for _, t := range flows {
		for _, name := range t.Functions() {
			seen[name] = true
		}
	}
	if c != nil {
		for i := range c.Read.Functions {
			seen[c.Read.Functions[i].Name] = true
		}
	}
	var list []string
	for _, f := range n.Functions {
		if !seen[f.Name] {
			list = append(list, f.Name)
		}
	}
	return list
}

// Called returns the name of a function that flows or captures know by another name, such
// as its address. It returns "" if the file has no name for it.
func (n *Names) Called(text string) string { return n.called[text] }

// Limits returns what the functions need and what the host has.
func (n *Names) Limits() (aggregate.Limits, error) {
	limits := aggregate.Limits{Needs: map[string]aggregate.Resources{}}
	if n.Host != nil {
		limits.Host = aggregate.Resources{VCPUs: n.Host.VCPUs, Memory: int64(n.Host.Memory)}
	}
	for i, f := range n.Functions {
		need := aggregate.Resources{VCPUs: f.VCPUs, Memory: int64(f.Memory)}
		if f.Profile != "" {
			var err error
			if need, err = n.profiled(i); err != nil {
				return limits, err
			}
		}
		if need.VCPUs == 0 && need.Memory == 0 {
			continue
		}
		limited := [2]bool{limits.Host.VCPUs > 0 && need.VCPUs == 0, limits.Host.Memory > 0 && need.Memory == 0}
		for at, field := range []string{"vcpus", "memory"} {
			if limited[at] {
				return limits, n.file.BadInput(fmt.Sprintf("%s has no %s, and the host has", f.Name, field), "add it, or leave it out of host", "functions", fmt.Sprint(i))
			}
		}
		limits.Needs[f.Name] = need
	}
	return limits, nil
}

// profiled returns the smallest size of a function's capacity profile that carries
// the rate.
func (n *Names) profiled(i int) (aggregate.Resources, error) {
	f := n.Functions[i]
	bad := func(found, want string) (aggregate.Resources, error) {
		return aggregate.Resources{}, n.file.BadInput(found, want, "functions", fmt.Sprint(i), "profile")
	}
	const which = "name a capacity profile (profile.json in a run folder)"
	text, err := os.ReadFile(n.file.Resolve(f.Profile))
	if err != nil {
		return bad(err.Error(), which)
	}
	p, err := vitrine.ParseProfile(text)
	if err != nil {
		return bad(err.Error(), which)
	}
	chosen, _ := p.Carrying(f.Rate)
	if chosen == nil {
		return bad(fmt.Sprintf("no size in it carries %g %s for sure", f.Rate, p.Unit), "give a lower rate, or the profile of larger sizes")
	}
	return aggregate.Resources{VCPUs: chosen.Size.VCPUs, Memory: chosen.Size.Memory}, nil
}
