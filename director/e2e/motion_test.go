package e2e

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"vitrine"
	"vitrine/director/client"
	"vitrine/internal/hosttest"
)

// A motion is a set of instances and directors under load, and the changes to it.
type motion struct {
	site
	transition time.Duration
	fleet      fleet
	targets    []string // addresses for the phones: the directors, or a balancer in front of them
	ledger     *ledger
	instances  []*instance // serving, the oldest first
	stopped    []*instance
	next       int // host of the next instance
	phones     []*phones
	lose       float64                 // percent of the messages that phones lose
	steering   client.SteeringCounters // sums over the replaced processes
}

// newMotion starts two instances of each type and n directors.
func newMotion(t *testing.T, n int, transition string) *motion {
	t.Helper()
	requirePrograms(t, "kamailio", "sipp", "tcpdump")
	return newSite(t).motion(n, options{Transition: transition})
}

func (s site) motion(n int, o options) *motion {
	s.t.Helper()
	o.Fail = 10
	m := &motion{site: s, next: firstInstance, lose: 1}
	var err error
	if m.transition, err = time.ParseDuration(o.Transition); err != nil {
		s.t.Fatal(err)
	}
	var table []vitrine.Instance
	for range 2 {
		for _, ty := range []string{registration, session} {
			in := m.start(ty)
			table = append(table, entry(in, uint16(len(table)+1)))
		}
	}
	o.Instances = table
	for i := range n {
		d := m.director(firstDirector+i, o)
		m.fleet, m.targets = append(m.fleet, d), append(m.targets, d.address)
	}
	m.ledger = m.follow(m.fleet...)
	return m
}

// start starts another instance of a type.
func (m *motion) start(ty string) *instance {
	in := m.kamailio(m.next, fmt.Sprintf("%s-%d", ty, m.next), ty)
	m.next++
	if m.next >= firstInstance+62 { // the instances of the first hosts have long been stopped
		m.next = firstInstance
	}
	m.instances = append(m.instances, in)
	return in
}

// capacity returns the capacity of the whole setup, including the phones, in transactions per
// second, with many open calls.
func (m *motion) capacity() float64 {
	m.t.Helper()
	const calls = 500
	begun := time.Now()
	var all []*phones
	for i, target := range m.targets {
		for _, k := range kinds {
			all = append(all, m.phone(k, drive{target: target, host: firstPhone + i, calls: calls, rate: 20000, open: 16, tcp: m.tcp}))
		}
	}
	var sum tally
	for _, p := range all {
		sum.add(p.wait(patience))
	}
	if sum.failed > 0 {
		m.t.Fatalf("with no change in progress, %d of %d calls failed: %v", sum.failed, sum.made, sum.lost)
	}
	c := float64(sum.transactions) / time.Since(begun).Seconds()
	m.t.Logf("capacity is %.0f transactions/s", c)
	return c
}

// load starts phones of all kinds at every director, at half of the capacity.
func (m *motion) load(give time.Duration) {
	m.t.Helper()
	perRound := 0
	for _, k := range kinds {
		perRound += k.transactions
	}
	m.call(kinds, min(m.capacity(), 8000)/2/float64(perRound*len(m.targets)), give)
}

// call starts phones of the given kinds at every target, each with a rate of calls per second.
func (m *motion) call(of []kind, rate float64, give time.Duration) {
	m.t.Helper()
	for i, target := range m.targets {
		for _, k := range of {
			m.phones = append(m.phones, m.phone(k, drive{
				target: target, host: firstPhone + i, rate: rate, think: true, lose: m.lose, give: give, tcp: m.tcp,
			}))
		}
	}
}

// after waits until n more transactions have ended.
func (m *motion) after(n int64) {
	m.t.Helper()
	until := m.ledger.over.Load() + n
	eventually(m.t, fmt.Sprintf("%d transactions more", n), func() bool {
		for _, p := range m.phones {
			p.check()
		}
		return m.ledger.over.Load() >= until
	})
}

// finish waits for the calls to end and returns their sum.
func (m *motion) finish() (sum tally) {
	m.t.Helper()
	for _, p := range m.phones {
		p.finish()
	}
	for _, p := range m.phones {
		sum.add(p.wait(2 * patience))
	}
	return sum
}

// grow adds an instance of each type.
func (m *motion) grow() {
	m.t.Helper()
	for _, ty := range []string{registration, session} {
		m.fleet.put(entry(m.start(ty), 0))
	}
	m.fleet.agree()
}

