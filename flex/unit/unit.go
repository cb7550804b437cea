// Package unit defines the types that the orchestrator and its runner share: orders for
// units, and the states of units. A unit is an instance of an aggregate with all its members,
// or a service.
package unit

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"
)

// An Order asks for a unit. It is self-contained: apart from programs, images and install
// scripts, the runner needs no other file.
type Order struct {
	Name string `json:"name"` // Unique: lower-case letters, digits and dashes.

	// Fields of an instance.
	Type        string            `json:"type,omitempty"`        // Aggregate type; empty: a service.
	Path        string            `json:"path,omitempty"`        // Path of the deployment file; relative paths in the file start from its folder.
	Deployment  string            `json:"deployment,omitempty"`  // Text of the deployment file.
	Size        string            `json:"size,omitempty"`        // Sizing of the deployment.
	Members     []string          `json:"members,omitempty"`     // Components that the instance has.
	Number      uint16            `json:"number,omitempty"`      // Its ID in the directors and the value of ${VITRINE_NUMBER}.
	Environment map[string]string `json:"environment,omitempty"` // Variables of all members, or of the service.

	// Fields of a service.
	Folder  string   `json:"folder,omitempty"` // Working directory and the value of ${VITRINE_SPEC}.
	Command []string `json:"command,omitempty"`
	Ready   string   `json:"ready,omitempty"` // Address and port that accepts TCP when the service is ready; empty: it is ready at once.

	Deadline time.Duration `json:"deadline_ns"` // Longest time from the order to ready.
}

// Digest identifies the content of an order, without its name and number. If the digest of an
// instance differs from the digest of a new order, the files have changed since its start.
func (o Order) Digest() string {
	o.Name, o.Number = "", 0
	text, err := json.Marshal(o)
	if err != nil {
		return "" // cannot happen: all fields can be encoded
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
	Failed   State = "failed"   // it did not start, or a member ended: the other members are being stopped, or have stopped
	Removing State = "removing" // it is being stopped
)

// A Unit is the state of an order that a runner carries out.
type Unit struct {
	Name    string   `json:"name"`
	Type    string   `json:"type,omitempty"`
	Size    string   `json:"size,omitempty"`
	Number  uint16   `json:"number,omitempty"` // Number of its order.
	Digest  string   `json:"digest"`           // Digest of its order.
	State   State    `json:"state"`
	Reason  string   `json:"reason,omitempty"`       // Why it failed, with the end of the log.
	Address string   `json:"address,omitempty"`      // Address of the entry component, once it is ready.
	Age     float64  `json:"age_seconds"`            // Time since the order.
	Boot    float64  `json:"boot_seconds,omitempty"` // Time from the order to ready; 0: it is not ready.
	Use     *float64 `json:"use,omitempty"`          // CPU use of the busiest member, as a share of its limit; left out: not known.
	Members []Member `json:"members,omitempty"`
}

// A Member is a process, container or machine of a unit.
type Member struct {
	Name      string   `json:"name"`
	Component string   `json:"component"`
	PID       int      `json:"pid,omitempty"`
	VCPUs     float64  `json:"vcpus,omitempty"`        // CPU limit; left out: no limit.
	CPU       *float64 `json:"cpus,omitempty"`         // CPUs in use; left out: not known.
	Memory    *float64 `json:"memory_bytes,omitempty"` // Memory in use; left out: not known.
}
