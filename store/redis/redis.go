// Package redis is the engine that keeps records in Redis or Valkey, on one server or a cluster. A
// whole space lies in one hash slot, and every Write is one script there, so a Write is atomic.
package redis

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"vitrine"
	"vitrine/store"
)

// Config of the engine. The zero value of a number means its default.
type Config struct {
	Addresses []string // one: a server; several, or Cluster: nodes of a cluster
	Cluster   bool
	User      string
	Password  string
	TLS       *tls.Config
	Prefix    string        // prefix of all keys; default "vitrine"
	History   int64         // changes of a space kept for watches; default 1024
	Check     time.Duration // interval of the checks of the server's configuration; default 10 s
	Sweep     time.Duration // interval of sweeps; default 250 ms

	Now    func() time.Time // the clock that expires records; required
	Logger *slog.Logger     // required
}

// Engine is a store.Engine.
type Engine struct {
	config   Config
	client   redis.UniversalClient
	watcher  redis.UniversalClient // blocking reads hold connections, so they have their own pool
	prober   redis.UniversalClient // one connection, so that Probe waits for no request and no watch
	scripts  struct{ write, sweep, read *redis.Script }
	promises atomic.Pointer[store.Promises]
	full     atomic.Bool     // the last put found no room
	ctx      context.Context // ends with Close
	cancel   context.CancelFunc
	once     sync.Once
	loops    sync.WaitGroup
	closeErr error
}

// LogTo sends the log of the Redis client library to log, for the whole process. Call it before
// Open.
func LogTo(log *slog.Logger) { redis.SetLogger(libraryLogger{log}) }

type libraryLogger struct{ *slog.Logger }

// Printf implements the library's logging interface.
func (l libraryLogger) Printf(_ context.Context, format string, v ...any) {
	l.Warn("redis: " + fmt.Sprintf(format, v...))
}

// Open connects and derives the promises from the server's configuration.
func Open(ctx context.Context, c Config) (*Engine, error) {
	if len(c.Addresses) == 0 {
		return nil, &vitrine.BadInput{File: "store redis", Found: "no address", Want: "ADDRESS:PORT of a server, or of nodes of a cluster"}
	}
	c.Prefix = cmp.Or(c.Prefix, "vitrine")
	c.History = cmp.Or(c.History, 1024)
	c.Check = cmp.Or(c.Check, 10*time.Second)
	c.Sweep = cmp.Or(c.Sweep, 250*time.Millisecond)
	e := &Engine{config: c, client: connect(c, connections, patience), watcher: connect(c, watchConnections, watchPatience), prober: connect(c, 1, patience)}
	e.scripts.write, e.scripts.sweep, e.scripts.read = redis.NewScript(commonSource+writeSource), redis.NewScript(commonSource+sweepSource), redis.NewScript(readSource)
	e.ctx, e.cancel = context.WithCancel(context.WithoutCancel(ctx))
	p, err := e.ask(ctx)
	if err != nil {
		e.cancel()
		return nil, errors.Join(err, e.closeClients())
	}
	e.promises.Store(&p)
	e.loops.Go(e.check)
	e.loops.Go(func() { store.SweepEvery(e.ctx, c.Sweep, c.Logger, e.sweep) })
	return e, nil
}

// Connections to each server, and how long a request waits for one of them. Each watch has a connection for
// watchBlock at a time, and watches do not end because they wait for one: 4,096 of them wait 4 s.
const (
	connections, patience           = 64, 2 * time.Second
	watchConnections, watchPatience = 256, time.Minute
)

