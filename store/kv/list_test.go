package kv_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
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
