// Package store is the shared state store. It keeps records that outlive a transaction outside the
// instances, so that any instance can serve the next transaction (Contain-ed, section 3.2).
//
// An Engine keeps records; packages embedded, redis and etcd implement it. Packages kv and nudsf
// serve HTTP APIs over an Engine. Package service runs the APIs behind limits, tokens, TLS and a
// latency watch.
package store

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync/atomic"
	"time"
)

// A Key names a record. A space is a namespace: names, versions, tags, watches and batches belong
// to one space. An API uses one space for each of its namespaces ("kv", "nudsf/realm/storage"). A
// clustered engine keeps a whole space on one node, so more spaces spread the load better.
type Key struct {
	Space string // 1 to MaxSpace bytes, no NUL
	Name  string // 1 to MaxName bytes, no NUL
}

// Limits that every engine accepts, in bytes or counts. A service may allow less.
const (
	MaxSpace = 256
	MaxName  = 2048
	MaxTags  = 64      // pairs of one record
	MaxTag   = 512     // a tag's name and value together
	MaxValue = 1 << 20 // value and meta together; etcd takes 1.5 MiB in a request
	MaxOps   = 64      // in one Write; etcd takes 128 keys in a transaction by default
)

// A Tag is a searchable property of a record. A record may have several tags with the same name and
// different values. Name and Value hold no NUL.
type Tag struct{ Name, Value string }

// A Record is what the store keeps under a Key.
type Record struct {
	Key     Key
	Version uint64 // revision of the last write to the record; grows with every write to the space; never 0; the ETag
	Value   []byte
	Meta    []byte // belongs to the API; engines do not read it
	Tags    []Tag
	Expires time.Time // zero: never; kept with millisecond precision

	buffer []byte // see Scratch
}

// Expired reports whether the record has expired. Engines never return an expired record, even
// before it is swept.
func (r *Record) Expired(now time.Time) bool {
	return !r.Expires.IsZero() && !now.Before(r.Expires)
}

// An Action is what an Op does.
type Action uint8

// The actions of an Op.
const (
	Put    Action = iota + 1 // replace the whole record, or create it
	Delete                   // remove the record; no error if it is absent, see Op.Existed
	Check                    // change nothing, only check the condition
)

// A Condition must hold for its Op, or the whole Write fails. The zero Condition always holds. An
// expired record counts as absent.
type Condition struct {
	Absent  bool   // the record must not exist (If-None-Match: *)
	Present bool   // the record must exist (If-Match: *)
	Version uint64 // the record must have this version (If-Match: "v"); 0: any
}

// Holds reports whether the condition allows a record of this version. Version 0 means no record.
func (c Condition) Holds(version uint64) bool {
	switch {
	case c.Absent && version != 0:
		return false
	case c.Present && version == 0:
		return false
	case c.Version != 0 && version != c.Version:
		return false
	}
	return true
}

// An Op is one change of one record. Write fills in the results.
type Op struct {
	Action  Action
	Name    string
	Value   []byte
	Meta    []byte
	Tags    []Tag
	Expires time.Time // zero: never
	If      Condition

	Version uint64 // result: version of the record after the Op; for a Delete its own revision; 0 if there is no record
	Existed bool   // result: the record existed before the Op
}

// A Query selects records of one space.
type Query struct {
	Space  string
	Prefix string // of names
	After  string // only names after this one, for paging; not with Match
	Limit  int    // 0: no limit
	Match  *Match // nil: select by name
}

// A Match selects by one tag: TS 29.598 clause 6.1.6.2.10, SearchComparison. Values compare as byte
// strings. NotEqual matches a record that has the tag with another value.
type Match struct {
	Tag   string
	Op    Compare
	Value string
}

// A Compare is a ComparisonOperator of TS 29.598 clause 6.1.6.3.
type Compare uint8

// The comparisons.
const (
	Equal Compare = iota + 1
	NotEqual
	Greater
	GreaterOrEqual
	Less
	LessOrEqual
)

// A Change is the kind of an Event.
type Change uint8

// The changes.
const (
	Started Change = iota + 1 // first event of every watch: the events after it are later than Event.Record.Version
	Written                   // Record is the new record
	Deleted                   // Record is the old record with the version of the deletion
	Expired                   // like Deleted, but because of Expires
)

// An Event is one change in a space. Events come in the order of versions. A durable engine sends
// events only for durable writes.
type Event struct {
	Change  Change
	Existed bool   // Written: the record existed before
	Record  Record // belongs to the receiver, which must not change the contents of its slices
}

