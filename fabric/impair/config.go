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
	"vitrine/internal/runstate"
)

// Config is the part servers.impair of a deployment: what links do to packets,
// on any fabric. The inline Link is for every instance's link.
type Config struct {
	Link  `yaml:",inline"`
	Links map[string]Link `yaml:"links" json:"links,omitempty"`                                                                            // By generator, component or instance (sprout-1): its link instead of the inline one; {} impairs nothing.
	By    string          `yaml:"by" json:"by,omitempty" jsonschema:"enum=auto,enum=netem,enum=emulator" jsonschema_extras:"default=auto"` // What impairs links: the kernel's netem, or a process of this program. auto: netem if the kernel has it and the link has no jitter, rate or peers.
	CPU   *int            `yaml:"cpu" json:"cpu,omitempty" jsonschema:"minimum=0"`                                                         // The emulator's own CPU; the default is the scheduler's choice.
	Seed  uint64          `yaml:"seed" json:"seed,omitempty"`                                                                              // For the emulator's loss, jitter and reordering; the same seed loses the same packets.

	Run     *runstate.Run `yaml:"-" json:"-"` // the run whose instances are wired
	Command []string      `yaml:"-" json:"-"` // the program that runs the verb Verb, and the verb
	Logger  *slog.Logger  `yaml:"-" json:"-"` // may be nil
}

// Values of Config.By.
const (
	Auto     = "auto"
	Netem    = "netem"
	Emulator = "emulator"
)

// Read reads the part servers.impair of a deployment that has these components.
// If an option is invalid, the error is a *vitrine.BadInput with its place in
// the file.
func Read(part document.Node, components []string) (Config, error) {
	var c Config
	if err := part.Decode(&c); err != nil {
		return c, err
	}
	if err := c.check(part); err != nil {
		return c, err
	}
	known := func(name string) bool {
		return slices.ContainsFunc(append(components, vitrine.Generator), func(c string) bool { return c == name || c == component(name) })
	}
	bad := func(name string, path ...string) error {
		return part.BadInput("no component or instance "+name, "want generator, or one of "+strings.Join(components, ", "), path...)
	}
	for _, peer := range c.Peers {
		if !known(peer) {
			return c, bad(peer, "peers")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Links)) {
		if !known(name) {
			return c, bad(name, "links", name)
		}
		for _, peer := range c.Links[name].Peers {
			if !known(peer) {
				return c, bad(peer, "links", name, "peers")
			}
		}
	}
	return c, nil
}

// check checks the options and fills in the defaults. part is their source, for
// errors.
func (c *Config) check(part document.Node) error {
	at := func(path ...string) func(field, found, want string) error {
		return func(field, found, want string) error {
			err := part.BadInput(field+": "+found, want, append(path, field)...)
			if part.IsZero() {
				err.File = "impair"
			}
			return err
		}
	}
	if err := c.Link.check(at()); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(c.Links)) {
		link := c.Links[name]
		if err := link.check(at("links", name)); err != nil {
			return err
		}
		c.Links[name] = link
		if c.By == Netem && !link.suitsNetem() {
			return at("links", name)("by", "netem with jitter, rate or peers", netemWant)
		}
	}
	switch {
	case c.By == "":
		c.By = Auto
	case c.By == Netem && !c.suitsNetem():
		return at()("by", "netem with jitter, rate or peers", netemWant)
	case c.By != Auto && c.By != Netem && c.By != Emulator:
		return at()("by", fmt.Sprintf("%q", c.By), "want auto, netem or emulator")
	}
	return c.checkCPU(at())
}

const netemWant = "want auto or emulator: netem reorders packets by jitter, counts its queue in packets, and does not tell peers apart"

// checkCPU checks that this process may run on the emulator's CPU.
func (c *Config) checkCPU(bad func(field, found, want string) error) error {
	if c.CPU == nil {
		return nil
	}
	var allowed unix.CPUSet
	// The CPUs of the process: this thread may be pinned.
	if err := unix.SchedGetaffinity(os.Getpid(), &allowed); err != nil {
		return fmt.Errorf("reading the CPUs of this process: %w", err)
	}
	if *c.CPU < 0 || *c.CPU >= len(allowed)*64 || !allowed.IsSet(*c.CPU) {
		return bad("cpu", fmt.Sprint(*c.CPU), "want a CPU that this process may run on")
	}
	return nil
}

// component returns the component of an instance: sprout of sprout-1.
func component(instance string) string {
	dash := strings.LastIndexByte(instance, '-')
	return instance[:max(dash, 0)]
}

// linkOf returns the link of an instance.
func (c *Config) linkOf(instance string) Link {
	for _, name := range []string{instance, component(instance)} {
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
