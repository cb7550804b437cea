package nudsftest

import (
	"bytes"
	"net/http"
	"slices"
	"testing"
	"time"

	"vitrine/store/nudsf/wire"
)

func sample() wire.Record {
	return wire.Record{
		Meta: wire.Meta{Tags: wire.Tags{"supi": {"imsi-1"}, "dnn": {"ims", "internet"}}},
		Blocks: []wire.Block{
			{ID: "b1", ContentType: "application/octet-stream", Encoding: "binary", Content: []byte{0, 1, '\r', '\n', '-', '-', 255}},
			{ID: "b2", ContentType: "application/json", Encoding: "8bit", Content: []byte(`{"k": 1}`)},
			{ID: "empty", ContentType: "text/plain", Encoding: "binary"},
		},
	}
}

// same reports whether two records are equal, apart from the order of a tag's values.
func same(a, b wire.Record) bool {
	if len(a.Meta.Tags) != len(b.Meta.Tags) || len(a.Blocks) != len(b.Blocks) || a.Meta.CallbackReference != b.Meta.CallbackReference {
		return false
	}
	for name, values := range a.Meta.Tags {
		if !slices.Equal(slices.Sorted(slices.Values(values)), slices.Sorted(slices.Values(b.Meta.Tags[name]))) {
			return false
		}
	}
	for i := range a.Blocks {
		x, y := a.Blocks[i], b.Blocks[i]
		if x.ID != y.ID || x.ContentType != y.ContentType || x.Encoding != y.Encoding || !bytes.Equal(x.Content, y.Content) {
			return false
		}
	}
	return true
}

func testRecords(t *testing.T, s *server) {
	id := "imsi/00 1?ü" // names are not paths
	s.do("GET", s.records(id), nil).want(t, 404, wire.CauseRecordNotFound)
	made := s.put(id, sample()).want(t, 201)
	if got := made.Header.Get("Location"); got != s.records(id) {
		t.Errorf("Location %q, want %q", got, s.records(id))
	}
	if !same(made.record(t), sample()) {
		t.Errorf("answer to the creation: %s", made.Body)
	}
	read := s.do("GET", s.records(id), nil).want(t, 200)
	if !same(read.record(t), sample()) || read.etag() != made.etag() {
		t.Errorf("read %s with tag %s, made with %s", read.Body, read.etag(), made.etag())
	}
	modified, err := http.ParseTime(read.Header.Get("Last-Modified"))
	if err != nil || time.Since(modified) > time.Minute || time.Since(modified) < -time.Second {
		t.Errorf("Last-Modified %q", read.Header.Get("Last-Modified"))
	}
	changed := wire.Record{Meta: wire.Meta{Tags: wire.Tags{"supi": {"imsi-2"}}}}
	replaced := s.put(id, changed).want(t, 204)
	if replaced.etag() == made.etag() {
		t.Error("the entity tag did not change with the record")
	}
	if got := s.do("GET", s.records(id), nil).want(t, 200).record(t); !same(got, changed) {
		t.Errorf("after replacing: %+v", got)
	}
	s.do("DELETE", s.records(id), nil).want(t, 204)
	s.do("GET", s.records(id), nil).want(t, 404, wire.CauseRecordNotFound)
	s.do("DELETE", s.records(id), nil).want(t, 404, wire.CauseRecordNotFound)
	s.put(id, sample()).want(t, 201)
}

