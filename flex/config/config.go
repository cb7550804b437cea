// Package config reads the file that the orchestrator runs: which types of aggregates
// there are, what they are made of, and how many instances of each may run (Contain-ed,
// section 2, "AA Flex Orchestrator").
package config

import (
	"slices"
	"time"

	"go.yaml.in/yaml/v3"

	"vitrine/document"
	"vitrine/spec"
)

// A Config is the orchestrator's file.
type Config struct {
	document.File `yaml:"-"`

	Directors []Director   `yaml:"directors" jsonschema:"required,minItems=1,maxItems=16"` // The directors that steer to the instances; all of them side by side.
	Store     *Store       `yaml:"store"`                                                  // The store that keeps the state of the functions; left out: nothing watches it.
	Services  []Service    `yaml:"services" jsonschema:"maxItems=32"`                      // Commands that run on the host beside the instances, such as a director or a store; started first, in this order.
	Types     []Type       `yaml:"types" jsonschema:"required,minItems=1,maxItems=64"`     // The aggregate types.
	Limits    Limits       `yaml:"limits"`                                                 // Limits of all instances together.
	Servers   spec.Servers `yaml:"servers"`                                                // Where and how instances run, as in a deployment, with one value for each option.
	Control   Control      `yaml:"control"`                                                // Who may use the orchestrator's REST API.
	State     string       `yaml:"state"`                                                  // Folder for the state, the events and the logs of instances; default: the file's name with .flex.

	deployments map[string]*spec.Deployment // by the path in the file
}

// A Director says where a director's control address is, and how to authenticate.
type Director struct {
	Control     string `yaml:"control" jsonschema:"required,minLength=1,example=127.0.0.1:8090"` // Control address, such as 127.0.0.1:8090, https://director:8090 or unix:/run/director.sock.
	TokenFile   string `yaml:"token_file"`                                                       // File whose first line is the token to show.
	Authorities string `yaml:"authorities"`                                                      // PEM file: the authorities that certify the director.
	Certificate string `yaml:"certificate"`                                                      // PEM file: the certificate to show.
	Key         string `yaml:"key"`                                                              // PEM file: the certificate's key.
}

// A Service is a command that runs on the host as long as the orchestrator's instances do.
// It is started again when it ends.
type Service struct {
	Name        string           `yaml:"name" jsonschema:"required,format=name"`    // Unique name.
	Command     spec.Args        `yaml:"command" jsonschema:"required"`             // Program and arguments, as in a deployment. ${VITRINE_SPEC} is the file's folder, ${VITRINE_DIR} the service's own.
	Environment document.Strings `yaml:"environment"`                               // Environment of the command.
	Ready       string           `yaml:"ready" jsonschema:"example=127.0.0.1:8090"` // IP address and port that accepts a TCP connection when the service is ready; left out: it is ready as soon as it runs.
}

// A Type is a type of aggregate. Its instances are copies of a deployment, or of some of
// its components.
type Type struct {
	Name          string           `yaml:"name" jsonschema:"required,format=name"`               // The type's name, the same as in the director's configuration.
	Deployment    string           `yaml:"deployment" jsonschema:"required,minLength=1"`         // File with the components and the flavors of members.
	Members       []string         `yaml:"members" jsonschema:"minItems=1"`                      // Components that an instance has; default: all.
	Affinity      *Affinity        `yaml:"affinity"`                                             // An analysis that says which members an instance has, instead of members.
	Environment   document.Strings `yaml:"environment"`                                          // Variables of all members. They replace those of the deployment, such as the addresses of components that are not members.
	Flavors       []Flavor         `yaml:"flavors" jsonschema:"required,minItems=1,maxItems=26"` // Sizes of instances, with what each carries.
	Min           int              `yaml:"min" jsonschema:"minimum=1,maximum=10000,default=1"`   // Fewest instances.
	Max           int              `yaml:"max" jsonschema:"required,minimum=1,maximum=10000"`    // Most instances, those that start or drain included. What replaces the instances that a user drains, or one that all directors find away, comes on top.
	Objective     Objective        `yaml:"objective"`                                            // What transactions must meet.
	Drain         string           `yaml:"drain" jsonschema:"enum=transaction,enum=dialog"`      // What draining waits for: the director's drain of the type; default transaction.
	DrainDeadline time.Duration    `yaml:"drain_deadline" jsonschema:"format=positive-duration"` // A draining instance is stopped after this time, whatever it still does; default 5m. The time counts from when the directors drain it; during a lease they do not.
	StartDeadline time.Duration    `yaml:"start_deadline" jsonschema:"format=positive-duration"` // An instance that is not ready after this time is replaced; default 2m.
	Warm          time.Duration    `yaml:"warm" jsonschema:"format=whole-duration"`              // Time from ready to active, in which the instance gets nothing; default 0s.
	Boot          time.Duration    `yaml:"boot" jsonschema:"format=positive-duration"`           // How long an instance takes to become ready, until this orchestrator has started some itself; default: from the profile, or else 10s.
	Headroom      float64          `yaml:"headroom" jsonschema:"minimum=0,maximum=0.9"`          // Share of the capacity to keep free; default 0.1.
	Stable        time.Duration    `yaml:"stable" jsonschema:"format=positive-duration"`         // How long fewer instances must suffice before one is drained; default 60s.
	Polling       bool             `yaml:"polling"`                                              // If true, members poll, so that their CPU use says nothing about their load.
	Region        string           `yaml:"region" jsonschema:"format=name"`                      // Where its instances are, for the director.
	Redline       *Redline         `yaml:"redline"`                                              // When redline measures on live traffic what an instance carries; left out: never.
}

