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
	return os.WriteFile(to, append(text, '\n'), 0o644)
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
		Host:        fmt.Sprintf("%s with %d CPUs, Linux %s", cmp.Or(m.Host.CPUModel, "a host"), m.Host.CPUs, m.Host.Kernel),
		NotIsolated: m.NotIsolated, Notes: r.Notes, Readings: map[string]Reading{}, Missing: maps.Clone(r.missing),
	}
	if s, ok, err := measure.ReadSettings(m); err == nil && ok {
		record.Scaled = s.Scaled
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
			names = append(names, c.Less, c.More, c.Value)
		}
	}
	return names, nil
}

// rounded returns the reading with five digits, so that verdicts rest on
// committed values.
func (x Reading) rounded() Reading {
	for _, v := range []*float64{&x.Mean, &x.Low, &x.High, &x.Lost} {
		*v, _ = strconv.ParseFloat(strconv.FormatFloat(*v, 'g', 5, 64), 64)
	}
	return x
}

// readings returns the record's readings.
func (r *Record) readings() Readings {
	return Readings{of: r.Readings, missing: r.Missing, Notes: r.Notes}
}

// circumstances returns what the run was made with, and how many runs came
// before.
func (r *Record) circumstances(h History) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Run of %s, %s, on %s, by %s. Plan `%s`", r.Started.UTC().Format("2006-01-02 15:04 UTC"),
		r.Finished.Sub(r.Started).Round(time.Minute), r.Host, r.Tool, r.Plan)
	if why := h.Refuses(r.Plan, r.Started); why != "" {
		fmt.Fprintf(&b, ": nothing is judged, because %s", why)
	}
	b.WriteString(". " + h.account(r) + "\n")
	if strings.Contains(r.Tool, "dirty") {
		b.WriteString("\nThe program was built from a tree with changes that were not committed.\n")
	}
	for _, s := range r.Scaled {
		fmt.Fprintf(&b, "\nScaled to this host: %s.\n", s)
	}
	if len(r.NotIsolated) > 0 {
		fmt.Fprintf(&b, "\nThe machine was not the run's alone: %s.\n", strings.Join(r.NotIsolated, "; "))
	}
	return b.String()
}

// account returns how many runs came before this one, and what changed.
func (h History) account(r *Record) string {
	at := max(0, h.run(r.Plan, r.Started))
	text := "No run came before under these rules."
	if at > 0 {
		text = fmt.Sprintf("%d runs came before under these rules:", at)
		if at == 1 {
			text = "1 run came before under these rules:"
		}
		for i, before := range h.Runs[:at] {
			if i > 0 {
				text += ";"
			}
			text += fmt.Sprintf(" %s by plan `%s`", before.Started.UTC().Format("2006-01-02 15:04"), before.Plan)
			if len(before.Deviations) > 0 {
				text += " (" + strings.Join(before.Deviations, ", ") + ")"
			}
		}
		text += "."
	}
	text += " Plans:"
	for i, p := range h.Plans {
		if i > 0 {
			text += ";"
		}
		text += fmt.Sprintf(" `%s` of %s, %s", p.Digest, p.Date.UTC().Format("2006-01-02 15:04"), strings.TrimSuffix(p.Because, "."))
	}
	return text + "."
}

// sortedKeys returns the keys of the map in order.
func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
