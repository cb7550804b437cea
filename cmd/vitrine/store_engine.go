package main

import (
	"context"
	"crypto/tls"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"vitrine"
	"vitrine/internal/access"
	"vitrine/store"
	"vitrine/store/embedded"
	"vitrine/store/etcd"
	"vitrine/store/redis"
)

// engineFlags are the flags that choose and configure the storage engine.
type engineFlags struct {
	name     string
	embedded embedded.Config
	sync     string

	servers        []string
	cluster        bool
	user, password string // password is the name of a file
	tls            bool
	cert, key, ca  string
	prefix         string
	unchecked      bool
}

// engineNames returns the names of all engines.
func engineNames() []string { return []string{"embedded", "redis", "etcd"} }

func (f *engineFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.name, "engine", "embedded", "storage engine: embedded, redis, etcd")
	flags.StringVar(&f.embedded.Dir, "dir", "vitrine-store", "embedded: folder of the records")
	flags.StringVar(&f.sync, "sync", "always", "embedded: when a write is answered: always (after it is synced to disk), interval, never")
	flags.DurationVar(&f.embedded.Every, "sync-every", 100*time.Millisecond, "embedded: how often --sync interval syncs")
	flags.Int64Var(&f.embedded.CacheBytes, "cache", 64<<20, "embedded: bytes of blocks kept in memory")
	flags.Uint64Var(&f.embedded.ReserveBytes, "reserve", 256<<20, "embedded: bytes of disk to keep free; with less, puts are answered 507")
	flags.Int64Var(&f.embedded.MaxRecords, "max-records", 100_000_000, "embedded: largest number of records; beyond it, puts of new records are answered 507")
	flags.StringSliceVar(&f.servers, "engine-server", nil, "redis, etcd: ADDRESS:PORT of the server, or of members of the cluster")
	flags.BoolVar(&f.cluster, "engine-cluster", false, "redis: the servers are nodes of a cluster")
	flags.StringVar(&f.user, "engine-user", "", "redis, etcd: user name")
	flags.StringVar(&f.password, "engine-password-file", "", "redis, etcd: file with the password")
	flags.BoolVar(&f.tls, "engine-tls", false, "redis, etcd: use TLS")
	flags.StringVar(&f.ca, "engine-ca", "", "redis, etcd: PEM file of the authorities that sign the servers' certificates; implies --engine-tls")
	flags.StringVar(&f.cert, "engine-cert", "", "redis, etcd: PEM file of the client certificate")
	flags.StringVar(&f.key, "engine-key", "", "redis, etcd: PEM file of the client certificate's key")
	flags.StringVar(&f.prefix, "engine-prefix", "", "redis, etcd: prefix of all keys (default vitrine)")
	flags.BoolVar(&f.unchecked, "engine-unchecked-clock", false, "etcd: trust this host's clock, and do not correct it by those of the servers")
}

// check returns an error if the engine would ignore a flag of the others, or has no server.
func (f *engineFlags) check() error {
	if err := oneOf("--engine", f.name, engineNames()); err != nil {
		return err
	}
	bad := func(found, want string) error {
		return &vitrine.BadInput{File: "--engine " + f.name, Found: found, Want: want}
	}
	switch {
	case f.cluster && f.name != "redis":
		return bad("--engine-cluster", "it is for --engine redis")
	case f.unchecked && f.name != "etcd":
		return bad("--engine-unchecked-clock", "it is for --engine etcd")
	case f.name == "embedded" && (len(f.servers) > 0 || f.user != "" || f.password != "" || f.secure() || f.prefix != ""):
		return bad("options of a server", "give --engine redis or --engine etcd too, or no --engine-server, -user, -password-file, -tls, -ca, -cert, -key and -prefix")
	case f.name != "embedded" && len(f.servers) == 0:
		return bad("no server", "give --engine-server ADDRESS:PORT")
	}
	return nil
}

// secure reports whether one of the flags wants TLS.
func (f *engineFlags) secure() bool { return f.tls || f.ca != "" || f.cert != "" || f.key != "" }

// open opens the chosen engine.
func (f *engineFlags) open(ctx context.Context, log *slog.Logger) (store.Engine, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	if f.name == "embedded" {
		return f.openEmbedded(log)
	}
	password := ""
	if f.password != "" {
		b, err := os.ReadFile(f.password)
		if err != nil {
			return nil, &vitrine.BadInput{File: f.password, Found: err.Error(), Want: "a file with the password"}
		}
		password = strings.TrimSpace(string(b))
	}
	var secure *tls.Config
	if f.secure() {
		var err error
		if secure, err = access.FollowClientTLS(f.cert, f.key, f.ca); err != nil {
			return nil, err
		}
	}
	if f.name == "redis" {
		redis.LogTo(log)
		return redis.Open(ctx, redis.Config{
			Addresses: f.servers, Cluster: f.cluster, User: f.user, Password: password, TLS: secure, Prefix: f.prefix,
			Now: time.Now, Logger: log,
		})
	}
	return etcd.Open(ctx, etcd.Config{
		Endpoints: f.servers, User: f.user, Password: password, TLS: secure, Prefix: f.prefix,
		Unchecked: f.unchecked, Now: time.Now, Logger: log,
	})
}

func (f *engineFlags) openEmbedded(log *slog.Logger) (store.Engine, error) {
	c := f.embedded
	c.Sync, c.Now, c.Logger = embedded.SyncMode(f.sync), time.Now, log
	// After such an error, the process does not know what is on disk, so it must exit. That is
	// safe: with --sync always, no answered write is lost.
	c.Fatal = func(err error) {
		log.Error("the disk failed and the store exits; repair the disk and start the store again", "error", err)
		os.Exit(exitFailed)
	}
	return embedded.Open(c)
}
