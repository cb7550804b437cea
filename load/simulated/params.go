package simulated

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"vitrine"
	"vitrine/load"
	"vitrine/search/sim"
)

// Params are the generator's parameters: the properties of the simulated
// function.
type Params struct {
	Demand   string  `json:"demand" yaml:"demand" jsonschema:"default=fn=1ms,description=CPU time of a call by component's short name: bn=1.3ms\\,sp=3ms"`
	Idle     string  `json:"idle" yaml:"idle" jsonschema:"description=CPUs of an instance without load by component: sp=0.05"`
	Cluster  string  `json:"cluster" yaml:"cluster" jsonschema:"description=share by which the demand grows with each doubling of the instances by component: sp=0.3"`
	VCPUs    string  `json:"vcpus" yaml:"vcpus" jsonschema:"default=s=1,description=CPUs by flavor's initial: s=1\\,m=2\\,l=4"`
	Collapse float64 `json:"collapse" yaml:"collapse" jsonschema:"default=1,description=success beyond the capacity is (capacity/rate) to this power: 1 saturates; 2 collapses"`
	Buffer   float64 `json:"buffer" yaml:"buffer" jsonschema:"default=0,description=queue places for random arrivals; fewer places make a rounder knee; 0: calls arrive evenly"`
	Loss     float64 `json:"loss" yaml:"loss" jsonschema:"default=0,description=share of the calls that fail at any rate"`
	Queue    float64 `json:"queue" yaml:"queue" jsonschema:"default=0,description=seconds' worth of calls that wait before one fails"`
	Damage   float64 `json:"damage" yaml:"damage" jsonschema:"default=0,description=share of the capacity that an overload takes while it lingers"`
	Bears    float64 `json:"bears" yaml:"bears" jsonschema:"default=0.35,description=share of the calls that may fail without damage"`
	Onset    float64 `json:"onset" yaml:"onset" jsonschema:"default=1,description=seconds of overload until most of the damage is done"`
	Recovery float64 `json:"recovery" yaml:"recovery" jsonschema:"default=0,description=seconds until most of the damage is gone; 0: only a fresh deployment heals"`
	Noise    float64 `json:"noise" yaml:"noise" jsonschema:"default=0,description=relative deviation of the capacity from second to second"`
	Hold     float64 `json:"hold" yaml:"hold" jsonschema:"default=0.8,description=how much of a second's deviation the next one keeps"`
	Luck     float64 `json:"luck" yaml:"luck" jsonschema:"default=0,description=relative deviation of the capacity from deployment to deployment"`
	Ceiling  float64 `json:"ceiling" yaml:"ceiling" jsonschema:"default=0,description=highest rate that the generator offers; 0: any"`
	Arrivals string  `json:"arrivals" yaml:"arrivals" jsonschema:"enum=paced,enum=poisson,default=paced,description=poisson: the number of calls per second varies as in a Poisson process; chance within a second is set by buffer"`
	Seed     float64 `json:"seed" yaml:"seed" jsonschema:"default=1,description=seed of all random numbers"`
}

// Defaults returns the default parameters.
func Defaults() Params {
	return Params{Demand: "fn=1ms", VCPUs: "s=1", Collapse: 1, Bears: 0.35, Onset: 1, Hold: 0.8, Arrivals: load.Paced, Seed: 1}
}

