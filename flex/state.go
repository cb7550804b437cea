package flex

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"vitrine"
	"vitrine/flex/decide"
	"vitrine/internal/durable"
)

// StateFile is the name of the state in its folder.
const StateFile = "state.json"

// stateVersion is the version of the state's format.
const stateVersion = 1

// A state is what outlives the orchestrator.
type state struct {
	Version   int                 `json:"version"`
	Instances []*instance         `json:"instances"`
	Next      map[string]int      `json:"next"`   // number of the last instance, by type
	Number    uint16              `json:"number"` // the one given last
	Gone      []string            `json:"gone"`   // names that directors may still have
	Memory    decide.Memory       `json:"memory"`
	Profiles  map[string]*Profile `json:"profiles,omitempty"` // by type, what redline measured
}

// A stateFile writes the state.
type stateFile struct{ path string }

func newStateFile(folder string) *stateFile {
	return &stateFile{path: filepath.Join(folder, StateFile)}
}

// memoryEvery is how often the state is written when only what decide remembers has
// changed.
const memoryEvery = 10 * time.Second

// save writes the state, if it has changed or the memory is old.
func (o *Orchestrator) save(now time.Time, at bool) {
	if !at && !o.changed && now.Sub(o.saved) < memoryEvery {
		return
	}
	s := state{Version: stateVersion, Next: o.next, Number: o.number, Gone: slices.Sorted(maps.Keys(o.gone)), Memory: o.memory, Profiles: o.profiles}
	for _, name := range slices.Sorted(maps.Keys(o.instances)) {
		in := o.instances[name]
		in.InAge = now.Sub(in.since).Seconds()
		s.Instances = append(s.Instances, in)
	}
	text, err := json.Marshal(s)
	if err == nil {
		err = durable.Replace(o.kept.path, append(text, '\n'), 0o600)
	}
	if err != nil {
		o.Log.Error("write the state, which is tried again; what runs is found without it", "error", err)
		return
	}
	o.saved, o.changed = now, false
}

// restore reads the state of an earlier orchestrator.
func (o *Orchestrator) restore() error {
	s, err := readState(o.kept.path)
	o.takeUpProfiles(s.Profiles)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	now := time.Now()
	for _, in := range s.Instances {
		in.since = now.Add(-seconds(in.InAge))
		if in.State == decide.Active {
			in.active = in.since
		}
		o.instances[in.Name] = in
	}
	if s.Next != nil {
		o.next = s.Next
	}
	o.number = s.Number
	for _, name := range s.Gone {
		o.gone[name] = true
	}
	o.memory = s.Memory
	return nil
}

// readState reads a state file. The error of a file that does not exist is fs.ErrNotExist.
func readState(path string) (s state, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return s, fmt.Errorf("read the state: %w", err)
	}
	if err := json.Unmarshal(text, &s); err != nil || s.Version != stateVersion {
		return state{}, &vitrine.BadInput{File: path, Found: "not a state of this version", Want: "remove it: what runs is found without it"}
	}
	return s, nil
}

// Histories returns the measurements of all types that the orchestrator with this state folder
// has kept, the oldest first. It need not run.
func Histories(folder string) (map[string][]Measured, error) {
	s, err := readState(filepath.Join(folder, StateFile))
	all := map[string][]Measured{}
	for name, p := range s.Profiles {
		if p != nil {
			all[name] = p.History
		}
	}
	return all, err
}
