package e2e

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"vitrine"
	"vitrine/internal/hosttest"
	"vitrine/load"
	"vitrine/load/sipp"
	"vitrine/search/rate"
	"vitrine/wire/sip"
)

// Hosts of the parts of an IMS behind the instances' ingresses.
const (
	homesteadHost = 20
	firstSprout   = 40
	sprouts       = 6
)

// An ims is a set of aggregates of the reference IMS. Each aggregate has a Bono, which is the
// ingress for the director, and its own Sprout. Aggregates share the state between
// transactions: registrations through the Sprouts, and subscribers through Homestead.
type ims struct {
	site
	directors string // addresses of the fleet
	fleet     fleet
	ledger    *ledger
	instances []*instance // serving, the oldest first
	stopped   []*instance
}

func (s site) sprouts(port int) string {
	var all []string
	for i := range sprouts {
		all = append(all, s.at(firstSprout+i, port))
	}
	return strings.Join(all, ",")
}

// newIMS starts the shared parts, the Sprouts of all aggregates, two aggregates of each
// type and two directors.
func newIMS(t *testing.T, transition time.Duration) *ims {
	t.Helper()
	m := &ims{site: newSite(t)}
	m.directors = m.at(firstDirector, sipPort) + "," + m.at(firstDirector+1, sipPort)
	m.component("homestead", homesteadHost, "--listen", m.at(homesteadHost, 8888), "--subscribers", "100000000")
	for i := range sprouts {
		m.component("sprout", firstSprout+i, "--listen", m.at(firstSprout+i, 5060), "--homestead", m.at(homesteadHost, 8888),
			"--self", m.at(firstSprout+i, 7000), "--peers", m.sprouts(7000), "--director", m.directors, "--initial-rate", "5000", "--target-latency", "5s")
	}
	var table []vitrine.Instance
	for _, ty := range []string{registration, session, registration, session} {
		table = append(table, entry(m.aggregate(ty), uint16(len(table)+1)))
	}
	for i := range 2 {
		m.fleet = append(m.fleet, m.director(firstDirector+i, options{Instances: table, Transition: transition.String(), Fail: 10}))
	}
	m.ledger = m.follow(m.fleet...)
	return m
}

// component runs a part of the IMS in its own process.
func (m *ims) component(name string, host int, args ...string) *process {
	m.t.Helper()
	return m.ready(spawnSelf(m.t, name, fmt.Sprintf("%s-%d", name, host), m.dir, args...))
}

// aggregate starts the ingress of the next aggregate. Its Sprout may have served an
// aggregate before.
func (m *ims) aggregate(ty string) *instance {
	m.t.Helper()
	n := len(m.stopped) + len(m.instances)
	host := firstInstance + n%60
	address := m.at(host, 5060)
	in := &instance{name: fmt.Sprintf("%s-%d", ty, n), ty: ty, address: address}
	in.process = m.component("bono", host, "--listen", address, "--sprout", m.at(firstSprout+n%sprouts, 5060), "--director", m.directors, "--target-latency", "5s")
	m.instances = append(m.instances, in)
	return in
}

// scenarios are the calls to the IMS.
var scenarios = []string{"reg-dereg", "reg-subscribe", "reg-invite"}

// callers run SIPp against the IMS through its directors.
type callers struct {
	m       *ims
	rate    float64      // calls per second of each scenario
	seconds float64      // duration of a trial
	users   atomic.Int64 // users of the trials so far
}

// trial runs the nth trial of a scenario. It uses new users at new addresses, because earlier
// users still get notifications of their subscriptions.
func (c *callers) trial(ctx context.Context, scenario, n int) (load.Report, error) {
	users := int64(2*c.rate*(c.seconds+115)) + 400 // two a call; a call has a timeout of 20 s per transaction
	t := load.Trial{
		Rate: c.rate, Duration: c.seconds, Seed: uint64(n), Scratch: c.m.t.TempDir(),
		Params: map[string]string{
			"scenario": scenarios[scenario], "retransmit": "true", "timeout": "20s", "port": "0",
			"users": fmt.Sprint(users), "first_user": fmt.Sprint(1 + c.users.Add(users) - users),
			"local": c.m.host(129 + len(scenarios)*(n%40) + scenario),
		},
	}
	for _, d := range c.m.fleet {
		t.Targets = append(t.Targets, d.address)
	}
	var out, errs bytes.Buffer
	if err := sipp.Run(ctx, t, &out, &errs); err != nil {
		return load.Report{}, fmt.Errorf("%s: %w: %s", scenarios[scenario], err, errs.String())
	}
	return load.ParseReport(&out)
}

