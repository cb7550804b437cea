// Package affinity finds which network functions should share a host. It reads
// transactions, counts the messages that functions exchange, finds the critical path, and
// decides for each type of transaction which functions share a host. It is the affinity
// analytics engine of Sheoran et al., "Contain-ed: An NFV Micro-Service System for
// Containing e2e Latency", 2017.
package affinity

import (
	"encoding/json"
	"fmt"
	"time"

	"vitrine/affinity/aggregate"
	"vitrine/affinity/course"
	"vitrine/affinity/flow"
	"vitrine/affinity/graph"
	"vitrine/document"
)

// Version is the version of the Analysis format. It increases when a reader of the
// older format would misread the newer one. Version 1 had times as numbers of ns since 1970.
const Version = 2

// An Analysis is what affinity.json has: types of transactions, how much functions
// have to do with each other in them, and the aggregates that serve them.
type Analysis struct {
	Version    int                   `json:"affinity" jsonschema:"required"`   // Version of this format.
	Delay      float64               `json:"delay_ms" jsonschema:"required"`   // Delay of a message between two sites, one way.
	Host       *aggregate.Resources  `json:"host,omitempty"`                   // The host that every aggregate fits into; left out: no limit.
	Types      []Type                `json:"types" jsonschema:"required"`      // In the order in which they were read.
	Reach      []graph.Reach         `json:"reach" jsonschema:"required"`      // Over all types, each flow as often as it happens.
	Aggregates []aggregate.Aggregate `json:"aggregates" jsonschema:"required"` // What to deploy.
	Unmatched  []string              `json:"unmatched_names,omitempty"`        // Functions of the names file that appear in no message, under any of their names.
	Captured   *Captured             `json:"captured,omitempty"`               // What packet captures have beside their transactions; left out: none was read.
}

// A Type is one type of transaction.
type Type struct {
	aggregate.Outcome
	Aggregate string        `json:"aggregate" jsonschema:"required"` // The name of the aggregate that serves it; empty: none of its functions may join one.
	Saved     float64       `json:"saved_ms" jsonschema:"required"`  // Time that the aggregate takes off the critical path, at delay_ms for each message.
	Flows     []Flow        `json:"flows" jsonschema:"required"`     // The different courses of such transactions.
	Pairs     []graph.Pair  `json:"pairs" jsonschema:"required"`     // The affinity graph.
	Reach     []graph.Reach `json:"reach" jsonschema:"required"`     // For each function, the functions that its messages reach.

	Measured *course.Measured `json:"measured,omitempty"` // What its transactions in captures did; left out: there are none.
}

// A Flow is one course of a transaction.
type Flow struct {
	Source    string      `json:"source" jsonschema:"required"`    // The file, or the name of a built-in flow.
	Title     string      `json:"title,omitempty"`                 // For people.
	Clauses   string      `json:"clauses,omitempty"`               // The TS and RFC clauses that it follows.
	Count     int         `json:"count" jsonschema:"required"`     // How often it happens.
	Duration  *flow.Times `json:"duration,omitempty"`              // From the first message to the end; left out: not measured.
	Functions []string    `json:"functions" jsonschema:"required"` // In the order in which they take part.
	Messages  []Step      `json:"messages" jsonschema:"required"`
}

// A Step is a message of a flow.
type Step struct {
	flow.Message
	Critical bool `json:"critical,omitempty"` // It is on the critical path.
}

// Options are the choices of an analysis.
type Options struct {
	Names *Names        // nil: functions keep the names and roles that the flows give them
	Delay time.Duration // between two sites, one way
	Apart bool          // an aggregate for each type, even if their members are the same

	AnyHost bool // every aggregate fits: the host of Names does not count

	Captured *Captured // nil: no capture was read; otherwise the analysed flows include its flows
}

// Analyse finds the aggregates of the flows. It renames the functions of the flows in
// place if the options have names.
func Analyse(flows []*flow.Transaction, o Options) (*Analysis, error) {
	var limits aggregate.Limits
	if o.Names != nil {
		if err := o.Names.Apply(flows); err != nil {
			return nil, err
		}
		var err error
		if limits, err = o.Names.Limits(); err != nil {
			return nil, err
		}
	}
	if o.AnyHost {
		limits.Host = aggregate.Resources{}
	}
	if err := aggregate.Conflict(flows); err != nil {
		return nil, err
	}
	a := &Analysis{Version: Version, Delay: o.Delay.Seconds() * 1000, Types: []Type{}, Reach: graph.Reaches(flows),
		Aggregates: []aggregate.Aggregate{}, Captured: o.Captured}
	if a.Reach == nil {
		a.Reach = []graph.Reach{}
	}
	if o.Names != nil {
		a.Unmatched = o.Names.unmatched(flows, o.Captured)
	}
	if limits.Host != (aggregate.Resources{}) {
		a.Host = &limits.Host
	}
	var outcomes []aggregate.Outcome
	for _, t := range aggregate.Types(flows) {
		out, err := aggregate.Decide(t, limits)
		if err != nil {
			return nil, err
		}
		outcomes = append(outcomes, out)
		a.Types = append(a.Types, Type{Outcome: out, Saved: out.Path.Saved() * a.Delay, Flows: describe(t.Flows),
			Pairs: graph.Pairs(t.Flows), Reach: graph.Reaches(t.Flows)})
		if o.Captured != nil {
			a.Types[len(a.Types)-1].Measured = o.Captured.Measured[t.Name]
		}
	}
	a.Aggregates = append(a.Aggregates, aggregate.Merge(outcomes, o.Apart)...)
	for _, g := range a.Aggregates {
		for _, served := range g.Types {
			for i := range a.Types {
				if a.Types[i].Type == served {
					a.Types[i].Aggregate = g.Name
				}
			}
		}
	}
	return a, nil
}

func describe(flows []*flow.Transaction) []Flow {
	var list []Flow
	for _, t := range flows {
		f := Flow{Source: t.Source, Title: t.Title, Clauses: t.Clauses, Count: t.Count, Duration: t.Duration, Functions: t.Functions()}
		for i, critical := range t.Critical() {
			f.Messages = append(f.Messages, Step{t.Messages[i], critical})
		}
		list = append(list, f)
	}
	return list
}

// JSON returns the analysis as the text of affinity.json.
func (a *Analysis) JSON() ([]byte, error) { return document.Indent(a) }

// Parse reads the text of affinity.json, also of version 1.
func Parse(text []byte) (*Analysis, error) {
	var head struct {
		Version int `json:"affinity"`
	}
	if err := json.Unmarshal(text, &head); err != nil {
		return nil, fmt.Errorf("no affinity.json: %w", err)
	}
	if head.Version < 1 || head.Version > Version {
		return nil, fmt.Errorf("affinity.json of version %d: want 1 to %d", head.Version, Version)
	}
	a := new(Analysis)
	if err := json.Unmarshal(text, a); err != nil {
		return nil, fmt.Errorf("no affinity.json: %w", err)
	}
	return a, nil
}
