package redline

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"vitrine"
	"vitrine/director/client"
	"vitrine/director/latency"
)

// A server is a simulated instance. It serves up to capacity transactions per second, one after the
// other. Each of them takes at least base.
type server struct {
	name     string
	weight   float64
	capacity float64
	base     time.Duration
	state    vitrine.State
	health   string
	stopped  bool   // true: answers nothing
	ringing  uint64 // calls in flight that have a provisional response

	backlog  float64 // transactions that wait
	begun    float64
	answered float64
	seen     latency.Histogram
	part     float64 // fraction of an answered transaction that seen does not count yet
}

// A world simulates a type: its instances and the directors in front of them. Each instance has its own
// address on loopback. The world uses the synthetic time of the synctest bubble.
type world struct {
	mu        sync.Mutex
	rate      float64 // transactions/s to all instances together
	servers   []*server
	directors []*simulated
	at        time.Time
	broken    time.Duration // total time in which some answer took longer than limit
	limit     time.Duration
	sticky    bool         // true: the traffic stays at its instances, whatever the lease says
	foreign   float64      // share of the rate that goes to the last instance, whatever the weights are
	on        func(*world) // called at each time step; nil: nothing
	random    *rand.Rand   // of Poisson arrivals; nil: transactions arrive evenly
}

func newWorld(rate float64, directors int, servers ...*server) *world {
	w := &world{rate: rate, servers: servers, at: time.Now(), limit: 100 * time.Millisecond}
	for i := range directors {
		w.directors = append(w.directors, &simulated{world: w, number: i})
	}
	return w
}

// shares returns the effective weight of each instance that is not away: the lease's, or else the base
// weight.
func (w *world) shares() map[string]float64 {
	all := map[string]float64{}
	for _, s := range w.servers {
		all[s.name] = s.weight
	}
	if d := w.directors[0]; d.isHeld() && !w.sticky {
		maps.Copy(all, d.lease.Weights)
	}
	for _, s := range w.servers {
		if s.health == "away" {
			delete(all, s.name)
		}
	}
	return all
}

// advance simulates the instances up to the present.
func (w *world) advance() {
	const slice = 5 * time.Millisecond
	for ; !w.at.After(time.Now().Add(-slice)); w.at = w.at.Add(slice) {
		if w.on != nil {
			w.on(w)
		}
		shares, sum := w.shares(), 0.0
		for _, s := range w.servers {
			sum += shares[s.name]
		}
		sum = max(sum, 1e-9) // all may be away or have weight 0
		late := false
		for i, s := range w.servers {
			share := shares[s.name] / sum * (1 - w.foreign)
			if i == len(w.servers)-1 {
				share += w.foreign
			}
			took := s.serve(w.arrivals(w.rate*share*slice.Seconds()), slice)
			late = late || took > w.limit
		}
		if late {
			w.broken += slice
		}
	}
}

// arrivals returns the number of arrivals in a time with this mean. Poisson arrivals have
// exponential gaps.
func (w *world) arrivals(mean float64) (n float64) {
	if w.random == nil {
		return mean
	}
	for at := w.random.ExpFloat64(); at < mean; at += w.random.ExpFloat64() {
		n++
	}
	return n
}

// serve adds arrivals to the backlog and serves for a time slice. It returns the latency of the
// answers.
func (s *server) serve(arrivals float64, slice time.Duration) time.Duration {
	s.begun += arrivals
	s.backlog += arrivals
	if s.stopped {
		return 0
	}
	served := min(s.backlog, s.capacity*slice.Seconds())
	wait := time.Duration(max(0, s.backlog-served) / s.capacity * float64(time.Second))
	s.backlog -= served
	s.answered += served
	s.part += served
	whole := math.Floor(s.part)
	s.part -= whole
	s.seen.Add(latency.Bucket(uint64((s.base + wait).Microseconds())), uint64(whole))
	return s.base + wait
}

// simulated is one director of a world.
type simulated struct {
	*world
	number int
	lease  client.Lease
	until  time.Time
	refuse bool                 // refuses acquisitions and renewals
	before uint64               // transactions of each instance that it counted before the test
	set    []map[string]float64 // weights that renewals have set, in order of time
}

func (d *simulated) isHeld() bool { return d.lease.Holder != "" && d.until.After(time.Now()) }

func (d *simulated) Status(context.Context) (client.Status, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.advance()
	digest := "base"
	if d.isHeld() {
		digest = fmt.Sprint(d.lease.Token, d.lease.Weights)
	}
	return client.Status{Digest: digest, Transition: 4, Types: []string{"session"}}, nil
}