// An Engine keeps records. All methods may be called from any goroutine. Errors: ErrNotFound,
// *Conflict, *Behind, *Busy, *Late, *TooLarge, *Invalid, ErrFull, ErrClosed. After any other error the
// outcome of a Write is unknown.
type Engine interface {
	// Promises returns what this engine guarantees as configured.
	Promises() Promises

	// Get reads a record into r and reuses r's memory: Value and Meta are valid until the next Get
	// into r. Get returns ErrNotFound if there is no record.
	Get(ctx context.Context, key Key, r *Record) error

	// Write performs all ops: at most MaxOps, on distinct names. Where Promises.AtomicBatch holds,
	// it performs all or none. If a condition does not hold, Write changes nothing and returns
	// *Conflict. Write stores the results in ops. Once begun, it does not stop when ctx ends. After
	// Write returns, the caller may reuse the slices in ops.
	Write(ctx context.Context, space string, ops ...Op) error

	// Scan yields the records that q selects, ordered by name. With Match the order is by value,
	// then name, and a record comes once for each matching value. A record is valid until the next
	// one. An error is the last item: the cause of ctx's end, or *Late after ScanTime.
	Scan(ctx context.Context, q Query) iter.Seq2[*Record, error]

	// Watch yields the changes of records whose name starts with prefix, after version from; 0
	// means from now. The first event is Started. Watch ends with an error: ctx's, ErrClosed or
	// *Behind. *Behind means that the engine no longer keeps the changes, because from is too old
	// or the receiver too slow: watch from now, and scan after Started. The memory for a slow
	// receiver is bounded.
	Watch(ctx context.Context, space, prefix string, from uint64) iter.Seq2[*Event, error]

	// Close ends watches and sweeping, and frees the engine's resources.
	Close() error
}

// Promises are the guarantees of an engine as configured. What is not listed is not guaranteed.
type Promises struct {
	Engine       string     `json:"engine"`        // embedded, redis, etcd
	Durability   Durability `json:"durability"`    // when a write is answered
	Linearizable bool       `json:"linearizable"`  // each operation on a record takes effect at one instant between call and answer, even across crashes
	AtomicBatch  bool       `json:"atomic_batch"`  // a Write takes effect as a whole or not at all, and readers see it so
	SnapshotScan bool       `json:"snapshot_scan"` // a Scan sees one instant
	Shared       bool       `json:"shared"`        // several services may use the same records at the same time
	Survives     string     `json:"survives"`      // which failures lose no answered write, in words
}

// Durability says when a write is answered.
type Durability string

// The durabilities, strongest first.
const (
	Consensus Durability = "consensus" // synced by a majority of nodes
	Synced    Durability = "synced"    // synced to this node's disk
	Interval  Durability = "interval"  // synced later, after an interval that the engine's configuration sets
	Process   Durability = "process"   // handed to the operating system: survives a crash of the process, not of the host
	Memory    Durability = "memory"    // in memory
)

// WatchBytes is how many bytes of records an engine may always hold for one watch whose receiver is slow. One
// event may exceed it.
const WatchBytes = 256 << 10

// Measured is an optional interface of engines that have gauges.
type Measured interface {
	// Gauges returns Full also with an error, unless that is ErrClosed.
	Gauges(ctx context.Context) (Gauges, error)
}

// Probed is an optional interface of engines that can stop serving while the process runs.
type Probed interface {
	// Probe returns an error if the engine does not answer, or takes no writes. A full engine is no error:
	// see Gauges.Full.
	Probe(ctx context.Context) error
}

// Clocked is an optional interface of engines that have a clock for all services over their records.
type Clocked interface {
	// Now returns the time by which records expire.
	Now() time.Time
}

// ClockOf returns the clock by which the records of an engine expire: the engine's own, or the
// host's. An API counts times to live from it.
func ClockOf(e Engine, host func() time.Time) func() time.Time {
	if own, ok := e.(Clocked); ok {
		return own.Now
	}
	return host
}

// Gauges are current values of an engine; -1: unknown.
type Gauges struct {
	Records int64 // includes expired records that are not yet swept
	Bytes   int64 // of storage in use
	Waiting int64 // writes in the queue
	Full    bool  // the engine refuses puts, or puts of new records
}

// NoteFull updates full by the outcome of a Write, for engines that learn only from a put whether
// there is room. A put in place of a deleted record needs none.
func NoteFull(full *atomic.Bool, ops []Op, err error) {
	has := func(a Action) bool { return slices.ContainsFunc(ops, func(o Op) bool { return o.Action == a }) }
	switch {
	case errors.Is(err, ErrFull):
		full.Store(true)
	case err == nil && full.Load() && has(Put) && !has(Delete):
		full.Store(false)
	}
}
