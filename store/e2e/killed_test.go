package e2e

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"vitrine/store/client"
	"vitrine/store/storetest"
)

// killsVariable is the environment variable that sets how often TestStoreKilled kills the store, for
// the proof at full size (docs/proofs.md).
const killsVariable = "VITRINE_PROOF_KILLS"

// A store is killed this often while so many writers write.
const (
	usualKills = 20
	writers    = 8
)

// A counter is a key whose value one writer increments.
type counter struct {
	key      string
	answered atomic.Int64 // the last number that the store acknowledged
	asked    int64        // the last number sent to the store
}

// raise writes numbers until the store stops answering.
func (c *counter) raise(t *testing.T, kv *client.KV, answers *atomic.Int64) {
	for {
		c.asked++
		_, err := kv.Put(t.Context(), c.key, []byte(strconv.FormatInt(c.asked, 10)), "text/plain", 0, client.Conditions{})
		if err != nil {
			return
		}
		c.answered.Store(c.asked)
		answers.Add(1)
	}
}

// check fails the test unless the store has the last acknowledged number or a later one that was
// sent to it.
func (c *counter) check(t *testing.T, kv *client.KV) {
	answered := c.answered.Load()
	value, err := kv.Get(t.Context(), c.key, client.Conditions{})
	if client.NotFound(err) && answered == 0 {
		return
	}
	if err != nil {
		t.Fatalf("read %s: %v; %d was acknowledged", c.key, err, answered)
	}
	got, err := strconv.ParseInt(string(value.Data), 10, 64)
	if err != nil || got < answered || got > c.asked {
		t.Fatalf("%s has %q; %d was acknowledged and %d requested", c.key, value.Data, answered, c.asked)
	}
	c.asked = got
}

// TestStoreKilled kills a store during writes. After a restart the store must have all acknowledged
// writes.
func TestStoreKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var counters [writers]counter
	for i := range counters {
		counters[i].key = fmt.Sprintf("counter-%d", i)
	}
	random := rand.New(rand.NewPCG(1, 2))
	kills, acknowledged := storetest.Number(t, killsVariable, usualKills), int64(0)
	for range kills {
		s := start(t, "--dir", dir, "--listen", "127.0.0.1:0", "--log", "warn")
		c, err := client.New(client.Config{Base: "http://" + s.address})
		if err != nil {
			t.Fatal(err)
		}
		kv := c.KV("")
		for i := range counters {
			counters[i].check(t, kv)
		}
		var answers atomic.Int64
		var all sync.WaitGroup
		for i := range counters {
			all.Go(func() { counters[i].raise(t, kv, &answers) })
		}
		enough, deadline := 1+random.Int64N(200), time.Now().Add(time.Minute)
		for answers.Load() < enough {
			if time.Now().After(deadline) {
				t.Fatal("the store does not answer writes")
			}
			runtime.Gosched() // kill at an arbitrary moment
		}
		s.kill(t)
		all.Wait()
		c.Close()
		acknowledged += answers.Load()
	}
	s := start(t, "--dir", dir, "--listen", "127.0.0.1:0")
	c, err := client.New(client.Config{Base: "http://" + s.address})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for i := range counters {
		counters[i].check(t, c.KV(""))
		if counters[i].answered.Load() == 0 {
			t.Errorf("counter %s was never written", counters[i].key)
		}
	}
	if code := s.end(t, syscall.SIGTERM); code != 0 {
		t.Errorf("after SIGTERM: got exit code %d, want 0", code)
	}
	t.Logf("%d kills, %d acknowledged writes", kills, acknowledged)
}
