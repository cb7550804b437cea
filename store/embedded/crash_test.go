package embedded_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"vitrine/internal/hosttest"
	"vitrine/store"
	"vitrine/store/embedded"
)

const crashes = 200

// TestCrash crashes the engine at random moments and drops part of the unsynced data. No
// acknowledged write may be lost, no read value may be undone, and the index must match the
// records.
func TestCrash(t *testing.T) {
	t.Parallel()
	fs := vfs.NewCrashableMem()
	random := rand.New(rand.NewPCG(1, 2))
	kept := make([]atomic.Int64, 4) // for each key: the last number that was acknowledged or read
	lost := 0
	for n := range crashes {
		e := open(t, small(fs))
		verify(t, e, kept, n)
		var all sync.WaitGroup
		stop := make(chan struct{})
		for k := range kept {
			all.Go(func() { count(e, k, &kept[k], stop) })
			all.Go(func() { look(e, k, &kept[k], stop) })
		}
		after, deadline := kept[0].Load()+1+random.Int64N(20), time.Now().Add(time.Minute)
		for kept[0].Load() < after {
			if time.Now().After(deadline) {
				t.Fatal("the engine does not acknowledge writes")
			}
			runtime.Gosched() // crash at an arbitrary moment
		}
		seen := make([]int64, len(kept))
		for k := range kept {
			seen[k] = kept[k].Load() // acknowledged before the crash
		}
		crashed := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: []int{0, 50, 90}[n%3], RNG: random})
		close(stop)
		all.Wait()
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		for k := range kept {
			if kept[k].Load() > seen[k] {
				lost++
			}
			kept[k].Store(seen[k])
		}
		fs = crashed
	}
	if lost == 0 {
		t.Error("every crash was taken at rest, so the test proves nothing")
	}
}

// TestNewFoldersSurviveACrash checks that a crash does not lose the folders that the engine created, with
// the acknowledged writes in them.
func TestNewFoldersSurviveACrash(t *testing.T) {
	t.Parallel()
	fs := vfs.NewCrashableMem()
	c := small(fs)
	c.Dir = "a/b/store"
	e := open(t, c)
	if err := e.Write(t.Context(), "s", store.Op{Action: store.Put, Name: "k", Value: []byte("v")}); err != nil {
		t.Fatal(err)
	}
	c.FS = fs.CrashClone(vfs.CrashCloneCfg{})
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	var r store.Record
	if err := open(t, c).Get(t.Context(), store.Key{Space: "s", Name: "k"}, &r); err != nil || string(r.Value) != "v" {
		t.Errorf("got %q, %v, want the acknowledged write", r.Value, err)
	}
}

func small(fs vfs.FS) embedded.Config {
	return embedded.Config{Dir: "store", FS: fs, Now: time.Now, MemtableBytes: 64 << 10, CacheBytes: 1 << 20, ReserveBytes: 1}
}

// count writes increasing numbers to a key and notes each acknowledged number.
func count(e *embedded.Engine, k int, kept *atomic.Int64, stop <-chan struct{}) {
	name := strconv.Itoa(k)
	for i := kept.Load() + 1; ; i++ {
		select {
		case <-stop:
			return
		default:
		}
		o := store.Op{Action: store.Put, Name: name, Value: fmt.Appendf(nil, "%d", i), Tags: []store.Tag{{Name: "n", Value: strconv.FormatInt(i, 10)}}}
		if e.Write(context.Background(), "s", o) != nil {
			return
		}
		raise(kept, i)
	}
}

// look reads the key and notes each number. A crash may not undo a number that was read.
func look(e *embedded.Engine, k int, kept *atomic.Int64, stop <-chan struct{}) {
	var r store.Record
	for {
		select {
		case <-stop:
			return
		default:
		}
		if e.Get(context.Background(), store.Key{Space: "s", Name: strconv.Itoa(k)}, &r) == nil {
			i, _ := strconv.ParseInt(string(r.Value), 10, 64)
			raise(kept, i)
		}
		runtime.Gosched()
	}
}

func raise(kept *atomic.Int64, i int64) {
	for was := kept.Load(); i > was && !kept.CompareAndSwap(was, i); was = kept.Load() {
	}
}

