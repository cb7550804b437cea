package nudsftest

import (
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"vitrine/store/nudsf/wire"
)

// found returns the IDs that a search finds, sorted.
func (s *server) found(f wire.Filter) []string {
	s.t.Helper()
	a := s.do("GET", filtered(s.t, s.records(), f), nil)
	if a.Status == 204 {
		return nil
	}
	result := into[wire.SearchResult](s.t, a.want(s.t, 200))
	var ids []string
	for _, uri := range result.References {
		id, err := url.PathUnescape(path.Base(uri))
		if err != nil || !strings.HasPrefix(uri, s.records()+"/") {
			s.t.Errorf("reference %q", uri)
		}
		ids = append(ids, id)
	}
	slices.Sort(ids)
	if result.Count < len(ids) {
		s.t.Errorf("count %d, %d references", result.Count, len(ids))
	}
	return ids
}

func tagged() map[string]wire.Tags {
	return map[string]wire.Tags{
		"a": {"supi": {"imsi-1"}, "dnn": {"ims"}},
		"b": {"supi": {"imsi-2"}, "dnn": {"ims", "internet"}},
		"c": {"supi": {"imsi-3"}},
		"d": {"dnn": {"internet"}, "n": {"10"}},
		"e": nil,
	}
}

func (s *server) putTagged() {
	for id, tags := range tagged() {
		s.put(id, wire.Record{Meta: wire.Meta{Tags: tags}, Blocks: []wire.Block{{ID: "x", Content: []byte("content of " + id)}}}).want(s.t, 201)
	}
}

func filters() []wire.Filter {
	eq := func(tag, value string) wire.Filter { return wire.Compare(wire.Equal, tag, value) }
	cond := func(c string, units ...wire.Filter) wire.Filter { return wire.Filter{Cond: c, Units: units} }
	list := []wire.Filter{
		wire.All(), eq("dnn", "ims"), eq("dnn", "none"), eq("none", ""), {RecordIDList: []string{"b", "e", "gone", "b"}},
		cond(wire.Not, eq("dnn", "ims")),
		cond(wire.And, eq("dnn", "ims"), eq("dnn", "internet")),
		cond(wire.And, cond(wire.Not, eq("dnn", "internet")), wire.Compare(wire.Less, "supi", "imsi-3")),
		cond(wire.And, cond(wire.Not, eq("n", "10")), cond(wire.Not, eq("supi", "imsi-1"))),
		cond(wire.Or, eq("supi", "imsi-1"), eq("supi", "imsi-3")),
		cond(wire.Or, eq("dnn", "ims"), eq("dnn", "internet"), wire.Filter{RecordIDList: []string{"a", "c"}}),
		cond(wire.Or, eq("supi", "imsi-1"), cond(wire.Not, eq("dnn", "ims"))),
		cond(wire.Or, cond(wire.And, eq("dnn", "ims"), wire.Compare(wire.NotEqual, "supi", "imsi-1")), eq("n", "10")),
	}
	for _, op := range []string{wire.NotEqual, wire.Greater, wire.GreaterOrEqual, wire.Less, wire.LessOrEqual} {
		list = append(list, wire.Compare(op, "supi", "imsi-2"), wire.Compare(op, "dnn", "internet"))
	}
	return list
}

// testSearch compares the results of searches with filter.Matches on each record.
func testSearch(t *testing.T, s *server) {
	if got := s.found(wire.All()); got != nil {
		t.Fatalf("an empty storage has %v", got)
	}
	s.putTagged()
	for i, f := range filters() {
		var want []string
		for id, tags := range tagged() {
			if f.Matches(id, tags) {
				want = append(want, id)
			}
		}
		slices.Sort(want)
		if got := s.found(f); !slices.Equal(got, want) {
			t.Errorf("filter %d %+v: found %v, want %v", i, f, got, want)
		}
	}
	if got := into[wire.SearchResult](t, s.do("GET", s.records(), nil).want(t, 200)); got.Count != 5 || len(got.References) != 5 {
		t.Errorf("without a filter: %+v", got)
	}
	ims := wire.Compare(wire.Equal, "dnn", "ims")
	if got := into[wire.SearchResult](t, s.do("GET", filtered(t, s.records(), ims, "count-indicator=true"), nil)); got.Count != 2 || got.References != nil {
		t.Errorf("count-indicator: %+v", got)
	}
	if got := into[wire.SearchResult](t, s.do("GET", filtered(t, s.records(), ims, "limit-range=1"), nil)); got.Count != 2 || len(got.References) != 1 {
		t.Errorf("limit-range: %+v", got)
	}
	whole := into[wire.SearchResult](t, s.do("GET", filtered(t, s.records(), ims, "retrieve-records=META_AND_BLOCKS"), nil))
	if r := whole.MatchingRecords["b"]; len(whole.MatchingRecords) != 2 || string(r.Blocks[0].Content) != "content of b" || len(r.Meta.Tags["dnn"]) != 2 {
		t.Errorf("META_AND_BLOCKS: %+v", whole)
	}
	meta := into[wire.SearchResult](t, s.do("GET", filtered(t, s.records(), ims, "retrieve-records=ONLY_META"), nil))
	if r := meta.MatchingRecords["a"]; len(meta.MatchingRecords) != 2 || r.Blocks != nil || r.Meta.Tags["supi"][0] != "imsi-1" {
		t.Errorf("ONLY_META: %+v", meta)
	}
	small := into[wire.SearchResult](t, s.do("GET", filtered(t, s.records(), ims, "retrieve-records=META_AND_BLOCKS", "max-payload-size=0"), nil))
	if small.Count != 2 || small.MatchingRecords != nil {
		t.Errorf("max-payload-size: %+v", small)
	}
	other := s.base + "/nudsf-dr/v1/Realm01/Storage02/records"
	s.do("GET", other, nil).want(t, 204)
}

func testBulkDelete(t *testing.T, s *server) {
	s.putTagged()
	many := wire.Compare(wire.Equal, "kind", "many")
	tags := wire.Tags{"kind": {"many", "most"}, "dnn": {"ims"}}
	for i := range 150 { // more than one write deletes, and with their tags more than some engines take at once
		s.put(fmt.Sprintf("many-%03d", i), wire.Record{Meta: wire.Meta{Tags: tags}}).want(s.t, 201)
	}
	deleted := into[wire.RecordIDList](t, s.do("DELETE", filtered(t, s.records(), many), nil).want(t, 200))
	if len(deleted.RecordIDList) != 150 {
		t.Errorf("deleted %d of 150", len(deleted.RecordIDList))
	}
	s.do("DELETE", filtered(t, s.records(), many), nil).want(t, 204)
	if got := s.found(wire.All()); !slices.Equal(got, []string{"a", "b", "c", "d", "e"}) {
		t.Errorf("left: %v", got)
	}
	s.do("DELETE", filtered(t, s.records(), wire.All()), nil).want(t, 200)
	s.do("GET", s.records(), nil).want(t, 204)

	for i := range 70 {
		s.putJSON(s.timers(fmt.Sprint("t", i)), wire.Timer{Expires: time.Now().Add(time.Hour), MetaTags: tags}).want(t, 201)
	}
	if gone := into[wire.TimerIDList](t, s.do("DELETE", s.timers()+filterQuery(t, many), nil).want(t, 200)); len(gone.TimerIDs) != 70 {
		t.Errorf("deleted %d of 70 timers", len(gone.TimerIDs))
	}
}
