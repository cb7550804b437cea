package director

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vitrine"
)

// TestRestart checks that a restart keeps changes by REST, and the table before the last change. If
// the file has changed in between, the file counts instead.
func TestRestart(t *testing.T) {
	var clock skipper
	path := write(t, filepath.Join(t.TempDir(), "director.yaml"), long)
	r := run(t, path, clock.options)
	ctx := t.Context()
	if _, err := r.client.Drain(ctx, "reg-1"); err != nil {
		t.Fatal(err)
	}
	before := r.settle(t)
	ids := map[string]uint16{}
	for _, in := range r.roster.list() {
		ids[in.Name] = in.ID
	}
	r.stop()

	r = run(t, path, clock.options)
	s, err := r.client.Status(ctx)
	if err != nil || s.Epoch != before.Epoch || s.Digest != before.Digest {
		t.Fatalf("after a restart: status %+v, want %+v: %v", s, before, err)
	}
	if !s.Restarted {
		t.Error("after the restart, unknown keys do not use the previous table")
	}
	steered := r.protocols[0].Steerings()[0]
	moved := 0
	for key := range uint64(200) {
		i, _ := r.epochs.View().Previous(r.now()).Pick(0, key, 0, nil)
		want := r.epochs.View().Previous(r.now()).Instance(i).Name
		at, ok := steered.Choose(r.now(), 0, key, 0)
		if !ok || at.Name != want {
			t.Fatalf("an unknown key does not go to %s, its instance in the previous table", want)
		}
		if want == "reg-1" {
			moved++
		}
	}
	if moved == 0 {
		t.Error("no key belonged to the draining instance, so the test proves nothing")
	}
	clock.skip(30 * time.Second)
	if r.epochs.View().Previous(r.now()) != nil {
		t.Error("the previous table still applies after the transition")
	}
	r.stop()

	write(t, path, long+"workers: 1\n")
	r = run(t, path, clock.options)
	if s := r.settle(t); s.Epoch != before.Epoch+1 {
		t.Errorf("epoch with another file: got %d, want one more than %d", s.Epoch, before.Epoch)
	}
	for _, in := range r.roster.list() {
		if in.ID != ids[in.Name] || in.State != vitrine.Active {
			t.Errorf("instance is %+v, want it active with ID %d", in, ids[in.Name])
		}
	}
}

// reordered returns the file long with its types in another order.
func reordered() string {
	const first, second = "  - {name: registration, protocol: sip}\n", "  - {name: session, protocol: sip, drain: dialog}\n"
	return strings.Replace(long, first+second, second+first, 1)
}

// TestRestartWithOtherTypesKeepsIDs restarts a director whose file has its types in another order.
// Instances must keep their IDs, because messages carry them.
func TestRestartWithOtherTypesKeepsIDs(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "director.yaml"), long)
	r := run(t, path)
	in, err := r.client.Instance(t.Context(), "reg-1")
	if err != nil {
		t.Fatal(err)
	}
	const id = 7
	if in.ID == id {
		t.Fatalf("reg-1 has the ID %d without a change, so the test proves nothing", id)
	}
	in.ID = id
	if _, err := r.client.Put(t.Context(), in.Instance); err != nil {
		t.Fatal(err)
	}
	r.settle(t)
	r.stop()

	r = run(t, write(t, path, reordered()))
	table := r.epochs.View().Table
	if got := table.ByName("reg-1").ID; got != id || table.Types()[0] != "session" {
		t.Errorf("got ID %d and types %v, want ID %d and session first", got, table.Types(), id)
	}
}

// TestDrainedAfterABoot restarts a director after the host has booted. The last change is longer ago
// than a transition, although the time since the boot is shorter.
func TestDrainedAfterABoot(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "director.yaml"), good)
	r := run(t, path)
	if _, err := r.client.Drain(t.Context(), "reg-1"); err != nil {
		t.Fatal(err)
	}
	r.settle(t)
	r.stop()
	booted := time.Now()
	r = run(t, path, func(o *Options) {
		o.Clock = Clock{
			Boot: "another",
			Now:  func() time.Duration { return time.Second + time.Since(booted) },
			Wall: func() time.Time { return time.Now().Add(time.Minute) },
		}
	})
	if in, err := r.client.Instance(t.Context(), "reg-1"); err != nil || !in.Drained {
		t.Errorf("got %+v, %v, want a drained instance", in, err)
	}
}

// TestStateFile checks that an unreadable state file stops the start with advice. A jump of the
// calendar clock must not prolong a transition.
func TestStateFile(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "director.yaml"), good)
	clock, err := HostClock()
	if err != nil {
		t.Fatal(err)
	}
	state := strings.TrimSuffix(path, ".yaml") + ".state"
	for _, text := range []string{"{", `{"vitrine_director_state": 99}`} {
		write(t, state, text)
		if _, err := New(t.Context(), Options{Path: path, Clock: clock, Log: slog.Default()}); err == nil || !strings.Contains(err.Error(), "remove the file") {
			t.Errorf("%s: %v", text, err)
		}
	}
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s := stateOf(clock, at)
	for name, c := range map[string]struct {
		clock Clock
		want  time.Duration
	}{
		"an hour back":       {Clock{Now: func() time.Duration { return s.Changed + time.Second }, Boot: clock.Boot, Wall: func() time.Time { return at.Add(-time.Hour) }}, time.Second},
		"an hour forward":    {Clock{Now: func() time.Duration { return s.Changed + time.Second }, Boot: clock.Boot, Wall: func() time.Time { return at.Add(time.Hour) }}, time.Second},
		"booted meanwhile":   {Clock{Now: func() time.Duration { return 5 * time.Second }, Boot: "other", Wall: func() time.Time { return at.Add(20 * time.Second) }}, 20 * time.Second},
		"booted, clock back": {Clock{Now: func() time.Duration { return 5 * time.Second }, Boot: "other", Wall: func() time.Time { return at.Add(-time.Hour) }}, 0},
	} {
		if got := s.age(c.clock); got != c.want {
			t.Errorf("%s: got age %s, want %s", name, got, c.want)
		}
	}
}

func stateOf(c Clock, at time.Time) *state {
	return &state{Version: stateVersion, Boot: c.Boot, Changed: 100 * time.Second, Wall: at}
}