// shift changes the weights of all instances, one after the other.
func (m *motion) shift(times int) {
	m.t.Helper()
	for range times {
		for _, in := range m.instances {
			weight := 50 + 100*rand.Float64()
			m.fleet.alter(in.name, client.Change{Weight: &weight})
		}
	}
}

// shrink drains the oldest instance of each type concurrently, removes them from the table, and
// stops them.
func (m *motion) shrink() {
	m.t.Helper()
	old := m.instances[:2]
	for _, in := range old {
		eventually(m.t, in.name+" has a transaction", func() bool { return m.ledger.began(in) > 0 })
	}
	state := vitrine.Draining
	for _, in := range old { // begin all drains before waiting for the first
		m.fleet.alter(in.name, client.Change{State: &state})
	}
	for _, in := range old {
		m.fleet.drain(in.name)
		m.fleet.remove(in.name)
	}
	m.fleet.agree()
	for _, in := range old {
		in.stop()
	}
	m.stopped = append(m.stopped, old...)
	m.instances = m.instances[2:]
}

// restart replaces every director's process, one after the other.
func (m *motion) restart() {
	m.t.Helper()
	m.count()
	for _, d := range m.fleet {
		d.restart()
	}
}

// count adds up the directors' steering counters, which start at zero in each process.
func (m *motion) count() {
	for _, d := range m.fleet {
		s := d.status().Steering
		m.steering.Kept += s.Kept
		m.steering.Moved += s.Moved
		m.steering.Gone += s.Gone
		m.steering.Unknown += s.Unknown
		m.steering.Forgotten += s.Forgotten
		m.steering.None += s.None
	}
}

// A count is the result of a motion.
type count struct{ transactions, lost, again, moved int64 }

func (c *count) add(o count) {
	c.transactions += o.transactions
	c.lost += o.lost
	c.again += o.again
	c.moved += o.moved
}

func (c count) String() string {
	return fmt.Sprintf("%d transactions; %d calls lost, %d requests sent again, %d transactions moved to another instance", c.transactions, c.lost, c.again, c.moved)
}

// TestKamailioThroughDirectors runs registrations, subscriptions, calls and cancelled calls
// through directors to instances of Kamailio, with 1% message loss. It adds and drains
// instances, changes weights, and restarts directors. No call may fail, and each transaction
// must stay on one instance.
func TestKamailioThroughDirectors(t *testing.T) {
	transactions, transition := int64(10_000), "4s"
	if hosttest.Raced {
		transactions, transition = 4000, "3s"
	}
	if n, full := hosttest.ProofLength(t); full {
		transactions, transition = (n+1)/2, "32s"
	}
	var all count
	t.Cleanup(func() { t.Log("in all:", all) })
	for _, c := range []struct {
		name string
		n    int
	}{{"one", 1}, {"two side by side", 2}} {
		t.Run(c.name, func(t *testing.T) {
			together := hosttest.Raced && c.n == 1 // run in parallel with other tests, so half of the capacity is not available
			if together {
				t.Parallel()
			}
			m := newMotion(t, c.n, transition)
			if together {
				m.call(kinds, 100, 0)
			} else {
				m.load(0)
			}
			all.add(m.keepChanging(transactions))
		})
	}
}

// keepChanging adds and drains instances and restarts directors while the phones call, until n
// more transactions have ended. Then it checks the director's guarantees.
func (m *motion) keepChanging(transactions int64) count {
	m.t.Helper()
	begun, until, rounds := time.Now(), m.ledger.over.Load()+transactions, 0
	for ; rounds == 0 || m.ledger.over.Load() < until; rounds++ {
		m.after(500)
		m.grow()
		m.after(500)
		m.shift(3)
		m.after(500)
		m.restart()
		m.after(500)
		m.shrink() // it begins within a transition of the other changes
		m.after(500)
		m.restart()
	}
	sum := m.finish()
	took := time.Since(begun)
	m.ledger.close()
	strayed := m.ledger.strayedBut(func(r *record) bool { return r.longer(m.transition) })
	c := count{sum.transactions, sum.failed, m.ledger.again, int64(len(m.ledger.strayed()))}
	m.t.Logf("%v; %s, %.1f s for 10,000; %d messages between directors and instances; %d rounds of changes",
		c, took.Round(time.Millisecond), took.Seconds()*1e4/float64(max(c.transactions, 1)), m.ledger.messages, rounds)
	m.judge(sum)
	if m.steering.Kept == 0 {
		m.t.Error("no transaction was kept at its instance, so the test proves nothing")
	}
	m.lost(sum, nil)
	m.report("a transaction changed instances", strayed, nil)
	return c
}

