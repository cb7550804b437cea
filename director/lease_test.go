package director

import (
	"errors"
	"maps"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vitrine"
	"vitrine/director/client"
	"vitrine/internal/hosttest"
)

// share returns the share of 4,000 keys that the current table sends to an instance.
func (r *running) share(name string) float64 {
	t := r.epochs.View().Table
	ty, _ := t.Type("registration")
	n := 0
	for key := range uint64(4000) {
		if i, ok := t.Pick(ty, key*0x9e3779b97f4a7c15, 0, nil); ok && t.Instance(i).Name == name {
			n++
		}
	}
	return float64(n) / 4000
}

// refusal returns the HTTP status of a director's error, or 0 for no error.
func refusal(err error) int {
	var refused *client.Error
	if errors.As(err, &refused) {
		return refused.Status
	}
	return 0
}

func acquire(t *testing.T, r *running, q client.LeaseRequest) client.Lease {
	t.Helper()
	q.Holder = "test"
	if q.TTL == 0 {
		q.TTL = 60
	}
	l, err := r.client.Acquire(t.Context(), "registration", q)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestLease checks a lease from its acquisition to its release. Each change of weights must make an
// epoch. Other holders and stale tokens must be refused. In the end, the base weights must come
// back.
func TestLease(t *testing.T) {
	r := run(t, write(t, filepath.Join(t.TempDir(), "director.yaml"), good))
	ctx := t.Context()
	base := r.settle(t)
	l := acquire(t, r, client.LeaseRequest{Weights: map[string]float64{"reg-1": 300}})
	if l.Token != 1 || l.Holder != "test" || l.Left <= 0 || l.Left > 60 {
		t.Errorf("%+v", l)
	}
	leased := r.settle(t)
	if leased.Epoch != base.Epoch+1 || leased.Digest == base.Digest {
		t.Errorf("with the lease: epoch %d, digest %s; before: epoch %d, digest %s", leased.Epoch, leased.Digest, base.Epoch, base.Digest)
	}
	if s := r.share("reg-1"); s < 0.7 || s > 0.8 {
		t.Errorf("the leased instance gets %g of the keys, want 0.75", s)
	}
	in, err := r.client.Instance(ctx, "reg-1")
	if err != nil || in.Weight != 100 || in.Leased == nil || *in.Leased != 300 {
		t.Errorf("%+v, %v", in, err)
	}
	if _, err := r.client.Acquire(ctx, "registration", client.LeaseRequest{Holder: "other", TTL: 60}); refusal(err) != http.StatusConflict {
		t.Errorf("acquire by a second holder: got %v, want a conflict", err)
	}
	if l, err = r.client.Renew(ctx, "registration", l.Token, client.LeaseChange{Weights: map[string]float64{"reg-1": 0}}); err != nil {
		t.Fatal(err)
	}
	r.settle(t)
	if s := r.share("reg-1"); s != 0 {
		t.Errorf("an instance with weight 0 gets %g of the new keys, want 0", s)
	}
	if in, err := r.client.Instance(ctx, "reg-1"); err != nil || in.State != vitrine.Active || in.Drained {
		t.Errorf("%+v, %v", in, err)
	}
	if all, err := r.client.Leases(ctx); err != nil || len(all) != 1 || !maps.Equal(all[0].Weights, map[string]float64{"reg-1": 0}) {
		t.Errorf("%+v, %v", all, err)
	}
	if _, err := r.client.Release(ctx, "registration", l.Token); err != nil {
		t.Fatal(err)
	}
	if s := r.settle(t); s.Digest != base.Digest || r.share("reg-1") < 0.45 {
		t.Errorf("after the release: status %+v, the instance gets %g of the keys", s, r.share("reg-1"))
	}
	if _, err := r.client.Renew(ctx, "registration", l.Token, client.LeaseChange{}); refusal(err) != http.StatusConflict {
		t.Errorf("renew with a stale token: got %v, want a conflict", err)
	}
	if _, err := r.client.Acquire(ctx, "registration", client.LeaseRequest{Holder: "test", TTL: 60, Token: l.Token}); refusal(err) != http.StatusConflict {
		t.Errorf("acquire with a stale token: got %v, want a conflict", err)
	}
	if next := acquire(t, r, client.LeaseRequest{}); next.Token != l.Token+1 {
		t.Errorf("got token %d after token %d, want one more", next.Token, l.Token)
	}
}

// TestLeaseFencesAhead checks that releasing a token whose acquisition has not arrived yet makes
// the director refuse that acquisition.
func TestLeaseFencesAhead(t *testing.T) {
	r := runGood(t)
	ctx := t.Context()
	if l, err := r.client.Release(ctx, "registration", 7); err != nil || l.Token != 7 || l.Holder != "" {
		t.Errorf("%+v, %v", l, err)
	}
	if _, err := r.client.Acquire(ctx, "registration", client.LeaseRequest{Holder: "late", TTL: 60, Token: 7}); refusal(err) != http.StatusConflict {
		t.Errorf("late acquire with token 7: got %v, want a refusal", err)
	}
	acquire(t, r, client.LeaseRequest{Token: 9})
	if _, err := r.client.Release(ctx, "registration", 10); refusal(err) != http.StatusConflict {
		t.Errorf("release with a future token: got %v, want a conflict", err)
	}
	if _, err := r.client.Release(ctx, "registration", 8); refusal(err) != http.StatusConflict {
		t.Errorf("release with a stale token: got %v, want a conflict", err)
	}
}

// TestLeaseRefusesBadInput checks that leases refuse bad requests.
func TestLeaseRefusesBadInput(t *testing.T) {
	r := runGood(t)
	ctx := t.Context()
	for name, q := range map[string]client.LeaseRequest{
		"no holder":            {TTL: 60},
		"long holder":          {Holder: strings.Repeat("x", 65), TTL: 60},
		"holder in two lines":  {Holder: "a\nb", TTL: 60},
		"no time":              {Holder: "test"},
		"long time":            {Holder: "test", TTL: 601},
		"large token":          {Holder: "test", TTL: 60, Token: 1 << 53},
		"unknown instance":     {Holder: "test", TTL: 60, Weights: map[string]float64{"reg-9": 1}},
		"another type's":       {Holder: "test", TTL: 60, Weights: map[string]float64{"ses-1": 1}},
		"negative weight":      {Holder: "test", TTL: 60, Weights: map[string]float64{"reg-1": -1}},
		"tiny weight":          {Holder: "test", TTL: 60, Weights: map[string]float64{"reg-1": 1e-10}},
		"huge weight":          {Holder: "test", TTL: 60, Weights: map[string]float64{"reg-1": 1e13}},
		"nobody gets new work": {Holder: "test", TTL: 60, Weights: map[string]float64{"reg-1": 0, "reg-2": 0}},
	} {
		if _, err := r.client.Acquire(ctx, "registration", q); refusal(err) != http.StatusBadRequest {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := r.client.Acquire(ctx, "nothing", client.LeaseRequest{Holder: "test", TTL: 60}); refusal(err) != http.StatusBadRequest {
		t.Errorf("acquire for an unknown type: got %v, want a refusal", err)
	}
	if _, err := r.client.Renew(ctx, "registration", 0, client.LeaseChange{}); refusal(err) != http.StatusBadRequest {
		t.Errorf("renew with token 0: got %v", err)
	}
	if all, err := r.client.Leases(ctx); err != nil || len(all) != 0 {
		t.Errorf("a refused lease is listed: %+v, error %v", all, err)
	}
}

// TestLeaseExpires checks that a lease that is not renewed ends with an epoch, and no earlier than
// its TTL.
func TestLeaseExpires(t *testing.T) {
	var clock skipper
	r := run(t, write(t, filepath.Join(t.TempDir(), "director.yaml"), good), clock.options)
	ctx := t.Context()
	base := r.settle(t)
	l := acquire(t, r, client.LeaseRequest{TTL: 600, Weights: map[string]float64{"reg-1": 500}})
	leased := r.settle(t)
	clock.skip(500 * time.Second)
	if _, err := r.client.Renew(ctx, "registration", l.Token, client.LeaseChange{}); err != nil {
		t.Fatal(err)
	}
	clock.skip(500 * time.Second)
	if s := r.settle(t); s.Digest != leased.Digest {
		t.Errorf("the lease ended although it was renewed: %+v", s)
	}
	clock.skip(101 * time.Second)
	until(t, "the lease is over", func() bool {
		all, err := r.client.Leases(ctx)
		return err == nil && len(all) == 0
	})
	if s := r.settle(t); s.Digest != base.Digest || s.Epoch != leased.Epoch+1 {
		t.Errorf("after the lease expired: %+v, want the base table %+v", s, base)
	}
	if _, err := r.client.Renew(ctx, "registration", l.Token, client.LeaseChange{}); refusal(err) != http.StatusConflict {
		t.Errorf("renew of an expired lease: got %v, want a conflict", err)
	}
}

// TestLeaseOutlivesRestart checks that a lease, its end and its token survive a restart. A lease
// that ends during the restart must end with an epoch.
func TestLeaseOutlivesRestart(t *testing.T) {
	var clock skipper
	path := write(t, filepath.Join(t.TempDir(), "director.yaml"), good)
	r := run(t, path, clock.options)
	ctx := t.Context()
	base := r.settle(t)
	acquire(t, r, client.LeaseRequest{TTL: 300, Token: 40, Weights: map[string]float64{"reg-2": 400}})
	before := r.settle(t)
	r.stop()
	clock.skip(100 * time.Second)

	r = run(t, path, clock.options)
	after, err := r.client.Status(ctx)
	if err != nil || after.Epoch != before.Epoch || after.Digest != before.Digest {
		t.Errorf("after the restart: %+v, want %+v: %v", after, before, err)
	}
	if l, err := r.client.Lease(ctx, "registration"); err != nil || l.Token != 40 || l.Left < 150 || l.Left > 200 {
		t.Errorf("%+v, %v", l, err)
	}
	if _, err := r.client.Renew(ctx, "registration", 40, client.LeaseChange{TTL: 30}); err != nil {
		t.Error(err)
	}
	r.stop()
	clock.skip(31 * time.Second)

	r = run(t, path, clock.options)
	if s := r.settle(t); s.Digest != base.Digest || s.Epoch <= before.Epoch {
		t.Errorf("%+v after a restart that outlasted the lease, want the base table", s)
	}
	if next := acquire(t, r, client.LeaseRequest{}); next.Token != 41 {
		t.Errorf("got token %d after token 40, want 41", next.Token)
	}
}

// TestLeaseAfterBoot checks that the calendar clock bounds a lease after a reboot. A clock that was
// put back must not prolong the lease beyond its TTL.
func TestLeaseAfterBoot(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s := &state{Terms: map[string]term{"registration": {Token: 3, Holder: "x", TTL: time.Minute, Until: time.Hour, Boot: "one", Wall: at}, "gone": {Token: 1}}}
	c, err := Load(write(t, filepath.Join(t.TempDir(), "director.yaml"), good))
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string]struct {
		boot string
		wall time.Time
		want time.Duration
	}{
		"same boot":             {"one", at.Add(time.Hour), time.Hour - time.Second},
		"another":               {"two", at.Add(-10 * time.Second), 10 * time.Second},
		"another, clock back":   {"two", at.Add(-time.Hour), time.Minute},
		"another, it was over":  {"two", at.Add(time.Second), 0},
		"another, just at once": {"two", at, 0},
	} {
		got := s.termsFor(c, Clock{Now: func() time.Duration { return time.Second }, Boot: b.boot, Wall: func() time.Time { return b.wall }})
		left := max(0, got["registration"].Until-time.Second)
		if left != b.want || got["registration"].Token != 3 || got["registration"].isHeld() != (b.want > 0) || len(got) != 1 {
			t.Errorf("%s: %s left, want %s; leases %+v", name, left, b.want, got)
		}
	}
}

// TestLeaseReachesAllDirectors checks that directors side by side have equal digests if they have
// the same lease, and different digests if the tokens differ.
func TestLeaseReachesAllDirectors(t *testing.T) {
	one, two := runGood(t), runGood(t)
	weights := map[string]float64{"reg-1": 250, "reg-2": 50}
	l := acquire(t, one, client.LeaseRequest{Weights: weights})
	acquire(t, two, client.LeaseRequest{Weights: weights, Token: l.Token + 1})
	if a, b := one.settle(t), two.settle(t); a.Digest == b.Digest {
		t.Error("tables with different tokens have the same digest")
	}
	if _, err := two.client.Release(t.Context(), "registration", l.Token+1); err != nil {
		t.Fatal(err)
	}
	if _, err := one.client.Release(t.Context(), "registration", l.Token); err != nil {
		t.Fatal(err)
	}
	for _, r := range []*running{one, two} {
		acquire(t, r, client.LeaseRequest{Weights: weights, Token: 5})
	}
	if a, b := one.settle(t), two.settle(t); a.Digest != b.Digest {
		t.Errorf("got digests %s and %s for the same lease, want equal digests", a.Digest, b.Digest)
	}
}

// TestLeaseLeavesAnActiveInstance checks that a leased weight of 0 has no effect if no other active
// instance is left. The leased weight of a removed instance must not block an epoch.
func TestLeaseLeavesAnActiveInstance(t *testing.T) {
	r := runGood(t)
	acquire(t, r, client.LeaseRequest{Weights: map[string]float64{"reg-1": 0}})
	r.settle(t)
	// A restart with another file may change the instances.
	file := func(change func(*draft)) {
		t.Helper()
		err := r.roster.edit(func(d *draft) error {
			change(d)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	file(func(d *draft) {
		in := d.instances["reg-2"]
		in.State = vitrine.Draining
		d.instances["reg-2"] = in
	})
	r.settle(t)
	if s := r.share("reg-1"); s != 1 {
		t.Errorf("the last active instance gets %g of the keys, want 1", s)
	}
	file(func(d *draft) { delete(d.instances, "reg-1") })
	if s := r.settle(t); s.Pending {
		t.Error("the removal of a leased instance is still pending")
	}
}

// TestLeasedTypeIsNotScaledByAnotherClient asks for changes of a leased type, by a client that does
// not know the lease and by a reload. Both must be refused. Weights, other types, and instances
// that get no work may still change.
func TestLeasedTypeIsNotScaledByAnotherClient(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "director.yaml"), good)
	r := run(t, path)
	ctx := t.Context()
	base := r.settle(t)
	l := acquire(t, r, client.LeaseRequest{})
	other, err := client.New(client.Access{URL: r.Control()})
	if err != nil {
		t.Fatal(err)
	}
	third := vitrine.Instance{Name: "reg-3", Type: "registration", Address: netip.MustParseAddrPort("127.0.0.1:15064")}
	moved := vitrine.Instance{Name: "reg-1", Type: "registration", Address: netip.MustParseAddrPort("127.0.0.1:15065")}
	active, weight := vitrine.Active, 7.0
	put := func(in vitrine.Instance) error { _, err := other.Put(ctx, in); return err }
	alter := func(name string, c client.Change) error { _, err := other.Alter(ctx, name, c); return err }
	drain := func(name string) error { _, err := other.Drain(ctx, name); return err }
	for what, refused := range map[string]error{
		"an instance more": put(third), "another address": put(moved), "a drain": drain("reg-1"), "a removal": other.Remove(ctx, "reg-2"),
	} {
		if status := refusal(refused); status != http.StatusConflict || !strings.Contains(refused.Error(), "test has the lease of type registration") {
			t.Errorf("%s: got status %d, %v", what, status, refused)
		}
	}
	third.State = vitrine.Starting
	for what, err := range map[string]error{
		"an instance that starts": put(third), "a weight": alter("reg-1", client.Change{Weight: &weight}), "another type": drain("ses-1"),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := alter("reg-3", client.Change{State: &active}); refusal(err) != http.StatusConflict {
		t.Errorf("starting an instance during the lease: got %v, want a conflict", err)
	}
	changed := strings.Replace(good, "  - {name: reg-2, ", "  - {name: reg-4, ", 1)
	write(t, path, changed)
	if err := r.Director.reload(); err == nil || !strings.Contains(err.Error(), "has the lease") {
		t.Errorf("reload with another instance during the lease: got %v, want an error that names the lease", err)
	}
	write(t, path, good) // or the director, which watches the file, removes reg-3 after the lease
	if _, err := r.client.Release(ctx, "registration", l.Token); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(alter("reg-3", client.Change{State: &active}), drain("reg-1")); err != nil {
		t.Errorf("changes after the lease: %v", err)
	}
	write(t, path, changed)
	if err := r.Director.reload(); err != nil {
		t.Errorf("reload after the lease: %v", err)
	}
	if s := r.settle(t); s.Epoch <= base.Epoch {
		t.Errorf("got epoch %d, want a later one", s.Epoch)
	}
}

// TestReloadWaitsForTheLease edits the file during a lease that forbids the change. Nobody asks for a reload
// again, but the change must come into force when the lease is over. The log must say once why it waits.
func TestReloadWaitsForTheLease(t *testing.T) {
	r := runGood(t)
	l := acquire(t, r, client.LeaseRequest{})
	write(t, r.options.Path, strings.Replace(good, "  - {name: reg-2, ", "  - {name: reg-4, ", 1))
	var first time.Time
	until(t, "the lease refuses the reload", func() bool {
		at, err := r.lastReload()
		first = at
		return errors.As(err, new(*Conflict))
	})
	until(t, "it is tried again", func() bool {
		at, _ := r.lastReload()
		return at.After(first)
	})
	if n := strings.Count(r.log.String(), "has the lease"); n != 1 || r.epochs.View().Table.ByName("reg-4") != nil {
		t.Errorf("during the lease: %d log lines, want 1; log: %s", n, r.log)
	}
	if _, err := r.client.Release(t.Context(), "registration", l.Token); err != nil {
		t.Fatal(err)
	}
	until(t, "the file is in force", func() bool { return r.epochs.View().Table.ByName("reg-4") != nil })
}

// TestLostInstanceOfALeasedTypeMayGo checks that an unhealthy instance of a leased type can be
// removed.
func TestLostInstanceOfALeasedTypeMayGo(t *testing.T) {
	text := strings.Replace(good, `health: {sip: "off"}`, "health: {every: 20ms, timeout: 500ms, fail: 2}", 1)
	r := run(t, write(t, filepath.Join(t.TempDir(), "director.yaml"), text))
	acquire(t, r, client.LeaseRequest{})
	hosttest.Until(t, 30*time.Second, "the instance is away", func() bool {
		in, err := r.client.Instance(t.Context(), "reg-1")
		return err == nil && in.Health == "away"
	})
	if err := r.client.Remove(t.Context(), "reg-1"); err != nil {
		t.Error(err)
	}
}
