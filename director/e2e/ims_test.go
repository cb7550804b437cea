package e2e

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"vitrine"
	"vitrine/load"
	"vitrine/load/sipp"
)

// Hosts of the parts of an IMS behind the instances' ingresses.
const (
	homesteadHost = 20
	firstSprout   = 40
	sprouts       = 6
)

// An ims is a set of aggregates of the reference IMS. Each is a Bono, which the director
// sends to, and its own Sprout. The state that outlives a transaction is shared: the
// Sprouts share registrations, and Homestead the subscribers.
type ims struct {
	site
	instances []*instance
}

func (s site) sprouts(port int) string {
	var all []string
	for i := range sprouts {
		all = append(all, s.at(firstSprout+i, port))
	}
	return strings.Join(all, ",")
}

// newIMS starts the shared parts and the Sprouts of all aggregates.
func newIMS(t *testing.T) *ims {
	t.Helper()
	m := &ims{site: newSite(t)}
	m.component("homestead", homesteadHost, "--listen", m.at(homesteadHost, 8888), "--subscribers", "200000")
	for i := range sprouts {
		m.component("sprout", firstSprout+i, "--listen", m.at(firstSprout+i, 5060), "--homestead", m.at(homesteadHost, 8888),
			"--self", m.at(firstSprout+i, 7000), "--peers", m.sprouts(7000), "--initial-rate", "5000", "--target-latency", "5s")
	}
	return m
}

// component runs a part of the IMS in its own process.
func (m *ims) component(name string, host int, args ...string) *process {
	m.t.Helper()
	return m.ready(spawnSelf(m.t, name, fmt.Sprintf("%s-%d", name, host), m.dir, args...))
}

// aggregate starts the ingress of the next aggregate.
func (m *ims) aggregate(ty string) *instance {
	m.t.Helper()
	n := len(m.instances)
	address := m.at(firstInstance+n, 5060)
	in := &instance{name: fmt.Sprintf("%s-%d", ty, n), ty: ty, address: address}
	in.process = m.component("bono", firstInstance+n, "--listen", address, "--sprout", m.at(firstSprout+n, 5060), "--target-latency", "5s")
	m.instances = append(m.instances, in)
	return in
}

// TestIMSThroughDirectors lets SIPp register, subscribe and call through two directors to
// aggregates of the reference IMS. Meanwhile aggregates are added and drained, and both
// directors restart. Every call must succeed, and each transaction must stay on one
// aggregate.
func TestIMSThroughDirectors(t *testing.T) {
	requirePrograms(t, "sipp", "tcpdump")
	const transition = 6 * time.Second
	m := newIMS(t)
	var table []vitrine.Instance
	for _, ty := range []string{registration, session, registration, session} {
		table = append(table, entry(m.aggregate(ty), uint16(len(table)+1)))
	}
	var f fleet
	for i := range 2 {
		f = append(f, m.director(firstDirector+i, options{Instances: table, Transition: transition.String(), Fail: 10}))
	}
	l := m.follow(f...)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	var changed atomic.Bool // all changes have been made
	reports := make([][]load.Report, 3)
	rate, users := 40.0, 10_000 // calls per second; a trial of 5 s with a timeout of 20 s needs 240 users per call/s
	if raced {
		rate, users = 8, 4000
	}
	for i, scenario := range []string{"reg-dereg", "reg-subscribe", "reg-invite"} {
		folder := t.TempDir()
		trial := load.Trial{
			Rate: rate, Duration: 5, Targets: []string{f[0].address, f[1].address},
			Params: map[string]string{
				"scenario": scenario, "retransmit": "true", "timeout": "20s", "port": "0",
				"users": strconv.Itoa(users),
			},
		}
		g.Go(func() error {
			for last := false; !last; trial.Seed++ {
				last = changed.Load()
				// Use new users at new addresses, because the earlier ones have
				// subscribed to notifications about themselves.
				trial.Params["local"] = m.host(129 + 3*(int(trial.Seed)%40) + i)
				trial.Params["first_user"] = fmt.Sprint(1 + users*(3*int(trial.Seed)+i))
				trial.Scratch = filepath.Join(folder, fmt.Sprint(trial.Seed))
				if err := os.Mkdir(trial.Scratch, 0o700); err != nil {
					return err
				}
				var out, errs bytes.Buffer
				if err := sipp.Run(ctx, trial, &out, &errs); err != nil {
					return fmt.Errorf("%s: %w: %s", scenario, err, errs.String())
				}
				r, err := load.ParseReport(&out)
				if err != nil {
					return err
				}
				reports[i] = append(reports[i], r)
			}
			return nil
		})
	}
	after := func(n int64) {
		until := l.over.Load() + n
		eventually(t, "more transactions", func() bool { return l.over.Load() >= until || ctx.Err() != nil })
	}
	after(30)
	for _, ty := range []string{registration, session} {
		f.put(entry(m.aggregate(ty), 0))
	}
	f.agree()
	after(30)
	for _, d := range f {
		d.restart()
	}
	after(30)
	for _, in := range m.instances[:2] {
		f.drain(in.name)
		f.remove(in.name)
	}
	changed.Store(true)
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	l.close()
	var calls int64
	for _, r := range slices.Concat(reports...) {
		calls += r.Succeeded
		if r.Scheduled != r.Succeeded {
			t.Errorf("of %d calls %d were made and %d succeeded; failures: %v", r.Scheduled, r.Offered, r.Succeeded, slices.Collect(maps.Keys(r.Failed)))
		}
	}
	t.Logf("%d calls, %d transactions, %d messages between directors and aggregates", calls, l.over.Load(), l.messages)
	for _, stray := range l.strayedBut(func(r *record) bool { return r.longer(transition) }) {
		t.Errorf("a transaction changed aggregates: %s", stray)
	}
	if l.refused > 0 {
		t.Errorf("directors refused %d packets", l.refused)
	}
	for _, in := range m.instances {
		if l.began(in) == 0 {
			t.Errorf("%s had no transaction", in.name)
		}
	}
}
