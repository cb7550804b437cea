// Package etcd is the engine that keeps records in an etcd cluster. The members agree on every
// write by consensus, across sites if the cluster is deployed so.
package etcd

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"vitrine"
	"vitrine/store"
)

// Config of the engine. The zero value of a number means its default.
type Config struct {
	Endpoints []string // ADDRESS:PORT, or URLs
	User      string
	Password  string
	TLS       *tls.Config
	Prefix    string        // prefix of all keys; default "vitrine/"
	Dial      time.Duration // timeout of the first connection; default 5 s
	Sweep     time.Duration // interval of sweeps; default 250 ms
	Unchecked bool          // do not correct Now by the members' clocks
	Behind    int           // events queued for a slow receiver, at most; default 1024
	Bytes     int64         // bytes of those events, at most; default 16 MiB

	Now    func() time.Time // this host's clock; required
	Logger *slog.Logger     // required
}

// Engine is a store.Engine.
type Engine struct {
	config   Config
	client   *clientv3.Client
	clock    *clock
	reader   pb.KVClient     // over the client's connection, with a bound of its own for answers
	ctx      context.Context // ends with Close
	cancel   context.CancelFunc
	once     sync.Once
	loops    sync.WaitGroup
	closeErr error
	swept    swept
	full     atomic.Bool  // the last put found no room
	held     atomic.Int64 // bytes of the events in the queues of all watches
}

// clockCheck is the interval of the checks of the clock. It is no divisor of a second, so that the checks
// fall on all fractions of a second.
const clockCheck = 700 * time.Millisecond

// Open connects to the cluster.
func Open(ctx context.Context, c Config) (*Engine, error) {
	if len(c.Endpoints) == 0 {
		return nil, &vitrine.BadInput{File: "store etcd", Found: "no endpoint", Want: "ADDRESS:PORT of members of the cluster"}
	}
	if err := c.checkSchemes(); err != nil {
		return nil, err
	}
	c.Prefix = cmp.Or(c.Prefix, "vitrine/")
	c.Dial = cmp.Or(c.Dial, 5*time.Second)
	c.Sweep = cmp.Or(c.Sweep, 250*time.Millisecond)
	c.Behind = cmp.Or(c.Behind, 1024)
	c.Bytes = cmp.Or(c.Bytes, 16<<20)
	k, err := newClock(&c)
	if err != nil {
		return nil, err
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: c.Endpoints, Username: c.User, Password: c.Password, TLS: c.TLS, DialTimeout: c.Dial,
		DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 5 * time.Second, Logger: zap.NewNop(),
	})
	if err != nil {
		return nil, fmt.Errorf("reach etcd at %s: %w", strings.Join(c.Endpoints, ", "), err)
	}
	e := &Engine{config: c, clock: k, client: client, reader: clientv3.RetryKVClient(client)}
	e.ctx, e.cancel = context.WithCancel(context.WithoutCancel(ctx))
	first, cancel := context.WithTimeout(ctx, c.Dial)
	defer cancel()
	if _, err := client.Get(first, c.Prefix); err != nil {
		e.cancel()
		return nil, errors.Join(fmt.Errorf("reach etcd at %s: %w", strings.Join(c.Endpoints, ", "), err), client.Close())
	}
	if err := k.check(first); err != nil {
		e.cancel()
		return nil, errors.Join(fmt.Errorf("%w: let them answer HTTP at their client URLs, or keep all clocks right and do not check them", err), client.Close())
	}
	if !c.Unchecked {
		e.loops.Go(func() { k.run(e.ctx, clockCheck) })
	}
	e.loops.Go(func() { store.SweepEvery(e.ctx, c.Sweep, c.Logger, e.sweep) })
	return e, nil
}

// checkSchemes returns an error unless all endpoints use TLS, or none does. etcd's client applies the scheme
// of the first endpoint to all. If that scheme is http, it drops the TLS configuration.
func (c *Config) checkSchemes() error {
	secure := c.TLS != nil || c.usesTLS(c.Endpoints[0])
	for _, endpoint := range c.Endpoints {
		if c.usesTLS(endpoint) != secure {
			return &vitrine.BadInput{File: "store etcd", Found: strings.Join(c.Endpoints, ", ") + ": only some of them would use TLS",
				Want: "with options of TLS: https:// or no scheme for each; without them: https:// for all, or for none"}
		}
	}
	return nil
}

