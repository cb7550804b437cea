package keep

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vitrine/store/client"
)

// serveTimer serves a store with one timer, whose clock is ahead of this host's. It returns the store's URL.
func serveTimer(t *testing.T, due string, ahead time.Duration) string {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	web := &http.Server{Protocols: protocols, ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", time.Now().Add(ahead).UTC().Format(http.TimeFormat))
		if err := json.NewEncoder(w).Encode(client.Page{Records: []client.Entry{{Key: due}}}); err != nil {
			t.Error(err)
		}
	})}
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = web.Serve(listener) })
	t.Cleanup(func() {
		_ = web.Close()
		serving.Wait()
	})
	return "http://" + listener.Addr().String()
}

// TestTimersWaitForTheEarlierClock reads a timer that was due a minute ago by this host's clock. If the
// store's clock is ten minutes behind, this host's may be ahead: then the timer must wait, because the
// registration or UE context of another host's user would end early.
func TestTimersWaitForTheEarlierClock(t *testing.T) {
	for _, c := range []struct {
		name  string
		ahead time.Duration // of the store's clock
		fires int32
	}{
		{"equal", 0, 1}, {"the store is ahead", time.Hour, 1}, {"this host is ahead", -10 * time.Minute, 0},
	} {
		var logged strings.Builder
		url := serveTimer(t, dueKey("reg/sip:a@ims.test", time.Now().Add(-time.Minute)), c.ahead)
		s, err := New(Config{Access: client.Access{URL: url}, Space: "s", Timeout: 20 * time.Second, Calls: 4}, "x",
			slog.New(slog.NewTextHandler(&logged, nil)), prometheus.NewRegistry())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.client.Close)
		var fired atomic.Int32
		s.fire(t.Context(), func(context.Context, string, time.Time) { fired.Add(1) })
		if got := fired.Load(); got != c.fires {
			t.Errorf("%s: the timer fired %d times, want %d", c.name, got, c.fires)
		}
		differ := s.checkClock(false)
		if again := s.checkClock(differ); differ != (c.ahead != 0) || again != differ {
			t.Errorf("%s: the clocks differ: %t, then %t, want %t", c.name, differ, again, c.ahead != 0)
		}
		if got, want := strings.Count(logged.String(), "clocks"), map[bool]int{true: 1}[differ]; got != want {
			t.Errorf("%s: the difference was logged %d times, want %d: %s", c.name, got, want, logged.String())
		}
	}
}

func TestDueKeysAreInTheOrderOfTheirTimes(t *testing.T) {
	var keys []string
	for _, ms := range []int64{0, 999, 1_000, 1_732_430_000_000, 1_732_430_000_001, 9_999_999_999_999} {
		at := time.UnixMilli(ms)
		due := dueKey("reg/sip:a@ims.test", at)
		if key, got, ok := parseDueKey(due); !ok || key != "reg/sip:a@ims.test" || !got.Equal(at) {
			t.Errorf("%s was parsed as %s at %s, %t", due, key, got, ok)
		}
		keys = append(keys, due)
	}
	if !slices.IsSorted(keys) {
		t.Errorf("the keys are not sorted: %q", keys)
	}
}

func FuzzDueKey(f *testing.F) {
	f.Add("due/1732430000000/reg/sip:a@ims.test")
	f.Add("due/x/")
	f.Add("due/-1/reg")
	f.Fuzz(func(t *testing.T, due string) {
		key, at, ok := parseDueKey(due)
		if !ok {
			return
		}
		again, same, ok := parseDueKey(dueKey(key, at))
		if !ok || again != key || !same.Equal(at) {
			t.Errorf("%q: %q at %s was parsed as %q at %s", due, key, at, again, same)
		}
	})
}
