package result

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"vitrine"
)

// Schema is the version of the run folder's format. It increases when readers of the older format
// would misread the newer one.
const Schema = 1

// A Manifest is manifest.json: where a run's numbers come from.
type Manifest struct {
	Schema int `json:"schema"` // set by Create

	Tool     string      `json:"tool"` // "vitrine" and its version
	Go       string      `json:"go"`   // version of the toolchain
	Command  []string    `json:"command"`
	Started  time.Time   `json:"started,omitzero"`
	Resumed  []time.Time `json:"resumed,omitempty"`
	Finished time.Time   `json:"finished,omitzero"` // zero: not finished

	VNF        string      `json:"vnf"`
	Unit       string      `json:"unit"`
	Thresholds []float64   `json:"thresholds"`
	Components []Component `json:"components"` // in the deployment's order
	Specs      []Spec      `json:"specs"`
	Seed       uint64      `json:"seed"`

	Host           Host              `json:"host"`
	CPUs           Reservation       `json:"cpus"`
	Substrates     map[string]string `json:"substrates"`                // name -> version of the software that it drives
	Fabrics        []string          `json:"fabrics"`                   //
	FabricVersions map[string]string `json:"fabric_versions,omitempty"` // of fabrics that drive software: name -> what it is; "": not known
	Accelerator    string            `json:"accelerator"`               // of virtual machines: "tcg" if any has it, else "kvm"; "none" without machines
	Accelerators   map[string]string `json:"accelerators,omitempty"`    // by substrate of virtual machines
	CFSPeriods     []string          `json:"cfs_periods"`               // periods of CPU quotas: "20ms"
	Generator      Generator         `json:"generator"`                 //
	NotIsolated    []string          `json:"not_isolated"`              // see NotIsolated
	IdleHost       []string          `json:"idle_host,omitempty"`       // limits for disturbed trials, one entry per start; empty: trials were not checked
	Slowdown       float64           `json:"slowdown,omitempty"`        // --slowdown; 0: trials were not checked
	Unsupported    map[string]string `json:"unsupported,omitempty"`     // omitted part of the request -> why
	Unconfined     map[string]string `json:"unconfined,omitempty"`      // missing protection of the host from its virtual machines -> what the host lacks for it

	// Measurement holds the settings of a run that measures something other than a function's
	// capacity, in the format of the measuring package: for packet streams, measure.Settings.
	Measurement json.RawMessage `json:"measurement,omitempty"`
}

// A Component holds what a report needs of a vitrine.Component.
type Component struct {
	Name     string `json:"name"`
	Short    string `json:"short"`
	Scalable bool   `json:"scalable"`
}

// A Spec is a file that the user wrote, unchanged, or the content that a flag sets in its place.
type Spec struct {
	Role   string `json:"role"` // unique: "deployment", "workload", "install sprout", "program sprout", "generator", "--substrate"
	Path   string `json:"path"` // as the user wrote it
	SHA256 string `json:"sha256"`
	Text   string `json:"text"` // empty: only the digest is kept
}

// NewSpec returns a Spec with a file's bytes and their digest.
func NewSpec(role, path string, text []byte) Spec {
	sum := sha256.Sum256(text)
	return Spec{Role: role, Path: path, SHA256: hex.EncodeToString(sum[:]), Text: string(text)}
}

// SameSpecs returns nil if both manifests have the same files: the same bytes in the same roles, in
// any place. Otherwise the error names the first that differs.
func (m Manifest) SameSpecs(now Manifest) error {
	then := map[string]Spec{}
	for _, s := range m.Specs {
		then[s.Role] = s
	}
	for _, s := range now.Specs {
		was, ok := then[s.Role]
		switch {
		case !ok:
			return fmt.Errorf("the run began without %s, but now has %s", s.Role, s.Path)
		case was.SHA256 != s.SHA256:
			return fmt.Errorf("%s, %s, differs from the one with which the run began (%s, recorded in %s)", s.Role, s.Path, was.Path, manifestFile)
		}
		delete(then, s.Role)
	}
	for _, s := range m.Specs {
		if _, left := then[s.Role]; left {
			return fmt.Errorf("the run began with %s (%s), which is missing now", s.Role, s.Path)
		}
	}
	return nil
}

