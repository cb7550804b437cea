// Package papers holds the tables and figures of the papers that this product
// implements, each as the specs that measure it again and the orderings that
// the paper states. What is compared is order, not figures: the paper's blades
// are not this host.
package papers

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"

	"vitrine"
	"vitrine/result"
)

//go:embed */*.yaml
var files embed.FS

// The specs that a paper's exhibits share.
const (
	deploymentFile = "deployment.yaml"
	workloadFile   = "workload.yaml"
)

// An Exhibit is one table or figure of a paper.
type Exhibit struct {
	Name       string         `yaml:"-"`          // "nfv-vital/table-2"
	Title      string         `yaml:"title"`      // what it shows
	Deployment map[string]any `yaml:"deployment"` // laid over the paper's deployment.yaml, field by field; null takes a field away
	Workload   map[string]any `yaml:"workload"`   // likewise
	Stated     []Ordering     `yaml:"stated"`     // what the paper says of it

	// Of exhibits of packets, in place of all that:
	Network   *Network   `yaml:"network"`
	Chain     *Chain     `yaml:"chain"`
	As        string     `yaml:"as"` // the exhibit of the same paper whose measurement it shows, in place of either
	Table     Table      `yaml:"table"`
	Orderings []Relation `yaml:"orderings"`

	frames []int // that were measured
}

// An Ordering is one statement of the paper: the capacity of one size against
// another's.
type Ordering struct {
	Claim     string  `yaml:"claim" json:"claim"`                   // in words, with the section
	Less      Point   `yaml:"less" json:"less"`                     // the size that carries less
	More      Point   `yaml:"more" json:"more"`                     // the size that carries more
	Factor    float64 `yaml:"factor" json:"factor_in_paper"`        // more / less as the paper measured it; 0: not said
	Threshold float64 `yaml:"threshold" json:"threshold,omitempty"` // of the success ratio; 0: the first
}

// A Point names one measured size.
type Point struct {
	Sizing  string `yaml:"sizing" json:"sizing"`
	Options string `yaml:"options" json:"options,omitempty"`
}

// A Verdict is what this host says about a statement.
type Verdict struct {
	Ordering
	Result string   `json:"result"` // Holds, Tied, Contrary, Unmeasured
	Ratio  *float64 `json:"factor"` // more / less as measured; nil when not
	Detail string   `json:"detail"` // both capacities with their intervals
}

// Results of a Verdict.
const (
	Holds      = "holds"        // the intervals are disjoint, as stated
	Tied       = "tied"         // the intervals overlap: neither way
	Contrary   = "contrary"     // the intervals are disjoint, the other way
	Unmeasured = "not measured" //
)

// List gives all exhibits by name.
func List() ([]Exhibit, error) {
	found, err := fs.Glob(files, "*/*.yaml")
	if err != nil {
		return nil, err
	}
	var all []Exhibit
	for _, f := range found {
		if base := path.Base(f); base == deploymentFile || base == workloadFile {
			continue
		}
		e, err := Find(strings.TrimSuffix(f, ".yaml"))
		if err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	return all, nil
}

// Prefix may stand before the names of exhibits.
const Prefix = "papers/"

// Find gives the exhibit of that name.
func Find(name string) (Exhibit, error) {
	name = strings.TrimPrefix(name, Prefix)
	e := Exhibit{Name: name}
	text, err := files.ReadFile(name + ".yaml")
	if err != nil {
		return e, &vitrine.BadInput{File: name, Found: "no such table or figure", Want: "see vitrine reproduce --list"}
	}
	if err := decode(text, &e); err != nil {
		return e, fmt.Errorf("%s: %w", name, err)
	}
	return e, e.follow()
}

// follow takes the measurement from the exhibit that it is as.
func (e *Exhibit) follow() error {
	if e.As != "" {
		base, err := Find(e.Base())
		if err != nil {
			return fmt.Errorf("%s: %w", e.Name, err)
		}
		e.Network, e.Chain = base.Network, base.Chain
	}
	if e.Network != nil {
		e.frames = e.Network.Frames
	}
	return nil
}

// Unpack writes the exhibit's specs into a folder and gives their paths.
func (e Exhibit) Unpack(dir string) (deployment, workload string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", "", err
	}
	deployment, workload = filepath.Join(dir, deploymentFile), filepath.Join(dir, workloadFile)
	if err := e.overlay(deploymentFile, e.Deployment, deployment); err != nil {
		return "", "", err
	}
	return deployment, workload, e.overlay(workloadFile, e.Workload, workload)
}

// overlay writes the paper's spec with the exhibit's fields in place of its own.
func (e Exhibit) overlay(base string, fields map[string]any, to string) error {
	text, err := files.ReadFile(path.Join(path.Dir(e.Name), base))
	if err != nil {
		return err
	}
	spec := map[string]any{}
	if err := decode(text, &spec); err != nil {
		return fmt.Errorf("%s: %w", base, err)
	}
	maps.Copy(spec, fields)
	maps.DeleteFunc(spec, func(_ string, value any) bool { return value == nil })
	if text, err = yaml.Marshal(spec); err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o644)
}

func decode(text []byte, into any) error {
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	return d.Decode(into)
}

// Judge holds the measured capacities against what the paper states.
func (e Exhibit) Judge(s result.Summary) []Verdict {
	verdicts := make([]Verdict, 0, len(e.Stated))
	for _, o := range e.Stated {
		verdicts = append(verdicts, o.judge(s))
	}
	return verdicts
}

func (o Ordering) judge(s result.Summary) Verdict {
	v := Verdict{Ordering: o, Result: Unmeasured}
	less, lessOK := o.Less.find(s, o.Threshold)
	more, moreOK := o.More.find(s, o.Threshold)
	if !lessOK || !moreOK {
		return v
	}
	v.Detail = fmt.Sprintf("%s: %s, %s: %s", o.Less, interval(less), o.More, interval(more))
	if less.Unmeasured() || more.Unmeasured() {
		return v
	}
	if less.Rate > 0 && less.Censored == vitrine.CensoredNone && more.Censored == vitrine.CensoredNone {
		v.Ratio = new(more.Rate / less.Rate)
	}
	lessLow, lessHigh := less.Bounds()
	moreLow, moreHigh := more.Bounds()
	switch {
	case lessHigh < moreLow:
		v.Result = Holds
	case moreHigh < lessLow:
		v.Result = Contrary
	default:
		v.Result = Tied
	}
	return v
}

func interval(c vitrine.Capacity) string {
	text := fmt.Sprintf("%.4g [%.4g, %.4g]", c.Rate, c.Low, c.High)
	if c.Censored != vitrine.CensoredNone {
		text += " (" + c.Censored + ")"
	}
	return text
}

func (p Point) String() string {
	if p.Options == "" {
		return p.Sizing
	}
	return p.Sizing + " " + p.Options
}

// find gives the capacity at the threshold; the first one when it is 0. Of a size
// that was measured again, it is the one that counts.
func (p Point) find(s result.Summary, threshold float64) (vitrine.Capacity, bool) {
	if z := s.Find(result.Step{Sizing: p.Sizing, Options: p.Options}); z != nil {
		for _, c := range z.Capacities {
			if threshold == 0 || c.Threshold == threshold {
				return c, true
			}
		}
	}
	return vitrine.Capacity{}, false
}
