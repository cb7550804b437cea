package runstate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Record keeps something about the run that nothing on the host shows, such
// as a process that no cgroup holds, so that cleaning finds it when the run is
// dead. The kind groups records of one sort; both names are file names. What
// was kept under the same name is replaced, at once and whole.
func (r *Run) Record(kind, name string, value []byte) error {
	dir := filepath.Join(r.Dir(), kind)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("recording %s %s: %w", kind, name, err)
	}
	// Names with a dot first are being written and are no records yet.
	writing := filepath.Join(dir, "."+name)
	if err := os.WriteFile(writing, value, 0o600); err != nil {
		return fmt.Errorf("recording %s %s: %w", kind, name, err)
	}
	if err := os.Rename(writing, filepath.Join(dir, name)); err != nil {
		return fmt.Errorf("recording %s %s: %w", kind, name, err)
	}
	return nil
}

// RecordJSON is Record of a value that is kept as JSON.
func (r *Run) RecordJSON(kind, name string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("recording %s %s: %w", kind, name, err)
	}
	return r.Record(kind, name, text)
}

// Erase drops a record. Dropping one that is not there is no error.
func (r *Run) Erase(kind, name string) error { return Erase(r.Root, r.ID, kind, name) }

// Erase drops a record of any run, for cleaning.
func Erase(root, id, kind, name string) error {
	err := os.Remove(filepath.Join(root, id, kind, name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("erasing %s %s of run %s: %w", kind, name, id, err)
	}
	return nil
}

// Records reads all records of one kind of a run, dead or alive, by name.
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
			continue // erased meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("reading the records of run %s: %w", id, err)
		}
		records[e.Name()] = value
	}
	return records, nil
}
