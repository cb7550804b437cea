package wire_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"testing"

	"vitrine/store/nudsf/wire"
)

// problem fails the test unless err is a *wire.Problem with a 4xx status.
func problem(t *testing.T, err error) {
	t.Helper()
	if p, ok := errors.AsType[*wire.Problem](err); !ok || p.Status < 400 || p.Status > 499 {
		t.Fatalf("%T: %v", err, err)
	}
}

// FuzzFilter parses filters. An accepted filter must mean the same after it is encoded and parsed
// again.
func FuzzFilter(f *testing.F) {
	for _, s := range []string{
		`{"op":"EQ","tag":"a","value":"b"}`, `{"op":"GTE","tag":"","value":""}`, `{"recordIdList":["a","b"]}`,
		`{"cond":"NOT","units":[{"op":"LT","tag":"a","value":"é"}]}`, `{"cond":"AND","units":[]}`, `{"op":"EQ"}`, `null`, `[]`,
		`{"cond":"OR","units":[{"cond":"AND","units":[{"op":"NEQ","tag":"a","value":"b"}]},{"recordIdList":["x"]}]}`,
		`[[[[[[[[[[[[[[[[[[[[[[[[[[[[`, `{"op":"EQ","tag":"a","value":"b"}{}`, `{"cond":"NOT","units":[{},{}]}`,
	} {
		f.Add([]byte(s))
	}
	tags := []wire.Tags{nil, {"a": {"b"}}, {"a": {"", "z"}, "c": {"é"}}}
	f.Fuzz(func(t *testing.T, data []byte) {
		filter, err := wire.ParseFilter(data, wire.DefaultLimits())
		if err != nil {
			problem(t, err)
			return
		}
		text, err := json.Marshal(filter)
		if err != nil {
			t.Fatal(err)
		}
		again, err := wire.ParseFilter(text, wire.DefaultLimits())
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		not := wire.Filter{Cond: wire.Not, Units: []wire.Filter{*filter}}
		for _, tags := range tags {
			if filter.Matches("x", tags) != again.Matches("x", tags) || filter.Matches("x", tags) == not.Matches("x", tags) {
				t.Fatalf("filter %s and its copy or its negation disagree about %v", text, tags)
			}
		}
	})
}

// FuzzRecord reads multipart bodies. An accepted record must be the same after it is encoded and
// read again.
func FuzzRecord(f *testing.F) {
	r := wire.Record{Meta: wire.Meta{Tags: wire.Tags{"a": {"b"}}}, Blocks: []wire.Block{{ID: "x", ContentType: "text/plain", Content: []byte("--b\r\n")}}}
	contentType, body, err := r.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(contentType, body)
	f.Add("multipart/mixed; boundary=b", []byte("--b\r\nContent-Type: application/json\r\n\r\n{}\r\n--b\r\nContent-Id: <i>\r\n\r\nx\r\n--b--"))
	f.Add("multipart/mixed; boundary=b", []byte("--b\nContent-Type: application/json\n\n\n--b--"))
	f.Add("multipart/mixed; boundary=", []byte("----"))
	f.Add("multipart/mixed", []byte(""))
	f.Add("text/plain", []byte("x"))
	limits := wire.DefaultLimits()
	limits.Blocks, limits.BlockBytes, limits.Bytes = 4, 1<<10, 2<<10
	f.Fuzz(func(t *testing.T, contentType string, body []byte) {
		for _, read := range []func() (wire.Record, error){
			func() (wire.Record, error) { return wire.ReadRecord(contentType, bytes.NewReader(body), limits) },
			func() (wire.Record, error) {
				n, err := wire.ReadNotification(contentType, bytes.NewReader(body), limits)
				return n.Record, err
			},
			func() (wire.Record, error) {
				blocks, err := wire.ReadBlocks(contentType, bytes.NewReader(body), limits)
				return wire.Record{Blocks: blocks}, err
			},
		} {
			got, err := read()
			if err != nil {
				problem(t, err)
				continue
			}
			contentType, written, err := got.Encode()
			if err != nil {
				t.Fatal(err)
			}
			again, err := wire.ReadRecord(contentType, bytes.NewReader(written), wire.DefaultLimits())
			if err != nil {
				t.Fatalf("%q: %v", written, err)
			}
			if len(again.Blocks) != len(got.Blocks) || len(again.Meta.Tags) != len(got.Meta.Tags) {
				t.Fatalf("record %+v became %+v", got, again)
			}
			for i, b := range got.Blocks {
				if again.Blocks[i].ID != b.ID || !bytes.Equal(again.Blocks[i].Content, b.Content) {
					t.Fatalf("block %q became %q", b.ID, again.Blocks[i].ID)
				}
			}
		}
	})
}