// SamePlace returns nil if both manifests have the same CPUs, accelerator of virtual machines, fabrics
// and, if both have one, Slowdown. Otherwise the error says what differs.
func (m Manifest) SamePlace(now Manifest) error {
	switch {
	case !slices.Equal(m.CPUs.Function, now.CPUs.Function) || !slices.Equal(m.CPUs.Generator, now.CPUs.Generator):
		return fmt.Errorf("the run began on %s, but is now on %s", m.CPUs, now.CPUs)
	case m.Accelerator != now.Accelerator:
		return fmt.Errorf("the run began with the accelerator %s, but now has %s", m.Accelerator, now.Accelerator)
	case !slices.Equal(m.Fabrics, now.Fabrics): // the fabric auto depends on the user's privileges
		return fmt.Errorf("the run began on the fabric %s, but is now on %s", strings.Join(m.Fabrics, ", "), strings.Join(now.Fabrics, ", "))
	case m.Slowdown > 0 && now.Slowdown > 0 && m.Slowdown != now.Slowdown:
		return fmt.Errorf("the run began with --slowdown %g, but now has %g", m.Slowdown, now.Slowdown)
	}
	return nil
}

// Measures reports whether the run is a measurement of the kind.
func (m Manifest) Measures(kind string) bool {
	is, _ := m.ReadMeasurement(kind, new(struct{}))
	return is
}

// ReadMeasurement decodes the settings of a measurement of the kind. It returns false, and leaves
// settings as they are, if the run is no measurement or one of another kind.
func (m Manifest) ReadMeasurement(kind string, settings any) (bool, error) {
	if len(m.Measurement) == 0 {
		return false, nil
	}
	var of struct {
		Kind string `json:"kind"`
	}
	err := json.Unmarshal(m.Measurement, &of)
	if err == nil && of.Kind == kind {
		err = json.Unmarshal(m.Measurement, settings)
	}
	if err != nil {
		return false, fmt.Errorf("the manifest's measurement: %w", err)
	}
	return of.Kind == kind, nil
}

// NotComparable returns why the run's figures cannot be compared with those of other runs. It is
// empty if they can. Show it with every table and figure of the run.
func (m Manifest) NotComparable() string {
	if vitrine.NotComparable(m.Accelerator) == "" {
		return ""
	}
	return "virtual machines were emulated (accelerator " + m.Accelerator + ")"
}

// A Generator is the load generator of a run.
type Generator struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	// Transport is what carried the messages, such as "SCTP". It is empty if the generator offers
	// no choice.
	Transport string `json:"transport,omitempty"`
}

// A Reservation lists the CPUs of the function and of the generator.
type Reservation struct {
	Function  []int `json:"function"`
	Generator []int `json:"generator"`
}

// String names the CPUs for people.
func (r Reservation) String() string {
	return fmt.Sprintf("CPUs %v (generator on %v)", r.Function, r.Generator)
}

// readManifest reads the manifest of dir. The error is fs.ErrNotExist if dir is no run folder.
func readManifest(dir string) (Manifest, error) {
	path := filepath.Join(dir, manifestFile)
	var m Manifest
	text, err := os.ReadFile(path)
	if err != nil {
		return m, fmt.Errorf("reading the run folder: %w", err)
	}
	var version struct {
		Schema int    `json:"schema"`
		Tool   string `json:"tool"`
	}
	if err := json.Unmarshal(text, &version); err != nil {
		return m, fmt.Errorf("%s: not a manifest: %w", path, err)
	}
	if version.Schema != Schema {
		return m, fmt.Errorf("%s: written with schema %d by %q, but this program reads schema %d: use the version that wrote it",
			path, version.Schema, version.Tool, Schema)
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return m, fmt.Errorf("%s: not a manifest: %w", path, err)
	}
	return m, nil
}
