package vitrine

import (
	"fmt"
	"net/netip"
)

// A State is where an aggregate's instance is in its life. It decides which
// transactions the director sends it.
type State uint8

// The states of an instance.
const (
	Active   State = iota // new and old transactions; what an instance is when nothing is said
	Starting              // none yet
	Draining              // those that began before; no new ones
	Down                  // none
)

var stateNames = [...]string{Active: "active", Starting: "starting", Draining: "draining", Down: "down"}

// States are the names of all states, in the order of an instance's life.
func States() []string { return []string{"starting", "active", "draining", "down"} }

func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// MarshalText writes the state's name.
func (s State) MarshalText() ([]byte, error) {
	if int(s) >= len(stateNames) {
		return nil, fmt.Errorf("no state has the number %d", uint8(s))
	}
	return []byte(stateNames[s]), nil
}

// UnmarshalText reads the state's name; an empty one is Active.
func (s *State) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*s = Active
		return nil
	}
	for i, name := range stateNames {
		if name == string(text) {
			*s = State(i)
			return nil
		}
	}
	return fmt.Errorf("state %q: must be one of starting, active, draining, down", text)
}

// An Instance is one running copy of an aggregate: functions that talk a lot
// and serve the same types of transaction, bundled in one place (Contain-ed,
// section 2).
type Instance struct {
	Name    string         `json:"name"`             // Unique in the whole director, such as reg-1.
	Type    string         `json:"type"`             // The aggregate type that it is a copy of.
	Address netip.AddrPort `json:"address"`          // Where its ingress listens.
	Weight  float64        `json:"weight"`           // Its capacity, such as transactions a second: its share of the type's keys is in proportion.
	Region  string         `json:"region,omitempty"` // Where it is; empty: nowhere in particular.
	State   State          `json:"state"`            // Which transactions it gets.
	ID      uint16         `json:"id,omitempty"`     // Its small number within the type, carried in Record-Route, Path and TEID; 0: given by the table from its name.
}
