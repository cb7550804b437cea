// Package simulate replays a load against one aggregate type, second by second, under package
// decide or the rules of another autoscaler. docs/flex.md describes the model and its limits.
package simulate

import (
	"math"
	"math/rand/v2"
	"strconv"
	"time"

	"vitrine/flex/decide"
	"vitrine/flex/policy"
)

// A Case is the input of a simulation.
type Case struct {
	Type   decide.Type
	Limits decide.Limits
	Load   Load
	Boot   time.Duration // median time from a start to active; 0: the type's, or decide.DefaultBoot
	Spread float64       // standard deviation of the logarithm of the start time; 0: 0.2, below 0: none
	Drain  time.Duration // duration of a drain; 0: 5 s
	Queue  time.Duration // longest wait in an instance's queue; 0: 1 s
	Truth  float64       // real capacity as a share of the profile's capacity; 0: 1
	Seed   uint64        // seed of arrivals and start times
	Every  int           // seconds between two points of the curve; 0: no curve
	Acts   bool          // record the actions with their reasons
}

func (c *Case) defaults() {
	set := func(d *time.Duration, to time.Duration) {
		if *d <= 0 {
			*d = to
		}
	}
	set(&c.Boot, c.Type.Boot)
	set(&c.Boot, decide.DefaultBoot)
	set(&c.Drain, 5*time.Second)
	set(&c.Queue, time.Second)
	if c.Spread == 0 {
		c.Spread = 0.2
	}
	if c.Truth <= 0 {
		c.Truth = 1
	}
}

// A Result has the figures of one scaler.
type Result struct {
	Scaler          string  `json:"scaler"`
	Seconds         int     `json:"seconds"`
	InstanceSeconds float64 `json:"instance_seconds"` // sum over instances of the time from start to end of drain
	CPUSeconds      float64 `json:"cpu_seconds"`      // the same, weighted with the CPUs of the instance
	Broken          int     `json:"seconds_over"`     // seconds with a broken objective
	Arrived         float64 `json:"arrived"`          // transactions
	Lost            float64 `json:"lost"`             // refused transactions
	Starts          int     `json:"starts"`
	Drains          int     `json:"drains"`
	Undone          int     `json:"undone"` // starts that a drain undid within undoneWithin
	Most            int     `json:"most"`   // most instances at a time
	Curve           []Point `json:"curve,omitempty"`
	Acts            []Act   `json:"actions,omitempty"`
}

// A Point is one second of a curve.
type Point struct {
	Second   int     `json:"second"`
	Rate     float64 `json:"rate"`     // mean arriving rate, in transactions/s
	Capacity float64 `json:"capacity"` // capacity of the active instances by the profile, in transactions/s
	Exist    int     `json:"instances"`
	Broken   bool    `json:"broken"`
	Over     int     `json:"seconds_over"` // seconds with a broken objective so far
}

// undoneWithin is the time, in seconds, within which a drain counts as undoing a start.
const undoneWithin = 120

// A fleet is the state of a simulation.
type fleet struct {
	*Case
	random    *rand.Rand
	second    int
	now       time.Time
	instances []decide.Instance
	ready     []int // by instance: the second in which its start or drain ends
	named     int   // number in the name of the newest instance
	booted    []decide.Booted

	rate     float64 // transactions that arrived in this second
	refused  float64 // transactions refused in this second
	backlog  float64 // transactions in the queues
	starts   []int   // seconds of the starts that no drain has undone
	capacity float64 // capacity of the active instances, by the profile
	result   Result
	memory   decide.Memory
	held     decide.Cause // cause of the Hold in the last second
}

// run replays the case.
func run(c Case, name string, p policy.Policy) Result {
	c.defaults()
	f := &fleet{Case: &c, random: rand.New(rand.NewPCG(c.Seed, 0x73696d)), now: time.Unix(0, 0).UTC()}
	f.result.Scaler = name
	f.begin()
	for second, mean := range c.Load {
		f.second, f.now = second, f.now.Add(time.Second)
		f.age()
		f.serve(poisson(f.random, mean))
		f.scale(p)
		f.account(mean)
	}
	f.result.Seconds = len(c.Load)
	return f.result
}

// begin starts with enough active instances for the first rate.
func (f *fleet) begin() {
	flavor := f.Type.Lean()
	n := int(math.Ceil(f.Load[0] / (0.7 * flavor.Capacity)))
	for range min(max(n, f.Type.Min), f.Type.Max) {
		f.add(flavor.Name)
		f.instances[len(f.instances)-1].State = decide.Active
	}
	f.starts, f.result.Starts = nil, 0
	f.count()
}

