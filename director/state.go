package director

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"vitrine"
	"vitrine/director/table"
	"vitrine/internal/durable"
)

// stateVersion increases when older directors would misread the file.
const stateVersion = 1

// A state is the part of a director that survives a restart: changes by REST, the current
// epoch, and the previous table for transactions in flight during the change.
type state struct {
	Version  int         `json:"vitrine_director_state"`
	Digest   string      `json:"file_sha256"` // of the configuration file in force
	Parts    fileParts   `json:"file_parts"`  // of the same file; zero: an older director wrote the state
	Starts   uint32      `json:"starts"`
	Current  epochState  `json:"current"`
	Previous *epochState `json:"previous,omitempty"`
	Rules    []Rule      `json:"rules"`

	Terms   map[string]term  `json:"terms,omitempty"`   // the latest leases, by type
	Dialogs map[string]int64 `json:"dialogs,omitempty"` // open at instances whose draining waits for them, by name

	Boot    string        `json:"boot_id"`
	Changed time.Duration `json:"changed_ns"` // since that boot
	Wall    time.Time     `json:"changed_at"`
}

// An epochState has the arguments of table.New for one epoch, before the overlay of leases.
type epochState struct {
	Epoch     uint64             `json:"epoch"`
	Types     []string           `json:"types"`
	Instances []vitrine.Instance `json:"instances"`
	Rooms     []table.Room       `json:"rooms,omitempty"`
	Leases    []lease            `json:"leases,omitempty"` // by type
}

func (e *epochState) table() (*table.Table, error) {
	return table.New(e.Epoch, e.Types, e.overlaid(), e.Rooms...)
}

// age returns the time since the change to the current epoch. Within one boot, jumps of
// the calendar clock do not matter. Across boots, a jump back counts as 0.
func (s *state) age(c Clock) time.Duration {
	if s.Boot == c.Boot {
		return max(0, c.Now()-s.Changed)
	}
	return max(0, c.Wall().Sub(s.Wall))
}

// isIn reports whether old, the content of the state file, has everything that a start needs to restore s.
// old may be nil. With the same configuration file, the rules are the same too. Leases that are over do
// not matter, because each start ends them by the terms of the file.
func (s *state) isIn(old *state) bool {
	if old == nil || old.Digest != s.Digest {
		return false
	}
	before := old.Current
	before.Leases = s.Current.Leases
	return before.sameAs(&s.Current)
}

// readState reads the file; it returns nil if there is none.
func readState(path string) (*state, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the director's state: %w", err)
	}
	s := new(state)
	if err := json.Unmarshal(text, s); err != nil {
		return nil, fmt.Errorf("read the director's state %s: %w; remove the file to start from the configuration file alone", path, err)
	}
	if s.Version != stateVersion {
		return nil, fmt.Errorf("the director's state %s has version %d, and this program reads %d; remove the file to start from the configuration file alone", path, s.Version, stateVersion)
	}
	return s, nil
}

// write replaces the file durably: a restarted director must know every epoch that workers
// have used.
func (s *state) write(path string) error { return s.writeBy(durable.Replace, path) }

// writeBy is write with a function like durable.Replace.
func (s *state) writeBy(replace replacer, path string) error {
	text, err := json.Marshal(s)
	if err == nil {
		err = replace(path, text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("write the director's state %s: %w", path, err)
	}
	return nil
}
