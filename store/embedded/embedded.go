// Package embedded is the engine that keeps records on this node's disk, in
// Pebble, a log-structured merge tree.
//
// One goroutine, the committer, takes all waiting writes and yields the processor so that further
// writes can join. It checks their conditions and applies them as one batch. A second goroutine
// waits for the batch's sync, then answers the writes and informs the watchers. Meanwhile the next
// group gathers (group commit).
//
// A reader that finds an applied but unsynced write waits for the sync. So no reader ever sees a
// write that a crash could undo.
package embedded

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"

	"vitrine"
	"vitrine/store"
)

// Config of the engine. The zero value of a number means its default.
type Config struct {
	Dir           string        // created if it does not exist
	Sync          SyncMode      // default SyncAlways
	Every         time.Duration // interval of SyncInterval; default 100 ms
	CacheBytes    int64         // cache of blocks read; default 64 MiB
	MemtableBytes uint64        // default 8 MiB: writes cost more when memtables exceed the processor's cache
	HeadBytes     int           // memory for versions, expiry and tags of the records written last; default 32 MiB
	ReserveBytes  uint64        // free disk space below which puts are refused; default 256 MiB
	MaxRecords    int64         // beyond it, puts of new records are refused; default 100 million
	HistoryEvents int           // changes kept for watches; default 8192
	HistoryBytes  int           // bytes of those changes; default 16 MiB

	FS     vfs.FS           // default: the host's
	Now    func() time.Time // the clock that expires records; required
	Logger *slog.Logger     // required
	// Fatal is called when Pebble reports an error that it cannot continue after. It must not
	// return. Default: panic; in a write the panic becomes the write's error.
	Fatal func(error)
}

// A SyncMode says when a write is answered.
type SyncMode string

// The modes. Only SyncAlways never loses an answered write in a crash.
const (
	SyncAlways   SyncMode = "always"   // after it is synced to disk
	SyncInterval SyncMode = "interval" // at once; synced every Config.Every, so a crash loses at most that
	SyncNever    SyncMode = "never"    // at once; on disk once the memtable is flushed: a crash loses the rest
)

// Engine is a store.Engine.
type Engine struct {
	config Config
	log    *slog.Logger
	db     *pebble.DB
	cache  *pebble.Cache

	queue   chan *request
	inSync  chan *group
	pool    sync.Pool // of *request
	groups  sync.Pool // of *group
	history *history
	heads   *heads // used by the committer alone

	assigned atomic.Uint64 // revision of the last change
	durable  durable
	seed     maphash.Seed
	deleted  [deletedStripes]atomic.Uint64 // by hash of the key; see deletedStripe
	records  atomic.Int64
	disk     disk
	failure  atomic.Pointer[error] // why the engine takes no more writes

	nextDue  atomic.Int64  // when the sweeper wakes, at the latest; Unix milliseconds
	dueSoon  chan struct{} // wakes the sweeper earlier
	closing  chan struct{}
	readers  readers
	sending  sync.RWMutex // held for reading while a request is put into queue
	once     sync.Once
	loops    sync.WaitGroup
	closeErr error
}

const deletedStripes = 4096

// queueWrites bounds the writes in the queue; beyond it: *Busy.
const queueWrites = 4096

// Open opens the records in c.Dir, or creates them.
func Open(c Config) (*Engine, error) {
	if err := c.complete(); err != nil {
		return nil, err
	}
	e := &Engine{
		config:  c,
		log:     c.Logger,
		seed:    maphash.MakeSeed(),
		queue:   make(chan *request, queueWrites),
		inSync:  make(chan *group, 1),
		history: newHistory(c.HistoryEvents, c.HistoryBytes),
		heads:   newHeads(c.HeadBytes),
		dueSoon: make(chan struct{}, 1),
		closing: make(chan struct{}),
	}
	e.pool.New = func() any { return &request{done: make(chan struct{}, 1)} }
	e.groups.New = func() any { return &group{seen: map[store.Key]*state{}} }
	e.durable.init()
	e.cache = pebble.NewCache(c.CacheBytes)
	err := restrictFolder(c)
	if err != nil {
		e.cache.Unref()
		return nil, err
	}
	if e.db, err = pebble.Open(c.Dir, e.options()); err != nil {
		e.cache.Unref()
		return nil, fmt.Errorf("open the records in %s: %w", c.Dir, err)
	}
	// A crashed process may have left unsynced writes in the log. Sync them before anybody reads
	// them.
	if err := errors.Join(e.restore(), e.db.Flush()); err != nil {
		return nil, errors.Join(err, e.db.Close())
	}
	e.disk.check(e)
	e.run()
	return e, nil
}

