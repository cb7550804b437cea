package embedded_test

import (
	"log/slog"
	"testing"

	"vitrine/store"
	"vitrine/store/embedded"
	"vitrine/store/storetest"
)

func open(t *testing.T, c embedded.Config) *embedded.Engine {
	t.Helper()
	if c.Logger == nil {
		c.Logger = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	}
	e, err := embedded.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

// TestSuite is not parallel, because the suite measures the heap.
func TestSuite(t *testing.T) {
	for _, mode := range []embedded.SyncMode{embedded.SyncAlways, embedded.SyncInterval, embedded.SyncNever} {
		t.Run(string(mode), func(t *testing.T) {
			storetest.Run(t, func(t *testing.T, clock *storetest.Clock) store.Engine {
				return open(t, embedded.Config{Dir: t.TempDir(), Sync: mode, Now: clock.Now})
			})
		})
	}
	t.Run("few heads", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T, clock *storetest.Clock) store.Engine {
			return open(t, embedded.Config{Dir: t.TempDir(), Sync: embedded.SyncNever, HeadBytes: 1, Now: clock.Now})
		})
	})
}
