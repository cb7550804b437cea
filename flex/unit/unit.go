// Package unit has the nouns between the orchestrator, which decides what runs, and what
// runs it: orders for units, and the units' states. A unit is an instance of an aggregate,
// with all its members, or a service beside the instances.
package unit

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"
)

// An Order asks for a unit. It is complete: whoever carries it out needs no other file but
// programs, images and install scripts.
type Order struct {
	Name string `json:"name"` // Unique: lower-case letters, digits and dashes.

	// Of an instance.
	Type        string            `json:"type,omitempty"`        // Aggregate type; empty: a service.
	Path        string            `json:"path,omitempty"`        // The deployment file's; relative paths in it start from its folder.
	Deployment  string            `json:"deployment,omitempty"`  // Text of the deployment file.
	Size        string            `json:"size,omitempty"`        // Sizing of the deployment.
	Members     []string          `json:"members,omitempty"`     // Components that the instance has.
	Number      uint16            `json:"number,omitempty"`      // Its ID in the directors, ${VITRINE_NUMBER}.
	Environment map[string]string `json:"environment,omitempty"` // Variables of all members, or of the service.

	// Of a service.
	Folder  string   `json:"folder,omitempty"` // ${VITRINE_SPEC}.
	Command []string `json:"command,omitempty"`
	Ready   string   `json:"ready,omitempty"` // Address and port that accepts TCP when it is ready; empty: at once.

	Deadline time.Duration `json:"deadline_ns"` // For the start.
}

// Digest identifies an order but for its name and number: an instance whose order has
// another digest was started from another version of the files.
func (o Order) Digest() string {
	o.Name, o.Number = "", 0
	text, err := json.Marshal(o)
	if err != nil {
		return "" // it holds nothing that JSON cannot
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// A State is where a unit is in its life.
type State string

// The states of a unit.
const (
	Starting State = "starting" // members start in the order of their dependencies
	Ready    State = "ready"    // all members run and are ready
	Failed   State = "failed"   // it did not start, or a member ended: all members are stopped
	Removing State = "removing" // it is being stopped
)

// A Unit is what became of an order.
type Unit struct {
	Name    string   `json:"name"`
	Type    string   `json:"type,omitempty"`
	Size    string   `json:"size,omitempty"`
	Number  uint16   `json:"number,omitempty"` // As in its order.
	Digest  string   `json:"digest"`           // Of its order.
	State   State    `json:"state"`
	Reason  string   `json:"reason,omitempty"`       // Why it failed, with the end of the log.
	Address string   `json:"address,omitempty"`      // Of the entry, when it is ready.
	Age     float64  `json:"age_seconds"`            // Since the order.
	Boot    float64  `json:"boot_seconds,omitempty"` // From the order to ready; 0: it is not ready.
	Use     *float64 `json:"use,omitempty"`          // Share of its CPUs that the busiest member uses; left out: not known.
	Members []Member `json:"members,omitempty"`
}

// A Member is a process, container or machine of a unit.
type Member struct {
	Name      string   `json:"name"`
	Component string   `json:"component"`
	PID       int      `json:"pid,omitempty"`
	VCPUs     float64  `json:"vcpus,omitempty"`        // Given; left out: no limit.
	CPU       *float64 `json:"cpus,omitempty"`         // In use; left out: not known.
	Memory    *float64 `json:"memory_bytes,omitempty"` // In use; left out: not known.
}