func verify(t *testing.T, e *embedded.Engine, kept []atomic.Int64, n int) {
	t.Helper()
	for k := range kept {
		want := kept[k].Load()
		var r store.Record
		err := e.Get(t.Context(), store.Key{Space: "s", Name: strconv.Itoa(k)}, &r)
		if errors.Is(err, store.ErrNotFound) && want == 0 {
			continue
		}
		got, _ := strconv.ParseInt(string(r.Value), 10, 64)
		if err != nil || got < want {
			t.Fatalf("crash %d: key %d has %d, error %v; %d was acknowledged", n, k, got, err, want)
		}
		kept[k].Store(got)
		m := &store.Match{Tag: "n", Op: store.GreaterOrEqual}
		found := ""
		for r, err := range e.Scan(t.Context(), store.Query{Space: "s", Prefix: strconv.Itoa(k), Match: m}) {
			if err != nil {
				t.Fatal(err)
			}
			found += string(r.Value) + " "
		}
		if found != strconv.FormatInt(got, 10)+" " {
			t.Fatalf("crash %d: key %d has %d, but its tag finds %q", n, k, got, found)
		}
	}
}

// syncs counts the bytes that were written and synced.
type syncs struct {
	mu      sync.Mutex
	written int64 // bytes
	synced  int64 // bytes that were written when the last completed sync began
}

type seenFS struct {
	vfs.FS
	seen *syncs
}

func (f seenFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.Create(name, c)
	return seenFile{file, f.seen}, err
}

func (f seenFS) ReuseForWrite(old, name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.ReuseForWrite(old, name, c)
	return seenFile{file, f.seen}, err
}

type seenFile struct {
	vfs.File
	seen *syncs
}

func (f seenFile) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	f.seen.mu.Lock()
	f.seen.written += int64(n)
	f.seen.mu.Unlock()
	return n, err
}

func (f seenFile) sync(do func() error) error {
	f.seen.mu.Lock()
	upTo := f.seen.written
	f.seen.mu.Unlock()
	err := do()
	if err == nil {
		f.seen.mu.Lock()
		f.seen.synced = upTo
		f.seen.mu.Unlock()
	}
	return err
}

func (f seenFile) Sync() error     { return f.sync(f.File.Sync) }
func (f seenFile) SyncData() error { return f.sync(f.File.SyncData) }

// TestSyncedBeforeAnswer checks that all bytes of a write are synced before its answer. With
// SyncNever they must not be.
func TestSyncedBeforeAnswer(t *testing.T) {
	t.Parallel()
	for mode, want := range map[embedded.SyncMode]bool{embedded.SyncAlways: true, embedded.SyncNever: false} {
		seen := &syncs{}
		c := small(seenFS{vfs.NewMem(), seen})
		c.Sync = mode
		e := open(t, c)
		always := true
		for i := range 100 {
			before := func() int64 { seen.mu.Lock(); defer seen.mu.Unlock(); return seen.synced }()
			if err := e.Write(t.Context(), "s", store.Op{Action: store.Put, Name: fmt.Sprint(i)}); err != nil {
				t.Fatal(err)
			}
			seen.mu.Lock()
			always = always && seen.synced > before && seen.synced == seen.written
			seen.mu.Unlock()
		}
		if always != want {
			t.Errorf("sync %s: each answer came after a sync of all written data: %v", mode, always)
		}
	}
}

