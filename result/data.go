package result

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"vitrine"
)

// Data is a run as a report reads it.
type Data struct {
	Dir      string
	Manifest Manifest
	Outcomes []vitrine.Outcome // in the order of the trials
	Summary  *Summary          // nil: the run is not finished
	Profile  *vitrine.Profile  // nil: the run has none, or it could not be read
	Sections []Section         // of a run that measures something other than capacity; the package that measured it fills them in, not Load
	Warnings []string          // parts of the folder that could not be read

	ProfileError error // why the profile could not be read
}

// Load reads a run folder and does not change it. Another process may still write the run, or a
// writer may have been killed. So Load reads the complete part, and Warnings lists the rest. A
// folder without a run, or with another schema, is an error.
func Load(dir string) (*Data, error) {
	m, err := readManifest(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s holds no run (no %s in it)", dir, manifestFile)
	} else if err != nil {
		return nil, err
	}
	d := &Data{Dir: dir, Manifest: m}
	if err := d.readOutcomes(); err != nil {
		return nil, err
	}
	if err := d.readSummary(); err != nil {
		return nil, err
	}
	d.readProfile()
	return d, nil
}

// readProfile reads the profile if the folder has one. A report without a profile lacks only the
// predictions.
func (d *Data) readProfile() {
	text, err := os.ReadFile(filepath.Join(d.Dir, profileFile))
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err == nil {
		d.Profile, err = vitrine.ParseProfile(text)
	}
	if err != nil {
		d.Profile, d.ProfileError = nil, err
		d.Warnings = append(d.Warnings, fmt.Sprintf("%s was left out: %v", profileFile, err))
	}
}

func (d *Data) readOutcomes() error {
	path := filepath.Join(d.Dir, journalFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		d.Warnings = append(d.Warnings, journalFile+" is missing, so the report has no trials")
		return nil
	} else if err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	j, err := readJournal(text, func(err error) { d.Warnings = append(d.Warnings, err.Error()) })
	if err != nil {
		return fmt.Errorf("%s: %w", d.Dir, err)
	}
	if j.torn > 0 {
		d.Warnings = append(d.Warnings, fmt.Sprintf("the last line of %s is incomplete and was left out", journalFile))
	}
	d.Outcomes = j.outcomes
	return nil
}

func (d *Data) readSummary() error {
	path := filepath.Join(d.Dir, summaryFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	d.Summary = new(Summary)
	if err := json.Unmarshal(text, d.Summary); err != nil {
		return fmt.Errorf("%s: not a summary: %w", path, err)
	}
	return nil
}

// Usage calls each for every sample of one trial. The error is fs.ErrNotExist if the trial was not
// monitored.
func (d *Data) Usage(key vitrine.Key, each func(Sample) error) error {
	f, err := os.Open(filepath.Join(d.Dir, usageName(key)))
	if err != nil {
		return fmt.Errorf("reading the samples of trial %d attempt %d: %w", key.Seq, key.Attempt, err)
	}
	defer func() { _ = f.Close() }() // opened for reading
	if err := ReadUsage(f, each); err != nil {
		return fmt.Errorf("%s: %w", usageName(key), err)
	}
	return nil
}
