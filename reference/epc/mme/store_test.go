package mme_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"vitrine/internal/truth"
	"vitrine/reference/epc/mme"
	"vitrine/reference/epc/ue"
	"vitrine/reference/keep"
	"vitrine/store"
	"vitrine/store/client"
	"vitrine/store/embedded"
	"vitrine/store/service/servicetest"
	"vitrine/wire/nas"
	"vitrine/wire/s1ap"
)

// A shared is a store for the MMEs of a test.
type shared struct{ *servicetest.Store }

func newShared(t *testing.T) shared {
	t.Helper()
	return shared{servicetest.Serve(t, newEngine(t))}
}

func newEngine(t *testing.T) store.Engine {
	t.Helper()
	engine, err := embedded.Open(embedded.Config{Dir: t.TempDir(), Now: time.Now, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return engine
}

// A slowEngine holds writes until the gate is closed, while it is slow.
type slowEngine struct {
	store.Engine
	slow atomic.Bool
	held chan struct{} // a token for each write that waits
	gate chan struct{}
}

func (e *slowEngine) Write(ctx context.Context, space string, ops ...store.Op) error {
	if e.slow.Load() {
		e.held <- struct{}{}
		select {
		case <-e.gate:
		case <-ctx.Done():
		}
	}
	return e.Engine.Write(ctx, space, ops...)
}

// pair returns two MMEs with one store, one HSS and one gateway.
func (s shared) pair(t *testing.T, change func(*mme.Config)) (one, two *bed) {
	t.Helper()
	join := func(instance uint8, before *bed) *bed {
		b := start(t, func(c *mme.Config) {
			c.Instance, c.Workers = instance, int(instance)
			var err error
			c.Store, err = keep.New(keep.Config{
				Access: client.Access{URL: s.URL}, Space: "mme", Timeout: patience, Calls: 16,
			}, "mme", slog.New(slog.DiscardHandler), c.Registry)
			if err != nil {
				t.Fatal(err)
			}
			if before != nil {
				c.Subscribers, c.Gateway = before.hss, before.gateway
			}
			if change != nil {
				change(c)
			}
		})
		if before != nil {
			b.hss, b.gateway = before.hss, before.gateway
		}
		return b
	}
	one = join(1, nil)
	return one, join(2, one)
}

// goTo moves an idle UE to another eNodeB.
func (p *phone) goTo(e *base) { p.at = e }

// TestUEMovesBetweenMMEs attaches a UE at one MME and has all procedures served by the
// other, and back.
func TestUEMovesBetweenMMEs(t *testing.T) {
	one, two := newShared(t).pair(t, nil)
	a, b := one.enodeb(1), two.enodeb(2)
	p := a.phone(1)
	p.attach()
	p.idle()
	one.until("the context is in the store alone", func() bool { return one.count("contexts") == 0 })

	p.goTo(b)
	p.serve()
	p.idle()
	p.goTo(a)
	p.serve()
	p.idle()

	p.goTo(b)
	p.Connect()
	p.begin(p.AppendUpdate(nil, false))
	p.download(ue.Updated)
	p.hangUp()

	p.goTo(a)
	p.begin(p.AppendAttach(nil)) // with the keys that it has
	p.accept()
	p.idle()
	if got := one.count("attaches_with_known_keys_total"); got != 1 {
		t.Errorf("got %d attaches with known keys, want 1", got)
	}

	p.goTo(b)
	p.Connect()
	p.begin(p.AppendDetach(nil, false))
	p.download(ue.Detached)
	p.hangUp()
	two.until("nothing is left", func() bool {
		return two.gateway.Len() == 0 && two.hss.Located() == 0 && one.count("contexts") == 0 && two.count("contexts") == 0
	})
	p.begin(p.AppendService(nil))
	p.rejected(nas.CauseIdentityUnderived)
	if one.count("taken_over_total") != 2 || two.count("taken_over_total") != 3 {
		t.Errorf("got %d and %d take-overs, want 2 and 3", one.count("taken_over_total"), two.count("taken_over_total"))
	}
}

// TestRecordOfAnotherBuild changes the record of a UE to one that this build cannot parse. The MME must
// tell the UE to attach again. The attach must succeed and replace the record.
func TestRecordOfAnotherBuild(t *testing.T) {
	var kept *keep.Store
	one, two := newShared(t).pair(t, func(c *mme.Config) { kept = c.Store })
	a, b := one.enodeb(1), two.enodeb(2)
	p := a.phone(1)
	p.attach()
	p.idle()
	one.until("the context is in the store alone", func() bool { return one.count("contexts") == 0 })
	key := "ue/" + p.IMSI.String()
	r, err := kept.Get(t.Context(), key)
	record := map[string]any{}
	if err == nil {
		err = json.Unmarshal(r.Value, &record)
	}
	if err != nil {
		t.Fatal(err)
	}
	record["cipher"] = 7
	if r.Value, err = json.Marshal(record); err != nil {
		t.Fatal(err)
	}
	r.Expires = time.Now().Add(time.Hour)
	if err := kept.Put(t.Context(), key, r, keep.Move{}); err != nil {
		t.Fatal(err)
	}

	p.goTo(b)
	p.begin(p.AppendService(nil))
	p.rejected(nas.CauseIdentityUnderived)
	if err := two.gateway.DeleteSession(t.Context(), mme.Session{Control: 1}); err != nil { // other gateways replace it themselves
		t.Fatal(err)
	}
	two.hss.SetSQN(p.IMSI, 100)
	p = b.phone(1) // without a GUTI, as after that cause
	p.attach()
	p.idle()
	p.goTo(a)
	p.serve()
}

// TestOneOfTwoMMEsWins sends a service request to two MMEs at the same time.
func TestOneOfTwoMMEsWins(t *testing.T) {
	one, two := newShared(t).pair(t, nil)
	a, b := one.enodeb(1), two.enodeb(2)
	p := a.phone(1)
	p.attach()
	p.idle()
	for range 10 {
		request := p.AppendService(nil)
		short := p.GUTI.STMSI()
		won := 0
		for _, e := range []*base{a, b} {
			e.last++
			e.send(e.AppendInitial(nil, e.last, request, &short))
		}
		for _, e := range []*base{a, b} {
			if !e.receive() {
				t.Fatal("the association ended")
			}
			if e.message.Procedure == s1ap.InitialContextSetup {
				won++
				p.at, p.ids = e, e.message.IDs
				p.Serve()
				e.send(e.AppendContextSetUp(nil, p.ids, e.message.Bearer))
				continue
			}
			e.expect(s1ap.Initiating, s1ap.UEContextRelease) // after the rejection
			e.send(e.AppendReleased(nil, e.message.IDs))
		}
		if won != 1 {
			t.Fatalf("%d MMEs serve the UE, want 1", won)
		}
		p.reached(p.at)
		p.idle()
	}
}

// TestStaleMMEChangesNothing leaves a UE connected at one MME, while it comes to the
// other. What the first still does for it changes nothing.
func TestStaleMMEChangesNothing(t *testing.T) {
	one, two := newShared(t).pair(t, nil)
	a, b := one.enodeb(1), two.enodeb(2)
	p := a.phone(1)
	p.attach()
	stale := p.ids
	p.goTo(b)
	p.serve()
	a.send(a.AppendReleaseRequest(nil, stale, s1ap.CauseUserInactivity))
	a.expect(s1ap.Initiating, s1ap.UEContextRelease)
	a.send(a.AppendReleased(nil, stale))
	one.until("the first MME has no context", func() bool { return one.count("contexts") == 0 })
	p.reached(b) // still
	p.idle()
}

// TestSilentUEIsDetachedByTheStoresTimer lets a UE stay silent.
func TestSilentUEIsDetachedByTheStoresTimer(t *testing.T) {
	one, _ := newShared(t).pair(t, func(c *mme.Config) { c.Timers.Reachable = time.Second })
	a := one.enodeb(1)
	p := a.phone(1)
	p.attach()
	q := a.phone(2)
	q.attach()
	p.idle()
	one.until("the silent UE is detached", func() bool { return one.ended("detach", "implicit") == 1 && one.hss.Located() == 1 })
	if of := one.gateway.Sessions(q.IMSI); len(of) != 1 {
		t.Errorf("a connected UE has %d sessions, want 1", len(of))
	}
}

// TestStoredUEIsPaged pages a UE whose context is in the store alone. The log of messages
// has the paging with the event that caused it.
func TestStoredUEIsPaged(t *testing.T) {
	file := filepath.Join(t.TempDir(), "messages")
	log, err := truth.Open(file, "mme")
	if err != nil {
		t.Fatal(err)
	}
	one, two := newShared(t).pair(t, func(c *mme.Config) { c.Messages = log })
	a := one.enodeb(1)
	p := a.phone(1)
	p.attach()
	p.idle()
	b := two.enodeb(1)
	of := log.Begin()
	if !two.mme.Page(truth.With(t.Context(), of), p.IMSI) {
		t.Fatal("the second MME does not know the UE")
	}
	if m := b.expect(s1ap.Initiating, s1ap.Paging); m.Paged != p.GUTI.STMSI() {
		t.Errorf("paging: got %+v", m.Paged)
	}
	p.goTo(b)
	p.serve()
	if got := two.ended("paging", "success"); got != 1 {
		t.Errorf("%d pagings succeeded, want 1", got)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	lines, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf(`"name":"paging","event":%d,`, of); !strings.Contains(string(lines), want) {
		t.Errorf("the log of messages has no %s: %s", want, lines)
	}
}

// TestProceduresAreRefusedWithoutTheStore breaks the store. Procedures are refused with
// congestion, and the UE is served when the store is back.
func TestProceduresAreRefusedWithoutTheStore(t *testing.T) {
	s := newShared(t)
	one, two := s.pair(t, nil)
	a, b := one.enodeb(1), two.enodeb(2)
	p := a.phone(1)
	p.attach()
	p.idle()
	s.Away.Store(true)
	p.goTo(b)
	p.begin(p.AppendService(nil))
	p.rejected(nas.CauseCongestion)
	p.Connect()
	p.begin(p.AppendUpdate(nil, false))
	p.rejected(nas.CauseCongestion)
	p.begin(p.AppendDetach(nil, false))
	p.hangUp()
	q := b.phone(2)
	q.begin(q.AppendAttach(nil))
	q.rejected(nas.CauseCongestion)
	for _, procedure := range []string{"service-request", "tracking-area-update", "detach", "attach"} {
		if got := two.ended(procedure, "congestion"); got != 1 {
			t.Errorf("%d of %s were refused, want 1", got, procedure)
		}
	}
	if got := two.count("store_refused_total"); got != 4 {
		t.Errorf("counted %d refusals, want 4", got)
	}
	s.Away.Store(false)
	two.until("the store is back", func() bool { return two.count("store_up") == 1 })
	p.serve()
}

// TestDedicatedBearersMoveBetweenMMEs makes a dedicated bearer at one MME. The UE gets it at
// the other one, which removes it. An idle UE is paged for one by the MME that has not seen
// it.
func TestDedicatedBearersMoveBetweenMMEs(t *testing.T) {
	one, two := newShared(t).pair(t, nil)
	e, f := one.enodeb(1), two.enodeb(1)
	p := e.phone(1)
	p.attach()
	done := p.wanted()
	p.activate()
	if got := await(t, "the bearer", done); got.err != nil {
		t.Fatal(got.err)
	}
	p.idle()
	p.goTo(f)
	second := p.wanted()
	if m := f.expect(s1ap.Initiating, s1ap.Paging); m.Paged != p.GUTI.STMSI() {
		t.Fatalf("got paging of %v", m.Paged)
	}
	p.begin(p.AppendService(nil))
	m := f.expect(s1ap.Initiating, s1ap.InitialContextSetup)
	if got := m.Bearers(); string(got) != string([]byte{5, 6}) {
		t.Errorf("bearers in the context: got %v", got)
	}
	p.ids.MME = m.IDs.MME
	p.Serve()
	f.send(f.AppendContextSetUp(nil, p.ids, m.Bearers()...))
	p.activate()
	if got := await(t, "the second bearer", second); got.err != nil || got.bearer.ID != 7 {
		t.Errorf("%+v", got)
	}
}

// TestChangeDuringAWriteIsMade asks for a dedicated bearer while the store writes the record
// of the UE.
func TestChangeDuringAWriteIsMade(t *testing.T) {
	g := &slowEngine{Engine: newEngine(t), held: make(chan struct{}, 16), gate: make(chan struct{})}
	one, _ := shared{servicetest.Serve(t, g)}.pair(t, func(c *mme.Config) { c.CallTime = patience })
	p := one.enodeb(1).phone(1)
	p.attach()
	first := p.wanted()
	g.slow.Store(true)
	p.activate()
	if got := await(t, "the first bearer", first); got.err != nil {
		t.Fatal(got.err)
	}
	await(t, "the wait for the write", g.held)
	second, third := p.wanted(), p.wanted()
	var got made
	select { // the MME has one of them when it refuses the other
	case got = <-second:
		second = third
	case got = <-third:
	}
	if got.err == nil {
		t.Fatalf("two changes at the same time: %+v", got)
	}
	g.slow.Store(false)
	close(g.gate)
	p.activate()
	if got := await(t, "the second bearer", second); got.err != nil || got.bearer.ID != 7 {
		t.Errorf("%+v", got)
	}
}

// TestChangeThatEndsAtOnceLeavesNoContext has the network remove a bearer that an idle UE
// does not have.
func TestChangeThatEndsAtOnceLeavesNoContext(t *testing.T) {
	one, _ := newShared(t).pair(t, nil)
	p := one.enodeb(1).phone(1)
	p.attach()
	p.idle()
	one.until("the context is in the store alone", func() bool { return one.count("contexts") == 0 })
	if err := await(t, "the removal", p.unwanted(9)); err == nil {
		t.Error("the MME removed a bearer that the UE does not have")
	}
	one.until("the context is in the store alone again", func() bool { return one.count("contexts") == 0 })
}

// TestUpdateAtAnotherMMEReleasesTheBearer leaves a UE connected at one MME, while it updates
// its tracking area at the other.
func TestUpdateAtAnotherMMEReleasesTheBearer(t *testing.T) {
	one, two := newShared(t).pair(t, nil)
	p := one.enodeb(1).phone(1)
	p.attach()
	p.goTo(two.enodeb(2))
	p.Connect()
	p.begin(p.AppendUpdate(nil, false))
	p.download(ue.Updated)
	p.hangUp()
	if of := two.gateway.Sessions(p.IMSI); len(of) != 1 || of[0].ENodeB.V4.IsValid() {
		t.Errorf("sessions at the gateway in idle mode: got %+v", of)
	}
}