// run repeats concurrent trials of all scenarios, until one trial of each has begun after done
// was set. It logs trials with failed calls immediately, and returns all reports.
func (c *callers) run(ctx context.Context, from int, done *atomic.Bool) ([]load.Report, error) {
	g, ctx := errgroup.WithContext(ctx)
	reports := make([][]load.Report, len(scenarios))
	for i := range scenarios {
		g.Go(func() error {
			for n, last := from, false; !last; n++ {
				last = done.Load()
				r, err := c.trial(ctx, i, n)
				if err != nil {
					return err
				}
				if r.Scheduled != r.Succeeded {
					c.m.t.Logf("%s, trial %d of %s: %d calls were scheduled, %d were made and %d succeeded; failures: %v",
						time.Now().UTC().Format(time.TimeOnly), n, scenarios[i], r.Scheduled, r.Offered, r.Succeeded, r.Failed)
				}
				reports[i] = append(reports[i], r)
			}
			return nil
		})
	}
	err := g.Wait()
	return slices.Concat(reports...), err
}

// halfLoad sets the rate to half of the capacity of the IMS. It increases the rate by a quarter
// from trial to trial; the capacity is the highest rate at which all calls succeed and the
// backlog does not grow. It returns the number of trials of each scenario.
func (c *callers) halfLoad(ctx context.Context) (trials int) {
	c.m.t.Helper()
	const step = 1.25
	window := c.seconds
	c.seconds = 20
	var once atomic.Bool
	once.Store(true)
	for c.rate = 10; ; c.rate *= step {
		reports, err := c.run(ctx, trials, &once)
		if err != nil {
			c.m.t.Fatal(err)
		}
		trials++
		if slices.ContainsFunc(reports, c.overloaded) {
			break
		}
	}
	c.seconds = window
	capacity := c.rate / step
	c.rate = capacity / 2
	c.m.t.Logf("capacity: %.1f calls/s of each scenario; the load is %.1f/s", capacity, c.rate)
	return trials
}

// overloaded reports whether a call failed, or the backlog may have grown by a fifth of the calls.
func (c *callers) overloaded(r load.Report) bool {
	o := vitrine.Outcome{Key: vitrine.Key{Rate: c.rate}, InFlight: r.InFlight}
	return r.Scheduled != r.Succeeded || rate.Grows(o, 0.2)
}

// keepChanging adds and drains aggregates and restarts directors, at least once, until n more
// transactions have ended.
func (m *ims) keepChanging(ctx context.Context, n int64) (rounds int) {
	m.t.Helper()
	after := func(n int64) {
		until := m.ledger.over.Load() + n
		eventually(m.t, "more transactions", func() bool { return m.ledger.over.Load() >= until || ctx.Err() != nil })
	}
	for until := m.ledger.over.Load() + n; rounds == 0 || m.ledger.over.Load() < until && ctx.Err() == nil; rounds++ {
		m.t.Logf("%s, round %d: %d transactions", time.Now().UTC().Format(time.TimeOnly), rounds, m.ledger.over.Load())
		after(30)
		m.grow()
		after(30)
		for _, d := range m.fleet {
			d.restart()
		}
		after(30)
		m.retire(2)
	}
	return rounds
}

// grow adds an aggregate of each type.
func (m *ims) grow() {
	m.t.Helper()
	for _, ty := range []string{registration, session} {
		m.fleet.put(entry(m.aggregate(ty), 0))
	}
	m.fleet.agree()
}

// retire drains the n oldest aggregates, removes them from the directors and stops them.
func (m *ims) retire(n int) {
	m.t.Helper()
	for _, in := range m.instances[:n] {
		m.fleet.drain(in.name)
		m.fleet.remove(in.name)
		in.stop()
	}
	m.stopped, m.instances = append(m.stopped, m.instances[:n]...), m.instances[n:]
}

// TestIMSThroughDirectors runs registrations, subscriptions and calls of SIPp through two
// directors to aggregates of the reference IMS. Meanwhile it adds and drains aggregates, and
// restarts both directors. Every call must succeed, and each transaction must stay on one
// aggregate. As a proof (docs/proofs.md), the load is half of the capacity.
func TestIMSThroughDirectors(t *testing.T) {
	requirePrograms(t, "sipp", "tcpdump")
	transactions, full := hosttest.ProofLength(t)
	transition := 6 * time.Second
	if full {
		transition = 32 * time.Second
	}
	m := newIMS(t, transition)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := &callers{m: m, rate: 40, seconds: 5}
	if hosttest.Raced {
		c.rate = 8
	}
	begun := 0
	if full {
		begun = c.halfLoad(ctx)
	}
	var changed atomic.Bool
	var reports []load.Report
	called := make(chan error, 1)
	go func() {
		defer cancel()
		var err error
		reports, err = c.run(ctx, begun, &changed)
		called <- err
	}()
	rounds := m.keepChanging(ctx, transactions)
	changed.Store(true)
	if err := <-called; err != nil {
		t.Fatal(err)
	}
	m.judge(reports, transition, rounds)
}