func testRecordConditions(t *testing.T, s *server) {
	s.put("r", sample(), "If-Match", "*").want(t, 412)
	first := s.put("r", sample(), "If-None-Match", "*").want(t, 201).etag()
	for _, tags := range []string{first, `"other", ` + first, "W/" + first, "*"} {
		s.do("GET", s.records("r"), nil, "If-None-Match", tags).want(t, 304)
	}
	s.do("GET", s.records("r"), nil, "If-None-Match", `"other"`).want(t, 200)
	s.do("GET", s.records("r"), nil, "If-Match", `"other"`).want(t, 412)
	s.do("GET", s.records("r"), nil, "If-Modified-Since", time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)).want(t, 304)
	s.do("GET", s.records("r"), nil, "If-Modified-Since", time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat)).want(t, 200)

	if again := s.put("r", sample(), "If-None-Match", "*").want(t, 412); again.etag() != first {
		t.Errorf("412 has tag %s, the record %s", again.etag(), first)
	}
	changed := wire.Record{Meta: wire.Meta{Tags: wire.Tags{"supi": {"imsi-2"}}}}
	contentType, body, err := changed.Encode()
	if err != nil {
		t.Fatal(err)
	}
	before := s.do("PUT", s.records("r")+"?get-previous=true", body, "Content-Type", contentType, "If-Match", first).want(t, 200)
	if !same(before.record(t), sample()) {
		t.Errorf("get-previous gave %s", before.Body)
	}
	unmet := s.do("PUT", s.records("r")+"?get-previous=true", body, "Content-Type", contentType, "If-Match", first).want(t, 412)
	if !same(unmet.record(t), changed) {
		t.Errorf("412 with get-previous gave %s", unmet.Body)
	}
	s.do("DELETE", s.records("r"), nil, "If-Match", first).want(t, 412)
	gone := s.do("DELETE", s.records("r")+"?get-previous=true", nil, "If-Match", before.etag()).want(t, 200)
	if !same(gone.record(t), changed) {
		t.Errorf("deletion with get-previous gave %s", gone.Body)
	}
}

// testChangesAfterClockSetBack sets the clock back and then changes a record, a block and a subscription.
// A client that read them before must see the change by If-Modified-Since.
func testChangesAfterClockSetBack(t *testing.T, s *server) {
	subscription := wire.Subscription{ClientID: client(), CallbackReference: receive(t).base + "/changes"}
	s.put("r", sample()).want(t, 201)
	s.put("k", sample()).want(t, 201)
	s.putJSON(s.subscription("s"), subscription).want(t, 201)
	urls := []string{s.records("r"), s.records("r", "blocks", "b1"), s.records("k", "blocks", "b1"), s.subscription("s")}
	read := make([]string, len(urls))
	for range 2 { // the second time, the last change is already later than the clock
		for i, url := range urls {
			read[i] = s.do("GET", url, nil).want(t, 200).Header.Get("Last-Modified")
			s.do("GET", url, nil, "If-Modified-Since", read[i]).want(t, 304)
		}
		s.clock.jump(-time.Hour)
		s.put("r", sample()).want(t, 204)
		s.do("PUT", s.records("k", "blocks", "b1"), []byte("new"), "Content-Type", "text/plain").want(t, 204)
		s.putJSON(s.subscription("s"), subscription).want(t, 200)
		for i, url := range urls {
			s.do("GET", url, nil, "If-Modified-Since", read[i]).want(t, 200)
		}
	}
}

