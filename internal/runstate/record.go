package runstate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"vitrine/internal/durable"
)

// Record stores data about the run that the host itself does not show, such as a process outside
// any cgroup. When the run is dead, cleaning finds the record. kind groups similar records; kind
// and name are file names. Record replaces an older record of the same name atomically. Several
// goroutines may record the same name.
func (r *Run) Record(kind, name string, value []byte) error {
	dir := filepath.Join(r.Dir(), kind)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("recording %s %s: %w", kind, name, err)
	}
	// A file whose name begins with a dot is still being written, and is no record yet.
	if err := durable.Replace(filepath.Join(dir, name), value, 0o600); err != nil {
		return fmt.Errorf("recording %s %s: %w", kind, name, err)
	}
	return nil
}

// RecordJSON is like Record for a value that is stored as JSON.
func (r *Run) RecordJSON(kind, name string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("recording %s %s: %w", kind, name, err)
	}
	return r.Record(kind, name, text)
}

// Erase deletes a record. It is not an error if the record does not exist.
func (r *Run) Erase(kind, name string) error { return erase(r.Root, r.ID, kind, name) }

// erase deletes a record of any run. It is for cleaning.
func erase(root, id, kind, name string) error {
	err := os.Remove(filepath.Join(root, id, kind, name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("erasing %s %s of run %s: %w", kind, name, id, err)
	}
	return nil
}

// Records reads all records of one kind of a run, by name. The run may be dead or alive.
func Records(root, id, kind string) (map[string][]byte, error) {
	dir := filepath.Join(root, id, kind)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the records of run %s: %w", id, err)
	}
	records := make(map[string][]byte)
	for _, e := range entries {
		if e.Name()[0] == '.' {
			continue
		}
		value, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // erased after the folder was listed
		}
		if err != nil {
			return nil, fmt.Errorf("reading the records of run %s: %w", id, err)
		}
		records[e.Name()] = value
	}
	return records, nil
}
