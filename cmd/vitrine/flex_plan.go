package main

import (
	"cmp"

	"vitrine/flex/decide"
)

// A flexDocument is a flexPlan as JSON.
type flexDocument struct {
	Substrate   string        `json:"substrate"`
	Fabric      string        `json:"fabric"`
	Services    []flexService `json:"services,omitempty"`
	StoreMember *flexMember   `json:"store_member,omitempty"`
	Types       []flexType    `json:"types"`
	Limits      flexLimits    `json:"limits"`
	State       string        `json:"state"`
	Policy      string        `json:"policy"`
}

type flexService struct {
	Name    string   `json:"name"`
	Command []string `json:"command"`
}

type flexMember struct {
	Max     int      `json:"max"`
	Command []string `json:"command"`
}

type flexType struct {
	Name      string        `json:"name"`
	Min       int           `json:"min"`
	Max       int           `json:"max"`
	Members   []string      `json:"members"`
	Objective flexObjective `json:"objective"`
	Headroom  float64       `json:"headroom"`
	Stable    float64       `json:"stable_seconds"`
	Boot      float64       `json:"boot_seconds"` // until starts have been observed
	Flavors   []flexFlavor  `json:"flavors"`
}

type flexObjective struct {
	P99     float64 `json:"p99_seconds,omitempty"`
	Success float64 `json:"success,omitempty"`
}

type flexFlavor struct {
	Size     string  `json:"size"`
	Capacity float64 `json:"capacity"` // transactions per second
	VCPUs    float64 `json:"vcpus"`
	Memory   int64   `json:"memory_bytes"`
}

type flexLimits struct {
	Instances int     `json:"instances"`
	VCPUs     float64 `json:"vcpus"`
	Memory    int64   `json:"memory_bytes"`
	Starting  int     `json:"starting"`
}

// document returns the plan as JSON.
func (p *flexPlan) document() flexDocument {
	choice := p.file.Choice()
	d := flexDocument{
		Substrate: choice.Substrate, Fabric: fabricName(choice.Fabric), State: p.file.State, Policy: p.policyName,
		Limits: flexLimits{p.limits.Instances, p.limits.CPUs, p.limits.Memory, p.limits.Starting},
	}
	for _, s := range p.file.Services {
		d.Services = append(d.Services, flexService{s.Name, s.Command})
	}
	if s := p.file.Store; s != nil && s.Member != nil {
		d.StoreMember = &flexMember{s.Member.Max, s.Member.Command}
	}
	for i := range p.types {
		d.Types = append(d.Types, typeDocument(&p.types[i], p.file.Types[i].Members))
	}
	return d
}

func typeDocument(t *decide.Type, members []string) flexType {
	d := flexType{
		Name: t.Name, Min: t.Min, Max: t.Max, Members: members, Objective: flexObjective{t.Objective.P99.Seconds(), t.Objective.Success},
		Headroom: t.Headroom, Stable: cmp.Or(t.Stable, decide.DefaultStable).Seconds(), Boot: t.Boot.Seconds(),
	}
	for _, f := range t.Flavors {
		d.Flavors = append(d.Flavors, flexFlavor{f.Name, f.Capacity, f.CPUs, f.Memory})
	}
	return d
}
