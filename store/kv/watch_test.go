package kv_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"vitrine/store"
	"vitrine/store/kv"
)

// A changed engine has watches with one change.
type changed struct {
	store.Engine
	value []byte
}

func (c changed) Watch(context.Context, string, string, uint64) iter.Seq2[*store.Event, error] {
	return func(yield func(*store.Event, error) bool) {
		if yield(&store.Event{Change: store.Started}, nil) {
			yield(&store.Event{Change: store.Written, Record: store.Record{Key: store.Key{Name: "a"}, Value: c.value}}, nil)
		}
	}
}

// A recorder notes the length of the longest write.
type recorder struct {
	*httptest.ResponseRecorder
	longest int
}

func (r *recorder) Write(b []byte) (int, error) {
	r.longest = max(r.longest, len(b))
	return r.ResponseRecorder.Write(b)
}

// TestValuesOfWatches checks that a watch sends whole values, and holds only a part of the text of a large one: a
// store may have 1,024 watches, and each has a text of its own.
func TestValuesOfWatches(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 24 << 10, 24<<10 + 1, 1 << 20} {
		value := bytes.Repeat([]byte("1234567"), n/7+1)[:n]
		w := &recorder{ResponseRecorder: httptest.NewRecorder()}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/kv?values=true", nil)
		r.Header.Set("Accept", "text/event-stream")
		kv.New(kv.Config{Engine: changed{value: value}, Now: time.Now}).ServeHTTP(w, r)
		lines := bufio.NewReader(w.Body)
		next(t, lines)
		_, name, data := next(t, lines)
		var e kv.Entry
		if err := json.Unmarshal([]byte(data), &e); err != nil || name != "written" || e.Key != "a" || !bytes.Equal(e.Value, value) {
			t.Errorf("value of %d bytes: got event %q of key %q with %d bytes, error %v", n, name, e.Key, len(e.Value), err)
		}
		if w.longest > 64<<10 {
			t.Errorf("value of %d bytes: the watch held a text of %d bytes, want at most 64 KiB", n, w.longest)
		}
	}
}
