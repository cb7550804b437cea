package papers

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"vitrine/internal/durable"
	"vitrine/measure"
	"vitrine/result"
)

// A Record is the part of a run that is committed: everything that its tables and
// verdicts are made of.
type Record struct {
	Exhibit     string             `json:"exhibit"`
	Plan        string             `json:"plan"` // digest
	Tool        string             `json:"tool"`
	Started     time.Time          `json:"started"`
	Finished    time.Time          `json:"finished"`
	Host        string             `json:"host"`
	NotIsolated []string           `json:"not_isolated,omitempty"`
	Scaled      []string           `json:"scaled,omitempty"`
	Fabrics     map[string]string  `json:"fabric_versions,omitempty"` // of fabrics that drive software
	Options     []string           `json:"options,omitempty"`         // of fabrics: which devices of the host they used
	Notes       []string           `json:"notes,omitempty"`
	Readings    map[string]Reading `json:"readings"`
	Missing     map[string]string  `json:"missing,omitempty"`
}

func recordFile(base string) string {
	return path.Join(path.Dir(base), "results", path.Base(base)+".json")
}

// ReadRecord returns the record of a run's exhibit from a folder with this
// package's layout, or nil when there is none.
func ReadRecord(from fs.FS, base string) (*Record, error) {
	text, err := fs.ReadFile(from, recordFile(base))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	r := new(Record)
	if err == nil {
		err = json.Unmarshal(text, r)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", recordFile(base), err)
	}
	return r, nil
}

// Write writes the record below the folder.
func (r *Record) Write(dir string) error {
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	to := filepath.Join(dir, filepath.FromSlash(recordFile(r.Exhibit)))
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return durable.Replace(to, append(text, '\n'), 0o644)
}

// NewRecord returns the record of a run of the exhibit. It keeps the readings
// that the exhibits of the run name, to five digits.
func (e Exhibit) NewRecord(d *result.Data, r Readings) (*Record, error) {
	m := d.Manifest
	plan, _, err := PlanOf(m)
	if err != nil {
		return nil, err
	}
	patterns, err := named(e.Base())
	if err != nil {
		return nil, err
	}
	record := &Record{
		Exhibit: e.Base(), Plan: plan, Tool: m.Tool, Started: m.Started, Finished: m.Finished,
		Host:        m.Host.Described(),
		Fabrics:     m.FabricVersions,
		NotIsolated: m.NotIsolated, Notes: r.Notes, Readings: map[string]Reading{}, Missing: maps.Clone(r.missing),
	}
	if s, ok, err := measure.ReadSettings(m); err == nil && ok {
		record.Scaled = s.Scaled
	}
	var given struct{ Options measure.Options }
	if json.Unmarshal(m.Measurement, &given) == nil { // a run that measured capacities has no settings
		for name, text := range given.Options.All() {
			record.Options = append(record.Options, name+" "+text)
		}
	}
	for name, x := range r.of {
		if slices.ContainsFunc(patterns, func(p string) bool {
			_, ok := match(p, name)
			return ok || p == name
		}) {
			record.Readings[name] = x.rounded()
		}
	}
	return record, nil
}

// named returns the readings that the exhibits of a run show or judge, as names
// and patterns.
func named(base string) ([]string, error) {
	exhibits, err := sharing(base)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range exhibits {
		for _, row := range e.Table.Rows {
			for _, column := range e.Table.Columns {
				names = append(names, row.On+" "+column)
			}
		}
		for _, c := range e.Claims {
			names = append(names, c.names()...)
		}
	}
	return names, nil
}

// rounded returns the reading with five digits, so that verdicts rest on
// committed values.
func (x Reading) rounded() Reading {
	values := []*float64{&x.Mean, &x.Low, &x.High, &x.Lost}
	x.Turns = slices.Clone(x.Turns)
	for i := range x.Turns {
		values = append(values, &x.Turns[i])
	}
	for _, v := range values {
		*v, _ = strconv.ParseFloat(strconv.FormatFloat(*v, 'g', 5, 64), 64)
	}
	return x
}

// readings returns the record's readings.
func (r *Record) readings() Readings {
	machine, _, _ := strings.Cut(r.Host, result.KernelMark)
	return Readings{of: r.Readings, missing: r.Missing, machine: machine, netdev: inUserSpace(r.Fabrics), Notes: r.Notes}
}

// circumstances returns when, where and by what the run was made, and what limits it.
func (r *Record) circumstances(h History) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Run of %s, %.0f minutes, on %s, by %s, plan `%s`", r.Started.UTC().Format("2006-01-02 15:04 UTC"),
		r.Finished.Sub(r.Started).Minutes(), r.Host, r.Tool, r.Plan)
	if why := h.Refuses(r.Plan, r.Started); why != "" {
		fmt.Fprintf(&b, ": nothing is judged, because %s", why)
	}
	fmt.Fprintf(&b, ". Runs before it under these rules: %d.\n", len(h.before(r)))
	if strings.Contains(r.Tool, "dirty") {
		b.WriteString("\nThe program was built from a tree with changes that were not committed.\n")
	}
	for _, s := range r.Scaled {
		fmt.Fprintf(&b, "\nScaled to this host: %s.\n", s)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Fabrics)) {
		fmt.Fprintf(&b, "\nFabric `%s`: %s.\n", name, cmp.Or(r.Fabrics[name], "not known"))
	}
	for _, o := range r.Options {
		fmt.Fprintf(&b, "\nOptions of %s.\n", o)
	}
	return b.String()
}

// before returns the runs before the record's.
func (h History) before(r *Record) []Begun { return h.Runs[:max(0, h.run(r.Plan, r.Started))] }

// details returns a folded part of a page: the earlier runs, all plans with the reasons for
// their changes, and what else used the machine.
func (r *Record) details(h History) string {
	var b strings.Builder
	list := func(heading string, items []string) {
		if len(items) > 0 {
			fmt.Fprintf(&b, "\n%s:\n\n- %s\n", heading, strings.Join(items, "\n- "))
		}
	}
	const minute = "2006-01-02 15:04"
	var runs, plans []string
	for _, run := range h.before(r) {
		text := fmt.Sprintf("%s by plan `%s`", run.Started.UTC().Format(minute), run.Plan)
		if len(run.Deviations) > 0 {
			text += " (" + strings.Join(run.Deviations, ", ") + ")"
		}
		runs = append(runs, text)
	}
	for _, p := range h.Plans {
		plans = append(plans, fmt.Sprintf("`%s` of %s: %s.", p.Digest, p.Date.UTC().Format(minute), strings.TrimSuffix(p.Because, ".")))
	}
	list("Runs before this one", runs)
	list("Plans", plans)
	list("The machine was not the run's alone", r.NotIsolated)
	return "<details><summary>Earlier runs, plans, and the machine</summary>\n" + b.String() + "\n</details>\n"
}
