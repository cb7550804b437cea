package nudsf_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"vitrine/store"
	"vitrine/store/embedded"
	"vitrine/store/nudsf"
	"vitrine/store/nudsf/wire"
	"vitrine/store/storetest"
)

// A slow engine has scans that return a number of records and then wait until their context ends.
// Scans of an index can end with Late.
type slow struct {
	store.Engine
	after atomic.Int64 // 0: not slow
	late  atomic.Int64 // 0: not late
}

func (s *slow) Scan(ctx context.Context, q store.Query) iter.Seq2[*store.Record, error] {
	return func(yield func(*store.Record, error) bool) {
		n := int64(0)
		for r, err := range s.Engine.Scan(ctx, q) {
			if after := s.after.Load(); after > 0 && n == after {
				<-ctx.Done()
				yield(nil, ctx.Err())
				return
			}
			if late := s.late.Load(); late > 0 && n == late && q.Match != nil {
				yield(nil, &store.Late{})
				return
			}
			n++
			if !yield(r, err) {
				return
			}
		}
	}
}

// A function is a nudsf.Function over an engine whose scans can be slow.
type function struct {
	t      *testing.T
	engine *slow
	base   string
	nudsf  *nudsf.Function
}

func serve(t *testing.T, c nudsf.Config) *function {
	t.Helper()
	engine, err := embedded.Open(embedded.Config{Dir: t.TempDir(), Sync: embedded.SyncNever, Now: time.Now, Logger: testLog(t)})
	if err != nil {
		t.Fatal(err)
	}
	f := &function{t: t, engine: &slow{Engine: engine}}
	c.Engine, c.Clock = f.engine, time.Now
	if f.nudsf, err = nudsf.New(c); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	f.nudsf.Mount(mux)
	server := httptest.NewServer(mux)
	f.base = server.URL
	t.Cleanup(func() {
		server.Close()
		_ = engine.Close()
	})
	return f
}

