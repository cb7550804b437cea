package spec

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/invopop/jsonschema"
	"go.yaml.in/yaml/v3"
)

// Strings is a mapping whose values may be any scalar in the file.
type Strings map[string]string

// Args is a program and its arguments, any scalars in the file.
type Args []string

// reference is a variable in an argument: ${NAME}.
var reference = regexp.MustCompile(`\$\{([^}]*)\}`)

// Expand replaces each ${NAME} in the text by the variable's value. $NAME stays:
// it is a shell's.
func Expand(text string, variables map[string]string) string {
	return reference.ReplaceAllStringFunc(text, func(match string) string {
		return variables[match[2:len(match)-1]]
	})
}

// Expand is Expand of each argument.
func (a Args) Expand(variables map[string]string) []string {
	out := make([]string, len(a))
	for i, argument := range a {
		out[i] = Expand(argument, variables)
	}
	return out
}

// A Size is an amount of memory in bytes: 268435456 or "256MiB".
type Size int64

// A Switch is on or off.
type Switch bool

// String is "on" or "off", as in the file.
func (s Switch) String() string {
	if s {
		return "on"
	}
	return "off"
}

// UnmarshalYAML reads "on" and "off", which are text in YAML 1.2 and in JSON.
func (s *Switch) UnmarshalYAML(n *yaml.Node) error {
	*s = n.Value == "on"
	return nil
}

// OneOrMany is an option that may be given several values, each of which is a
// dimension of the plan.
type OneOrMany[T any] []T

// UnmarshalYAML reads a value or a list of them.
func (o *OneOrMany[T]) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.SequenceNode {
		*o = nil
		return n.Decode((*[]T)(o))
	}
	var one T
	if err := n.Decode(&one); err != nil {
		return err
	}
	*o = OneOrMany[T]{one}
	return nil
}

// A Count is how many instances a component may have; 0 does not bind.
type Count struct {
	Min int `yaml:"min" jsonschema:"minimum=1,maximum=10000"` // At least this many.
	Max int `yaml:"max" jsonschema:"minimum=1,maximum=10000"` // At most this many.
}

// UnmarshalYAML reads {min: 1, max: 4}, or 3 for exactly three.
func (c *Count) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		err := n.Decode(&c.Min)
		c.Max = c.Min
		return err
	}
	type plain Count
	return n.Decode((*plain)(c))
}

// CPUs is a set of CPU numbers, ascending; written "0-1,3" as the kernel does.
type CPUs []int

// maxCPU bounds CPU numbers: the kernel's largest NR_CPUS.
const maxCPU = 8191

// ParseCPUs reads a list of CPU numbers and ranges: "0-1,3".
func ParseCPUs(text string) (CPUs, error) {
	var cpus CPUs
	for field := range strings.SplitSeq(text, ",") {
		first, last, ranged := strings.Cut(field, "-")
		low, err := strconv.ParseUint(first, 10, 16)
		if err != nil {
			return nil, fmt.Errorf("%q is no CPU number", field)
		}
		high := low
		if ranged {
			if high, err = strconv.ParseUint(last, 10, 16); err != nil || high < low {
				return nil, fmt.Errorf("%q is no range of CPU numbers", field)
			}
		}
		if high > maxCPU {
			return nil, fmt.Errorf("CPU %d is beyond %d", high, maxCPU)
		}
		for cpu := low; cpu <= high; cpu++ {
			cpus = append(cpus, int(cpu))
		}
	}
	slices.Sort(cpus)
	return slices.Compact(cpus), nil
}

// String writes the set as the kernel does.
func (c CPUs) String() string {
	var b strings.Builder
	for i := 0; i < len(c); i++ {
		last := i
		for last+1 < len(c) && c[last+1] == c[last]+1 {
			last++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(c[i]))
		if last > i {
			b.WriteString("-" + strconv.Itoa(c[last]))
		}
		i = last
	}
	return b.String()
}

// UnmarshalYAML reads what ParseCPUs reads.
func (c *CPUs) UnmarshalYAML(n *yaml.Node) error {
	cpus, err := ParseCPUs(n.Value)
	*c = cpus
	return err
}