// Affinity names the analysis of call flows that says which functions belong together.
type Affinity struct {
	File      string `yaml:"file" jsonschema:"required,minLength=1,example=affinity.json"` // What vitrine affinity wrote.
	Aggregate string `yaml:"aggregate" jsonschema:"required,minLength=1"`                  // Name of an aggregate, or of a type of transaction that it serves.
}

// A Flavor is a size of an instance, with its capacity: a rate, or a profile.
type Flavor struct {
	Size    string  `yaml:"size" jsonschema:"required,minLength=1,example=bn1s-sp1s-hs1s"` // Size of the deployment; its name is the flavor's.
	Rate    float64 `yaml:"rate" jsonschema:"exclusiveMinimum=0"`                          // Transactions a second that an instance carries within the objective.
	Profile string  `yaml:"profile" jsonschema:"minLength=1"`                              // Instead of rate: folder of vitrine characterize with this size, or its profile.json; or a result file of vitrine redline.

	Transactions float64 `yaml:"transactions_per_call" jsonschema:"exclusiveMinimum=0,default=1"` // With profile: transactions at the director for each call of the profile's workload, such as 3 for a registration, its answer to the challenge and a deregistration.
}

// UnmarshalYAML decodes the flavor on top of its defaults.
func (f *Flavor) UnmarshalYAML(n *yaml.Node) error {
	type plain Flavor
	*f = Flavor{Transactions: 1}
	return n.Decode((*plain)(f))
}

// An Objective is what transactions must meet. Zero fields do not count.
type Objective struct {
	P99     time.Duration `yaml:"p99" jsonschema:"format=positive-duration"`         // Bound of the 99th percentile of latency.
	Success float64       `yaml:"success" jsonschema:"exclusiveMinimum=0,maximum=1"` // Least share of transactions that succeed.
}

// Limits are limits of all instances together; left out: no limit, unless a default is named.
type Limits struct {
	Instances int           `yaml:"instances" jsonschema:"minimum=1,maximum=10000"` // Instances of all types.
	Starting  int           `yaml:"starting" jsonschema:"minimum=1,maximum=10000"`  // Instances that start at the same time, because starts slow each other down; default: no limit.
	VCPUs     float64       `yaml:"vcpus" jsonschema:"exclusiveMinimum=0"`          // CPUs of all instances; default: the CPUs that instances may run on.
	Memory    document.Size `yaml:"memory"`                                         // Memory of all instances.
}

// Control says who may use the REST API. Changes over TCP need a token or a client
// certificate. Beyond loopback, all requests do, and TLS.
type Control struct {
	Listen      string `yaml:"listen" jsonschema:"example=127.0.0.1:8092"` // Address of the REST API and /metrics; left out: only the unix socket, for this user.
	TokenFile   string `yaml:"token_file"`                                 // File of tokens, one per line; a request carries one as Authorization: Bearer.
	Certificate string `yaml:"certificate"`                                // PEM file: the orchestrator's certificate and chain.
	Key         string `yaml:"key"`                                        // PEM file: the certificate's key.
	Clients     string `yaml:"clients"`                                    // PEM file: certificate authorities of clients, who must then present a certificate.
}

// What draining waits for.
const (
	DrainTransactions = "transaction"
	DrainDialogs      = "dialog"
)

// The defaults of a type.
const (
	DefaultDrainDeadline = 5 * time.Minute
	// DefaultHeadroom keeps noise of the rate from breaking the objective (docs/flex.md).
	DefaultHeadroom      = 0.1
	DefaultStartDeadline = 2 * time.Minute
)

// UnmarshalYAML decodes the type on top of its defaults.
func (t *Type) UnmarshalYAML(n *yaml.Node) error {
	type plain Type
	*t = Type{Min: 1, Headroom: DefaultHeadroom, Drain: DrainTransactions, DrainDeadline: DefaultDrainDeadline, StartDeadline: DefaultStartDeadline}
	return n.Decode((*plain)(t))
}

// Type returns the type with the name; nil: there is none.
func (c *Config) Type(name string) *Type {
	for i := range c.Types {
		if c.Types[i].Name == name {
			return &c.Types[i]
		}
	}
	return nil
}

// DeploymentOf returns the deployment that the type's instances are copies of.
func (c *Config) DeploymentOf(t *Type) *spec.Deployment { return c.deployments[t.Deployment] }

// MemberNames returns the names of the members of all types, sorted, each once.
func (c *Config) MemberNames() (names []string) {
	for i := range c.Types {
		names = append(names, c.Types[i].Members...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Choice returns the one choice of substrate and fabric.
func (c *Config) Choice() spec.Choice { return c.Servers.Choices()[0] }
