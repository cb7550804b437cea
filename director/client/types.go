// Package client controls a director over its REST interface: instances, their
// weights and states, the rules, and where a given message would go.
package client

import (
	"time"

	"vitrine"
	"vitrine/director/latency"
)

// An Instance is one instance as a director sees it.
type Instance struct {
	vitrine.Instance
	Health       string            `json:"health"`                  // up, full or away.
	Reason       string            `json:"reason,omitempty"`        // Why it is not up.
	Messages     uint64            `json:"messages"`                // Requests sent to it, since the director's start.
	Transactions uint64            `json:"transactions"`            // Of those, transactions begun.
	Ended        map[string]uint64 `json:"ended,omitempty"`         // Transactions, by outcome.
	InFlight     uint64            `json:"in_flight"`               // Transactions, now; add it up over directors to drain.
	Proceeding   uint64            `json:"proceeding"`              // Of those in flight, INVITEs with a provisional response other than 100 Trying.
	Dialogs      int64             `json:"dialogs"`                 // Begun less ended at this director, also before a restart; only the sum over directors is meaningful.
	DialogsBegun uint64            `json:"dialogs_begun"`           // Dialogs begun at this director, since its start.
	Quiet        bool              `json:"quiet"`                   // No request was sent to it for a transition.
	Latency      float64           `json:"latency_seconds"`         // Mean of the latencies.
	Latencies    latency.Histogram `json:"latencies"`               // From request to final answer, and from INVITE to its first response other than 100 Trying, since the director's start: pairs of an upper bound in microseconds, and the number below it and above the bound before. Span makes quantiles of two readings.
	Drained      bool              `json:"drained"`                 // It is draining and has nothing left to do here: no transactions in flight, and a transition in which old ones could come is over. With drain: dialog, that transition begins with the last request of a dialog.
	Idle         bool              `json:"idle"`                    // Like Drained, but it may have dialogs: they may have ended at another director.
	Leased       *float64          `json:"leased_weight,omitempty"` // Its weight by the type's lease, in place of its own; 0: it gets no new work.
	TEIDPrefix   uint32            `json:"teid_prefix,omitempty"`   // GTP-C: the high bits of the TEIDs that it must hand out.
	Sequence     uint32            `json:"sequence_prefix,omitempty"`

	director string // the URL of the Client that read it; empty: not known
}

// A Lease is the right to overlay the weights of a type's instances for a time. The base
// weights come back when it ends.
type Lease struct {
	Type    string             `json:"type"`
	Token   uint64             `json:"token"`                 // The highest so far of this type; if the lease is held, its token.
	Holder  string             `json:"holder,omitempty"`      // Who holds it; empty: nobody.
	Weights map[string]float64 `json:"weights,omitempty"`     // By instance, in place of its own weight; 0: no new work.
	TTL     float64            `json:"ttl_seconds,omitempty"` // From each renewal.
	Left    float64            `json:"left_seconds,omitempty"`
}

// A LeaseRequest asks for the lease of a type.
type LeaseRequest struct {
	Holder  string             `json:"holder"`          // Who asks.
	TTL     float64            `json:"ttl_seconds"`     // 1 to 600.
	Token   uint64             `json:"token,omitempty"` // Above all earlier ones of the type; 0: the next one.
	Weights map[string]float64 `json:"weights,omitempty"`
}

// A LeaseChange prolongs a lease.
type LeaseChange struct {
	TTL     float64            `json:"ttl_seconds,omitempty"` // 0: as before.
	Weights map[string]float64 `json:"weights,omitzero"`      // Nil: as before; empty: the base weights.
}

// A Change lists changes of an instance; nil fields stay.
type Change struct {
	Weight *float64       `json:"weight,omitempty"`
	State  *vitrine.State `json:"state,omitempty"`
	Region *string        `json:"region,omitempty"`
}

