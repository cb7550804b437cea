// Package papers holds the tables and figures of the papers that this product
// implements: the plan that measures each one again, the paper's statements, and
// how they are judged. docs/reproducing.md has the rules.
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
	"time"

	"go.yaml.in/yaml/v3"

	"vitrine"
	"vitrine/catalog"
)

//go:embed nfv-vital container-networking contain-ed resource-flexing
var files embed.FS

// Files returns the committed exhibits, histories and records, in the layout of
// this folder.
func Files() fs.FS { return files }

// The specs that a paper's exhibits share.
const (
	deploymentFile = "deployment.yaml"
	workloadFile   = "workload.yaml"
)

// An Exhibit is one table or figure of a paper.
type Exhibit struct {
	Name  string `yaml:"-"`     // "nfv-vital/table-2"
	Title string `yaml:"title"` // what it shows

	// Of capacities:
	Deployment map[string]any `yaml:"deployment"` // laid over the paper's deployment.yaml, field by field; null removes a field
	Workload   map[string]any `yaml:"workload"`   // likewise
	Files      []string       `yaml:"files"`      // scripts that the deployment names: of the paper's folder, or "catalog/FOLDER/NAME"
	Expect     *Expect        `yaml:"expect"`

	// Of packets, instead:
	Network *Network `yaml:"network"`
	Chain   *Chain   `yaml:"chain"`

	As     string  `yaml:"as"` // exhibit of the same paper whose run this one shows, instead of all above
	Table  Table   `yaml:"table"`
	Claims []Claim `yaml:"claims"` // what the paper states
}

// Expect estimates the wall time of a run of capacities.
type Expect struct {
	Sizings  int           `yaml:"sizings"`  // over all choices of the options
	Trials   int           `yaml:"trials"`   // of each sizing
	Overhead time.Duration `yaml:"overhead"` // of a trial, in addition to warm-up, window and settling: deploying, and extended windows
}

// Wall estimates the wall time of the run; trial is warm-up, window and settling.
func (e Expect) Wall(trial time.Duration) time.Duration {
	return time.Duration(e.Sizings*e.Trials) * (trial + e.Overhead)
}

// List returns all exhibits, sorted by name.
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

// Find returns the exhibit with that name.
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
	if e.As == "" {
		return e, nil
	}
	base, err := Find(e.Base())
	if err != nil {
		return e, fmt.Errorf("%s: %w", name, err)
	}
	e.Network, e.Chain, e.Deployment, e.Workload, e.Files, e.Expect = base.Network, base.Chain, base.Deployment, base.Workload, base.Files, base.Expect
	return e, nil
}

// Measured reports whether the exhibit is of packets, not of capacities.
func (e Exhibit) Measured() bool { return e.Network != nil || e.Chain != nil }

// Base returns the name of the exhibit whose run this one shows: this exhibit's
// own, or As.
func (e Exhibit) Base() string {
	if e.As == "" {
		return e.Name
	}
	return path.Join(path.Dir(e.Name), e.As)
}

// Paper returns the name of the exhibit's paper: the folder.
func (e Exhibit) Paper() string { return path.Dir(e.Name) }

// sharing returns the exhibits that show the run of base.
func sharing(base string) ([]Exhibit, error) {
	all, err := List()
	if err != nil {
		return nil, err
	}
	var list []Exhibit
	for _, e := range all {
		if e.Base() == base {
			list = append(list, e)
		}
	}
	return list, nil
}

// Unpack writes the exhibit's specs into a folder and returns their paths.
func (e Exhibit) Unpack(dir string, scale Scale) (deployment, workload string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", "", err
	}
	d, w, err := e.specs(scale)
	if err != nil {
		return "", "", err
	}
	deployment, workload = filepath.Join(dir, deploymentFile), filepath.Join(dir, workloadFile)
	if err := os.WriteFile(deployment, d, 0o644); err != nil {
		return "", "", err
	}
	scripts, err := e.scripts()
	if err != nil {
		return "", "", err
	}
	for name, text := range scripts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil { //nolint:gosec // a script that the run executes
			return "", "", err
		}
	}
	return deployment, workload, os.WriteFile(workload, w, 0o644)
}

// scripts returns the texts of Files by name; nil: there are none.
func (e Exhibit) scripts() (map[string]string, error) {
	if len(e.Files) == 0 {
		return nil, nil
	}
	texts := map[string]string{}
	for _, name := range e.Files {
		text, err := e.script(name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.Name, err)
		}
		texts[path.Base(name)] = string(text)
	}
	return texts, nil
}

func (e Exhibit) script(name string) ([]byte, error) {
	if of, ok := strings.CutPrefix(name, "catalog/"); ok {
		return catalog.Scripts.ReadFile(of)
	}
	return files.ReadFile(path.Join(e.Paper(), name))
}

// specs returns the texts of the deployment and the workload.
func (e Exhibit) specs(scale Scale) (deployment, workload []byte, err error) {
	if deployment, err = e.overlay(deploymentFile, e.Deployment); err != nil {
		return nil, nil, err
	}
	fields := maps.Clone(e.Workload)
	if scale == Quick {
		if fields == nil {
			fields = map[string]any{}
		}
		maps.Copy(fields, map[string]any{"duration": "1s", "warmup": "500ms", "repeat": 1})
	}
	workload, err = e.overlay(workloadFile, fields)
	return deployment, workload, err
}

// overlay returns the paper's spec with the exhibit's fields in place of its own.
func (e Exhibit) overlay(base string, fields map[string]any) ([]byte, error) {
	text, err := files.ReadFile(path.Join(e.Paper(), base))
	if err != nil {
		return nil, err
	}
	spec := map[string]any{}
	if err := decode(text, &spec); err != nil {
		return nil, fmt.Errorf("%s: %w", base, err)
	}
	maps.Copy(spec, fields)
	maps.DeleteFunc(spec, func(_ string, value any) bool { return value == nil })
	return yaml.Marshal(spec)
}

func decode(text []byte, into any) error {
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	return d.Decode(into)
}