func connect(c Config, pool int, wait time.Duration) redis.UniversalClient {
	return redis.NewUniversalClient(&redis.UniversalOptions{
		Addrs: c.Addresses, IsClusterMode: c.Cluster, Username: c.User, Password: c.Password, TLSConfig: c.TLS,
		PoolSize: pool, PoolTimeout: wait,
		// A write without an answer may have been done. A retry would then fail its condition
		// because of the first attempt.
		MaxRetries:               -1,
		DialerRetries:            1, // so that requests are refused at once while nothing listens
		ContextTimeoutEnabled:    true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

// check repeats ask at intervals, because a server can be reconfigured or get replicas.
func (e *Engine) check() {
	ticker := time.NewTicker(e.config.Check)
	defer ticker.Stop()
	for {
		select {
		case <-e.ctx.Done():
			return
		case <-ticker.C:
		}
		p, err := e.ask(e.ctx)
		if e.ctx.Err() != nil {
			return
		}
		if err != nil { // the configuration of the server that answers next is unknown
			e.config.Logger.Warn("the guarantees of Redis are unknown", "error", err)
			p = e.noPromises("the last check of Redis failed, and the log says why") // the error holds addresses, which not every client may see
		}
		if old := e.promises.Swap(&p); *old != p {
			e.config.Logger.Warn("the guarantees of Redis changed", "durability", p.Durability, "survives", p.Survives)
		}
	}
}

// noPromises returns promises without durability, for the given reason.
func (e *Engine) noPromises(reason string) store.Promises {
	return store.Promises{
		Engine: "redis", Durability: store.Memory, AtomicBatch: true, Shared: true,
		Survives: "nothing is promised: " + reason,
	}
}

// ask reads the server's configuration and returns what it guarantees.
func (e *Engine) ask(ctx context.Context) (store.Promises, error) {
	if err := e.client.Ping(ctx).Err(); err != nil {
		return store.Promises{}, fmt.Errorf("reach Redis at %s: %w", strings.Join(e.config.Addresses, ", "), err)
	}
	if cluster, ok := e.client.(*redis.ClusterClient); ok {
		err := cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
			_, _, err := e.settings(ctx, node)
			return err
		})
		return e.noPromises("a failover of the cluster may lose answered writes"), err // whatever the nodes' other settings
	}
	settings, unread, err := e.settings(ctx, e.client)
	if err != nil {
		return store.Promises{}, err
	}
	if unread != nil {
		p := e.noPromises("the configuration of Redis cannot be read")
		if old := e.promises.Load(); old == nil || *old != p { // else an earlier check has logged it
			e.config.Logger.Warn("the configuration of Redis cannot be read: nothing is promised", "error", unread)
		}
		return p, nil
	}
	replication, err := e.client.Info(ctx, "replication").Result()
	if err != nil {
		return store.Promises{}, fmt.Errorf("ask Redis for its role: %w", err)
	}
	return e.promise(settings, strings.Contains(replication, "role:master") && strings.Contains(replication, "connected_slaves:0")), nil
}

// settings reads the configuration of a server. unread says why it could not, such as CONFIG being
// forbidden; the engine works without it. It fails if the server would drop records to make room.
func (e *Engine) settings(ctx context.Context, server redis.Cmdable) (settings map[string]string, unread, err error) {
	settings = map[string]string{}
	for _, name := range []string{"appendonly", "appendfsync", "no-appendfsync-on-rewrite", "maxmemory", "maxmemory-policy"} {
		got, err := server.ConfigGet(ctx, name).Result()
		if err != nil {
			return nil, err, nil
		}
		settings[name] = got[name]
	}
	if settings["maxmemory"] != "0" && settings["maxmemory-policy"] != "noeviction" {
		return nil, nil, &vitrine.BadInput{File: "store redis", Found: "maxmemory-policy " + settings["maxmemory-policy"],
			Want: "noeviction: Redis would drop records to make room"}
	}
	return settings, nil, nil
}

// promise returns what a server guarantees. Only a server without replicas that syncs before it
// answers guarantees anything.
func (e *Engine) promise(settings map[string]string, alone bool) store.Promises {
	switch {
	case !alone:
		return e.noPromises("the server has replicas, or is one, and a failover may lose answered writes")
	case settings["appendonly"] != "yes":
		return e.noPromises("appendonly is not yes")
	case settings["appendfsync"] != "always":
		return e.noPromises("appendfsync is " + settings["appendfsync"] + ", not always")
	case settings["no-appendfsync-on-rewrite"] != "no":
		return e.noPromises("no-appendfsync-on-rewrite is not no")
	}
	return store.Promises{
		Engine: "redis", Durability: store.Synced, Linearizable: true, AtomicBatch: true, Shared: true,
		Survives: "crashes of the process and of the host",
	}
}

// Probe implements store.Probed. On a cluster, all masters must answer. A single server must not be a
// replica, as it may be after a failover: a replica answers, but takes no writes.
func (e *Engine) Probe(ctx context.Context) error {
	var err error
	if cluster, ok := e.prober.(*redis.ClusterClient); ok {
		err = cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error { return node.Ping(ctx).Err() })
	} else if err = e.prober.Ping(ctx).Err(); err == nil {
		role, _ := e.prober.Info(ctx, "replication").Result() // may be forbidden; then only writes show the role
		if strings.Contains(role, "role:slave") {
			return &store.Busy{What: "Redis is a replica", RetryAfter: time.Second}
		}
	}
	if err = e.translate(err); errors.Is(err, store.ErrFull) { // MISCONF, which answers PING too: Redis refuses only writes
		return nil
	}
	return err
}

// Promises implements store.Engine.
func (e *Engine) Promises() store.Promises { return *e.promises.Load() }