func (c *Config) usesTLS(endpoint string) bool {
	scheme, _, found := strings.Cut(strings.ToLower(endpoint), "://")
	switch {
	case found && (scheme == "https" || scheme == "unixs"):
		return true
	case found && scheme == "http":
		return false
	}
	return c.TLS != nil
}

// Now implements store.Clocked: the host's time, corrected by the clocks of etcd's members.
func (e *Engine) Now() time.Time { return e.clock.now() }

// Probe implements store.Probed.
func (e *Engine) Probe(ctx context.Context) error {
	_, err := e.client.Get(ctx, e.config.Prefix)
	return e.translate(err)
}

// Promises implements store.Engine.
func (e *Engine) Promises() store.Promises {
	return store.Promises{
		Engine: "etcd", Durability: store.Consensus, Linearizable: true, AtomicBatch: true, Shared: true,
		Survives: "the loss of any minority of the cluster's members",
	}
}

// Close implements store.Engine.
func (e *Engine) Close() error {
	e.once.Do(func() {
		e.cancel()
		e.loops.Wait()
		if e.clock.client != nil {
			e.clock.client.CloseIdleConnections()
		}
		e.closeErr = e.client.Close()
		if errors.Is(e.closeErr, context.Canceled) {
			e.closeErr = nil
		}
	})
	return e.closeErr
}

// Layout of the keys below Config.Prefix. No text holds a NUL, so the order of keys is the order of
// their parts. A record's version is its ModRevision.
//
//	s/SPACE 0 r NAME                   encoded record
//	s/SPACE 0 m                        marker: deletions in the same revision are expiries; see commitExpiry
//	t/SPACE 0 TAG 0 VALUE 0 NAME       empty: NAME has the tag
//	x/EXPIRES(16 hex) SPACE 0 NAME     empty: NAME expires then
func (e *Engine) recordKey(space, name string) string {
	return e.config.Prefix + "s/" + space + "\x00r" + name
}

func (e *Engine) markerKey(space string) string { return e.config.Prefix + "s/" + space + "\x00m" }

func (e *Engine) tagBase(space, tag string) string {
	return e.config.Prefix + "t/" + space + "\x00" + tag + "\x00"
}

func (e *Engine) expiryKey(at time.Time, space, name string) string {
	return fmt.Sprintf("%sx/%016x%s\x00%s", e.config.Prefix, store.Milliseconds(at), space, name)
}

// index returns the keys of a record's index entries.
func (e *Engine) index(space, name string, tags []store.Tag, expires time.Time) []string {
	var keys []string
	for _, t := range tags {
		keys = append(keys, e.tagBase(space, t.Name)+t.Value+"\x00"+name)
	}
	if !expires.IsZero() {
		keys = append(keys, e.expiryKey(expires, space, name))
	}
	return keys
}

// translate maps errors of etcd to errors of store.Engine.
func (e *Engine) translate(err error) error {
	switch {
	case err == nil:
		return nil
	case e.ctx.Err() != nil || errors.Is(err, clientv3.ErrNoAvailableEndpoints):
		return store.ErrClosed
	case errors.Is(err, rpctypes.ErrNoSpace):
		return fmt.Errorf("%w: etcd: %s", store.ErrFull, err.Error())
	case errors.Is(err, rpctypes.ErrTooManyRequests):
		return &store.Busy{What: "etcd has too many requests", RetryAfter: time.Second}
	case errors.Is(err, rpctypes.ErrTooManyOps):
		return &store.TooLarge{What: "ops with their tags", Size: maxTxn + 1, Limit: maxTxn}
	case errors.Is(err, rpctypes.ErrRequestTooLarge) || status.Code(err) == codes.ResourceExhausted:
		return &store.TooLarge{What: "the request for etcd"} // --max-request-bytes of etcd is unknown here
	}
	return fmt.Errorf("store: etcd: %w", err)
}
