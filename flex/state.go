package flex

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"vitrine"
	"vitrine/flex/decide"
	"vitrine/internal/durable"
)

// StateFile is the name of the state file in the state folder.
const StateFile = "state.json"

// stateVersion is the version of the format of the state file.
const stateVersion = 1

// A state is the content of the state file.
type state struct {
	Version   int                       `json:"version"`
	Instances []*instance               `json:"instances"`
	Next      map[string]int            `json:"next"`    // number in the name of the newest instance, by type
	Number    uint16                    `json:"number"`  // see Orchestrator.number
	Gone      map[string]netip.AddrPort `json:"removed"` // see Orchestrator.gone
	Memory    decide.Memory             `json:"memory"`
	Profiles  map[string]*Profile       `json:"profiles,omitempty"` // measurements by redline, by type
}

// memoryEvery is the time between two writes when only decide.Memory has changed. It changes
// in every step.
const memoryEvery = 10 * time.Second

// save writes the state file if the state has changed, if the last write is older than
// memoryEvery, or if at is set.
func (o *Orchestrator) save(now time.Time, at bool) {
	if !at && !o.changed && now.Sub(o.saved) < memoryEvery {
		return
	}
	s := state{Version: stateVersion, Next: o.next, Number: o.number, Gone: o.gone, Memory: o.memory, Profiles: o.profiles}
	for _, name := range slices.Sorted(maps.Keys(o.instances)) {
		in := o.instances[name]
		in.InAge, in.Was = now.Sub(in.since).Seconds(), o.capacity(in)
		s.Instances = append(s.Instances, in)
	}
	text, err := json.Marshal(s)
	if err == nil {
		err = durable.Replace(filepath.Join(o.File.State, StateFile), append(text, '\n'), 0o600)
	}
	if err != nil {
		o.counted.saves.Inc()
		o.Log.Error("cannot write the state file; retrying. A restarted orchestrator finds running instances without it", "error", err)
		return
	}
	o.saved, o.changed = now, false
}

// restore loads the state file of an earlier orchestrator. A missing file is no error.
func (o *Orchestrator) restore() error {
	s, err := readState(o.File.State)
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
		if in.Lost > 0 {
			in.away = now.Add(-seconds(in.Lost))
		}
		o.instances[in.Name] = in
	}
	if s.Next != nil {
		o.next = s.Next
	}
	o.number = s.Number
	maps.Copy(o.gone, s.Gone)
	o.memory = s.Memory
	o.memory.Rebase(now)
	return nil
}

// readState reads the state file in a folder. The error for a missing file wraps fs.ErrNotExist.
func readState(folder string) (s state, err error) {
	path := filepath.Join(folder, StateFile)
	text, err := os.ReadFile(path)
	if err != nil {
		return s, fmt.Errorf("read the state: %w", err)
	}
	if err := json.Unmarshal(text, &s); err != nil || s.Version != stateVersion || !s.isWhole() {
		return state{}, &vitrine.BadInput{File: path, Found: "not a state of this version, or a damaged one", Want: "move it away: the orchestrator finds running instances without it, but capacities that redline measured are lost"}
	}
	return s, nil
}

// isWhole reports whether save can have written the instances and the memory.
func (s *state) isWhole() bool {
	for _, in := range s.Instances {
		if in == nil || in.Name == "" || in.State > decide.Stopping {
			return false
		}
	}
	for _, t := range s.Memory.Types {
		if t == nil {
			return false
		}
	}
	return true
}

// Histories returns the measurements in a state folder by type, oldest first. It needs no
// running orchestrator.
func Histories(folder string) (map[string][]Measured, error) {
	s, err := readState(folder)
	all := map[string][]Measured{}
	for name, p := range s.Profiles {
		if p != nil {
			all[name] = p.History
		}
	}
	return all, err
}