func (f *fleet) flavor(name string) *decide.Flavor {
	for i := range f.Type.Flavors {
		if f.Type.Flavors[i].Name == name {
			return &f.Type.Flavors[i]
		}
	}
	return &f.Type.Flavors[0]
}

// add starts an instance.
func (f *fleet) add(flavor string) {
	f.named++
	took := f.Boot.Seconds()
	if f.Spread > 0 {
		took *= math.Exp(f.Spread * f.random.NormFloat64())
	}
	f.instances = append(f.instances, decide.Instance{Name: "i-" + strconv.Itoa(f.named), Type: f.Type.Name, Flavor: flavor, State: decide.Starting, Since: f.now})
	f.ready = append(f.ready, f.second+max(1, int(math.Ceil(took))))
	f.starts = append(f.starts, f.second)
	f.result.Starts++
}

// drain begins to drain an instance.
func (f *fleet) drain(i int) {
	f.instances[i].State, f.instances[i].Since = decide.Draining, f.now
	f.ready[i] = f.second + int(math.Ceil(f.Drain.Seconds()))
	f.result.Drains++
	if n := len(f.starts); n > 0 {
		if f.second-f.starts[n-1] <= undoneWithin {
			f.result.Undone++
		}
		f.starts = f.starts[:n-1]
	}
}

// resume cancels a drain.
func (f *fleet) resume(i int) {
	f.instances[i].State, f.instances[i].Since = decide.Active, f.now
}

// age completes the starts and drains that end in this second.
func (f *fleet) age() {
	kept := 0
	for i := range f.instances {
		in := f.instances[i]
		if f.second >= f.ready[i] {
			switch in.State {
			case decide.Starting:
				f.booted = append(f.booted, decide.Booted{Type: in.Type, Took: f.now.Sub(in.Since)})
				in.State, in.Since = decide.Active, f.now
			case decide.Draining, decide.Drained, decide.Stopping:
				continue
			}
		}
		f.instances[kept], f.ready[kept] = in, f.ready[i]
		kept++
	}
	f.instances, f.ready = f.instances[:kept], f.ready[:kept]
	f.count()
}

func (f *fleet) count() {
	f.capacity = 0
	for i := range f.instances {
		if f.instances[i].State == decide.Active {
			f.capacity += f.flavor(f.instances[i].Flavor).Capacity
		}
	}
}

// serve queues the arrivals of one second at the active instances, and refuses those that
// would wait longer than Queue.
func (f *fleet) serve(arrived float64) {
	f.rate = arrived
	carried := f.capacity * f.Truth
	work := f.backlog + arrived
	served := min(work, carried)
	f.backlog = min(work-served, carried*f.Queue.Seconds())
	f.refused = work - served - f.backlog
	f.result.Arrived += arrived
	f.result.Lost += f.refused
}

// wait returns the queueing time of a transaction that arrives now.
func (f *fleet) wait() time.Duration {
	if f.capacity == 0 {
		return 0
	}
	return time.Duration(f.backlog / (f.capacity * f.Truth) * float64(time.Second))
}

// service is the latency without queueing, as a share of the latency objective.
const service = 0.25

// latency returns the 99th percentile of latency in this second.
func (f *fleet) latency() time.Duration {
	return time.Duration(service*float64(f.bound())) + f.wait()
}

func (f *fleet) bound() time.Duration {
	if f.Type.Objective.P99 > 0 {
		return f.Type.Objective.P99
	}
	return f.Queue
}

func (f *fleet) success() float64 {
	if f.rate <= 0 {
		return 1
	}
	return 1 - min(1, f.refused/f.rate)
}

func (f *fleet) broken() bool {
	least := f.Type.Objective.Success
	if least == 0 {
		least = 1
	}
	return f.latency() > f.bound() || f.success() < least
}

func (f *fleet) account(mean float64) {
	r := &f.result
	r.InstanceSeconds += float64(len(f.instances))
	for i := range f.instances {
		r.CPUSeconds += f.flavor(f.instances[i].Flavor).CPUs
	}
	r.Most = max(r.Most, len(f.instances))
	broken := f.broken()
	if broken {
		r.Broken++
	}
	if f.Every > 0 && f.second%f.Every == 0 {
		r.Curve = append(r.Curve, Point{f.second, mean, f.capacity, len(f.instances), broken, r.Broken})
	}
}

// poisson draws from a Poisson distribution. Above a mean of 100 it uses the normal
// approximation.
func poisson(r *rand.Rand, mean float64) float64 {
	if mean > 100 {
		return max(0, math.Round(mean+math.Sqrt(mean)*r.NormFloat64()))
	}
	n, p := 0, math.Exp(-mean)
	for u := r.Float64(); u > p; n++ {
		u *= r.Float64()
	}
	return float64(n)
}
