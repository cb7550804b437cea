package document

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/invopop/jsonschema"
	"go.yaml.in/yaml/v3"
)

// Strings is a mapping to text. The values in the file may be any scalars.
type Strings map[string]string

// A Size is an amount of memory in bytes, written as 268435456 or "256MiB".
type Size int64

// A Switch is a boolean written as "on" or "off".
type Switch bool

// String returns "on" or "off", as in the file.
func (s Switch) String() string {
	if s {
		return "on"
	}
	return "off"
}

// UnmarshalYAML reads "on" and "off", which are strings in YAML 1.2 and in
// JSON.
func (s *Switch) UnmarshalYAML(n *yaml.Node) error {
	*s = n.Value == "on"
	return nil
}

// OneOrMany is an option with one value or a list of values.
type OneOrMany[T any] []T

// UnmarshalYAML reads a single value or a list of values.
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

// CPUs is a set of CPU numbers in ascending order, written "0-1,3" as in the
// kernel.
type CPUs []int

// maxCPU is the largest CPU number: the kernel's largest NR_CPUS is 8192.
const maxCPU = 8191

// ParseCPUs reads a list of CPU numbers and ranges: "0-1,3".
func ParseCPUs(text string) (CPUs, error) {
	var cpus CPUs
	for field := range strings.SplitSeq(text, ",") {
		first, last, ranged := strings.Cut(field, "-")
		low, err := strconv.ParseUint(first, 10, 16)
		if err != nil {
			return nil, fmt.Errorf("%q is not a CPU number", field)
		}
		high := low
		if ranged {
			if high, err = strconv.ParseUint(last, 10, 16); err != nil || high < low {
				return nil, fmt.Errorf("%q is not a range of CPU numbers", field)
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

// UnmarshalYAML reads the format of ParseCPUs.
func (c *CPUs) UnmarshalYAML(n *yaml.Node) error {
	cpus, err := ParseCPUs(n.Value)
	*c = cpus
	return err
}

var sizePattern = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?) ?([kMGT]i?)?B?$`)

// ParseSize reads an amount of memory: "256MiB" (powers of 1024), "1.5GB"
// (powers of 1000) or "4096" (bytes).
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

// UnmarshalYAML reads the format of ParseSize, or a whole number of bytes.
func (s *Size) UnmarshalYAML(n *yaml.Node) error {
	if n.ShortTag() != "!!str" {
		return n.Decode((*int64)(s))
	}
	size, err := ParseSize(n.Value)
	*s = size
	return err
}

func scalar() *jsonschema.Schema {
	return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{{Type: "string"}, {Type: "number"}, {Type: "boolean"}}}
}

// JSONSchema returns the schema of a mapping to scalars.
func (Strings) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "object", AdditionalProperties: scalar()}
}

// JSONSchema returns the schema of a Size.
func (Size) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{
		{Type: "string", Format: "byte-size", Examples: []any{"256MiB"}},
		{Type: "integer", Minimum: "1", Maximum: "1125899906842624"},
	}}
}

// JSONSchema returns the schema of a Switch.
func (Switch) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Enum: []any{"on", "off"}}
}

// JSONSchema returns the schema of a list of CPUs.
func (CPUs) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Format: "cpu-list", Examples: []any{"0-1,3"}}
}

// JSONSchema returns the schema of a single value or a list of values.
func (OneOrMany[T]) JSONSchema() *jsonschema.Schema {
	var one T
	item := SchemaOf(one)
	least := uint64(1)
	return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{item, {Type: "array", Items: item, MinItems: &least, UniqueItems: true}}}
}