// captured fails the test if the capture has fewer transactions than the phones have counted,
// or if a director refused packets.
func (m *motion) captured(sum tally) {
	m.t.Helper()
	// A phone does not notice the 1% of ACKs that are lost.
	if over := m.ledger.over.Load(); over < sum.transactions*97/100 || m.ledger.refused > 0 {
		m.t.Errorf("the phones made %d transactions, the capture has %d; directors refused %d packets", sum.transactions, over, m.ledger.refused)
	}
}

// judge compares the phones' counts with the capture, and checks that each instance served
// transactions.
func (m *motion) judge(sum tally) {
	m.t.Helper()
	m.captured(sum)
	for _, in := range append(m.stopped, m.instances...) {
		if m.ledger.began(in) == 0 {
			m.t.Errorf("%s got no transaction", in.name)
		}
	}
	m.count()
	m.t.Logf("%d epochs; messages not steered by the current table alone: %+v", m.fleet[0].status().Epoch, m.steering)
}

// report fails the test for each violation, and shows the first few.
func (m *motion) report(what string, all []string, show func(string) string) {
	m.t.Helper()
	for i, one := range all {
		if i == 10 {
			m.t.Errorf("%s: %d in total", what, len(all))
			return
		}
		if show != nil {
			one = show(one)
		}
		m.t.Errorf("%s: %s", what, one)
	}
}

// lost fails the test for each failed call, except calls with an excused transaction, or with a
// transaction that took longer than a transition.
func (m *motion) lost(sum tally, excused func(*record) bool) {
	m.t.Helper()
	var lost []string
	for _, id := range sum.lost {
		if !slices.ContainsFunc(m.ledger.of(id), func(r *record) bool { return r.longer(m.transition) || excused != nil && excused(r) }) {
			lost = append(lost, id)
		}
	}
	if n := len(sum.lost) - len(lost); n > 0 && excused == nil {
		m.t.Logf("%d calls failed with a transaction that lasted longer than the transition of %s", n, m.transition)
	}
	m.report("lost", lost, m.history)
}

// history returns the transactions of a call in the capture.
func (m *motion) history(callID string) string {
	text := callID
	for _, r := range m.ledger.of(callID) {
		text += "; " + r.String()
	}
	return text
}

// TestKilledInstancesLoseWhatTheyHad kills an instance of each type under load. Each failed call
// must have had an open transaction at a killed instance at that moment.
func TestKilledInstancesLoseWhatTheyHad(t *testing.T) {
	m := newMotion(t, 2, "4s")
	m.lose = 0 // the capture does not show which messages a phone lost
	m.grow()
	m.load(10 * time.Second)
	m.after(1000)
	killed := m.instances[:2]
	for _, in := range killed {
		in.signal(syscall.SIGKILL)
	}
	for _, in := range killed {
		in.kill()
	}
	when := time.Now()
	for _, d := range m.fleet {
		for _, in := range killed {
			eventually(t, in.name+" is seen to be away", func() bool { return d.instance(in.name).Health == "away" })
		}
	}
	noticed := time.Since(when)
	m.after(2000)
	sum := m.finish()
	m.ledger.close()
	open := m.ledger.inFlight(killed[0], when) + m.ledger.inFlight(killed[1], when)
	t.Logf("%d transactions; killed %s and %s with %d open transactions, marked unhealthy after %s; %d calls lost",
		sum.transactions, killed[0].name, killed[1].name, open, noticed.Round(time.Millisecond), sum.failed)
	m.judge(sum)
	if open == 0 {
		t.Error("no transaction was open at the killed instances, so the test proves nothing")
	}
	if sum.failed > int64(open) {
		t.Errorf("%d calls were lost, but only %d were open at the killed instances", sum.failed, open)
	}
	for _, id := range sum.lost {
		if !m.ledger.hadOpen(id, killed, when) {
			t.Errorf("lost a call that was not open at a killed instance: %s", m.history(id))
		}
	}
	m.report("a transaction changed instances", m.ledger.strayed(killed...), nil)
}
