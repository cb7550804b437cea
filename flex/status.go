package flex

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"vitrine/flex/decide"
	"vitrine/flex/unit"
)

// A Status is a snapshot of an orchestrator after a step.
type Status struct {
	At        time.Time        `json:"at"`
	PID       int              `json:"pid"`
	Version   string           `json:"version"`
	Policy    string           `json:"policy"`               // Name of the policy: flex, or the rules of another autoscaler.
	Away      []string         `json:"away,omitempty"`       // Unreachable components, with the error. Without a director or the runner nothing is scaled; without any store nothing is drained.
	StorePast []string         `json:"store_past,omitempty"` // Operations of the store past their threshold: too many requests are slow or refused.
	Services  []ServiceStatus  `json:"services,omitempty"`
	Types     []TypeStatus     `json:"types"`
	Instances []InstanceStatus `json:"instances"`

	alerts int // events EventAlert whose reason still holds
}

// A ServiceStatus is the status of a service.
type ServiceStatus struct {
	Name     string     `json:"name"`
	State    unit.State `json:"state"`
	Reason   string     `json:"reason,omitempty"`   // Why it failed.
	Outdated bool       `json:"outdated,omitempty"` // It was started with another version of the file.
}

// A TypeStatus is the status of an aggregate type.
type TypeStatus struct {
	Name      string         `json:"name"`
	Min       int            `json:"min"`
	Max       int            `json:"max"`
	Known     bool           `json:"known"`              // The rate is fresh.
	Rate      float64        `json:"rate"`               // Transactions that arrive, per second.
	Refused   float64        `json:"refused"`            // Part of Rate that was refused or lost for lack of an instance.
	Capacity  float64        `json:"capacity"`           // Capacity of the active instances that some director finds up, in transactions per second.
	P99       float64        `json:"p99_seconds"`        // 99th percentile of latency over the last seconds, of the worst instance. A transaction that is late without a response counts as one of about 5 s, or longer.
	Success   float64        `json:"success"`            // Success ratio over the last seconds, of the worst instance.
	Instances map[string]int `json:"instances"`          // Number of instances, by state.
	Leased    bool           `json:"leased,omitempty"`   // redline is measuring an instance of the type: no scaling.
	Why       []string       `json:"why,omitempty"`      // Actions and holds of the last step, with their reasons.
	Memory    *MemoryStatus  `json:"memory,omitempty"`   // What the policy flex remembers of the type.
	Redline   *RedlineStatus `json:"redline,omitempty"`  // Left out: the type has no redline section.
	Outdated  int            `json:"outdated,omitempty"` // Instances started from another version of the files.
}

// A MemoryStatus is what package decide remembers of a type. Loads are in transactions per second.
type MemoryStatus struct {
	Level    float64   `json:"level"`                // The rate now, without noise.
	Forecast float64   `json:"forecast"`             // The rate expected at the end of a start.
	Peak     float64   `json:"peak"`                 // Highest rate to be carried within the stable time.
	Capacity float64   `json:"capacity"`             // Usable capacity of the starting, warming and active instances, by headroom and faith.
	Boot     float64   `json:"boot_seconds"`         // 90th percentile of the last starts.
	Faith    float64   `json:"faith"`                // Trusted share of the profile's capacity.
	Known    time.Time `json:"known_since,omitzero"` // Since when the rate has been known without a gap.
	Drained  time.Time `json:"drained,omitzero"`     // Time of the last drain.
	Failures int       `json:"failures"`             // Consecutive failures.
	Failed   time.Time `json:"failed,omitzero"`      // Time of the last failure.
	Died     string    `json:"died,omitempty"`       // Reason of the last failure.
}

// An InstanceStatus is the status of an instance.
type InstanceStatus struct {
	Name     string        `json:"name"`
	Type     string        `json:"type"`
	Size     string        `json:"size"`
	State    string        `json:"state"`
	InState  float64       `json:"in_state_seconds"`
	Address  string        `json:"address,omitempty"`
	Known    bool          `json:"known"` // The figures from the directors are fresh.
	Rate     float64       `json:"rate"`  // Transactions per second.
	InFlight uint64        `json:"in_flight"`
	Dialogs  int64         `json:"dialogs"`
	P99      float64       `json:"p99_seconds"`
	Success  float64       `json:"success"`
	CPU      *float64      `json:"cpu,omitempty"` // CPU use of the busiest member, as a share of its limit.
	Boot     float64       `json:"boot_seconds,omitempty"`
	Reason   string        `json:"reason,omitempty"`
	Members  []unit.Member `json:"members,omitempty"`
}

