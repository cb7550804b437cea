package redis_test

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"vitrine"
	"vitrine/internal/hosttest"
	"vitrine/store"
	"vitrine/store/redis"
	"vitrine/store/storetest"
)

const patience = 20 * time.Second

// open opens an engine until the test ends. By default it logs to the test and sweeps every 10 ms.
func open(t *testing.T, c redis.Config) *redis.Engine {
	t.Helper()
	c.Logger = cmp.Or(c.Logger, slog.New(slog.NewTextHandler(t.Output(), nil)))
	c.Sweep = cmp.Or(c.Sweep, 10*time.Millisecond)
	e, err := redis.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

func TestSuite(t *testing.T) {
	t.Parallel()
	address := storetest.Redis(t, "--appendonly", "yes", "--appendfsync", "always")
	storetest.Run(t, func(t *testing.T, clock *storetest.Clock) store.Engine {
		e := open(t, redis.Config{Addresses: []string{address}, Prefix: t.Name(), Now: clock.Now})
		if p := e.Promises(); !p.Linearizable || p.Durability != store.Synced {
			t.Fatalf("one server with appendfsync always: got promises %+v", p)
		}
		return e
	})
}

func TestSuiteOnCluster(t *testing.T) {
	t.Parallel()
	nodes := cluster(t)
	storetest.Run(t, func(t *testing.T, clock *storetest.Clock) store.Engine {
		e := open(t, redis.Config{Addresses: nodes, Cluster: true, Prefix: t.Name(), Now: clock.Now})
		if e.Promises().Linearizable {
			t.Fatal("a cluster promises to be linearizable")
		}
		return e
	})
}

// cluster starts two nodes, each with half of the slots.
func cluster(t *testing.T) []string {
	t.Helper()
	var nodes []string
	for range 2 {
		_, port, _ := net.SplitHostPort(hosttest.FreeAddress(t, "tcp"))
		nodes = append(nodes, storetest.Redis(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--cluster-port", port))
	}
	for i, address := range nodes {
		client := goredis.NewClient(&goredis.Options{Addr: address})
		defer client.Close()
		if err := client.ClusterAddSlotsRange(t.Context(), i*8192, i*8192+8191).Err(); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			continue
		}
		first := goredis.NewClient(&goredis.Options{Addr: nodes[0]})
		defer first.Close()
		host, port, _ := net.SplitHostPort(address)
		busPort := client.ConfigGet(t.Context(), "cluster-port").Val()["cluster-port"]
		if err := first.Do(t.Context(), "cluster", "meet", host, port, busPort).Err(); err != nil {
			t.Fatal(err)
		}
		hosttest.Until(t, patience, "the cluster is up", func() bool {
			return strings.Contains(client.ClusterInfo(t.Context()).Val(), "cluster_state:ok") &&
				strings.Contains(first.ClusterInfo(t.Context()).Val(), "cluster_state:ok")
		})
	}
	return nodes
}

// TestPromises checks that the promises follow from the server's configuration.
func TestPromises(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		settings     []string
		durability   store.Durability
		linearizable bool
	}{
		{nil, store.Memory, false},
		{[]string{"--appendonly", "yes", "--appendfsync", "everysec"}, store.Memory, false},
		{[]string{"--appendonly", "yes", "--appendfsync", "no"}, store.Memory, false},
		{[]string{"--appendonly", "yes", "--appendfsync", "always", "--no-appendfsync-on-rewrite", "yes"}, store.Memory, false},
	} {
		e := open(t, redis.Config{Addresses: []string{storetest.Redis(t, c.settings...)}, Now: time.Now})
		if p := e.Promises(); p.Durability != c.durability || p.Linearizable != c.linearizable {
			t.Errorf("with settings %v: got promises %+v", c.settings, p)
		}
	}
}

// TestEviction checks that a server, or a cluster with a node, that would drop records is refused.
func TestEviction(t *testing.T) {
	t.Parallel()
	nodes := cluster(t)
	second := goredis.NewClient(&goredis.Options{Addr: nodes[1]})
	defer second.Close()
	for _, setting := range [][2]string{{"maxmemory", "100mb"}, {"maxmemory-policy", "allkeys-lru"}} {
		if err := second.ConfigSet(t.Context(), setting[0], setting[1]).Err(); err != nil {
			t.Fatal(err)
		}
	}
	server := storetest.Redis(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
	for _, c := range []redis.Config{{Addresses: []string{server}}, {Addresses: nodes, Cluster: true}} {
		c.Now, c.Logger = time.Now, slog.New(slog.DiscardHandler)
		if _, err := redis.Open(t.Context(), c); !vitrine.IsBadInput(err) {
			t.Errorf("open of %v with an eviction policy: got error %v, want a refusal", c.Addresses, err)
		}
	}
}

func TestFull(t *testing.T) {
	t.Parallel()
	address := storetest.Redis(t, "--maxmemory", "4mb")
	e := open(t, redis.Config{Addresses: []string{address}, Now: time.Now})
	var err error
	last := ""
	for i := 0; i < 1000 && err == nil; i++ {
		name := fmt.Sprint(i)
		if err = e.Write(t.Context(), "s", store.Op{Action: store.Put, Name: name, Value: make([]byte, 64<<10)}); err == nil {
			last = name
		}
	}
	if !errors.Is(err, store.ErrFull) {
		t.Fatalf("write to a full server: got %v, want ErrFull", err)
	}
	var r store.Record
	if err := e.Get(t.Context(), store.Key{Space: "s", Name: last}, &r); err != nil {
		t.Errorf("the last acknowledged record is lost: %v", err)
	}
	replace := func(size int) error {
		remove := store.Op{Action: store.Delete, Name: last, If: store.Condition{Present: true}}
		return e.Write(t.Context(), "s", remove, store.Op{Action: store.Put, Name: "letter", Value: make([]byte, size)})
	}
	if err := replace(128 << 10); !errors.Is(err, store.ErrFull) {
		t.Errorf("a large put in place of a small record: got %v, want ErrFull", err)
	}
	if err := replace(64 << 10); err != nil {
		t.Errorf("a put in place of a deleted record: %v", err)
	}
	if g, err := e.Gauges(t.Context()); err != nil || !g.Full || g.Waiting != -1 {
		t.Errorf("got gauges %+v, error %v, want a full store, and -1 writes that wait: unknown", g, err)
	}
	admin := goredis.NewClient(&goredis.Options{Addr: address})
	defer admin.Close()
	if err := admin.ConfigSet(t.Context(), "maxmemory", "100mb").Err(); err != nil {
		t.Fatal(err)
	}
	if err := e.Write(t.Context(), "s", store.Op{Action: store.Put, Name: "more"}); err != nil {
		t.Errorf("a put with room again: %v", err)
	}
	if g, err := e.Gauges(t.Context()); err != nil || g.Full {
		t.Errorf("with room again: got gauges %+v, error %v", g, err)
	}
}

// TestManyExpire checks that many records all expire, and none early. It is not parallel, because
// the suite measures the heap.
func TestManyExpire(t *testing.T) {
	clock := storetest.NewClock()
	e := open(t, redis.Config{Addresses: []string{storetest.Redis(t, "--appendonly", "yes", "--appendfsync", "always")}, Now: clock.Now})
	storetest.Expire(t, e, clock, 20_000)
}

// TestPromisesChange checks that the promises change when the server gets a replica or is
// reconfigured.
func TestPromisesChange(t *testing.T) {
	t.Parallel()
	address := storetest.Redis(t, "--appendonly", "yes", "--appendfsync", "always")
	e := open(t, redis.Config{Addresses: []string{address}, Now: time.Now, Check: 10 * time.Millisecond})
	if p := e.Promises(); p.Durability != store.Synced || !p.Linearizable {
		t.Fatalf("one server: got promises %+v", p)
	}
	server := goredis.NewClient(&goredis.Options{Addr: address})
	defer server.Close()
	set := func(name, value string) {
		if err := server.ConfigSet(t.Context(), name, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	set("appendfsync", "everysec")
	hosttest.Until(t, patience, "nothing is promised", func() bool { return e.Promises().Durability == store.Memory })
	set("appendfsync", "always")
	hosttest.Until(t, patience, "durability is promised again", func() bool { return e.Promises().Durability == store.Synced })
	host, port, _ := net.SplitHostPort(address)
	storetest.Redis(t, "--replicaof", host+" "+port)
	hosttest.Until(t, patience, "nothing is promised of a server with a replica", func() bool {
		p := e.Promises()
		return p.Durability == store.Memory && !p.Linearizable
	})
}

// TestRefused checks that a request gets Busy if Redis cannot have performed it: a write to a server that
// has become a replica, and every request once the server has ended. A probe must not find either usable.
func TestRefused(t *testing.T) {
	t.Parallel()
	address := storetest.Redis(t)
	e := open(t, redis.Config{Addresses: []string{address}, Now: time.Now, Check: time.Hour})
	server := goredis.NewClient(&goredis.Options{Addr: address, MaxRetries: -1})
	defer server.Close()
	write := func() error { return e.Write(t.Context(), "s", store.Op{Action: store.Put, Name: "a"}) }
	read := func() error { return e.Get(t.Context(), store.Key{Space: "s", Name: "a"}, new(store.Record)) }
	probe := func() error { return e.Probe(t.Context()) }
	if err := errors.Join(write(), probe(), server.Do(t.Context(), "replicaof", "127.0.0.1", "1").Err()); err != nil {
		t.Fatal(err)
	}
	var busy *store.Busy
	if err := probe(); !errors.As(err, &busy) {
		t.Errorf("probe of a replica: got %v, want Busy", err)
	}
	if err := write(); !errors.As(err, &busy) {
		t.Errorf("write to a replica: got %v, want Busy", err)
	}
	if err := read(); err != nil {
		t.Errorf("read from a replica: %v", err)
	}
	_ = server.Do(t.Context(), "shutdown", "nosave").Err() // the connection breaks
	for name, do := range map[string]func() error{"write": write, "read": read, "probe": probe} {
		hosttest.Until(t, patience, name+" is refused", func() bool { return errors.As(do(), &busy) })
	}
}

// TestUnreadableConfiguration checks that a server that does not show its configuration promises nothing,
// and that the log says so once.
func TestUnreadableConfiguration(t *testing.T) {
	t.Parallel()
	address := storetest.Redis(t, "--appendonly", "yes", "--appendfsync", "always")
	server := goredis.NewClient(&goredis.Options{Addr: address})
	defer server.Close()
	if err := server.Do(t.Context(), "acl", "setuser", "default", "-config").Err(); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	e := open(t, redis.Config{Addresses: []string{address}, Now: time.Now, Check: 10 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	checks := number(t, server, "cmdstat_ping:calls=")
	hosttest.Until(t, patience, "ten checks are done", func() bool { return number(t, server, "cmdstat_ping:calls=") >= checks+10 })
	if p := e.Promises(); p.Durability != store.Memory {
		t.Errorf("got promises %+v, want none", p)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(log.String(), `msg="the configuration of Redis cannot be read`); n != 1 {
		t.Errorf("the log says %d times that the configuration cannot be read, want once:\n%s", n, &log)
	}
}

// TestLogBytes checks that the log of a space is bounded in bytes and expires. A watch from before
// the log's start or after its expiry gets Behind.
func TestLogBytes(t *testing.T) {
	t.Parallel()
	address := storetest.Redis(t)
	e := open(t, redis.Config{Addresses: []string{address}, Now: time.Now})
	const writes = 100
	value := make([]byte, 512<<10)
	for range writes {
		if err := e.Write(t.Context(), "s", store.Op{Action: store.Put, Name: "a", Value: value}); err != nil {
			t.Fatal(err)
		}
	}
	server := goredis.NewClient(&goredis.Options{Addr: address})
	defer server.Close()
	log := server.Keys(t.Context(), "vitrine:{*}:s:l").Val()[0]
	if n := server.XLen(t.Context(), log).Val(); n < 16 || n > 40 {
		t.Errorf("the log keeps %d changes of 512 KiB, want about 32, which are 16 MiB", n)
	}
	if left := server.TTL(t.Context(), log).Val(); left <= 0 || left > time.Hour {
		t.Errorf("the log expires in %s, want at most an hour", left)
	}
	from := func(revision uint64) (err error) {
		for _, err = range e.Watch(t.Context(), "s", "", revision) {
			break
		}
		return err
	}
	var behind *store.Behind
	if err := from(1); !errors.As(err, &behind) {
		t.Errorf("watch from before the log: got %v, want a Behind error", err)
	}
	if err := server.Expire(t.Context(), log, -time.Second).Err(); err != nil {
		t.Fatal(err)
	}
	if err := from(writes - 1); !errors.As(err, &behind) {
		t.Errorf("watch from before an expired log: got %v, want a Behind error", err)
	}
	if err := from(writes); err != nil {
		t.Errorf("watch from the last change: got error %v", err)
	}
	if err := e.Write(t.Context(), "s", store.Op{Action: store.Put, Name: "a"}); err != nil {
		t.Errorf("write after the log expired: %v", err)
	}
	if err := from(writes); err != nil {
		t.Errorf("watch from the last change but one: got error %v", err)
	}
}

// A roll compares the set of spaces with the records of a space.
type roll struct {
	server *goredis.Client
	keys   string // prefix of the group's keys
}

// differs reports whether the set of spaces has a space without records, or lacks a space with
// records. It reads both at the same instant.
func (r *roll) differs(t *testing.T, space string) bool {
	t.Helper()
	var listed *goredis.BoolCmd
	var records *goredis.IntCmd
	_, err := r.server.TxPipelined(t.Context(), func(p goredis.Pipeliner) error {
		listed, records = p.SIsMember(t.Context(), r.keys+"spaces", space), p.HLen(t.Context(), r.keys+space+":r")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return listed.Val() != (records.Val() > 0)
}

// TestSpaces checks that the set of spaces has a space exactly while the space has records, at
// every instant of writes, deletions and expiries by two stores. In the end the set must be empty.
func TestSpaces(t *testing.T) {
	t.Parallel()
	address := storetest.Redis(t)
	server := goredis.NewClient(&goredis.Options{Addr: address})
	defer server.Close()
	stores := []*redis.Engine{open(t, redis.Config{Addresses: []string{address}, Now: time.Now}), open(t, redis.Config{Addresses: []string{address}, Now: time.Now})}
	put := store.Op{Action: store.Put, Name: "a"}
	remove := store.Op{Action: store.Delete, Name: "a"}
	if err := stores[0].Write(t.Context(), "s", put); err != nil {
		t.Fatal(err)
	}
	r := &roll{server: server, keys: strings.TrimSuffix(server.Keys(t.Context(), "vitrine:{*}:s:r").Val()[0], "s:r")}
	var writers sync.WaitGroup
	done := make(chan struct{})
	for i := range 4 {
		writers.Go(func() {
			for n := range 500 {
				op := []store.Op{put, remove, put}[n%3]
				if n%3 == 2 {
					op.Expires = time.Now().Add(time.Millisecond)
				}
				if err := stores[i%2].Write(t.Context(), "s", op); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	go func() { writers.Wait(); close(done) }()
	defer writers.Wait()
	for looking := true; looking; {
		select {
		case <-done:
			looking = false
		default:
		}
		if r.differs(t, "s") {
			t.Fatal("the set of spaces differs from the spaces that have records")
		}
	}
	if err := stores[0].Write(t.Context(), "s", remove); err != nil {
		t.Fatal(err)
	}
	hosttest.Until(t, patience, "the set of spaces is empty", func() bool { return server.Exists(t.Context(), r.keys+"spaces").Val() == 0 })
	put.Expires = time.Now().Add(time.Millisecond)
	if err := stores[1].Write(t.Context(), "s", put); err != nil {
		t.Fatal(err)
	}
	hosttest.Until(t, patience, "the record in a space that was empty expires", func() bool { return server.Exists(t.Context(), r.keys+"s:r").Val() == 0 })
	if r.differs(t, "s") {
		t.Error("the set of spaces has a space whose last record expired")
	}
}

// TestManySpaces checks that the gauges of many spaces take few round trips, and that sweeps run their
// script only in spaces where something is due.
func TestManySpaces(t *testing.T) {
	t.Parallel()
	address := storetest.Redis(t)
	server := goredis.NewClient(&goredis.Options{Addr: address})
	defer server.Close()
	config := redis.Config{Addresses: []string{address}, Now: time.Now, Check: time.Hour, Sweep: time.Hour}
	e := open(t, config)
	const spaces = 1000
	for i := range spaces {
		if err := e.Write(t.Context(), fmt.Sprint(i), store.Op{Action: store.Put, Name: "a"}); err != nil {
			t.Fatal(err)
		}
	}
	reads := number(t, server, "total_reads_processed:")
	if s, err := e.Gauges(t.Context()); err != nil || s.Records != spaces {
		t.Errorf("got %d records, error %v, want %d records", s.Records, err, spaces)
	}
	if n := number(t, server, "total_reads_processed:") - reads; n < 1 || n > spaces/2 {
		t.Errorf("the gauges of %d spaces took %d round trips", spaces, n)
	}

	config.Sweep = 10 * time.Millisecond
	open(t, config)
	scripts := number(t, server, "cmdstat_evalsha:calls=")
	hosttest.Until(t, patience, "a sweep is done", func() bool { return number(t, server, "cmdstat_zcount:calls=") > 2*spaces })
	if n := number(t, server, "cmdstat_evalsha:calls=") - scripts; n > 0 {
		t.Errorf("sweeps ran %d scripts, and nothing was due", n)
	}
}

// number returns the number after a text in a server's INFO; 0: the text is not there.
func number(t *testing.T, server *goredis.Client, after string) (n int) {
	t.Helper()
	info, err := server.Info(t.Context(), "all").Result()
	if err != nil {
		t.Fatal(err)
	}
	if _, rest, ok := strings.Cut(info, after); ok {
		if _, err := fmt.Sscanf(rest, "%d", &n); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// TestTrimmed checks that a watch from before the log's start gets Behind.
func TestTrimmed(t *testing.T) {
	t.Parallel()
	e := open(t, redis.Config{Addresses: []string{storetest.Redis(t)}, History: 10, Now: time.Now})
	for i := range 1000 {
		if err := e.Write(t.Context(), "s", store.Op{Action: store.Put, Name: fmt.Sprint(i % 7)}); err != nil {
			t.Fatal(err)
		}
	}
	var behind *store.Behind
	if err := storetest.ReadError(t, e.Watch(t.Context(), "s", "", 1)); !errors.As(err, &behind) || behind.Oldest < 500 {
		t.Fatalf("watch from version 1 of 1000: got %v, want a Behind error", err)
	}
}