var sizePattern = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?) ?([kMGT]i?)?B?$`)

// ParseSize reads an amount of memory: "256MiB" (1024 based), "1.5GB" (1000
// based), "4096" (bytes).
func ParseSize(text string) (Size, error) {
	m := sizePattern.FindStringSubmatch(text)
	if m == nil {
		return 0, errors.New("want a number with B, kB, MB, GB, TB, kiB, MiB, GiB or TiB")
	}
	number, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		return 0, err
	}
	base := 1000.0
	if strings.HasSuffix(m[2], "i") {
		base = 1024
	}
	power := 0
	if m[2] != "" {
		power = strings.Index("kMGT", m[2][:1]) + 1
	}
	bytes := math.Round(number * math.Pow(base, float64(power)))
	if bytes < 1 || bytes > 1<<50 {
		return 0, errors.New("want at least 1 B and at most 1024 TiB")
	}
	return Size(bytes), nil
}

// UnmarshalYAML reads what ParseSize reads, or a whole number of bytes.
func (s *Size) UnmarshalYAML(n *yaml.Node) error {
	if n.ShortTag() != "!!str" {
		return n.Decode((*int64)(s))
	}
	size, err := ParseSize(n.Value)
	*s = size
	return err
}

// A format is a kind of text in the files. The schema names it and carries its
// pattern for editors; the loader checks it with parse.
type format struct {
	name    string
	pattern string
	want    string // what to tell the user
	parse   func(string) error
}

// formats lists all of them. JSON Schema has a "duration" of its own (ISO
// 8601), hence the other name here.
func formats() []format {
	const duration = `^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`
	return []format{
		{"vnf-name", `^[A-Za-z0-9][A-Za-z0-9 ._-]{0,63}$`, "want letters, digits, spaces, dots, dashes and underscores, at most 64", nil},
		{"name", `^[a-z][a-z0-9-]{0,31}$`, "want lower-case letters, digits and dashes, a letter first, at most 32", nil},
		{"short-name", `^[a-z]{1,8}$`, "want one to eight lower-case letters, such as sp", nil},
		{"variable", `^[A-Z_][A-Z0-9_]*$`, "want capital letters, digits and underscores, such as SPROUT", nil},
		{"environment-name", `^[A-Za-z_][A-Za-z0-9_]*$`, "want letters, digits and underscores, no digit first", nil},
		{"unit", `^[^\x00-\x20"',;][^\x00-\x1f"',;]{0,31}$`, "want a unit such as calls/s, without quotes, commas and semicolons", nil},
		{"whole-duration", duration, "want a number with ms, s, m or h, such as 500ms", func(s string) error {
			_, err := parseDuration(s)
			return err
		}},
		{"positive-duration", duration, "want a number above 0 with ms, s, m or h, such as 3s", func(s string) error {
			if d, err := parseDuration(s); err != nil || d <= 0 {
				return errors.Join(err, errors.New("not above 0"))
			}
			return nil
		}},
		{"byte-size", sizePattern.String(), `want bytes such as "256MiB" or "1.5GB", at most 1024 TiB`, func(s string) error {
			_, err := ParseSize(s)
			return err
		}},
		{"cpu-list", `^[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*$`, `want CPU numbers such as "0-1,3"`, func(s string) error {
			_, err := ParseCPUs(s)
			return err
		}},
	}
}

func (f format) regexp() *regexp.Regexp { return regexp.MustCompile(f.pattern) }

// maxDuration bounds every duration in a file; longer ones are typing errors.
const maxDuration = 30 * 24 * time.Hour

func parseDuration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err == nil && (d < 0 || d > maxDuration) {
		err = fmt.Errorf("outside 0 to %s", maxDuration)
	}
	return d, err
}

// A shaped type says itself what its schema is.
type shaped interface{ shape() *jsonschema.Schema }

func scalar() *jsonschema.Schema {
	return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{{Type: "string"}, {Type: "number"}, {Type: "boolean"}}}
}

func (Strings) shape() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "object", AdditionalProperties: scalar()}
}

func (Node) shape() *jsonschema.Schema { return &jsonschema.Schema{Type: "object"} }

func (Range) shape() *jsonschema.Schema {
	two := uint64(2)
	return &jsonschema.Schema{Type: "array", Items: &jsonschema.Schema{Type: "number", ExclusiveMinimum: "0"}, MinItems: &two, MaxItems: &two}
}

func (Args) shape() *jsonschema.Schema {
	one := uint64(1)
	return &jsonschema.Schema{Type: "array", Items: scalar(), MinItems: &one}
}

func (Size) shape() *jsonschema.Schema {
	return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{
		{Type: "string", Format: "byte-size", Examples: []any{"256MiB"}},
		{Type: "integer", Minimum: "1", Maximum: "1125899906842624"},
	}}
}

func (Switch) shape() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Enum: []any{"on", "off"}}
}

func (CPUs) shape() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Format: "cpu-list", Examples: []any{"0-1,3"}}
}

func (OneOrMany[T]) shape() *jsonschema.Schema {
	var one T
	item := reflectPart(one)
	item.Version = ""
	least := uint64(1)
	return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{item, {Type: "array", Items: item, MinItems: &least, UniqueItems: true}}}
}

func (Count) shape() *jsonschema.Schema {
	type plain Count
	bounds := reflectPart(plain{})
	bounds.Version = ""
	least := uint64(1)
	bounds.MinProperties = &least
	return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{{Type: "integer", Minimum: "1", Maximum: "10000"}, bounds}}
}

// String says the bounds in words.
func (c Count) String() string {
	switch {
	case c.Min == c.Max && c.Min > 0:
		return fmt.Sprintf("exactly %d", c.Min)
	case c.Max == 0:
		return fmt.Sprintf("at least %d", max(1, c.Min))
	}
	return fmt.Sprintf("%d to %d", max(1, c.Min), c.Max)
}
