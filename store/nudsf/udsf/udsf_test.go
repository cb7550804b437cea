package udsf_test

import (
	"log/slog"
	"testing"
	"time"

	"vitrine/store"
	"vitrine/store/embedded"
	"vitrine/store/nudsf/nudsftest"
)

func TestEmbedded(t *testing.T) {
	nudsftest.Run(t, func(t *testing.T) func() store.Engine {
		dir := t.TempDir()
		return func() store.Engine {
			e, err := embedded.Open(embedded.Config{
				Dir: dir, Now: time.Now, Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
			})
			if err != nil {
				t.Fatal(err)
			}
			return e
		}
	})
}