// do sends a request and returns the answer and its body.
func (f *function) do(method, path, contentType string, body []byte) (*http.Response, []byte) {
	f.t.Helper()
	r, err := http.NewRequestWithContext(f.t.Context(), method, f.base+path, bytes.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	r.Header.Set("Content-Type", contentType)
	got, err := http.DefaultClient.Do(r)
	if err != nil {
		f.t.Fatal(err)
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return got, text
}

const (
	records = "/nudsf-dr/v1/Realm01/Storage01/records"
	timers  = "/nudsf-timer/v1/Realm01/Storage01/timers"
)

// put stores n records and n timers with a tag.
func (f *function) put(n int, value string) {
	f.t.Helper()
	tags := wire.Tags{"kind": {value}}
	for i := range n {
		record := wire.Record{Meta: wire.Meta{Tags: tags}}
		contentType, body, err := record.Encode()
		if err != nil {
			f.t.Fatal(err)
		}
		if got, text := f.do("PUT", fmt.Sprintf("%s/%03d", records, i), contentType, body); got.StatusCode != http.StatusCreated {
			f.t.Fatalf("%s: %s", got.Status, text)
		}
		if body, err = json.Marshal(wire.Timer{Expires: time.Now().Add(time.Hour), MetaTags: tags}); err != nil {
			f.t.Fatal(err)
		}
		if got, text := f.do("PUT", fmt.Sprintf("%s/%03d", timers, i), wire.TypeJSON, body); got.StatusCode != http.StatusCreated {
			f.t.Fatalf("%s: %s", got.Status, text)
		}
	}
}

func filter(t *testing.T, f wire.Filter) string {
	t.Helper()
	text, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	return "?filter=" + url.QueryEscape(string(text))
}

// want fails the test unless the answer is a problem with a status, a cause and a text.
func want(t *testing.T, got *http.Response, body []byte, status int, cause, text string) {
	t.Helper()
	var p wire.Problem
	if err := json.Unmarshal(body, &p); err != nil || got.StatusCode != status || p.Cause != cause || !strings.Contains(p.Detail, text) {
		t.Errorf("got %s: %.300s, want %d %s: ...%s...", got.Status, body, status, cause, text)
	}
}

// searchTime is exceeded on purpose where a scan is slow. Where a request must succeed,
// it is long enough even for a slow host.
const searchTime = 2 * time.Second

// TestSearchTime checks that a search that exceeds its time ends with a problem, and not with a
// wrong count.
func TestSearchTime(t *testing.T) {
	t.Parallel()
	f := serve(t, nudsf.Config{SearchTime: searchTime})
	f.put(5, "x")
	f.engine.after.Store(3)
	all := filter(t, wire.All())
	for _, path := range []string{records + all, records + all + "&count-indicator=true", timers + all} {
		got, body := f.do("GET", path, "", nil)
		want(t, got, body, http.StatusServiceUnavailable, wire.CauseCongestion, "narrow the filter")
	}
	f.engine.after.Store(0)
	if got, body := f.do("GET", records+all, "", nil); got.StatusCode != http.StatusOK || !strings.Contains(string(body), `"count":5`) {
		t.Errorf("search within the time limit: got %s: %s", got.Status, body)
	}
}

// TestDeletionTime checks that a deletion by filter that exceeds its time lists exactly the records
// that it has deleted. A repetition must delete the rest.
func TestDeletionTime(t *testing.T) {
	t.Parallel()
	f := serve(t, nudsf.Config{SearchTime: searchTime})
	const all, first = 100, store.MaxOps // as many as one Write takes
	f.put(all, "x")
	for path, member := range map[string]string{records: "recordIdList", timers: "timerIds"} {
		matching := path + filter(t, wire.Compare(wire.Equal, "kind", "x"))
		f.engine.late.Store(3)
		got, body := f.do("DELETE", matching, "", nil)
		want(t, got, body, http.StatusServiceUnavailable, wire.CauseCongestion, "select fewer records")
		f.engine.late.Store(0)

		f.engine.after.Store(first + 3)
		got, body = f.do("DELETE", matching, "", nil)
		ids, incomplete := deleted(t, body, member)
		if got.StatusCode != http.StatusOK || len(ids) != first || !incomplete {
			t.Fatalf("%s: %s: %s", path, got.Status, body)
		}
		for i := range all {
			got, _ := f.do("GET", fmt.Sprintf("%s/%03d", path, i), "", nil)
			if there := got.StatusCode == http.StatusOK; there == (i < first) {
				t.Errorf("%s %03d: got %s after the deletion of %v", path, i, got.Status, ids)
			}
		}

		f.engine.after.Store(0)
		_, body = f.do("DELETE", matching, "", nil)
		if ids, incomplete := deleted(t, body, member); len(ids) != all-first || incomplete {
			t.Errorf("%s, second request: got %s", path, body)
		}
		if got, body = f.do("DELETE", matching, "", nil); got.StatusCode != http.StatusNoContent {
			t.Errorf("repeated %s: got %s: %s", path, got.Status, body)
		}
	}
}

// deleted returns the IDs in the answer to a deletion, and whether more may match.
func deleted(t *testing.T, body []byte, member string) (ids []string, incomplete bool) {
	t.Helper()
	var answer map[string]json.RawMessage
	if err := json.Unmarshal(body, &answer); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	if err := json.Unmarshal(answer[member], &ids); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return ids, string(answer["incomplete"]) == "true"
}

// TestSearchBytes checks that searches and deletions by filter share a memory bound, and that each
// returns its part at its end. A deletion that reaches the bound must say how many records it has
// deleted.
func TestSearchBytes(t *testing.T) {
	t.Parallel()
	f := serve(t, nudsf.Config{SearchBytes: 12 << 10})
	f.put(200, "x")
	some, every := filter(t, wire.Compare(wire.Equal, "kind", "x"))+"&limit-range=10", filter(t, wire.Compare(wire.Greater, "kind", ""))
	for range 3 {
		got, body := f.do("GET", records+every, "", nil)
		want(t, got, body, http.StatusServiceUnavailable, wire.CauseCongestion, "memory")
		if got.Header.Get("Retry-After") == "" {
			t.Error("the answer has no Retry-After")
		}
		if got, body := f.do("GET", records+some, "", nil); got.StatusCode != http.StatusOK || !strings.Contains(string(body), `"count":200`) {
			t.Errorf("small search: got %s: %s", got.Status, body)
		}
	}
	got, body := f.do("DELETE", timers+every, "", nil)
	want(t, got, body, http.StatusServiceUnavailable, wire.CauseCongestion, " were deleted, then: ")
	var p wire.Problem
	var gone int
	if err := json.Unmarshal(body, &p); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscanf(p.Detail, "%d were deleted", &gone); err != nil {
		t.Fatal(err)
	}
	_, body = f.do("GET", timers+some, "", nil)
	if left, _ := deleted(t, body, "timerIds"); gone == 0 || gone+len(left) != 200 {
		t.Errorf("deleted %d of 200 timers, %d are left", gone, len(left))
	}
}

// TestManyDue checks that timers end even if one scan has no time for all timers that are due.
func TestManyDue(t *testing.T) {
	t.Parallel()
	f := serve(t, nudsf.Config{})
	f.engine.late.Store(5)
	after := uint32(0)
	body, err := json.Marshal(wire.Timer{Expires: time.Now().Add(4 * time.Second), DeleteAfter: &after})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		if got, text := f.do("PUT", fmt.Sprintf("%s/%d", timers, i), wire.TypeJSON, body); got.StatusCode != http.StatusCreated {
			t.Fatalf("%s: %s", got.Status, text)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.nudsf.Run(ctx) }()
	all := store.Query{Space: "nudsf-timer/Realm01/Storage01", Prefix: "t/"}
	storetest.Await(t, "end of all timers", func() bool {
		for _, err := range f.engine.Scan(t.Context(), all) {
			return err != nil
		}
		return true
	})
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if c := f.nudsf.Counters().Due; c.Errors > 0 || c.Handled != 50 {
		t.Errorf("counters of the agenda: got %+v", c)
	}
}

// TestLargestRecordExpires adds blocks with long Content-Types to a record until one is refused. The
// notification of its expiry takes more bytes than the stored record. The record must still expire.
func TestLargestRecordExpires(t *testing.T) {
	t.Parallel()
	f := serve(t, nudsf.Config{Allow: []string{"127.0.0.1"}})
	tags := wire.Tags{}
	for i := range 40 {
		tags[fmt.Sprint(i)] = []string{strings.Repeat("<", 490)} // six bytes each in JSON
	}
	hour := time.Now().Add(time.Hour)
	record := wire.Record{Meta: wire.Meta{TTL: &hour, CallbackReference: "http://127.0.0.1:1/expired", Tags: tags}}
	contentType, body, err := record.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if got, text := f.do("PUT", records+"/large", contentType, body); got.StatusCode != http.StatusCreated {
		t.Fatalf("%s: %s", got.Status, text)
	}
	status := http.StatusCreated
	for i := 0; status == http.StatusCreated; i++ {
		got, text := f.do("PUT", fmt.Sprintf("%s/large/blocks/%d", records, i), "text/plain; x="+strings.Repeat("x", 3900), make([]byte, 15_000))
		if status = got.StatusCode; status != http.StatusCreated && status != http.StatusRequestEntityTooLarge {
			t.Fatalf("block %d: %s: %s", i, got.Status, text)
		}
	}
	now := fmt.Sprintf(`[{"op":"replace","path":"/ttl","value":%q}]`, time.Now().UTC().Format(time.RFC3339Nano))
	if got, text := f.do("PATCH", records+"/large/meta", wire.TypePatch, []byte(now)); got.StatusCode != http.StatusNoContent {
		t.Fatalf("%s: %s", got.Status, text)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.nudsf.Run(ctx) }()
	storetest.Await(t, "end of the record", func() bool {
		var r store.Record
		return errors.Is(f.engine.Get(t.Context(), store.Key{Space: "nudsf-dr/Realm01/Storage01", Name: "r/large"}, &r), store.ErrNotFound)
	})
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestRecordTooLargeToNotify expires a record as earlier versions could store it: the notification of its
// expiry is too large for the outbox. The record must be deleted all the same.
func TestRecordTooLargeToNotify(t *testing.T) {
	t.Parallel()
	f := serve(t, nudsf.Config{Allow: []string{"127.0.0.1"}})
	tags := wire.Tags{}
	for i := range 40 {
		tags[fmt.Sprint(i)] = []string{strings.Repeat("<", 490)} // six bytes each in JSON
	}
	now := time.Now()
	record := wire.Record{
		Meta:   wire.Meta{TTL: &now, CallbackReference: "http://127.0.0.1:1/expired", Tags: tags},
		Blocks: []wire.Block{{ID: "b", ContentType: "text/plain", Content: []byte("x")}},
	}
	contentType, body, err := record.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if got, text := f.do("PUT", records+"/large", contentType, body); got.StatusCode != http.StatusCreated {
		t.Fatalf("%s: %s", got.Status, text)
	}
	key := store.Key{Space: "nudsf-dr/Realm01/Storage01", Name: "r/large"}
	var r store.Record
	if err := f.engine.Get(t.Context(), key, &r); err != nil {
		t.Fatal(err)
	}
	size := store.MaxValue - len(r.Meta) - 100
	large := store.Op{
		Action: store.Put, Name: key.Name, Value: make([]byte, size), Tags: r.Tags,
		Meta: bytes.Replace(r.Meta, []byte(`"size":1,`), fmt.Appendf(nil, `"size":%d,`, size), 1),
	}
	if err := f.engine.Write(t.Context(), key.Space, large); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.nudsf.Run(ctx) }()
	storetest.Await(t, "end of the record", func() bool {
		return errors.Is(f.engine.Get(t.Context(), key, new(store.Record)), store.ErrNotFound)
	})
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if n := f.nudsf.Counters().Due.Errors; n != 0 {
		t.Errorf("the agenda counted %d errors, want none", n)
	}
}

// TestPayload checks that the records in an answer stay within max-payload-size, whatever
// characters they contain. The records beyond that must still be counted.
func TestPayload(t *testing.T) {
	t.Parallel()
	f := serve(t, nudsf.Config{})
	const each, limit = 200, 64 << 10
	tags := wire.Tags{"wide": {strings.Repeat("<", each)}} // six bytes each in JSON
	for i := range 100 {
		record := wire.Record{Meta: wire.Meta{Tags: tags}, Blocks: []wire.Block{{ID: "b", Content: []byte("<")}}}
		contentType, body, err := record.Encode()
		if err != nil {
			t.Fatal(err)
		}
		f.do("PUT", fmt.Sprintf("%s/%03d", records, i), contentType, body)
	}
	got, body := f.do("GET", records+"?retrieve-records=META_AND_BLOCKS&max-payload-size=64", "", nil)
	var result wire.SearchResult
	if err := json.Unmarshal(body, &result); err != nil || got.StatusCode != http.StatusOK {
		t.Fatalf("%s: %v: %s", got.Status, err, body)
	}
	if len(body) > limit+100 || len(body) < limit/2 {
		t.Errorf("got an answer of %d bytes with max-payload-size %d", len(body), limit)
	}
	if result.Count != 100 || len(result.MatchingRecords) >= 100 {
		t.Errorf("got count %d with %d records, want 100 with fewer records", result.Count, len(result.MatchingRecords))
	}
	for id, r := range result.MatchingRecords {
		if r.Meta.Tags["wide"][0] != tags["wide"][0] || string(r.Blocks[0].Content) != "<" {
			t.Errorf("record %s: got %+v", id, r)
		}
	}
}