// Close implements store.Engine.
func (e *Engine) Close() error {
	e.once.Do(func() {
		e.cancel()
		e.loops.Wait()
		e.closeErr = e.closeClients()
	})
	return e.closeErr
}

func (e *Engine) closeClients() error {
	return errors.Join(e.client.Close(), e.watcher.Close(), e.prober.Close())
}

// keys are the keys of one space, in the order that the scripts expect. All lie in one hash
// slot. After a space has lost its last record, keyRevision stays, so that no version is
// used twice, and keyLog stays until it expires.
type keys []string

const (
	keyRecords  = iota // hash: name -> version (16 hex digits), encoded record
	keyNames           // sorted set: names, in byte order
	keyTags            // sorted set: tag NUL value NUL name, in byte order
	keyIndexed         // hash: name -> its entries in keyTags, packed with MessagePack
	keyExpiry          // sorted set: names, scored by expiry in Unix milliseconds
	keyRevision        // counter
	keyLog             // stream of changes; the entry IDs are revisions
	keySpaces          // set of the group's spaces that have records
)

// groups is the number of groups of spaces. A script may change a space and the set of spaces only
// if both lie in one hash slot. So each group has a slot and a set.
const groups = 64

// keys returns the names of a space's keys. The space is escaped, so that keys of different
// spaces never collide.
func (e *Engine) keys(space string) keys {
	group := crc32.ChecksumIEEE([]byte(space)) % groups
	base := e.groupKey(group) + url.QueryEscape(space) + ":"
	return keys{base + "r", base + "n", base + "t", base + "i", base + "x", base + "v", base + "l", e.spacesKey(group)}
}

// groupKey returns the beginning of a group's keys. Redis hashes the text in the braces to
// a slot.
func (e *Engine) groupKey(group uint32) string {
	return e.config.Prefix + ":{" + strconv.FormatUint(uint64(group), 10) + "}:"
}

// spacesKey returns the key of a group's set of spaces. A space's own keys have one more colon.
func (e *Engine) spacesKey(group uint32) string { return e.groupKey(group) + "spaces" }

// eachSpace calls do for each space that has records, with a number that count asks for. It asks for
// the numbers of a page of spaces at a time, because there may be many spaces.
func (e *Engine) eachSpace(ctx context.Context, count func(redis.Pipeliner, keys) *redis.IntCmd, do func(space string, n int64) error) error {
	var sizes [groups]*redis.IntCmd
	_, err := e.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for g := range sizes {
			sizes[g] = p.SCard(ctx, e.spacesKey(uint32(g)))
		}
		return nil
	})
	if err != nil {
		return err
	}
	for g, size := range sizes {
		if size.Val() == 0 {
			continue
		}
		for cursor, more := uint64(0), true; more; more = cursor != 0 {
			var spaces []string
			if spaces, cursor, err = e.client.SScan(ctx, e.spacesKey(uint32(g)), cursor, "", page).Result(); err != nil {
				return err
			}
			if err := e.eachOf(ctx, spaces, count, do); err != nil {
				return err
			}
		}
	}
	return nil
}

// eachOf is eachSpace for some spaces of one group. It counts with one round trip.
func (e *Engine) eachOf(ctx context.Context, spaces []string, count func(redis.Pipeliner, keys) *redis.IntCmd, do func(space string, n int64) error) error {
	counts := make([]*redis.IntCmd, len(spaces))
	_, err := e.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, space := range spaces {
			counts[i] = count(p, e.keys(space))
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i, space := range spaces {
		if err := do(space, counts[i].Val()); err != nil {
			return fmt.Errorf("space %s: %w", space, err)
		}
	}
	return nil
}

// translate maps errors of Redis to errors of store.Engine.
func (e *Engine) translate(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	switch {
	case e.ctx.Err() != nil || errors.Is(err, redis.ErrClosed):
		return store.ErrClosed
	case strings.Contains(text, "OOM ") || strings.Contains(text, "MISCONF"):
		return fmt.Errorf("%w: %s", store.ErrFull, text)
	case errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted):
		return &store.Busy{What: "connections to Redis", RetryAfter: time.Second}
	case refused(err):
		return &store.Busy{What: "Redis is down, loading or a replica", RetryAfter: time.Second}
	}
	return fmt.Errorf("store: redis: %w", err)
}

// refused reports whether the attempt that failed with err did nothing: the server said so, or there was
// no connection.
func refused(err error) bool {
	var network *net.OpError
	return redis.IsLoadingError(err) || redis.IsReadOnlyError(err) || redis.IsClusterDownError(err) || redis.IsMasterDownError(err) ||
		errors.As(err, &network) && network.Op == "dial"
}