// A Rule maps messages to an aggregate type; the first that matches counts. The fields are
// the same as in the configuration file.
type Rule struct {
	Method     string `json:"method,omitempty"`
	Event      string `json:"event,omitempty"`
	Key        string `json:"key,omitempty"`
	Message    string `json:"message,omitempty"`
	Cause      string `json:"cause,omitempty"`
	Interface  string `json:"interface,omitempty"`
	Relocation bool   `json:"relocation,omitempty"`
	Type       string `json:"type"`
}

// A Room says how much of its own traffic a region keeps.
type Room struct {
	Type   string  `json:"type"`
	Region string  `json:"region"`
	Share  float64 `json:"share"` // 0..1
}

// A Status is the state of a director.
type Status struct {
	Epoch        uint64           `json:"epoch"`
	Digest       string           `json:"digest"`             // Of the table: directors with the same steer alike.
	Pending      bool             `json:"pending"`            // The next epoch will bring changes.
	Changed      float64          `json:"changed_seconds"`    // Since the change to this epoch.
	Transition   float64          `json:"transition_seconds"` // How long a moved key stays at its old instance.
	InTransition bool             `json:"in_transition"`
	Restarted    bool             `json:"restarted"` // Restarted during a transition: moved keys that it does not remember go by the previous epoch.
	Types        []string         `json:"types"`
	Panic        []string         `json:"panic,omitempty"` // Types whose instances count as up although checks fail.
	SIP          []string         `json:"sip,omitempty"`   // Addresses.
	GTPC         []string         `json:"gtpc,omitempty"`  // Addresses.
	S1AP         []string         `json:"s1ap,omitempty"`  // Addresses.
	Begun        time.Time        `json:"begun"`
	PID          int              `json:"pid"`
	Version      string           `json:"version"`
	Reload       *Reload          `json:"reload,omitempty"`  // The last.
	Restart      *Restart         `json:"restart,omitempty"` // The last that failed.
	Unsaved      string           `json:"unsaved,omitempty"` // Why the state file lacks the last change; empty: it has all.
	Steering     SteeringCounters `json:"steering"`
}

// A Reload is the result of reading the configuration file, or the files that it names, again.
type Reload struct {
	At    time.Time `json:"at"`
	Error string    `json:"error,omitempty"` // Why the old configuration, tokens, certificates or keys stay in force.
}

// A Restart is a hand-over to a new process that failed, so that the old process continued.
type Restart struct {
	At    time.Time `json:"at"`
	Error string    `json:"error"`
}

// SteeringCounters count the messages that did not simply go by the table in force.
type SteeringCounters struct {
	Kept      uint64 `json:"kept"`      // Went to their key's instance from before a change.
	Moved     uint64 `json:"moved"`     // Were the first of their key to go by a new table.
	Gone      uint64 `json:"gone"`      // Of those, had an old instance that went away too early.
	Unknown   uint64 `json:"unknown"`   // Went by the table before a restart.
	Forgotten uint64 `json:"forgotten"` // Made the memory forget a key too early.
	None      uint64 `json:"none"`      // Found no instance.
}

// A Question is the input of explain: a message, or a type and a key.
type Question struct {
	Message []byte `json:"message,omitempty"` // As on the wire; base64 in JSON.
	From    string `json:"from,omitempty"`    // Its sender's address and port.
	Type    string `json:"type,omitempty"`    // Without a message: the aggregate type,
	Key     string `json:"key,omitempty"`     // the Call-ID, IMSI or other key,
	Region  string `json:"region,omitempty"`  // and where the client is.
}

// An Explanation tells where a message would go and why.
type Explanation struct {
	Epoch    uint64   `json:"epoch"`
	Type     string   `json:"type,omitempty"`
	Region   string   `json:"region,omitempty"`
	Instance string   `json:"instance,omitempty"` // Empty: none.
	Address  string   `json:"address,omitempty"`
	Steps    []string `json:"steps"` // Why, in the order of the decisions.
}
