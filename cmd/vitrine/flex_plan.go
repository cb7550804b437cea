package main

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"vitrine"
	"vitrine/flex"
	"vitrine/flex/config"
	"vitrine/flex/decide"
	"vitrine/flex/policy"
	"vitrine/flex/profile"
	"vitrine/internal/thread"
	"vitrine/result"
	"vitrine/testbed"
)

// A flexPlan is a checked file, completed with the limits of this host.
type flexPlan struct {
	file   *config.Config
	types  []decide.Type
	limits decide.Limits
	costs  map[string]map[string]flex.Cost // CPU costs from the profiles, by type and size

	policy     policy.Policy
	policyName string
}

// planFlex reads the file. It refuses a file that needs more than this host has.
func planFlex(path string) (p flexPlan, err error) {
	if p.file, err = config.Load(path, knownBackends()); err != nil {
		return p, err
	}
	cpus, err := thread.Allowed()
	if err != nil {
		return p, err
	}
	if named := p.file.Servers.CPUs; len(named) > 0 {
		if err := testbed.CheckCPUs(named, cpus); err != nil {
			return p, err
		}
		cpus = named
	}
	host := result.ReadHost("/")
	if why := host.Missing["memory_bytes"]; why != "" {
		return p, errors.New("read the host's memory: " + why)
	}
	if err := p.file.Fits(float64(len(cpus)), host.MemoryBytes); err != nil {
		return p, err
	}
	p.limits = flex.LimitsOf(p.file, float64(len(cpus)))
	p.costs = map[string]map[string]flex.Cost{}
	p.types, err = flex.Types(p.file, keepCosts(capacityOf(p.file), p.costs))
	return p, err
}

// checkReach refuses a fabric on which no director reaches the instances. Directors with unix sockets
// may be services of the file, which are also attached to the fabric. Nothing says which services are
// directors, so there must only be as many. On the fabric loopback, a director on another host would look
// for the instances on its own host.
func checkReach(c *config.Config) error {
	name := fabricName(c.Choice().Fabric)
	for _, d := range c.Directors {
		if name == "loopback" && isElsewhere(d.Control) {
			return c.BadInput("the fabric loopback does not lead out of this host, so the director at "+d.Control+" does not reach the instances",
				"use the fabric host with an interface, or one that leads out, such as macvlan with parent", "servers", "fabric")
		}
	}
	if !isolated(name, c.Servers.Parts[name]) {
		return nil
	}
	for _, d := range c.Directors {
		if !strings.HasPrefix(d.Control, "unix:") || len(c.Services) < len(c.Directors) {
			return c.BadInput("the fabric "+name+" connects instances to their own network, which the director at "+d.Control+" does not reach",
				"use loopback or host; for directors on other hosts, a fabric that leads out, such as macvlan with parent; "+
					"or a director that is one of the services, with control unix:SOCKET", "servers", "fabric")
		}
	}
	return nil
}

// isElsewhere reports whether a control address has an IP address that this host does not have.
func isElsewhere(control string) bool {
	if !strings.Contains(control, "://") {
		control = "http://" + control
	}
	u, err := url.Parse(control)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(u.Hostname())
	if err != nil || ip.IsLoopback() || ip.IsUnspecified() { // a name, or unix:PATH; or this host
		return false
	}
	own, err := net.InterfaceAddrs()
	return err == nil && !slices.ContainsFunc(own, func(a net.Addr) bool {
		network, ok := a.(*net.IPNet)
		return ok && network.IP.Equal(ip.AsSlice())
	})
}

// printFlexPlan prints what would run.
func (a *app) printFlexPlan(p flexPlan, asJSON bool) error {
	if asJSON {
		return printJSON(a.stdout, p.document())
	}
	choice := p.file.Choice()
	fmt.Fprintf(a.stdout, "%s: %d types on substrate %s, fabric %s\n", p.file.Path, len(p.types), choice.Substrate, fabricName(choice.Fabric))
	if p.policyName != policy.Flex {
		fmt.Fprintf(a.stdout, "policy %s: its rules decide instead of the orchestrator's own, for a comparison\n", p.policyName)
	}
	for _, s := range p.file.Services {
		fmt.Fprintf(a.stdout, "service %s: %s\n", s.Name, strings.Join(s.Command, " "))
	}
	if s := p.file.Store; s != nil && s.Member != nil {
		fmt.Fprintf(a.stdout, "members of the store: at most %d: %s\n", s.Member.Max, strings.Join(s.Member.Command, " "))
	}
	t := tabwriter.NewWriter(a.stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "TYPE\tMIN-MAX\tSIZE\tCAPACITY\tVCPUS\tMEMBERS")
	for i := range p.types {
		y, of := p.types[i], &p.file.Types[i]
		for _, f := range y.Flavors {
			fmt.Fprintf(t, "%s\t%d-%d\t%s\t%s/s\t%.4g\t%s\n", y.Name, y.Min, y.Max, f.Name, vitrine.Digits(f.Capacity), f.CPUs, strings.Join(of.Members, " "))
		}
	}
	return t.Flush()
}

// A capacityFinder determines the capacity of an instance of a flavor.
type capacityFinder func(*config.Type, config.Flavor) (flex.Capacity, error)

// keepCosts wraps a finder. It stores the CPU costs that the finder finds in costs, by type and
// size.
func keepCosts(find capacityFinder, costs map[string]map[string]flex.Cost) capacityFinder {
	return func(t *config.Type, f config.Flavor) (flex.Capacity, error) {
		found, err := find(t, f)
		if found.Cost.Each > 0 {
			if costs[t.Name] == nil {
				costs[t.Name] = map[string]flex.Cost{}
			}
			costs[t.Name][f.Size] = found.Cost
		}
		return found, err
	}
}

// capacityOf returns a function that determines the capacity of an instance of a flavor. It is the
// rate in the file, or the capacity in the profile or the result of redline that the file names.
func capacityOf(c *config.Config) func(*config.Type, config.Flavor) (flex.Capacity, error) {
	return func(t *config.Type, f config.Flavor) (flex.Capacity, error) {
		if f.Profile == "" {
			return flex.Capacity{Rate: f.Rate}, nil
		}
		if measured, ok, err := flex.ReadResult(f.Profile, t, f); ok {
			return measured, err
		}
		// The objective bounds a transaction, but the profile has the latency of calls.
		bound := time.Duration(float64(t.Objective.P99) * max(f.Transactions, 1))
		q := profile.Question{
			Function: c.DeploymentOf(t).VNFName, Size: f.Size, Substrate: strings.ToLower(c.Choice().Substrate),
			Success: t.Objective.Success, P99: bound, Host: result.ReadHost("/"), Members: membersOf(c, t, f),
		}
		found, err := profile.Read(f.Profile, q)
		return flex.Capacity{
			Rate: found.Rate * f.Transactions, Boot: found.Boot, Cost: flex.Cost{Idle: found.Idle, Each: found.Each / f.Transactions},
		}, err
	}
}

// membersOf returns the members of an aggregate of the flavor.
func membersOf(c *config.Config, t *config.Type, f config.Flavor) map[string]profile.Member {
	all := map[string]profile.Member{}
	sizing, err := vitrine.ParseSizing(f.Size)
	if err != nil {
		return all // the check of the file refuses such a type
	}
	d := c.DeploymentOf(t)
	for _, name := range t.Members {
		count, flavor := d.Given(d.Component(name), sizing)
		all[name] = profile.Member{Count: count, VCPUs: flavor.VCPUs}
	}
	return all
}

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