// TestReserve checks that the engine refuses puts while the free space is below the reserve, but
// still reads, deletes, and puts a record in place of another, the last while half of the reserve is free.
// It must accept puts again when there is space.
func TestReserve(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	room := func(n uint64) { fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: n, TotalBytes: 1 << 30}) }
	room(1 << 20)
	c := small(fs)
	c.ReserveBytes = 1 << 10
	e := open(t, c)
	put := func(name string) error { return e.Write(t.Context(), "s", store.Op{Action: store.Put, Name: name}) }
	if err := put("a"); err != nil {
		t.Fatal(err)
	}
	room(1<<10 - 1)
	hosttest.Until(t, 20*time.Second, "a put is refused", func() bool { return errors.Is(put("b"), store.ErrFull) })
	var r store.Record
	if err := e.Get(t.Context(), store.Key{Space: "s", Name: "a"}, &r); err != nil {
		t.Error(err)
	}
	replace := func(old, name string, size int) error {
		return e.Write(t.Context(), "s", store.Op{Action: store.Delete, Name: old}, store.Op{Action: store.Put, Name: name, Value: make([]byte, size)})
	}
	if err := replace("a", "large", 17<<10); !errors.Is(err, store.ErrFull) {
		t.Errorf("a large put in place of a small record on a full disk: got %v, want ErrFull", err)
	}
	if err := replace("none", "letter", 1<<10); !errors.Is(err, store.ErrFull) {
		t.Errorf("a put in place of no record on a full disk: got %v, want ErrFull", err)
	}
	if err := replace("a", "letter", 1<<10); err != nil {
		t.Errorf("a put in place of a deleted record on a full disk: %v", err)
	}
	room(1<<9 - 1)
	last, next := "letter", "other"
	hosttest.Until(t, 20*time.Second, "a put in place of a record is refused", func() bool {
		err := replace(last, next, 1)
		if err == nil { // the free space was not measured again
			last, next = next, last
		}
		return errors.Is(err, store.ErrFull)
	})
	if err := e.Write(t.Context(), "s", store.Op{Action: store.Delete, Name: last}); err != nil {
		t.Errorf("delete on a full disk: %v", err)
	}
	if s, err := e.Gauges(t.Context()); err != nil || !s.Full {
		t.Errorf("gauges of a full store: got %+v, error %v", s, err)
	}
	room(1 << 20)
	hosttest.Until(t, 20*time.Second, "a put finds room again", func() bool { return put("c") == nil })
}

// TestMaxRecords checks that the engine refuses puts of new records at the limit, and only these, and
// that its gauges say so.
func TestMaxRecords(t *testing.T) {
	t.Parallel()
	c := small(vfs.NewMem())
	c.MaxRecords = 1
	e := open(t, c)
	full := func() bool {
		t.Helper()
		g, err := e.Gauges(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return g.Full
	}
	write := func(action store.Action, name string) error {
		return e.Write(t.Context(), "s", store.Op{Action: action, Name: name})
	}
	if full() {
		t.Error("an empty store is full")
	}
	if err := write(store.Put, "a"); err != nil {
		t.Fatal(err)
	}
	if err := write(store.Put, "b"); !errors.Is(err, store.ErrFull) || !full() {
		t.Errorf("a second record of at most 1: got error %v, full %t", err, full())
	}
	if err := write(store.Put, "a"); err != nil {
		t.Errorf("a put of the only record: %v", err)
	}
	replace := func(old string) error {
		return e.Write(t.Context(), "s", store.Op{Action: store.Delete, Name: old}, store.Op{Action: store.Put, Name: "b"})
	}
	if err := replace("none"); !errors.Is(err, store.ErrFull) {
		t.Errorf("a record in place of none: got %v, want ErrFull", err)
	}
	if err := replace("a"); err != nil {
		t.Errorf("a record in place of the only one: %v", err)
	}
	if err := write(store.Delete, "b"); err != nil || full() {
		t.Errorf("after the deletion: got error %v, full %t", err, full())
	}
}

// TestDiskFull fills the disk beyond the reserve. Every later write must fail with an error that
// says so, and a probe too. After a restart all acknowledged writes must be there.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	mem := vfs.NewCrashableMem()
	var full atomic.Bool
	inject := errorfs.InjectorFunc(func(op errorfs.Op) error {
		if full.Load() && (op.Kind == errorfs.OpFileWrite || op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData || op.Kind == errorfs.OpCreate) {
			return syscall.ENOSPC
		}
		return nil
	})
	e := open(t, small(errorfs.Wrap(mem, inject)))
	answered := 0
	put := func(i int) error {
		return e.Write(t.Context(), "s", store.Op{Action: store.Put, Name: fmt.Sprintf("%06d", i), Value: []byte("v")})
	}
	for ; answered < 50; answered++ {
		if err := put(answered); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.Probe(t.Context()); err != nil {
		t.Errorf("probe of a good disk: %v", err)
	}
	full.Store(true)
	for range 3 {
		if err := put(answered); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("write on a full disk: got %v, want ENOSPC", err)
		}
	}
	if err := e.Probe(t.Context()); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("probe after failed writes: got %v, want ENOSPC", err)
	}
	crashed := mem.CrashClone(vfs.CrashCloneCfg{})
	if err := e.Close(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("close on a full disk: got %v, want ENOSPC", err)
	}
	e = open(t, small(crashed))
	n := 0
	for _, err := range e.Scan(t.Context(), store.Query{Space: "s"}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n < answered {
		t.Errorf("found %d of %d acknowledged writes", n, answered)
	}
}