// Decode parses the parameters of a trial. Missing parameters keep their defaults.
// Its errors are *vitrine.BadInput and name the parameter.
func Decode(given map[string]string) (Params, error) {
	p := Defaults()
	texts := map[string]*string{"demand": &p.Demand, "idle": &p.Idle, "cluster": &p.Cluster, "vcpus": &p.VCPUs, "arrivals": &p.Arrivals}
	type number struct {
		into      *float64
		low, high float64
	}
	numbers := map[string]number{
		"collapse": {&p.Collapse, 0.1, 100}, "buffer": {&p.Buffer, 0, 1e6}, "loss": {&p.Loss, 0, 1}, "queue": {&p.Queue, 0, 3600},
		"damage": {&p.Damage, 0, 0.99}, "bears": {&p.Bears, 0, 1}, "onset": {&p.Onset, 0, 3600}, "recovery": {&p.Recovery, 0, 86400},
		"noise": {&p.Noise, 0, 1}, "hold": {&p.Hold, 0, 0.999}, "luck": {&p.Luck, 0, 1},
		"ceiling": {&p.Ceiling, 0, 1e9}, "seed": {&p.Seed, 0, 1 << 53},
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		value := given[name]
		if text, ok := texts[name]; ok {
			*text = value
			continue
		}
		n, ok := numbers[name]
		if !ok {
			return p, bad(name, value, "no such parameter; vitrine schema workload lists them")
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil || !(v >= n.low && v <= n.high) {
			return p, bad(name, value, fmt.Sprintf("want a number from %g to %g", n.low, n.high))
		}
		*n.into = v
	}
	if p.Arrivals != load.Paced && p.Arrivals != load.Poisson {
		return p, bad("arrivals", p.Arrivals, "want "+load.Paced+" or "+load.Poisson)
	}
	_, err := p.Function(nil)
	return p, err
}

func bad(name, value, want string) error {
	return &vitrine.BadInput{File: "generator simulated", Found: fmt.Sprintf("%s %q", name, value), Want: want}
}

// Function returns the simulated function. It must have every component and
// flavor of the sizing; the error names the missing one.
func (p Params) Function(sizing vitrine.Sizing) (*sim.Function, error) {
	f := &sim.Function{
		Collapse: p.Collapse, Buffer: int(p.Buffer), Loss: p.Loss, Queue: p.Queue, Ceiling: p.Ceiling, Seed: uint64(p.Seed),
		Noise:  sim.Noise{Deployment: p.Luck, Second: p.Noise, Hold: p.Hold},
		Memory: sim.Memory{Damage: p.Damage, Bears: p.Bears, Onset: p.Onset, Recovery: p.Recovery},
	}
	demands, err := table("demand", p.Demand, seconds)
	if err != nil {
		return nil, err
	}
	idle, err := table("idle", p.Idle, plain)
	if err != nil {
		return nil, err
	}
	cluster, err := table("cluster", p.Cluster, plain)
	if err != nil {
		return nil, err
	}
	flavors, err := table("vcpus", p.VCPUs, plain)
	if err != nil {
		return nil, err
	}
	for _, short := range slices.Sorted(maps.Keys(demands)) {
		c := sim.Component{Component: vitrine.Component{Name: short, Short: short, Scalable: true},
			Demand: demands[short], Idle: idle[short], Cluster: cluster[short]}
		f.Components = append(f.Components, c)
	}
	for initial, vcpus := range flavors {
		f.Flavors = append(f.Flavors, vitrine.Flavor{Name: initial, VCPUs: vcpus})
	}
	for _, part := range sizing {
		if _, ok := demands[part.Short]; !ok {
			return nil, bad("demand", p.Demand, fmt.Sprintf("size %s has component %s: add its CPU time per call", sizing, part.Short))
		}
		if _, ok := flavors[string(part.Initial)]; !ok {
			return nil, bad("vcpus", p.VCPUs, fmt.Sprintf("size %s has flavor %c: add its number of CPUs", sizing, part.Initial))
		}
	}
	return f, nil
}

// table parses name=value pairs separated by commas.
func table(name, text string, read func(string) (float64, bool)) (map[string]float64, error) {
	values := map[string]float64{}
	if text == "" {
		return values, nil
	}
	for field := range strings.SplitSeq(text, ",") {
		key, value, found := strings.Cut(strings.TrimSpace(field), "=")
		v, ok := read(value)
		if !found || key == "" || !ok {
			return nil, bad(name, text, "want name=value with commas between, such as fn=1ms of demand and fn=0.1 of others")
		}
		values[key] = v
	}
	return values, nil
}

func seconds(text string) (float64, bool) {
	d, err := time.ParseDuration(text)
	return d.Seconds(), err == nil && d > 0
}

func plain(text string) (float64, bool) {
	v, err := strconv.ParseFloat(text, 64)
	return v, err == nil && v >= 0 && !math.IsInf(v, 1)
}
