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

	"vitrine/internal/hosttest"
	"vitrine/store"
	"vitrine/store/embedded"
	"vitrine/store/nudsf"
	"vitrine/store/nudsf/wire"
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

// create puts a resource that does not exist yet.
func (f *function) create(path, contentType string, body []byte) {
	f.t.Helper()
	if got, text := f.do("PUT", path, contentType, body); got.StatusCode != http.StatusCreated {
		f.t.Fatalf("%s: %s", got.Status, text)
	}
}

func (f *function) putRecord(id string, r wire.Record) {
	f.t.Helper()
	contentType, body, err := r.Encode()
	if err != nil {
		f.t.Fatal(err)
	}
	f.create(records+"/"+id, contentType, body)
}

func (f *function) putTimer(id string, timer wire.Timer) {
	f.t.Helper()
	body, err := json.Marshal(timer)
	if err != nil {
		f.t.Fatal(err)
	}
	f.create(timers+"/"+id, wire.TypeJSON, body)
}

// put stores n records and n timers with a tag.
func (f *function) put(n int, value string) {
	f.t.Helper()
	tags := wire.Tags{"kind": {value}}
	for i := range n {
		id := fmt.Sprintf("%03d", i)
		f.putRecord(id, wire.Record{Meta: wire.Meta{Tags: tags}})
		f.putTimer(id, wire.Timer{Expires: time.Now().Add(time.Hour), MetaTags: tags})
	}
}

// runUntil runs the function until done returns true.
func (f *function) runUntil(what string, done func() bool) {
	f.t.Helper()
	ctx, cancel := context.WithCancel(f.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.nudsf.Run(ctx) }()
	hosttest.Until(f.t, 20*time.Second, what, done)
	cancel()
	if err := <-ended; err != nil {
		f.t.Error(err)
	}
}

// largeKey is the engine's key of the record that putLarge stores.
var largeKey = store.Key{Space: "nudsf-dr/Realm01/Storage01", Name: "r/large"}

// putLarge stores a record whose tags take more bytes in the notification of its expiry than in the engine.
func (f *function) putLarge(ttl time.Time, blocks ...wire.Block) {
	f.t.Helper()
	tags := wire.Tags{}
	for i := range 40 {
		tags[fmt.Sprint(i)] = []string{strings.Repeat("<", 490)} // six bytes each in JSON
	}
	f.putRecord("large", wire.Record{Meta: wire.Meta{TTL: &ttl, CallbackReference: "http://127.0.0.1:1/expired", Tags: tags}, Blocks: blocks})
}

// runUntilLargeEnds runs the function until it has deleted the record that putLarge stores.
func (f *function) runUntilLargeEnds() {
	f.t.Helper()
	f.runUntil("the record ends", func() bool {
		return errors.Is(f.engine.Get(f.t.Context(), largeKey, new(store.Record)), store.ErrNotFound)
	})
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

// TestSearchTime checks that a search that exceeds its time ends with a problem, which is counted, and not
// with a wrong count.
func TestSearchTime(t *testing.T) {
	t.Parallel()
	var failed atomic.Int64 // requests that got 503
	f := serve(t, nudsf.Config{SearchTime: searchTime, Failed: func(status int) {
		if status == http.StatusServiceUnavailable {
			failed.Add(1)
		}
	}})
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
	if n := failed.Load(); n != 3 {
		t.Errorf("%d failed requests were counted, want 3", n)
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
	timer := wire.Timer{Expires: time.Now().Add(4 * time.Second), DeleteAfter: &after}
	for i := range 50 {
		f.putTimer(fmt.Sprint(i), timer)
	}
	all := store.Query{Space: "nudsf-timer/Realm01/Storage01", Prefix: "t/"}
	f.runUntil("all timers end", func() bool {
		for _, err := range f.engine.Scan(t.Context(), all) {
			return err != nil
		}
		return true
	})
	if c := f.nudsf.Counters().Due; c.Errors > 0 || c.Handled != 50 {
		t.Errorf("counters of the agenda: got %+v", c)
	}
}

// TestLargestRecordExpires adds blocks with long Content-Types to a record until one is refused. The
// notification of its expiry takes more bytes than the stored record. The record must still expire.
func TestLargestRecordExpires(t *testing.T) {
	t.Parallel()
	f := serve(t, nudsf.Config{Allow: []string{"127.0.0.1"}})
	f.putLarge(time.Now().Add(time.Hour))
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
	f.runUntilLargeEnds()
}

// TestRecordTooLargeToNotify expires a record as earlier versions could store it: the notification of its
// expiry is too large for the outbox. The record must be deleted all the same, and a put must replace it.
func TestRecordTooLargeToNotify(t *testing.T) {
	t.Parallel()
	f := serve(t, nudsf.Config{Allow: []string{"127.0.0.1"}})
	f.putLarge(time.Now(), wire.Block{ID: "b", ContentType: "text/plain", Content: []byte("x")})
	var r store.Record
	if err := f.engine.Get(t.Context(), largeKey, &r); err != nil {
		t.Fatal(err)
	}
	size := store.MaxValue - len(r.Meta) - 100
	large := store.Op{
		Action: store.Put, Name: largeKey.Name, Value: make([]byte, size), Tags: r.Tags,
		Meta: bytes.Replace(r.Meta, []byte(`"size":1,`), fmt.Appendf(nil, `"size":%d,`, size), 1),
	}
	if err := f.engine.Write(t.Context(), largeKey.Space, large); err != nil {
		t.Fatal(err)
	}
	f.runUntilLargeEnds()
	if n := f.nudsf.Counters().Due.Errors; n != 0 {
		t.Errorf("the agenda counted %d errors, want none", n)
	}
	if err := f.engine.Write(t.Context(), largeKey.Space, large); err != nil {
		t.Fatal(err)
	}
	f.putRecord("large", wire.Record{Meta: wire.Meta{Tags: wire.Tags{"kind": {"x"}}}})
}

// TestPayload checks that the records in an answer stay within max-payload-size, whatever
// characters they contain. The records beyond that must still be counted.
func TestPayload(t *testing.T) {
	t.Parallel()
	f := serve(t, nudsf.Config{})
	const each, limit = 200, 64 << 10
	tags := wire.Tags{"wide": {strings.Repeat("<", each)}} // six bytes each in JSON
	for i := range 100 {
		f.putRecord(fmt.Sprintf("%03d", i), wire.Record{Meta: wire.Meta{Tags: tags}, Blocks: []wire.Block{{ID: "b", Content: []byte("<")}}})
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
