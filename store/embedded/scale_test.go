package embedded_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"vitrine"
	"vitrine/internal/hosttest"
	"vitrine/store"
	"vitrine/store/embedded"
	"vitrine/store/storetest"
)

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestMillionExpire checks that a million records all expire, and none of them early. Under the
// race detector it uses 128,000 records. It is not parallel, because other tests measure the heap.
func TestMillionExpire(t *testing.T) {
	if testing.Short() {
		t.Skip("writes a million records")
	}
	records := 1_000_000
	if hosttest.Raced {
		records = 128_000
	}
	clock := storetest.NewClock()
	e := open(t, embedded.Config{Dir: "store", FS: vfs.NewMem(), Sync: embedded.SyncNever, Now: clock.Now, ReserveBytes: 1})
	storetest.Expire(t, e, clock, records)
}

// TestSlowWatchers checks that a hundred watchers that do not read cost no memory, however much is
// written. Each must get Behind.
func TestSlowWatchers(t *testing.T) {
	c := small(vfs.NewMem())
	c.HistoryEvents, c.HistoryBytes, c.Sync = 128, 64<<10, embedded.SyncNever
	e := open(t, c)
	const watchers = 100
	started := make(chan struct{}, watchers)
	release := make(chan struct{})
	ended := make(chan error, watchers)
	for range watchers {
		go func() {
			for v, err := range e.Watch(context.Background(), "s", "", 0) {
				if err != nil {
					ended <- err
					return
				}
				if v.Change == store.Started {
					started <- struct{}{}
					<-release
				}
			}
			ended <- nil
		}()
	}
	for range watchers {
		<-started
	}
	before := heap()
	value := make([]byte, 4<<10)
	for i := range 5000 {
		if err := e.Write(t.Context(), "s", store.Op{Action: store.Put, Name: fmt.Sprint(i % 10), Value: value}); err != nil {
			t.Fatal(err)
		}
	}
	if grown := int64(heap()) - int64(before); grown > 4<<20 {
		t.Errorf("with 20 MB written and %d slow watchers the heap grew by %d KiB, want at most 4 MiB", watchers, grown>>10)
	}
	close(release)
	for range watchers {
		var behind *store.Behind
		if err := <-ended; !errors.As(err, &behind) {
			t.Errorf("slow watcher: got %v, want a Behind error", err)
		}
	}
}

// TestSmallDisk fills a real file system. The engine must refuse puts with ErrFull before the disk
// is full. After a restart all acknowledged writes must be there.
func TestSmallDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := mountSmall(dir); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	c := embedded.Config{Dir: filepath.Join(dir, "store"), Now: time.Now, MemtableBytes: 1 << 20, ReserveBytes: 12 << 20}
	e := open(t, c)
	value := make([]byte, 64<<10)
	answered := 0
	var err error
	for ; answered < 10_000; answered++ {
		value[0], value[1], value[2] = byte(answered), byte(answered>>8), 1
		for i := 3; i < len(value); i++ { // bytes that do not compress
			value[i] = value[i-1]*31 + value[i-2] + byte(answered*i>>3)
		}
		if err = e.Write(t.Context(), "s", store.Op{Action: store.Put, Name: fmt.Sprintf("%05d", answered), Value: value}); err != nil {
			break
		}
	}
	if !errors.Is(err, store.ErrFull) {
		t.Fatalf("after %d writes: got %v, want ErrFull", answered, err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	e = open(t, c)
	n := 0
	for r, err := range e.Scan(t.Context(), store.Query{Space: "s"}) {
		if err != nil || len(r.Value) != len(value) {
			t.Fatalf("%+v, %v", r.Key, err)
		}
		n++
	}
	if n != answered || n == 0 {
		t.Errorf("got %d records, want the %d acknowledged ones", n, answered)
	}
	if err := e.Write(t.Context(), "s", store.Op{Action: store.Delete, Name: "00000"}); err != nil {
		t.Errorf("delete on a full disk: %v", err)
	}
}

func mountSmall(dir string) error {
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=48m"); err != nil {
		return &vitrine.Unsupported{What: "a disk that fills up", Missing: "the right to mount a tmpfs: " + err.Error()}
	}
	return nil
}

// TestSystemCalls checks with strace that a sync of the log ends before each answer. The traced
// program is this test in another process.
func TestSystemCalls(t *testing.T) {
	t.Parallel()
	if dir := os.Getenv("VITRINE_STORE_TRACED"); dir != "" {
		tracedWrites(t, dir)
		return
	}
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip(&vitrine.Unsupported{What: "a look at system calls", Missing: "strace", Do: "install strace"})
	}
	trace := filepath.Join(t.TempDir(), "trace")
	c := exec.CommandContext(t.Context(), strace, "-f", "-o", trace, "-e", "trace=fsync,fdatasync,sync_file_range,write", os.Args[0], "-test.run=^TestSystemCalls$")
	c.Env = append(os.Environ(), "VITRINE_STORE_TRACED="+t.TempDir())
	if out, err := c.CombinedOutput(); err != nil {
		t.Skip(&vitrine.Unsupported{What: "a look at system calls", Missing: fmt.Sprintf("strace here: %v: %s", err, out)})
	}
	text, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	checkTrace(t, string(text))
}

const tracedCount = 20

// tracedWrites marks the start and the answer of each write by a system call.
func tracedWrites(t *testing.T, dir string) {
	e := open(t, embedded.Config{Dir: dir, Now: time.Now})
	for i := range tracedCount {
		if _, err := fmt.Fprintf(os.Stderr, "ask %d\n", i); err != nil {
			t.Fatal(err)
		}
		if err := e.Write(t.Context(), "s", store.Op{Action: store.Put, Name: "traced", Value: fmt.Appendf(nil, "value-%d", i)}); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprintf(os.Stderr, "answered %d\n", i); err != nil {
			t.Fatal(err)
		}
	}
}