func (d *simulated) Instances(context.Context) ([]client.Instance, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.advance()
	var all []client.Instance
	for i, s := range d.servers {
		in := client.Instance{Instance: vitrine.Instance{
			Name: s.name, Type: "session", Weight: s.weight, State: s.state, Address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, byte(i + 1)}), 5060),
		}, Health: s.health}
		if in.Health == "" {
			in.Health = "up"
		}
		in.Transactions, in.Ended = d.before, map[string]uint64{"succeeded": d.before}
		in.Latencies.Add(latency.Bucket(uint64(s.base.Microseconds())), d.before)
		if d.number == 0 { // all messages go by the first director
			in.Transactions = uint64(s.begun)
			in.InFlight, in.Proceeding = uint64(s.backlog)+s.ringing, s.ringing
			in.Ended = map[string]uint64{"succeeded": s.seen.Count()}
			in.Latencies.Merge(s.seen)
		}
		all = append(all, in)
	}
	return all, nil
}

func (d *simulated) Lease(context.Context, string) (client.Lease, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.isHeld() {
		return client.Lease{Type: "session", Token: d.lease.Token}, nil
	}
	return d.lease, nil
}

func (d *simulated) Acquire(_ context.Context, _ string, r client.LeaseRequest) (client.Lease, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.advance()
	if d.refuse || d.isHeld() || r.Token <= d.lease.Token {
		return client.Lease{}, &client.Error{Status: http.StatusConflict, Message: "no"}
	}
	d.lease = client.Lease{Type: "session", Token: r.Token, Holder: r.Holder, Weights: r.Weights, TTL: r.TTL}
	d.until = time.Now().Add(time.Duration(r.TTL * float64(time.Second)))
	return d.lease, nil
}

func (d *simulated) Renew(_ context.Context, _ string, token uint64, c client.LeaseChange) (client.Lease, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.advance()
	if d.refuse || !d.isHeld() || token != d.lease.Token {
		return client.Lease{}, &client.Error{Status: http.StatusConflict, Message: "stale"}
	}
	if c.Weights != nil {
		d.lease.Weights = maps.Clone(c.Weights)
		d.set = append(d.set, d.lease.Weights)
	}
	d.until = time.Now().Add(time.Duration(d.lease.TTL * float64(time.Second)))
	return d.lease, nil
}

func (d *simulated) Release(_ context.Context, _ string, token uint64) (client.Lease, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.advance()
	if token < d.lease.Token {
		return client.Lease{}, &client.Error{Status: http.StatusConflict, Message: "stale"}
	}
	d.lease = client.Lease{Type: "session", Token: token}
	return d.lease, nil
}

// options returns redline's options for measuring instance a of the world.
func (w *world) options() Options {
	o := Defaults()
	o.Precision = 0.1
	o.Type, o.Instance, o.Holder = "session", "a", "test"
	for _, d := range w.directors {
		o.Directors, o.Names = append(o.Directors, d), append(o.Names, fmt.Sprint("director ", d.number))
	}
	return o
}

// checkRestored fails the test if a director still has a lease. Without a lease, the base weights
// are effective.
func (w *world) checkRestored(t *testing.T) {
	t.Helper()
	for _, d := range w.directors {
		if d.lease.Holder != "" {
			t.Errorf("director %d still has a lease of %s", d.number, d.lease.Holder)
		}
	}
}

func three(capacity float64) []*server {
	return []*server{
		{name: "a", weight: 100, capacity: capacity, base: 10 * time.Millisecond},
		{name: "b", weight: 100, capacity: 1000, base: 10 * time.Millisecond},
		{name: "c", weight: 100, capacity: 1000, base: 10 * time.Millisecond},
	}
}

func find(w *world, name string) *server {
	i := slices.IndexFunc(w.servers, func(s *server) bool { return s.name == name })
	return w.servers[i]
}

// reset restarts the directors' counters.
func (w *world) reset() {
	for _, s := range w.servers {
		s.begun, s.part, s.seen = 0, 0, latency.Histogram{}
	}
}

// loseAfter lets an instance go away after a time.
func (w *world) loseAfter(d time.Duration, name string) {
	begin := time.Now()
	w.on = func(w *world) {
		if w.at.Sub(begin) > d {
			find(w, name).health = "away"
		}
	}
}

// gated reports whether a renewal set the weight of instance a to 0.
func (d *simulated) gated() bool {
	return slices.ContainsFunc(d.set, func(weights map[string]float64) bool { return weights["a"] == 0 })
}
