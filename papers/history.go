package papers

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"

	"vitrine/internal/durable"
)

// A History lists the committed plans and the runs of an exhibit.
type History struct {
	Plans []Planned `yaml:"plans"`          // the last plan is in force
	Runs  []Begun   `yaml:"runs,omitempty"` // every run, however it ended
}

// Planned is one entry of a plan.
type Planned struct {
	Digest  string    `yaml:"digest"`
	Date    time.Time `yaml:"date"`
	Because string    `yaml:"because"` // what changed and why
}

// Begun is one entry of a run.
type Begun struct {
	Started    time.Time `yaml:"started"`
	Plan       string    `yaml:"plan"` // digest
	Deviations []string  `yaml:"deviations,omitempty"`
	Tool       string    `yaml:"tool"`
}

func historyFile(base string) string {
	return path.Join(path.Dir(base), "history", path.Base(base)+".yaml")
}

// ReadHistory reads the history of a run's exhibit from a folder with this
// package's layout. Without a file the history is empty.
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
	return durable.Replace(to, text, 0o644)
}

// Committed returns the plan in force, or nil when there is none.
func (h History) Committed() *Planned {
	if len(h.Plans) == 0 {
		return nil
	}
	return &h.Plans[len(h.Plans)-1]
}

// apart is the largest difference between a run's start in its manifest and in the
// history. The tool writes the history seconds after the manifest.
const apart = time.Minute

// run returns the index of the plan's run that began at that time, or -1. Of several it is the
// nearest, because a run may end at once and the next begin within the minute.
func (h History) run(plan string, started time.Time) int {
	found, nearest := -1, apart
	for i, r := range h.Runs {
		if d := started.Sub(r.Started).Abs(); r.Plan == plan && d < nearest {
			found, nearest = i, d
		}
	}
	return found
}

// WithRun adds the run of a folder to the history, unless it is there.
func (h History) WithRun(b Begun) History {
	if h.run(b.Plan, b.Started) >= 0 {
		return h
	}
	return h.Begin(b)
}

// Begin adds a run, however near to it another one began. Runs are sorted by start.
func (h History) Begin(b Begun) History {
	at := len(h.Runs)
	for at > 0 && h.Runs[at-1].Started.After(b.Started) {
		at--
	}
	h.Runs = slices.Insert(slices.Clone(h.Runs), at, b)
	return h
}

// Refuses says why a run of the plan may not be judged. It is empty when the run may.
func (h History) Refuses(plan string, started time.Time) string {
	now := h.Committed()
	switch {
	case plan == "":
		return "the run kept no plan: it was made before the rules of docs/reproducing.md"
	case now == nil:
		return "no plan is committed"
	case plan != now.Digest:
		return fmt.Sprintf("the run's plan %s is not the committed plan %s", plan, now.Digest)
	}
	// The first record counts: a plan may have changed and changed back.
	first := slices.IndexFunc(h.Plans, func(p Planned) bool { return p.Digest == plan })
	if started.Before(h.Plans[first].Date) {
		return fmt.Sprintf("plan %s was recorded after the run began", plan)
	}
	return ""
}
