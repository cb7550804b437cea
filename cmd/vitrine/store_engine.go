package main

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/pflag"

	"vitrine/store"
	"vitrine/store/embedded"
)

// engineFlags say which engine keeps the records, and how.
type engineFlags struct {
	name     string
	embedded embedded.Config
	sync     string
}

func (f *engineFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.name, "engine", "embedded", "who keeps the records: embedded")
	flags.StringVar(&f.embedded.Dir, "dir", "vitrine-store", "embedded: folder of the records")
	flags.StringVar(&f.sync, "sync", "always", "embedded: when a write is answered: always (after it is synced to disk), interval, never")
	flags.DurationVar(&f.embedded.Every, "sync-every", 100*time.Millisecond, "embedded: how often --sync interval syncs")
	flags.Int64Var(&f.embedded.CacheBytes, "cache", 64<<20, "embedded: bytes of blocks kept in memory")
	flags.Uint64Var(&f.embedded.ReserveBytes, "reserve", 256<<20, "embedded: bytes of disk kept free: below it puts are answered 507")
	flags.Int64Var(&f.embedded.MaxRecords, "max-records", 100_000_000, "embedded: records at most: beyond it puts of new ones are answered 507")
}

// open opens the engine that the user chose.
func (f *engineFlags) open(_ context.Context, log *slog.Logger) (store.Engine, error) {
	switch f.name {
	case "embedded":
		c := f.embedded
		c.Sync, c.Now, c.Logger = embedded.SyncMode(f.sync), time.Now, log
		// Half of the process works on after such an error, and could not tell
		// what is on disk: the end is safe, since nothing answered is lost.
		c.Fatal = func(err error) {
			log.Error("the store ends: its disk failed; mend it and start the store again", "error", err)
			os.Exit(exitFailed)
		}
		return embedded.Open(c)
	}
	return nil, oneOf("--engine", f.name, []string{"embedded"})
}
