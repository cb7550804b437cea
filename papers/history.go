package papers

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"

	"go.yaml.in/yaml/v3"
)

// A History is what is committed of an exhibit's plans and runs.
type History struct {
	Plans []Planned `yaml:"plans"`          // the last one is in force
	Runs  []Begun   `yaml:"runs,omitempty"` // all, whatever became of them
}

// Planned is a plan that was put down.
type Planned struct {
	Digest  string    `yaml:"digest"`
	Date    time.Time `yaml:"date"`
	Because string    `yaml:"because"` // what changed and why
}

// Begun is a run that was begun.
type Begun struct {
	Started    time.Time `yaml:"started"`
	Plan       string    `yaml:"plan"` // digest
	Deviations []string  `yaml:"deviations,omitempty"`
	Tool       string    `yaml:"tool"`
}

func historyFile(base string) string {
	return path.Join(path.Dir(base), "history", path.Base(base)+".yaml")
}

// ReadHistory gives the history of a run's exhibit from a folder laid out as this
// package's; an empty one where there is none.
func ReadHistory(from fs.FS, base string) (h History, err error) {
	text, err := fs.ReadFile(from, historyFile(base))
	if errors.Is(err, fs.ErrNotExist) {
		return h, nil
	}
	if err == nil {
		err = decode(text, &h)
	}
	if err != nil {
		return h, fmt.Errorf("%s: %w", historyFile(base), err)
	}
	return h, nil
}

// Write writes the history below the folder.
func (h History) Write(dir, base string) error {
	text, err := yaml.Marshal(h)
	if err != nil {
		return err
	}
	to := filepath.Join(dir, filepath.FromSlash(historyFile(base)))
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o644)
}

// Committed is the plan in force; nil: there is none.
func (h History) Committed() *Planned {
	if len(h.Plans) == 0 {
		return nil
	}
	return &h.Plans[len(h.Plans)-1]
}

// apart is how far the start of a run in its manifest may be from that in the
// history, which is written just before.
const apart = time.Minute

// run is the index of the run of the plan that began then; -1: it is not there.
func (h History) run(plan string, started time.Time) int {
	for i, r := range h.Runs {
		if d := started.Sub(r.Started); r.Plan == plan && d.Abs() < apart {
			return i
		}
	}
	return -1
}

// WithRun is the history with the run in it, in the order of their starts.
func (h History) WithRun(b Begun) History {
	if h.run(b.Plan, b.Started) >= 0 {
		return h
	}
	at := len(h.Runs)
	for at > 0 && h.Runs[at-1].Started.After(b.Started) {
		at--
	}
	runs := append([]Begun{}, h.Runs[:at]...)
	h.Runs = append(append(runs, b), h.Runs[at:]...)
	return h
}

// Refuses says why a run of the plan may not be judged; empty: it may.
func (h History) Refuses(plan string, started time.Time) string {
	now := h.Committed()
	switch {
	case plan == "":
		return "the run kept no plan: it was made before the rules of docs/reproducing.md"
	case now == nil:
		return "no plan is committed"
	case plan != now.Digest:
		return fmt.Sprintf("the run's plan %s is not the committed plan %s", plan, now.Digest)
	case started.Before(now.Date):
		return fmt.Sprintf("plan %s was put down after the run began", plan)
	}
	return ""
}
