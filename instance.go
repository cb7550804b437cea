package vitrine

import (
	"fmt"
	"net/netip"
)

// A State is a stage in the life of an aggregate's instance. It decides which
// transactions the director sends to the instance.
type State uint8

// The states of an instance.
const (
	Active   State = iota // new and old transactions; the default
	Starting              // no transactions yet
	Draining              // old transactions, no new ones
	Down                  // no transactions
)

var stateNames = [...]string{Active: "active", Starting: "starting", Draining: "draining", Down: "down"}

// States lists the names of all states in the order of an instance's life.
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

// UnmarshalText reads the state's name.
func (s *State) UnmarshalText(text []byte) error {
	for i, name := range stateNames {
		if name == string(text) {
			*s = State(i)
			return nil
		}
	}
	return fmt.Errorf("state %q: must be one of starting, active, draining, down", text)
}

// An Instance is one running copy of an aggregate. An aggregate bundles, in one
// place, functions that talk a lot and serve the same types of transaction
// (Contain-ed, section 2).
type Instance struct {
	Name    string         `json:"name"`             // Unique in the director, such as reg-1.
	Type    string         `json:"type"`             // Its aggregate type.
	Address netip.AddrPort `json:"address"`          // Where its ingress listens.
	Weight  float64        `json:"weight,omitempty"` // Its capacity, such as transactions a second. Its share of the type's keys is proportional to it. In a request, 0 is the director's default, 1.
	Region  string         `json:"region,omitempty"` // Its location; empty: none.
	State   State          `json:"state"`            // Says which transactions it gets.
	ID      uint16         `json:"id,omitempty"`     // Its number within the type, carried in Record-Route, Path and TEID; 0: the table derives one from the name.
}
