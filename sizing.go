package vitrine

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// A Part is the instances of one component in a Sizing.
type Part struct {
	Short   string // the component's short name
	Count   int    // instances, at least 1
	Initial byte   // the flavor's initial
}

// A Sizing says the number and the flavor of instances of each scalable component,
// in the order of the deployment's components. It is written as in
// NFV-VITAL's Table II: bn1s-sp2m-hs1l.
type Sizing []Part

// String writes the sizing as Table II does.
func (s Sizing) String() string {
	var b strings.Builder
	for i, p := range s {
		if i > 0 {
			b.WriteByte('-')
		}
		fmt.Fprintf(&b, "%s%d%c", p.Short, p.Count, p.Initial)
	}
	return b.String()
}

// Part returns the component's part, or nil when the sizing has none.
func (s Sizing) Part(short string) *Part {
	for i := range s {
		if s[i].Short == short {
			return &s[i]
		}
	}
	return nil
}

// Instances counts all instances of the sizing.
func (s Sizing) Instances() int {
	n := 0
	for _, p := range s {
		n += p.Count
	}
	return n
}

// Clone returns a copy of the sizing.
func (s Sizing) Clone() Sizing { return append(Sizing(nil), s...) }

// ErrSizing is wrapped by every error of ParseSizing.
var ErrSizing = errors.New("not a sizing")

var partPattern = regexp.MustCompile(`^([a-z]+)([0-9]+)([a-z])$`)

// ParseSizing parses a sizing in the form of Table II. It checks only the form:
// spec.Deployment.CheckSizing checks that components and flavors exist.
func ParseSizing(text string) (Sizing, error) {
	var s Sizing
	for field := range strings.SplitSeq(text, "-") {
		m := partPattern.FindStringSubmatch(field)
		if m == nil {
			return nil, fmt.Errorf("%w: %q in %q: want short name, count, flavor initial, such as sp2m", ErrSizing, field, text)
		}
		n, err := strconv.Atoi(m[2])
		if err != nil || n < 1 || n > 10_000 {
			return nil, fmt.Errorf("%w: %q in %q: the count must be 1 to 10000", ErrSizing, field, text)
		}
		if s.Part(m[1]) != nil {
			return nil, fmt.Errorf("%w: %q names %s twice", ErrSizing, text, m[1])
		}
		s = append(s, Part{Short: m[1], Count: n, Initial: m[3][0]})
	}
	return s, nil
}

// Resources is an amount of CPU and memory.
type Resources struct {
	VCPUs  float64
	Memory int64 // bytes; 0 in a limit: unlimited
}

// Within reports whether r fits the limit; a zero field of the limit means no
// limit. A billionth of a CPU is tolerated, because 0.1+0.2 is not 0.3.
func (r Resources) Within(limit Resources) bool {
	return (limit.VCPUs == 0 || r.VCPUs <= limit.VCPUs+1e-9) &&
		(limit.Memory == 0 || r.Memory <= limit.Memory)
}
