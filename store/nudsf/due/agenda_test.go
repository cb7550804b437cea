package due

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"vitrine/store"
	"vitrine/store/embedded"
	"vitrine/store/storetest"
)

// TestUnusedSpacesAreForgotten fills the registry. Later only the space that still has a due record
// must count against the limit, for this agenda and for one that starts then.
func TestUnusedSpacesAreForgotten(t *testing.T) {
	clock := storetest.NewClock()
	engine, err := embedded.Open(embedded.Config{Dir: t.TempDir(), Now: clock.Now, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = engine.Close() }) // the test is over
	a := New(Config{Engine: engine, Clock: clock.Now, Spaces: 3})
	register := func(a *Agenda, space string) error { return a.Register(t.Context(), space) }
	for _, space := range []string{"used", "unused", "renewed"} {
		if err := register(a, space); err != nil {
			t.Fatal(err)
		}
	}
	if err := engine.Write(t.Context(), "used", store.Op{Action: store.Put, Name: "t/1", Tags: []store.Tag{At(clock.Now().Add(24 * time.Hour))}}); err != nil {
		t.Fatal(err)
	}
	if err := register(a, "more"); !errors.Is(err, ErrSpaces) {
		t.Errorf("a fourth space: %v, want that there are too many", err)
	}
	visitAll := func(a *Agenda) {
		a.lookAgain()
		a.round(t.Context(), false)
	}
	visitAll(a)
	if err := register(a, "more"); !errors.Is(err, ErrSpaces) {
		t.Errorf("a fourth space at once: %v, want that there are too many", err)
	}
	clock.Advance(forgetAfter + time.Second)
	if err := register(a, "renewed"); err != nil {
		t.Fatal(err)
	}
	visitAll(a)
	if err := register(a, "more"); err != nil {
		t.Errorf("a space after another one was forgotten: %v", err)
	}
	want := []string{"more", "renewed", "used"}
	if got := registered(t, engine); !slices.Equal(got, want) {
		t.Errorf("the registry has %q, want %q", got, want)
	}
	other := New(Config{Engine: engine, Clock: clock.Now, Spaces: 3})
	if err := other.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	clock.Advance(forgetAfter + time.Second)
	visitAll(other)
	if got := registered(t, engine); !slices.Equal(got, []string{"used"}) {
		t.Errorf("much later the registry has %q, want the space with a due record", got)
	}
	// The first agenda has not noticed. It must register a space that it knows again.
	if err := register(a, "renewed"); err != nil {
		t.Fatal(err)
	}
	if got := registered(t, engine); !slices.Equal(got, []string{"renewed", "used"}) {
		t.Errorf("after another registration the registry has %q", got)
	}
}

func registered(t *testing.T, engine store.Engine) (names []string) {
	t.Helper()
	for r, err := range engine.Scan(context.WithoutCancel(t.Context()), store.Query{Space: registry}) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, r.Key.Name)
	}
	return names
}