// testRecordBodies sends bodies that are not records.
func testRecordBodies(t *testing.T, s *server) {
	mixed := `multipart/mixed; boundary=x`
	part := func(headers, body string) string { return "--x\r\n" + headers + "\r\n\r\n" + body + "\r\n" }
	meta := part("Content-Type: application/json\r\nContent-Id: meta", "{}")
	for name, c := range map[string]struct {
		contentType, body string
		status            int
	}{
		"json":             {"application/json", "{}", 415},
		"no boundary":      {"multipart/mixed", "", 400},
		"no parts":         {mixed, "--x--\r\n", 400},
		"cut short":        {mixed, meta, 400},
		"meta not first":   {mixed, part("Content-Type: text/plain\r\nContent-Id: b", "") + "--x--\r\n", 400},
		"meta not JSON":    {mixed, part("Content-Type: application/json\r\nContent-Id: meta", "{") + "--x--\r\n", 400},
		"meta is text":     {mixed, part("Content-Type: text/plain\r\nContent-Id: meta", "{}") + "--x--\r\n", 400},
		"no value":         {mixed, part("Content-Type: application/json\r\nContent-Id: meta", `{"tags":{"a":[]}}`) + "--x--\r\n", 400},
		"value twice":      {mixed, part("Content-Type: application/json\r\nContent-Id: meta", `{"tags":{"a":["v","v"]}}`) + "--x--\r\n", 400},
		"reserved tag":     {mixed, part("Content-Type: application/json\r\nContent-Id: meta", `{"tags":{"\u0001due":["0"]}}`) + "--x--\r\n", 400},
		"bad callback":     {mixed, part("Content-Type: application/json\r\nContent-Id: meta", `{"callbackReference":"file:///etc/passwd"}`) + "--x--\r\n", 400},
		"block without id": {mixed, meta + part("Content-Type: text/plain", "x") + "--x--\r\n", 400},
		"same block twice": {mixed, meta + part("Content-Id: a", "x") + part("Content-Id: a", "y") + "--x--\r\n", 400},
		"large block":      {mixed, meta + part("Content-Id: a", string(make([]byte, wire.DefaultLimits().BlockBytes+1))) + "--x--\r\n", 413},
	} {
		t.Run(name, func(t *testing.T) {
			a := s.wrong("PUT", s.records("r"), []byte(c.body), "Content-Type", c.contentType).want(t, c.status)
			if a.Header.Get("Content-Type") != wire.TypeProblem {
				t.Errorf("answered with %s", a.Header.Get("Content-Type"))
			}
			s.do("GET", s.records("r"), nil).want(t, 404)
		})
	}
	empty := part("Content-Type: application/json\r\nContent-Id: <meta>", "") + "--x--\r\n"
	s.wrong("PUT", s.records("empty"), []byte(empty), "Content-Type", mixed).want(t, 201)
}

func testMeta(t *testing.T, s *server) {
	s.do("GET", s.records("m", "meta"), nil).want(t, 404, wire.CauseRecordNotFound)
	first := s.put("m", sample()).etag()
	read := s.do("GET", s.records("m", "meta"), nil).want(t, 200)
	if got := into[wire.Meta](t, read); !same(wire.Record{Meta: got}, wire.Record{Meta: sample().Meta}) || read.etag() != first {
		t.Errorf("meta %+v, tag %s", got, read.etag())
	}
	s.do("GET", s.records("m", "meta"), nil, "If-None-Match", first).want(t, 304)
	done := s.patch(s.records("m", "meta"), `[{"op":"replace","path":"/tags/supi","value":["imsi-9"]},{"op":"remove","path":"/tags/dnn"}]`).want(t, 204)
	if done.etag() == first {
		t.Error("the entity tag did not change with the meta")
	}
	left := s.patch(s.records("m", "meta"), `[{"op":"add","path":"/tags/x","value":["1"]},{"op":"remove","path":"/tags/none"},{"op":"add","path":"/tags/y","value":[]},{"op":"add","path":"/color","value":1}]`).want(t, 200)
	if report := into[wire.PatchResult](t, left).Report; len(report) != 3 || report[0].Path != "/tags/none" {
		t.Errorf("report %+v", report)
	}
	want := sample()
	want.Meta.Tags = wire.Tags{"supi": {"imsi-9"}, "x": {"1"}}
	if got := s.do("GET", s.records("m"), nil).record(t); !same(got, want) {
		t.Errorf("after the patches: %+v", got)
	}
	s.patch(s.records("m", "meta"), `[{"op":"add","path":"/tags/z","value":["1"]},{"op":"test","path":"/tags/x","value":["2"]}]`).want(t, 409, "")
	if got := s.do("GET", s.records("m"), nil); !same(got.record(t), want) || got.etag() != left.etag() {
		t.Errorf("after a failed test: %s with tag %s, want tag %s", got.Body, got.etag(), left.etag())
	}
	if found := s.found(wire.Compare(wire.Equal, "x", "1")); !slices.Equal(found, []string{"m"}) {
		t.Errorf("search by the new tag finds %v", found)
	}
	if found := s.found(wire.Compare(wire.Equal, "dnn", "ims")); found != nil {
		t.Errorf("search by the removed tag finds %v", found)
	}
	// Between the two instructions the tag has no value, which is refused alone.
	s.patch(s.records("m", "meta"), `[{"op":"remove","path":"/tags/supi/0"},{"op":"add","path":"/tags/supi/-","value":"imsi-8"}]`).want(t, 204)
	if got := into[wire.Meta](t, s.do("GET", s.records("m", "meta"), nil)); !slices.Equal(got.Tags["supi"], []string{"imsi-8"}) {
		t.Errorf("after the value of a tag was replaced: %+v", got)
	}
	s.do("PATCH", s.records("m", "meta"), []byte(`[{"op":"remove","path":"/tags"}]`), "Content-Type", wire.TypePatch, "If-Match", first).want(t, 412)
	s.patch(s.records("none", "meta"), `[{"op":"remove","path":"/tags"}]`).want(t, 404, wire.CauseRecordNotFound)
	s.patch(s.records("m", "meta"), `[{"op":"test","path":"/tags/x","value":["1"]},{"op":"remove","path":"/tags/x"}]`).want(t, 204)
	s.wrong("PATCH", s.records("m", "meta"), []byte(`[]`), "Content-Type", wire.TypePatch).want(t, 400)
	s.wrong("PATCH", s.records("m", "meta"), []byte(`{}`), "Content-Type", "application/json").want(t, 415)
}

