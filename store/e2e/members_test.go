package e2e

import (
	"fmt"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"vitrine/internal/hosttest"
	"vitrine/store/client"
	"vitrine/store/storetest"
)

// hosts is an http.RoundTripper that counts the answers by host.
type hosts struct {
	http.RoundTripper
	answers sync.Map // host -> *atomic.Int64
}

func (h *hosts) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := h.RoundTripper.RoundTrip(r)
	if err == nil {
		n, _ := h.answers.LoadOrStore(r.URL.Host, new(atomic.Int64))
		n.(*atomic.Int64).Add(1)
	}
	return response, err
}

func (h *hosts) count(host string) int64 {
	n, there := h.answers.Load(host)
	if !there {
		return 0
	}
	return n.(*atomic.Int64).Load()
}

// TestStoresOverOneEngine runs writers over two stores with the same Redis. A store that ends on
// SIGTERM must cost no write, one that is killed at most the writes in flight, and one that starts
// gets requests. All acknowledged writes must be there.
func TestStoresOverOneEngine(t *testing.T) {
	t.Parallel()
	engine := storetest.Redis(t, "--appendonly", "yes", "--appendfsync", "always", "--maxmemory-policy", "noeviction")
	run := func(address string) *running {
		t.Helper()
		return start(t, "--engine", "redis", "--engine-server", engine, "--listen", address, "--log", "warn")
	}
	first, address := run("127.0.0.1:0"), hosttest.FreeAddress(t, "tcp")
	counts := &hosts{}
	c, err := client.New(client.Config{Base: "http://" + first.address + ",http://" + address, Wrap: func(next http.RoundTripper) http.RoundTripper {
		counts.RoundTripper = next
		return counts
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()

	var stop atomic.Bool
	var failed, done atomic.Int64
	var last [writers]int64 // the last number that was acknowledged, by writer
	var all sync.WaitGroup
	for i := range last {
		all.Go(func() {
			kv, key := c.KV(""), fmt.Sprint("writer-", i)
			for n := int64(1); !stop.Load(); n++ {
				if _, err := kv.Put(t.Context(), key, []byte(strconv.FormatInt(n, 10)), "text/plain", 0, client.Conditions{}); err != nil {
					t.Logf("a write: %v", err)
					failed.Add(1)
					continue
				}
				last[i] = n
				done.Add(1)
			}
		})
	}
	await := func(what string, more int64, count func() int64) {
		t.Helper()
		from := count()
		hosttest.Until(t, 20*time.Second, what, func() bool { runtime.Gosched(); return count() >= from+more })
	}
	atSecond := func() int64 { return counts.count(address) }
	await("writes with one store", 50, done.Load)

	second := run(address)
	await("writes at the second store", 100, atSecond)
	if code := second.end(t, syscall.SIGTERM); code != 0 || failed.Load() != 0 {
		t.Errorf("after SIGTERM of the second store: exit code %d, %d writes failed, want 0", code, failed.Load())
	}
	await("writes without the second store", 100, done.Load)

	second = run(address)
	await("writes at the second store again", 100, atSecond)
	second.kill(t)
	await("writes after the second store was killed", 100, done.Load)
	if n := failed.Load(); n > writers {
		t.Errorf("%d writes of %d writers failed when a store was killed, want at most 1 each", n, writers)
	}

	stop.Store(true)
	all.Wait()
	for i, n := range last {
		v, err := c.KV("").Get(t.Context(), fmt.Sprint("writer-", i), client.Conditions{})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := strconv.ParseInt(strings.TrimSpace(string(v.Data)), 10, 64); err != nil || got < n {
			t.Errorf("writer %d wrote %d, but the store has %q", i, n, v.Data)
		}
	}
}
