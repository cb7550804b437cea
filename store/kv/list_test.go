package kv_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"vitrine/store"
	"vitrine/store/kv"
)

// A stuck engine has scans that return some records and then wait until their context ends.
type stuck struct {
	store.Engine
	records int
}

func (s *stuck) Scan(ctx context.Context, q store.Query) iter.Seq2[*store.Record, error] {
	return store.Scanned(ctx, q, time.Now, func(ctx context.Context, give func(*store.Record) bool) error {
		for i := range s.records {
			if !give(&store.Record{Key: store.Key{Space: q.Space, Name: fmt.Sprint(i)}, Version: 1}) {
				return nil
			}
		}
		<-ctx.Done()
		return ctx.Err()
	})
}

// TestListTime checks that a list ends after its time limit, with the keys so far and the place to
// continue from. A list without keys must end with 503.
func TestListTime(t *testing.T) {
	for records, want := range map[int]int{0: http.StatusServiceUnavailable, 3: http.StatusOK} {
		synctest.Test(t, func(t *testing.T) {
			api := kv.New(kv.Config{Engine: &stuck{records: records}, Now: time.Now, ListTime: 10 * time.Second})
			w := httptest.NewRecorder()
			began := time.Now()
			api.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/kv", nil))
			if took := time.Since(began); took != 10*time.Second {
				t.Errorf("the list took %s, want 10s", took)
			}
			if w.Code != want {
				t.Fatalf("list of %d records: got status %d: %s", records, w.Code, w.Body)
			}
			var l kv.List
			if err := json.Unmarshal(w.Body.Bytes(), &l); err != nil {
				t.Fatal(err)
			}
			if records > 0 && (len(l.Records) != records || l.Next != "2") {
				t.Errorf("got %d records, next page after %q", len(l.Records), l.Next)
			}
			if records == 0 && w.Header().Get("Retry-After") == "" {
				t.Error("the 503 answer has no Retry-After")
			}
		})
	}
}

// TestListOfLongKeys checks that the pages of a list without values stay small, whatever characters
// the keys contain, and that together they have every key.
func TestListOfLongKeys(t *testing.T) {
	t.Parallel()
	h := serve(t, kv.Config{}, 0)
	const keys = 1000
	var ops []store.Op
	for i := range keys {
		name := fmt.Sprintf("%04d", i)
		ops = append(ops, store.Op{Action: store.Put, Name: name + strings.Repeat("<", store.MaxName-len(name))}) // six bytes each in JSON
		if len(ops) < store.MaxOps && i < keys-1 {
			continue
		}
		if err := h.engine.Write(t.Context(), "kv", ops...); err != nil {
			t.Fatal(err)
		}
		ops = nil
	}
	found, pages := 0, 0
	for next := ""; pages == 0 || next != ""; pages++ {
		body := h.want(t, 200, "GET", "/kv?limit=1000&after="+url.QueryEscape(next), "").body
		if len(body) > 2<<20 {
			t.Errorf("page %d has %d bytes, want at most 2 MiB", pages, len(body))
		}
		var l kv.List
		if err := json.Unmarshal([]byte(body), &l); err != nil {
			t.Fatal(err)
		}
		found += len(l.Records)
		next = l.Next
	}
	if found != keys || pages < 2 {
		t.Errorf("%d pages have %d keys, want %d keys in several pages", pages, found, keys)
	}
}