func testBlocks(t *testing.T, s *server) {
	s.do("PUT", s.records("k", "blocks", "b"), []byte("x"), "Content-Type", "text/plain").want(t, 404, wire.CauseRecordNotFound)
	s.put("k", wire.Record{}).want(t, 201)
	s.do("GET", s.records("k", "blocks"), nil).want(t, 204)
	before := s.do("GET", s.records("k"), nil).etag()
	made := s.do("PUT", s.records("k", "blocks", "b"), []byte("one"), "Content-Type", "application/vnd.x").want(t, 201)
	if made.Header.Get("Location") != s.records("k", "blocks", "b") {
		t.Errorf("Location %q", made.Header.Get("Location"))
	}
	if s.do("GET", s.records("k"), nil).etag() == before {
		t.Error("the record's entity tag did not change with its block")
	}
	s.do("PUT", s.records("k", "blocks", "c"), []byte("two"), "Content-Type", "text/plain").want(t, 201)
	read := s.do("GET", s.records("k", "blocks", "b"), nil).want(t, 200)
	if read.Header.Get("Content-Security-Policy") != "sandbox" || read.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("a browser may run the block as a page of the store: %v", read.Header)
	}
	if string(read.Body) != "one" || read.Header.Get("Content-Type") != "application/vnd.x" || read.etag() != made.etag() {
		t.Errorf("read %q of type %q with tag %s; made with %s", read.Body, read.Header.Get("Content-Type"), read.etag(), made.etag())
	}
	s.do("GET", s.records("k", "blocks", "b"), nil, "If-None-Match", made.etag()).want(t, 304)
	list := s.do("GET", s.records("k", "blocks"), nil).want(t, 200)
	blocks, err := wire.ReadBlocks(list.Header.Get("Content-Type"), bytes.NewReader(list.Body), wire.DefaultLimits())
	if err != nil || len(blocks) != 2 || string(blocks[1].Content) != "two" {
		t.Errorf("blocks %+v, %v", blocks, err)
	}
	old := s.do("PUT", s.records("k", "blocks", "b")+"?get-previous=true", []byte("three"), "Content-Type", "text/plain", "If-Match", made.etag()).want(t, 200)
	if string(old.Body) != "one" {
		t.Errorf("get-previous gave %q", old.Body)
	}
	s.do("PUT", s.records("k", "blocks", "b"), []byte("four"), "Content-Type", "text/plain", "If-Match", made.etag()).want(t, 412)
	s.do("PUT", s.records("k", "blocks", "b"), []byte("five"), "Content-Type", "text/plain", "If-None-Match", "*").want(t, 412)
	s.do("PUT", s.records("k", "blocks", "b"), []byte("six"), "Content-Type", "text/plain").want(t, 204)
	gone := s.do("DELETE", s.records("k", "blocks", "b")+"?get-previous=true", nil).want(t, 200)
	if string(gone.Body) != "six" {
		t.Errorf("deletion with get-previous gave %q", gone.Body)
	}
	s.do("GET", s.records("k", "blocks", "b"), nil).want(t, 404, wire.CauseBlockNotFound)
	s.do("DELETE", s.records("k", "blocks", "b"), nil).want(t, 404, wire.CauseBlockNotFound)
	s.do("DELETE", s.records("k", "blocks", "c"), nil).want(t, 204)
	s.do("GET", s.records("k", "blocks"), nil).want(t, 204)
	if raw := s.do("PUT", s.records("k", "blocks", "raw"), []byte("x"), "Content-Type", "application/octet-stream"); raw.Status != 201 {
		t.Errorf("%d", raw.Status)
	}
	s.do("PUT", s.records("k", "blocks", "large"), make([]byte, wire.DefaultLimits().BlockBytes+1), "Content-Type", "text/plain").want(t, 413)
	for i := range 10 { // each block is allowed, but not all together
		a := s.do("PUT", s.records("k", "blocks", string(rune('0'+i))), make([]byte, wire.DefaultLimits().BlockBytes/2), "Content-Type", "text/plain")
		if a.Status == 413 {
			return
		}
		a.want(t, 201)
	}
	t.Error("a record grew past the limit")
}