// Status returns the status after the last step, or at the start of Run. Callers must not modify it.
func (o *Orchestrator) Status() *Status { return o.status.Load() }

// Events returns the last events, oldest first.
func (o *Orchestrator) Events() []Event { return o.events.all() }

// publish stores the Status of this step for readers.
func (o *Orchestrator) publish(now time.Time) {
	s := &Status{At: now.UTC(), PID: os.Getpid(), Version: o.Version, Policy: o.PolicyName, StorePast: o.store.past, alerts: o.store.alerts(), Types: []TypeStatus{}, Instances: []InstanceStatus{}}
	for _, what := range slices.Sorted(maps.Keys(o.away)) {
		s.Away = append(s.Away, fmt.Sprintf("%s: %s", what, o.away[what]))
	}
	for _, c := range o.wantedServices() {
		if u := o.services[c.Name]; u != nil {
			s.Services = append(s.Services, ServiceStatus{Name: c.Name, State: cmp.Or(u.unit.State, unit.Starting), Reason: u.unit.Reason, Outdated: u.outdated})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.instances)) {
		s.Instances = append(s.Instances, o.describe(o.instances[name], now))
	}
	slices.SortStableFunc(s.Instances, func(a, b InstanceStatus) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(len(a.Name), len(b.Name)), cmp.Compare(a.Name, b.Name))
	})
	for _, t := range o.Types {
		s.Types = append(s.Types, o.describeType(t))
		if r := o.types[t.Name]; r != nil && r.differs {
			s.alerts++
		}
	}
	o.status.Store(s)
}

func (o *Orchestrator) describe(in *instance, now time.Time) InstanceStatus {
	s := InstanceStatus{
		Name: in.Name, Type: in.Type, Size: in.Size, State: stateName(in.State), InState: now.Sub(in.since).Seconds(), Known: in.known, Success: 1,
		CPU: in.unit.Use, Boot: in.unit.Boot, Reason: in.reason, Members: in.unit.Members,
	}
	if in.Address.IsValid() {
		s.Address = in.Address.String()
	}
	if in.known {
		late := in.lately()
		s.Rate, s.InFlight, s.Dialogs = in.lastStep().Rate(), late.InFlight, max(late.Dialogs, 0)
		s.P99, s.Success = late.Quantile(0.99).Seconds(), late.Success()
	}
	return s
}

func (o *Orchestrator) describeType(t decide.Type) TypeStatus {
	s := TypeStatus{Name: t.Name, Min: t.Min, Max: t.Max, Instances: map[string]int{}, Why: slices.Clone(o.why[t.Name]), Success: 1, Redline: o.describeRedline(t.Name)}
	if m := o.memory.Types[t.Name]; m != nil {
		s.Memory = &MemoryStatus{
			Level: m.Sight.Level, Forecast: m.Sight.Forecast, Peak: m.Sight.Peak, Capacity: m.Sight.Capacity, Boot: m.Sight.Boot.Seconds(),
			Faith: m.Faith, Known: m.Known.UTC(), Drained: m.Drained.UTC(), Failures: m.Failures, Failed: m.Failed.UTC(), Died: m.Died,
		}
	}
	if r := o.types[t.Name]; r != nil {
		s.Known, s.Leased = r.known, r.leased
		if r.known {
			s.Refused, s.Rate = r.rate, r.rate
		}
	}
	for _, in := range o.instances {
		if in.Type != t.Name {
			continue
		}
		s.Instances[stateName(in.State)]++
		if in.State == decide.Active && in.Lost == 0 {
			s.Capacity += o.capacity(in)
		}
		if digest := o.orderDigest(in); in.unit.Digest != "" && digest != in.unit.Digest {
			s.Outdated++
		}
		if !in.known {
			continue
		}
		s.Rate += in.lastStep().Rate()
		late := in.lately()
		s.P99, s.Success = max(s.P99, late.Quantile(0.99).Seconds()), min(s.Success, late.Success())
	}
	return s
}

// orderDigest returns the digest of an order for the instance from the present files. An order has
// the whole deployment, so the digest is computed only once for each type and size.
func (o *Orchestrator) orderDigest(in *instance) string {
	t := o.File.Type(in.Type)
	if t == nil {
		return ""
	}
	key := [2]string{in.Type, in.Size}
	if _, known := o.digests[key]; !known {
		o.digests[key] = o.order(t, in).Digest()
	}
	return o.digests[key]
}