// FuzzBody parses JSON bodies: timers, subscriptions and patches.
func FuzzBody(f *testing.F) {
	for _, s := range []string{
		`{"expires":"2030-01-01T00:00:00Z","metaTags":{"a":["b"]},"deleteAfter":5}`, `{"expires":1}`, `{}`,
		`{"clientId":{"nfId":"x"},"callbackReference":"http://h/","expiry":"2030-01-01T00:00:00.5+02:00","expiryNotification":1}`,
		`[{"op":"add","path":"/metaTags/x","value":["1"]}]`, `[{"op":"copy","from":"/metaTags","path":"/metaTags/a"}]`,
		`[{"op":"replace","path":"","value":null}]`, `[{"op":"move","from":"/expires","path":"/x"}]`, `[{"op":"test","path":"/a~1b","value":{}}]`,
		`[{"op":"add","path":"/metaTags/x","value":["1"]},{"op":"test","path":"/metaTags/a","value":["c"]}]`,
	} {
		f.Add([]byte(s))
	}
	limits := wire.DefaultLimits()
	f.Fuzz(func(t *testing.T, data []byte) {
		timer, err := wire.ParseTimer(data, limits)
		if err != nil {
			problem(t, err)
			timer = wire.Timer{MetaTags: wire.Tags{"a": {"b"}, "c": {"d", "e"}}}
		}
		if _, err := wire.ParseSubscription(data); err != nil {
			problem(t, err)
		}
		items, err := wire.ParsePatch(data, limits)
		if err != nil {
			problem(t, err)
			return
		}
		check := func(next wire.Timer) error { return next.MetaTags.Check("/metaTags", limits) }
		patched, report, err := wire.ApplyPatch(timer, items, 4<<10, check)
		if err != nil {
			problem(t, err)
			if !slices.ContainsFunc(items, func(i wire.PatchItem) bool { return i.Op == "test" }) || report != nil || !reflect.DeepEqual(patched, timer) {
				t.Fatalf("got error %v, %d items reported, %+v became %+v", err, len(report), timer, patched)
			}
			return
		}
		if len(report) > len(items) || check(patched) != nil {
			t.Fatalf("%d of %d items reported: %+v", len(report), len(items), patched)
		}
	})
}

// FuzzPrecondition parses lists of entity tags.
func FuzzPrecondition(f *testing.F) {
	for _, s := range []string{`"a"`, `*`, `W/"a", "b,c"`, ``, `,,`, `"`, `a"b"c`, `"x","1"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, header string) {
		p := wire.ReadPrecondition(map[string][]string{"If-Match": {header}})
		if header == wire.ETag(1) && !p.Holds(wire.ETag(1)) || p.Holds("") {
			t.Fatalf("%q", header)
		}
		whole := wire.ReadPrecondition(map[string][]string{"If-Match": {`"other", ` + wire.ETag(1)}})
		if !whole.Holds(wire.ETag(1)) || whole.Holds(`"other2"`) {
			t.Fatal("If-Match with a list of two ETags holds for the wrong ETags")
		}
	})
}

// TestOneValue checks that a JSON body or filter is exactly one value.
func TestOneValue(t *testing.T) {
	for _, after := range []string{"]", "}", "{}", ",", "x"} {
		_, err := wire.ParseMeta([]byte("{}"+after), wire.DefaultLimits())
		problem(t, err)
		_, err = wire.ParseFilter([]byte(`{"op":"EQ","tag":"a","value":"b"}`+after), wire.DefaultLimits())
		problem(t, err)
	}
	if _, err := wire.ParseMeta([]byte(" {} \n"), wire.DefaultLimits()); err != nil {
		t.Error(err)
	}
}

// TestFilterLimits checks the limits of filters.
func TestFilterLimits(t *testing.T) {
	limits := wire.DefaultLimits()
	nested := func(depth int) []byte {
		return slices.Concat(bytes.Repeat([]byte(`{"cond":"NOT","units":[`), depth), []byte(`{"op":"EQ","tag":"a","value":"b"}`), bytes.Repeat([]byte(`]}`), depth))
	}
	if _, err := wire.ParseFilter(nested(limits.Depth-1), limits); err != nil {
		t.Error(err)
	}
	for _, depth := range []int{limits.Depth, limits.Depth + 1, 10_000} {
		_, err := wire.ParseFilter(nested(depth), limits)
		problem(t, err)
	}
	list := func(n int) []byte {
		f := wire.Filter{RecordIDList: slices.Repeat([]string{"a"}, n)}
		text, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	if _, err := wire.ParseFilter(list(limits.Units-1), limits); err != nil {
		t.Error(err)
	}
	_, err := wire.ParseFilter(list(limits.Units), limits)
	problem(t, err)
}
