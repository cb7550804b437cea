package impair

import (
	"fmt"
	"hash/fnv"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/internal/runs"
)

// Config is the part servers.impair of a deployment: what the links between two
// kinds of instances do to packets, whatever the fabric.
type Config struct {
	Between []string `yaml:"between" json:"between,omitempty" jsonschema:"minItems=2,maxItems=2"` // The two ends of the link: each a component, an instance (sprout-1), generator, or * for all; [generator, "*"] unless said. The emulator sits at each instance of the first.
	Link    `yaml:",inline"`
	Back    *Link  `yaml:"back" json:"back,omitempty"`                      // From the second end to the first; as the other way unless said. {} impairs one way only.
	CPU     *int   `yaml:"cpu" json:"cpu,omitempty" jsonschema:"minimum=0"` // The emulator's own CPU; the scheduler's choice unless said.
	Seed    uint64 `yaml:"seed" json:"seed,omitempty"`                      // Of loss, jitter and reordering; the same seed loses the same packets.

	Run     *runs.Run    `yaml:"-" json:"-"` // whose instances it wires
	Command []string     `yaml:"-" json:"-"` // the program that runs the verb Verb, and the verb
	Folder  string       `yaml:"-" json:"-"` // relative paths of tables are below it: the deployment's
	Logger  *slog.Logger `yaml:"-" json:"-"` // may be nil
}

// Everybody is the end of a link that is whatever instance.
const Everybody = "*"

// where names the options in errors.
const where = "servers.impair"

// resolve checks the options, fills in what is not said, and reads tables.
func (c *Config) resolve() error {
	if len(c.Between) == 0 {
		c.Between = []string{vitrine.Generator, Everybody}
	}
	if len(c.Between) != 2 || slices.Contains(c.Between, "") {
		return &vitrine.BadInput{File: where, Found: fmt.Sprintf("between: %q", c.Between), Want: "want two ends, each a component, an instance, generator or *"}
	}
	if c.Back == nil {
		c.Back = new(c.Link)
	}
	links := map[string]*Link{where: &c.Link, where + ".back": c.Back}
	for name, l := range links {
		if err := l.check(name); err != nil {
			return err
		}
		if l.Table == "" {
			continue
		}
		path := l.Table
		if !filepath.IsAbs(path) {
			path = filepath.Join(c.Folder, path)
		}
		var err error
		if l.delays, err = readTable(path); err != nil {
			return err
		}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c.checkCPU()
}

// checkCPU sees that this process may run where the emulator is to.
func (c *Config) checkCPU() error {
	if c.CPU == nil {
		return nil
	}
	var allowed unix.CPUSet
	// Of the process, not of a thread that was pinned.
	if err := unix.SchedGetaffinity(os.Getpid(), &allowed); err != nil {
		return fmt.Errorf("reading the CPUs of this process: %w", err)
	}
	var online unix.CPUSet
	if err := unix.SchedGetaffinity(1, &online); err != nil {
		online = allowed
	}
	if *c.CPU < 0 || *c.CPU >= len(online)*64 || !online.IsSet(*c.CPU) && !allowed.IsSet(*c.CPU) {
		return &vitrine.BadInput{File: where, Found: fmt.Sprintf("cpu: %d", *c.CPU), Want: "name a CPU that this host has"}
	}
	return nil
}

func (c *Config) cpu() int {
	if c.CPU == nil {
		return -1
	}
	return *c.CPU
}

// is says whether an instance is of an end: "sprout-1" is sprout-1, sprout and *.
func is(instance, end string) bool {
	if end == Everybody || end == instance {
		return true
	}
	dash := strings.LastIndexByte(instance, '-')
	return dash > 0 && instance[:dash] == end
}

// seed is of one instance's link, so that links do not lose the same packets.
func (c *Config) seed(instance string) uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %s", c.Seed, instance)
	return h.Sum64()
}
