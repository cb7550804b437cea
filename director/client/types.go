// Package client controls a director over its REST interface: instances, their
// weights and states, the rules, and where a given message would go.
package client

import (
	"time"

	"vitrine"
)

// An Instance is one instance as a director sees it.
type Instance struct {
	vitrine.Instance
	Health       string            `json:"health"`                // up, full or away.
	Reason       string            `json:"reason,omitempty"`      // Why it is away.
	Messages     uint64            `json:"messages"`              // Requests sent to it, since the director's start.
	Transactions uint64            `json:"transactions"`          // Of those, transactions begun.
	Ended        map[string]uint64 `json:"ended,omitempty"`       // Transactions, by outcome.
	InFlight     uint64            `json:"in_flight"`             // Transactions, now; add it up over directors to drain.
	Dialogs      int64             `json:"dialogs"`               // Begun less ended here; only the sum over directors means anything.
	Quiet        bool              `json:"quiet"`                 // Nothing was sent to it for a transition.
	Latency      float64           `json:"latency_seconds"`       // Mean, from request to final answer.
	Drained      bool              `json:"drained"`               // It is draining and has nothing left to do here: neither transactions in flight, nor a transition in which old ones could come. With drain: dialog, that transition begins with the last request of a dialog.
	TEIDPrefix   uint32            `json:"teid_prefix,omitempty"` // GTP-C: the high bits of the TEIDs that it must hand out.
	Sequence     uint32            `json:"sequence_prefix,omitempty"`
}

// A Change is what may be changed of an instance; nil fields stay.
type Change struct {
	Weight *float64       `json:"weight,omitempty"`
	State  *vitrine.State `json:"state,omitempty"`
	Region *string        `json:"region,omitempty"`
}

// A Rule maps messages to an aggregate type; the first that fits counts. The
// fields are those of the configuration file.
type Rule struct {
	Method     string `json:"method,omitempty"`
	Event      string `json:"event,omitempty"`
	Key        string `json:"key,omitempty"`
	Message    string `json:"message,omitempty"`
	Interface  string `json:"interface,omitempty"`
	Relocation bool   `json:"relocation,omitempty"`
	Type       string `json:"type"`
}

// A Room is how much of its own traffic a region has room for.
type Room struct {
	Type   string  `json:"type"`
	Region string  `json:"region"`
	Share  float64 `json:"share"` // 0..1
}

// A Status is a director's.
type Status struct {
	Epoch        uint64           `json:"epoch"`
	Digest       string           `json:"digest"`             // Of the table: directors with the same steer alike.
	Pending      bool             `json:"pending"`            // There are changes that the next epoch will bring.
	Changed      float64          `json:"changed_seconds"`    // Since the change to this epoch.
	Transition   float64          `json:"transition_seconds"` // For which keys that moved stay where they were.
	InTransition bool             `json:"in_transition"`
	Restarted    bool             `json:"restarted"` // Amid a transition: unknown keys that moved go by the epoch before.
	Types        []string         `json:"types"`
	SIP          []string         `json:"sip,omitempty"`  // Addresses.
	GTPC         []string         `json:"gtpc,omitempty"` // Addresses.
	Begun        time.Time        `json:"begun"`
	PID          int              `json:"pid"`
	Reload       *Reload          `json:"reload,omitempty"` // The last.
	Steering     SteeringCounters `json:"steering"`
}

// A Reload is what came of reading the configuration file again.
type Reload struct {
	At    time.Time `json:"at"`
	Error string    `json:"error,omitempty"` // Why the old one stays in force.
}

// SteeringCounters count messages that went otherwise than by the table in force
// alone.
type SteeringCounters struct {
	Kept      uint64 `json:"kept"`      // Went to where their key was before a change moved it.
	Moved     uint64 `json:"moved"`     // Were the first of their key to go by a new table.
	Gone      uint64 `json:"gone"`      // Of those, had their old instance go away too early.
	Unknown   uint64 `json:"unknown"`   // Went by the table before a restart.
	Forgotten uint64 `json:"forgotten"` // Had the memory forget a younger key than it should.
	None      uint64 `json:"none"`      // Found no instance.
}

// A Question is what explain is asked: a message, or a type and a key.
type Question struct {
	Message []byte `json:"message,omitempty"` // As on the wire; base64 in JSON.
	From    string `json:"from,omitempty"`    // Its sender's address and port.
	Type    string `json:"type,omitempty"`    // Without a message: the aggregate type,
	Key     string `json:"key,omitempty"`     // the Call-ID, IMSI or other key,
	Region  string `json:"region,omitempty"`  // and where the client is.
}

// An Explanation is where a message would go and why.
type Explanation struct {
	Epoch    uint64   `json:"epoch"`
	Type     string   `json:"type,omitempty"`
	Region   string   `json:"region,omitempty"`
	Instance string   `json:"instance,omitempty"` // Empty: none.
	Address  string   `json:"address,omitempty"`
	Steps    []string `json:"steps"` // Why, in the order of the decisions.
}