// restrictFolder creates the folder and gives it mode 0700, so that only this user can open it, whatever
// the modes of the files in it. A folder that holds other files or belongs to another user, for
// example a mounted volume, keeps its mode.
func restrictFolder(c Config) error {
	if err := makeFolder(c.FS, c.Dir); err != nil {
		return fmt.Errorf("make the folder of records %s: %w", c.Dir, err)
	}
	if c.FS != vfs.Default {
		return nil
	}
	is, err := os.Stat(c.Dir)
	if err != nil || is.Mode().Perm()&0o077 == 0 {
		return err
	}
	own, err := isOwn(c.Dir, is)
	if err != nil {
		return err
	}
	if own {
		err = os.Chmod(c.Dir, 0o700) //nolint:gosec // a folder
	}
	if !own || errors.Is(err, fs.ErrPermission) {
		c.Logger.Warn("others can open the folder of records: keep them in a folder of mode 0700 that this user owns", "dir", c.Dir, "mode", is.Mode().String())
		return nil
	}
	return err
}

// makeFolder creates the folder with the missing ones above it, and syncs their names. Pebble syncs only
// the names of folders that it creates itself.
func makeFolder(on vfs.FS, dir string) error {
	var above []string // the folder above each missing one
	for at := dir; on.PathDir(at) != at; at = on.PathDir(at) {
		if _, err := on.Stat(at); err == nil {
			break
		}
		above = append(above, on.PathDir(at))
	}
	if err := on.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, name := range above {
		d, err := on.OpenDir(name)
		if err == nil {
			err = errors.Join(d.Sync(), d.Close())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// isOwn reports whether a folder is only for records: empty or Pebble's, and not sticky like /tmp.
func isOwn(dir string, is fs.FileInfo) (bool, error) {
	files, err := os.ReadDir(dir)
	own := len(files) == 0 || slices.ContainsFunc(files, func(f fs.DirEntry) bool { return strings.HasPrefix(f.Name(), "MANIFEST-") })
	return own && is.Mode()&fs.ModeSticky == 0, err
}

func (c *Config) complete() error {
	if c.Dir == "" {
		return &vitrine.BadInput{File: "store embedded", Found: "no folder", Want: "say where records are kept"}
	}
	c.Sync = cmp.Or(c.Sync, SyncAlways)
	switch c.Sync {
	case SyncAlways, SyncInterval, SyncNever:
	default:
		return &vitrine.BadInput{File: "store embedded", Found: fmt.Sprintf("sync mode %q", c.Sync), Want: "one of always interval never"}
	}
	c.Every = cmp.Or(c.Every, 100*time.Millisecond)
	c.CacheBytes = cmp.Or(c.CacheBytes, 64<<20)
	c.MemtableBytes = cmp.Or(c.MemtableBytes, 8<<20)
	c.HeadBytes = cmp.Or(c.HeadBytes, 32<<20)
	c.ReserveBytes = cmp.Or(c.ReserveBytes, 256<<20)
	c.MaxRecords = cmp.Or(c.MaxRecords, 100_000_000)
	c.HistoryEvents = cmp.Or(c.HistoryEvents, 8192)
	c.HistoryBytes = cmp.Or(c.HistoryBytes, 16<<20)
	if c.FS == nil {
		c.FS = vfs.Default
	}
	if c.Fatal == nil {
		c.Fatal = func(err error) { panic(err) }
	}
	return nil
}

func (e *Engine) options() *pebble.Options {
	o := &pebble.Options{
		FS:                          e.config.FS,
		Cache:                       e.cache,
		MemTableSize:                e.config.MemtableBytes,
		MemTableStopWritesThreshold: 4,
		L0CompactionThreshold:       4,
		L0StopWritesThreshold:       32,
		MaxOpenFiles:                512,
		FormatMajorVersion:          pebble.FormatValueSeparation, // not FormatNewest: with a newer Pebble, that would convert the folder, and older programs could not open it
		WALBytesPerSync:             512 << 10,
		Logger:                      logger{e},
		// Use at most half of the CPUs. The rest is for requests.
		CompactionConcurrencyRange: func() (int, int) { return 1, max(1, runtime.GOMAXPROCS(0)/2) },
	}
	for i := range o.Levels {
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	return o
}

// restore reads the revision and the record count that the last group stored.
func (e *Engine) restore() error {
	b, closer, err := e.db.Get(keyState)
	if errors.Is(err, pebble.ErrNotFound) {
		e.begin(1) // a watch of an empty store needs a revision to go on from, and 0 means from now
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the revision in %s: %w", e.config.Dir, err)
	}
	defer closer.Close()
	if len(b) != 16 {
		return fmt.Errorf("the revision in %s has %d bytes, not 16: written by a newer version?", e.config.Dir, len(b))
	}
	revision := binary.BigEndian.Uint64(b)
	e.records.Store(int64(binary.BigEndian.Uint64(b[8:])))
	e.begin(revision)
	return nil
}

// begin sets the revision of the last write.
func (e *Engine) begin(revision uint64) {
	e.assigned.Store(revision)
	e.durable.reach(revision)
	e.history.start(revision)
}

func (e *Engine) run() {
	e.loops.Go(e.commitLoop)
	e.loops.Go(e.syncLoop)
	e.loops.Go(e.sweepLoop)
	if e.config.Sync == SyncInterval {
		e.loops.Go(e.intervalLoop)
	}
}

// intervalLoop syncs the log at intervals, for SyncInterval.
func (e *Engine) intervalLoop() {
	ticker := time.NewTicker(e.config.Every)
	defer ticker.Stop()
	for {
		select {
		case <-e.closing:
			return
		case <-ticker.C:
			if err := e.db.LogData(nil, pebble.Sync); err != nil {
				e.fail(fmt.Errorf("sync: %w", err))
				return
			}
		}
	}
}

// Promises implements store.Engine.
func (e *Engine) Promises() store.Promises {
	p := store.Promises{
		Engine: "embedded", Durability: store.Synced, Linearizable: true, AtomicBatch: true, SnapshotScan: true,
		Survives: "crashes of the process and of the host",
	}
	switch e.config.Sync {
	case SyncInterval:
		p.Durability, p.Linearizable = store.Interval, false
		p.Survives = fmt.Sprintf("a crash loses the writes of the last %s", e.config.Every)
	case SyncNever:
		p.Durability, p.Linearizable = store.Memory, false
		p.Survives = "a crash loses what was not yet written to disk"
	}
	return p
}

// fail ends writing, because the contents of the log are no longer known.
func (e *Engine) fail(cause error) {
	err := fmt.Errorf("store: a disk error ended writing; repair the disk and restart the store: %w", cause)
	if e.failure.CompareAndSwap(nil, &err) {
		e.durable.fail(err)
		e.log.Error("a disk error ended writing", "dir", e.config.Dir, "error", cause)
	}
}

// Probe implements store.Probed. Reads still work after a failure.
func (e *Engine) Probe(context.Context) error { return e.failed() }

func (e *Engine) failed() error {
	if err := e.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// Close implements store.Engine. It completes the writes in the queue first.
func (e *Engine) Close() error {
	e.once.Do(func() {
		close(e.closing)
		e.sending.Lock()
		close(e.queue)
		e.sending.Unlock()
		e.loops.Wait()
		e.history.close()
		e.durable.fail(store.ErrClosed)
		e.readers.close()
		if err := e.failed(); err != nil {
			// Pebble waits forever for a failed log. The end of the process frees it.
			e.closeErr = err
			return
		}
		e.closeErr = e.db.Close()
		e.cache.Unref()
	})
	return e.closeErr
}

// Gauges implements store.Measured.
func (e *Engine) Gauges(_ context.Context) (store.Gauges, error) {
	if !e.readers.enter() {
		return store.Gauges{}, store.ErrClosed
	}
	defer e.readers.leave()
	m := e.db.Metrics()
	return store.Gauges{
		Records: e.records.Load(),
		Bytes:   int64(m.DiskSpaceUsage()),
		Waiting: int64(len(e.queue)),
		Full:    e.disk.full.Load() || e.records.Load() >= e.config.MaxRecords,
	}, nil
}

// logger forwards Pebble's log. A fatal message ends the engine.
type logger struct{ e *Engine }

func (l logger) Infof(format string, args ...any) {
	l.e.log.Debug("pebble: " + fmt.Sprintf(format, args...))
}

func (l logger) Errorf(format string, args ...any) {
	l.e.log.Error("pebble: " + fmt.Sprintf(format, args...))
}

func (l logger) Fatalf(format string, args ...any) {
	err := fmt.Errorf(format, args...)
	l.e.fail(err)
	l.e.config.Fatal(err)
}