func testProtocols(t *testing.T, s *server) {
	checked := s.client.Transport.(*checked)
	for _, http2 := range []bool{false, true} {
		checked.next = transport(http2)
		a := s.put("p", sample())
		if want := map[bool]string{false: "HTTP/1.1", true: "HTTP/2.0"}[http2]; a.proto != want || a.Status >= 300 {
			t.Errorf("%s answered %d, want %s", a.proto, a.Status, want)
		}
		if got := s.do("GET", s.records("p"), nil).want(t, 200).record(t); !same(got, sample()) {
			t.Errorf("over %s: %+v", a.proto, got)
		}
	}
}

// testProblems sends wrong requests. Each answer must carry problem details.
func testProblems(t *testing.T, s *server) {
	s.put("r", sample()).want(t, 201)
	for _, c := range []struct {
		method, url string
		status      int
		cause       string
	}{
		{"GET", s.base + "/nudsf-dr/v1/none", 404, wire.CauseNoSuchURI},
		{"GET", s.base + "/nudsf-dr/v1/r/s/records/a/b", 404, wire.CauseNoSuchURI},
		{"POST", s.records("r"), 405, ""},
		{"GET", s.records() + "?filter=x", 400, wire.CauseQueryIncorrect},
		{"GET", s.records() + "?filter={}&filter={}", 400, wire.CauseQueryIncorrect},
		{"GET", s.records() + "?limit-range=-1", 400, wire.CauseQueryIncorrect},
		{"GET", s.records() + "?count-indicator=yes", 400, wire.CauseQueryIncorrect},
		{"GET", s.records() + "?retrieve-records=ALL", 400, wire.CauseQueryIncorrect},
		{"GET", s.records() + "?tag-count-filter={}", 400, wire.CauseQueryInvalid},
		{"GET", s.records() + "?%zz", 400, wire.CauseQueryIncorrect},
		{"DELETE", s.records(), 400, wire.CauseQueryMissing},
		{"DELETE", s.timers(), 400, wire.CauseQueryMissing},
		{"GET", s.records(string(make([]byte, 600))), 400, wire.CauseIEIncorrect},
		{"GET", s.url("/nudsf-dr/v1", "r", "s", "records", "a\x01"), 400, wire.CauseIEIncorrect},
		{"DELETE", s.subscription("x"), 400, wire.CauseQueryMissing},
	} {
		t.Run(c.method+" "+c.url[len(s.base):min(len(c.url), len(s.base)+60)], func(t *testing.T) {
			s.wrong(c.method, c.url, nil).want(t, c.status, c.cause)
		})
	}
	s.do("GET", s.base+"/nudsf-dr/v1/r/s/records/none", nil).want(t, 404, wire.CauseRecordNotFound)
	for _, document := range []string{"/nudsf-dr/v1/openapi.yaml", "/nudsf-timer/v1/openapi.yaml"} {
		if a := s.wrong("GET", s.base+document, nil).want(t, 200); !bytes.HasPrefix(a.Body, []byte("openapi: 3.")) {
			t.Errorf("%s: %.40s", document, a.Body)
		}
	}
}
