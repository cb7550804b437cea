package impair

import (
	"fmt"
	"hash/fnv"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/document"
	"vitrine/fabric"
	"vitrine/internal/runstate"
)

// Config is the part servers.impair of a deployment: what links do to packets,
// on any fabric. The inline Link is for every instance's link.
type Config struct {
	Link     `yaml:",inline"`
	Links    map[string]Link    `yaml:"links" json:"links,omitempty"`                                                                            // By generator, component or instance (sprout-1): its link instead of the inline one; {} impairs nothing.
	Variants map[string]Variant `yaml:"variants" json:"variants,omitempty"`                                                                      // Other links by a name that servers.impairment gives.
	By       string             `yaml:"by" json:"by,omitempty" jsonschema:"enum=auto,enum=netem,enum=emulator" jsonschema_extras:"default=auto"` // What impairs links: the kernel's netem, or a process of this program. auto: netem if the kernel has it and the link has no jitter, rate or peers.
	CPU      *int               `yaml:"cpu" json:"cpu,omitempty" jsonschema:"minimum=0"`                                                         // The emulator's own CPU; by default it runs on the generator's CPUs.
	Seed     uint64             `yaml:"seed" json:"seed,omitempty"`                                                                              // For the emulator's loss, jitter and reordering; the same seed loses the same packets.

	Run     *runstate.Run `yaml:"-" json:"-"` // the run whose instances are wired
	Command []string      `yaml:"-" json:"-"` // the program that runs the verb Verb, and the verb
	Logger  *slog.Logger  `yaml:"-" json:"-"` // may be nil
}

// A Variant has links to measure instead of the Config's.
type Variant struct {
	Link  `yaml:",inline"`
	Links map[string]Link `yaml:"links" json:"links,omitempty"` // As in Config.
}

// variant returns the links to use if servers.impairment names no variant.
func (c Config) variant() Variant { return Variant{c.Link, c.Links} }

// Of returns the config with the links of a variant. An empty name returns the
// config itself.
func (c Config) Of(variant string) Config {
	if variant != "" {
		c.Link, c.Links = c.Variants[variant].Link, c.Variants[variant].Links
	}
	return c
}

// Values of Config.By.
const (
	Auto     = "auto"
	Netem    = "netem"
	Emulator = "emulator"
)

// Read reads the part servers.impair of a deployment that has these components,
// and an instance generator. If an option is invalid, the error is a
// *vitrine.BadInput with its place in the file.
func Read(part document.Node, components []string) (Config, error) {
	var c Config
	if err := part.Decode(&c); err != nil {
		return c, err
	}
	if err := c.check(part); err != nil {
		return c, err
	}
	if err := c.checkCPU(part); err != nil {
		return c, err
	}
	if err := c.variant().checkNames(part, components); err != nil {
		return c, err
	}
	for _, name := range slices.Sorted(maps.Keys(c.Variants)) {
		if err := c.Variants[name].checkNames(part, components, "variants", name); err != nil {
			return c, err
		}
	}
	return c, nil
}

// checkNames checks that the links are links of the components. path leads to the
// variant in part.
func (v Variant) checkNames(part document.Node, components []string, path ...string) error {
	known := components
	if !slices.Contains(known, vitrine.Generator) { // its instance has no number
		known = append([]string{vitrine.Generator}, known...)
	}
	check := func(name string, path ...string) error {
		if slices.Contains(known, name) || slices.Contains(components, vitrine.ComponentOf(name)) {
			return nil
		}
		return part.BadInput("no component or instance "+name, "want one of "+strings.Join(known, ", "), path...)
	}
	for _, peer := range v.Peers {
		if err := check(peer, slices.Concat(path, []string{"peers"})...); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(v.Links)) {
		at := slices.Concat(path, []string{"links", name})
		if err := check(name, at...); err != nil {
			return err
		}
		for _, peer := range v.Links[name].Peers {
			if err := check(peer, append(at, "peers")...); err != nil {
				return err
			}
		}
	}
	return nil
}

// check checks the options and fills in the defaults. part is their source, for
// errors.
func (c *Config) check(part document.Node) error {
	at := func(path ...string) func(field, found, want string) error {
		return func(field, found, want string) error {
			err := part.BadInput(field+": "+found, want, slices.Concat(path, []string{field})...)
			if part.IsZero() {
				err.File = "impair"
			}
			return err
		}
	}
	own := c.variant()
	if err := own.check(c.By, at); err != nil {
		return err
	}
	c.Link, c.Links = own.Link, own.Links
	for _, name := range slices.Sorted(maps.Keys(c.Variants)) {
		v := c.Variants[name]
		if err := v.check(c.By, at, "variants", name); err != nil {
			return err
		}
		c.Variants[name] = v
	}
	switch {
	case c.By == "":
		c.By = Auto
	case c.By != Auto && c.By != Netem && c.By != Emulator:
		return at()("by", fmt.Sprintf("%q", c.By), "want auto, netem or emulator")
	}
	return nil
}

// check checks the links and fills in their defaults. at returns a function for
// errors below a path; path leads to the variant.
func (v *Variant) check(by string, at func(path ...string) func(field, found, want string) error, path ...string) error {
	const want = "want auto or emulator: netem reorders packets by jitter, counts its queue in packets, and does not tell peers apart"
	check := func(l *Link, bad func(field, found, want string) error) error {
		if err := l.check(bad); err != nil {
			return err
		}
		if by == Netem && !l.suitsNetem() {
			return bad("by", "netem with jitter, rate or peers", want)
		}
		return nil
	}
	if err := check(&v.Link, at(path...)); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(v.Links)) {
		link := v.Links[name]
		if err := check(&link, at(slices.Concat(path, []string{"links", name})...)); err != nil {
			return err
		}
		v.Links[name] = link
	}
	return nil
}

// checkCPU checks that this process may run on the emulator's CPU. Only Read can tell: later the
// process moves to the generator's CPUs. The emulator moves itself, and reports a CPU that it may
// not have.
func (c *Config) checkCPU(part document.Node) error {
	if c.CPU == nil {
		return nil
	}
	var allowed unix.CPUSet
	// The CPUs of the process: this thread may be pinned.
	if err := unix.SchedGetaffinity(os.Getpid(), &allowed); err != nil {
		return fmt.Errorf("reading the CPUs of this process: %w", err)
	}
	if *c.CPU < 0 || *c.CPU >= len(allowed)*64 || !allowed.IsSet(*c.CPU) {
		return part.BadInput(fmt.Sprintf("cpu: %d", *c.CPU), "want a CPU that this process may run on", "cpu")
	}
	return nil
}

// names returns the names by which options name an instance, the exact one first.
func names(p fabric.Port) []string {
	if p.Component == "" {
		p.Component = vitrine.ComponentOf(p.Instance)
	}
	return []string{p.Instance, p.Component}
}

// linkOf returns the link of an instance.
func (c *Config) linkOf(p fabric.Port) Link {
	for _, name := range names(p) {
		if link, is := c.Links[name]; is {
			return link
		}
	}
	return c.Link
}

// seed returns the seed for an instance's link. It differs between links, so
// that they do not lose the same packets.
func (c *Config) seed(instance string) uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %s", c.Seed, instance)
	return h.Sum64()
}
