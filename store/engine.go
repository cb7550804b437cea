// Package store is the shared state store: records that outlive a transaction,
// kept outside the instances so that any of them may serve the next one (Contain-ed,
// section 3.2).
//
// An Engine keeps records; embedded, redis and etcd are engines. APIs (store/kv,
// store/nudsf) are handlers over an Engine. The Service in package service mounts
// them behind limits, tokens, TLS and the watch on latency.
package store

import (
	"context"
	"iter"
	"time"
)

// A Key names a record. Spaces are apart from each other: names, versions,
// tags, watches and batches are within one space. An API uses one space for
// each of its name spaces ("kv", "nudsf/realm/storage"). A clustered engine
// keeps each space whole on one node, so more spaces spread better.
type Key struct {
	Space string // 1 to MaxSpace bytes, no NUL
	Name  string // 1 to MaxName bytes, no NUL
}

// What every engine takes; a service may allow less. Bytes.
const (
	MaxSpace = 256
	MaxName  = 2048
	MaxTags  = 64      // pairs of a record
	MaxTag   = 512     // a tag's name and value together
	MaxValue = 1 << 20 // value and meta together; etcd takes 1.5 MiB in a request
	MaxOps   = 64      // of one Write; etcd takes 128 keys in a transaction by default
)

// A Tag is one searchable property of a record. A record may have a tag more
// than once, with different values. No NUL in either.
type Tag struct{ Name, Value string }

// A Record is what a Key holds.
type Record struct {
	Key     Key
	Version uint64 // revision of the write that made it; grows with every write to the space; never 0; the ETag
	Value   []byte
	Meta    []byte // the API's own; engines do not look into it
	Tags    []Tag
	Expires time.Time // zero: never; kept in milliseconds

	buffer []byte // see Scratch
}

// Expired says whether the record is past its time. Engines never return a
// record that is, whether or not it was swept already.
func (r *Record) Expired(now time.Time) bool {
	return !r.Expires.IsZero() && !now.Before(r.Expires)
}

// An Action is what an Op does.
type Action uint8

// The actions of an Op.
const (
	Put    Action = iota + 1 // replace the whole record, or make it
	Delete                   // remove it; nothing there is no error, see Op.Existed
	Check                    // nothing: only the condition counts
)

// A Condition must hold for an Op, and so for its whole Write. The zero
// Condition always holds. An expired record is absent.
type Condition struct {
	Absent  bool   // no record (If-None-Match: *)
	Present bool   // any record (If-Match: *)
	Version uint64 // a record of this very version (If-Match: "v"); 0: not asked
}

// Holds says whether the condition allows a record of this version; 0 is none.
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

// An Op is one change of one record. A Write fills in the results.
type Op struct {
	Action  Action
	Name    string
	Value   []byte
	Meta    []byte
	Tags    []Tag
	Expires time.Time // zero: never
	If      Condition

	Version uint64 // result: of the record after the Op; 0 after Delete of nothing; the record's for Check; a Delete's own revision
	Existed bool   // result: there was a record before the Op
}

// A Query chooses records of one space.
type Query struct {
	Space  string
	Prefix string // of names
	After  string // names beyond this one; for paging; not with Match
	Limit  int    // 0: all
	Match  *Match // nil: by name
}

// A Match chooses by one tag: TS 29.598 clause 6.1.6.2.10, SearchComparison.
// Values compare as strings of bytes. NotEqual: has the tag, with another value.
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

// A Change says what an Event tells.
type Change uint8

// The changes.
const (
	Started Change = iota + 1 // first of every watch: what follows is beyond Event.Record.Version
	Written                   // Record is as written
	Deleted                   // Record is as it was, Version that of the deletion
	Expired                   // as Deleted, because of Expires
)

// An Event is one change in a space, in the order of versions. Events are of
// durable writes only, where the engine is durable.
type Event struct {
	Change  Change
	Existed bool   // Written: there was a record before
	Record  Record // belongs to the receiver; do not change what its slices hold
}

// An Engine keeps records. All methods may be called from any goroutine.
// Errors: ErrNotFound, *Conflict, *Behind, *Busy, *TooLarge, ErrFull, ErrClosed;
// every other error means that the outcome of a Write is not known.
type Engine interface {
	// Promises says what this engine, as it is configured, holds to.
	Promises() Promises

	// Get reads a record into r, whose memory is used again, so that its
	// Value and Meta are good until the next Get into it. ErrNotFound when
	// there is none.
	Get(ctx context.Context, key Key, r *Record) error

	// Write does all ops, at most MaxOps on distinct names, or, where
	// Promises.AtomicBatch, none: a condition that does not hold gives
	// *Conflict, and nothing is done. Results are in ops. Once begun it is not
	// cut short by ctx. The slices in ops are the caller's again afterwards.
	Write(ctx context.Context, space string, ops ...Op) error

	// Scan gives the records that q chooses, by name; with Match by value, then
	// name, and a record once for each of its values that match. A record is good
	// until the next one. An error is the last thing given.
	Scan(ctx context.Context, q Query) iter.Seq2[*Record, error]

	// Watch gives the changes of records whose name starts with prefix, beyond
	// version from; 0: from now. The first event is Started. It ends with an
	// error: ctx's, ErrClosed, or *Behind when the changes asked for, or those a slow
	// receiver did not take in time, are no longer kept: then Scan, and watch
	// anew. What a slow receiver costs is bounded.
	Watch(ctx context.Context, space, prefix string, from uint64) iter.Seq2[*Event, error]

	// Close ends watches and sweeping, and frees what the engine holds.
	Close() error
}

// Promises of an engine as configured. What is not said is not promised.
type Promises struct {
	Engine       string     `json:"engine"`        // embedded, redis, etcd
	Durability   Durability `json:"durability"`    // when a write is answered
	Linearizable bool       `json:"linearizable"`  // each operation on a record takes effect at one instant between call and answer, through crashes too
	AtomicBatch  bool       `json:"atomic_batch"`  // a Write is done whole or not at all, and seen so
	SnapshotScan bool       `json:"snapshot_scan"` // a Scan sees one instant
	Shared       bool       `json:"shared"`        // several services may use the same records at once
	Survives     string     `json:"survives"`      // what may fail without losing an answered write, in words
}

// Durability says when a write is answered.
type Durability string

// The durabilities, strongest first.
const (
	Consensus Durability = "consensus" // synced by a majority of nodes
	Synced    Durability = "synced"    // synced to this node's disk
	Interval  Durability = "interval"  // synced some time later, said by the engine's configuration
	Process   Durability = "process"   // handed to the operating system: outlives the process, not the host
	Memory    Durability = "memory"    // in memory
)

// Measured is the optional power of engines that have gauges.
type Measured interface {
	Gauges(ctx context.Context) (Gauges, error)
}

// Gauges of an engine, as they are now; -1: not known.
type Gauges struct {
	Records int64 // kept, those not yet swept among them
	Bytes   int64 // of storage
	Waiting int64 // writes that wait
	Full    bool  // puts are refused
}