// judge fails the test unless every call succeeded, every transaction stayed on one aggregate,
// and every aggregate served transactions.
func (m *ims) judge(reports []load.Report, transition time.Duration, rounds int) {
	m.t.Helper()
	m.ledger.close()
	var scheduled, calls int64
	for _, r := range reports {
		scheduled, calls = scheduled+r.Scheduled, calls+r.Succeeded
	}
	if scheduled != calls {
		m.t.Errorf("%d calls were scheduled, %d succeeded", scheduled, calls)
	}
	m.t.Logf("%d calls, %d transactions, %d messages between directors and aggregates; %d rounds of changes", calls, m.ledger.over.Load(), m.ledger.messages, rounds)
	for _, stray := range m.ledger.strayedBut(func(r *record) bool { return r.longer(transition) }) {
		m.t.Errorf("a transaction changed aggregates: %s", stray)
	}
	if m.ledger.refused > 0 {
		m.t.Errorf("directors refused %d packets", m.ledger.refused)
	}
	for _, in := range append(m.stopped, m.instances...) {
		if m.ledger.began(in) == 0 {
			m.t.Errorf("%s got no transaction", in.name)
		}
	}
}

// A handset is the phone of a subscriber of the IMS.
type handset struct {
	*endpoint
	user     string
	sequence int // CSeq of the last request
}

func (m *ims) handset(host, subscriber int) *handset {
	m.t.Helper()
	return &handset{endpoint: m.endpoint(host, make(chan arrival, 64)), user: fmt.Sprintf("sub%06d", subscriber)}
}

// ask sends a request for a user through a director.
func (h *handset) ask(d *steward, method, user, callID string, headers ...string) {
	h.t.Helper()
	h.sequence++
	lines := append([]string{
		method + " sip:" + user + "@ims.test SIP/2.0",
		fmt.Sprintf("Via: SIP/2.0/UDP %s;branch=z9hG4bK-%s-%d", h.at, h.user, h.sequence),
		"Max-Forwards: 70",
		"From: <sip:" + h.user + "@ims.test>;tag=1",
		"To: <sip:" + user + "@ims.test>",
		"Call-ID: " + callID,
		fmt.Sprintf("CSeq: %d %s", h.sequence, method),
		"Contact: <sip:" + h.user + "@" + h.at + ">",
	}, headers...)
	h.send(d, strings.Join(append(lines, "Content-Length: 0", "", ""), "\r\n"))
}

// register registers the phone, or ends its registration if expires is 0.
func (h *handset) register(t *testing.T, d *steward, expires int) {
	t.Helper()
	callID := fmt.Sprintf("%s-register-%d", h.user, h.sequence)
	lifetime := fmt.Sprintf("Expires: %d", expires)
	h.ask(d, "REGISTER", h.user, callID, lifetime)
	challenged := next(t, h.got, "SIP/2.0 401 ", callID).message()
	c, ok := sip.ParseChallenge(challenged.WWWAuthenticate)
	if !ok {
		t.Fatalf("got challenge %q", challenged.WWWAuthenticate)
	}
	user, uri := []byte(h.user+"@ims.test"), []byte("sip:ims.test")
	credentials := sip.Credentials{
		User: user, Realm: c.Realm, Nonce: c.Nonce, URI: uri, QOP: c.QOP, Count: 1, CNonce: []byte("proof"),
		HA1: sip.HA1(nil, user, c.Realm, []byte("pw-"+h.user)), HA2: sip.HA2(nil, "REGISTER", uri),
	}
	h.ask(d, "REGISTER", h.user, callID, lifetime, string(credentials.AppendAuthorization([]byte("Authorization: "))))
	next(t, h.got, "SIP/2.0 200 ", callID)
}

// TestUsersOutliveTheirAggregates registers a phone, which then watches its registration. All
// aggregates are drained, removed and stopped. Through new ones a call must ring at the phone,
// and the phone must be notified when its registration ends.
func TestUsersOutliveTheirAggregates(t *testing.T) {
	t.Parallel()
	requirePrograms(t, "tcpdump")
	m := newIMS(t, 2*time.Second)
	callee, caller := m.handset(firstPhone, 1), m.handset(firstPhone+1, 2)
	one, other := m.fleet[0], m.fleet[1]
	callee.register(t, one, 3600)
	callee.ask(one, "SUBSCRIBE", callee.user, "watch", "Event: reg", "Expires: 3600")
	next(t, callee.got, "NOTIFY ", "watch").reply(one, 200)
	m.grow()
	m.retire(4)

	caller.register(t, other, 3600)
	caller.ask(other, "INVITE", callee.user, "call")
	invite := next(t, callee.got, "INVITE ", "call")
	invite.reply(one, 180)
	next(t, caller.got, "SIP/2.0 180 ", "call")
	invite.reply(one, 486)
	next(t, caller.got, "SIP/2.0 486 ", "call")

	callee.register(t, other, 0)
	for text := ""; !strings.Contains(text, "\r\nSubscription-State: terminated"); { // the first NOTIFY may have been repeated
		text = next(t, callee.got, "NOTIFY ", "watch").text
	}
}
