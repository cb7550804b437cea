package nudsftest

import (
	"encoding/json"
	"net/url"
	"slices"
	"testing"
	"time"

	"vitrine/store/nudsf/wire"
)

// timersFound returns the IDs of the timers that a search finds, sorted.
func (s *server) timersFound(query string) []string {
	s.t.Helper()
	a := s.do("GET", s.timers()+query, nil)
	if a.Status == 204 {
		return nil
	}
	ids := into[wire.TimerIDList](s.t, a.want(s.t, 200)).TimerIDs
	slices.Sort(ids)
	return ids
}

func filterQuery(t *testing.T, f wire.Filter) string {
	t.Helper()
	text, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	return "?filter=" + url.QueryEscape(string(text))
}

func testTimers(t *testing.T, s *server) {
	hour := time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
	one := wire.Timer{Expires: hour, MetaTags: wire.Tags{"supi": {"imsi-1"}, "kind": {"x", "y"}}}
	s.do("GET", s.timers("t/1"), nil).want(t, 404, wire.CauseTimerNotFound)
	if made := s.putJSON(s.timers("t/1"), one).want(t, 201); made.Header.Get("Location") != s.timers("t/1") {
		t.Errorf("Location %q", made.Header.Get("Location"))
	}
	s.putJSON(s.timers("t/1"), one).want(t, 204)
	got := into[wire.Timer](t, s.do("GET", s.timers("t/1"), nil).want(t, 200))
	if !got.Expires.Equal(hour) || len(got.MetaTags["kind"]) != 2 || got.TimerID != "" {
		t.Errorf("read %+v", got)
	}
	s.putJSON(s.timers("t2"), wire.Timer{Expires: hour, MetaTags: wire.Tags{"supi": {"imsi-2"}, "kind": {"x"}}}).want(t, 201)
	s.putJSON(s.timers("t3"), wire.Timer{Expires: hour}).want(t, 201)
	for query, want := range map[string][]string{
		"": {"t/1", "t2", "t3"},
		filterQuery(t, wire.Compare(wire.Equal, "kind", "x")):                                                            {"t/1", "t2"},
		filterQuery(t, wire.Compare(wire.Greater, "supi", "imsi-1")):                                                     {"t2"},
		filterQuery(t, wire.Filter{Cond: wire.Not, Units: []wire.Filter{wire.Compare(wire.GreaterOrEqual, "kind", "")}}): {"t3"},
		"?expired-filter=null": nil,
	} {
		if got := s.timersFound(query); !slices.Equal(got, want) {
			t.Errorf("%s: found %v, want %v", query, got, want)
		}
	}
	s.putJSON(s.timers("past"), wire.Timer{Expires: time.Now().Add(-time.Second)}).want(t, 403, wire.CauseExpiresNotAllowed)
	s.putJSON(s.timers("t4"), wire.Timer{TimerID: "other", Expires: hour}).want(t, 400)
	s.putJSON(s.timers("t4"), wire.Timer{Expires: hour, CallbackReference: "mailto:x@y"}).want(t, 400)
	s.wrong("PUT", s.timers("t4"), []byte(`{"expires":"soon"}`), "Content-Type", wire.TypeJSON).want(t, 400)
	s.wrong("PUT", s.timers("t4"), []byte(`{}`), "Content-Type", wire.TypeJSON).want(t, 400, wire.CauseIEMissing)

	s.do("DELETE", s.timers("t3"), nil).want(t, 204)
	s.do("DELETE", s.timers("t3"), nil).want(t, 404, wire.CauseTimerNotFound)
	gone := into[wire.TimerIDList](t, s.do("DELETE", s.timers()+filterQuery(t, wire.Compare(wire.Equal, "kind", "x")), nil).want(t, 200)).TimerIDs
	if slices.Sort(gone); !slices.Equal(gone, []string{"t/1", "t2"}) {
		t.Errorf("deleted %v", gone)
	}
	s.do("DELETE", s.timers()+filterQuery(t, wire.All()), nil).want(t, 204)
}

func testTimerExpiry(t *testing.T, s *server) {
	r := receive(t)
	soon := s.clock.now().Add(time.Hour)
	keep := uint32(3600)
	s.putJSON(s.timers("kept"), wire.Timer{
		Expires: soon, MetaTags: wire.Tags{"supi": {"imsi-1"}}, CallbackReference: r.base + "/kept", DeleteAfter: &keep}).want(t, 201)
	s.putJSON(s.timers("deleted"), wire.Timer{Expires: soon, CallbackReference: r.base + "/deleted"}).want(t, 201)
	s.putJSON(s.timers("silent"), wire.Timer{Expires: soon}).want(t, 201)
	s.putJSON(s.timers("stopped"), wire.Timer{Expires: soon, CallbackReference: r.base + "/stopped"}).want(t, 201)
	s.do("DELETE", s.timers("stopped"), nil).want(t, 204)

	s.jump(50*time.Minute, "nudsf-timer")
	if got := s.timersFound("?expired-filter=null"); got != nil || len(r.at("/kept")) != 0 {
		t.Errorf("expired before their time: %v", got)
	}
	s.jump(10*time.Minute, "nudsf-timer")
	p := r.wait(t, "/kept", 1)[0]
	r.wait(t, "/deleted", 1)
	s.noted()
	var fired wire.Timer
	if err := json.Unmarshal(p.body, &fired); err != nil || fired.TimerID != "kept" || fired.MetaTags["supi"][0] != "imsi-1" || p.kind != "Nudsf_Timer_timerExpiry" {
		t.Errorf("%v %s: %s", err, p.kind, p.body)
	}
	if got := s.timersFound("?expired-filter=null"); !slices.Contains(got, "silent") || slices.Contains(got, "deleted") {
		t.Errorf("expired timers: %v", got)
	}
	s.do("GET", s.timers("kept"), nil).want(t, 200)
	s.jump(time.Hour, "nudsf-timer")
	s.do("GET", s.timers("kept"), nil).want(t, 404)
	s.do("GET", s.timers("silent"), nil).want(t, 200)
	if deleted := into[wire.TimerIDList](t, s.do("DELETE", s.timers()+"?expired-filter=null", nil).want(t, 200)); !slices.Equal(deleted.TimerIDs, []string{"silent"}) {
		t.Errorf("deleted %v", deleted)
	}
	for _, path := range []string{"/kept", "/deleted"} {
		if n := len(r.at(path)); n != 1 {
			t.Errorf("%s was notified %d times", path, n)
		}
	}
	if n := len(r.at("/stopped")); n != 0 {
		t.Errorf("a stopped timer fired %d times", n)
	}
}

func testTimerPatch(t *testing.T, s *server) {
	r := receive(t)
	s.putJSON(s.timers("t"), wire.Timer{Expires: time.Now().Add(time.Hour), CallbackReference: r.base + "/t"}).want(t, 201)
	keep := `{"op":"add","path":"/deleteAfter","value":86400}`
	soon, err := json.Marshal(s.clock.now().Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	s.patch(s.timers("t"), `[{"op":"replace","path":"/expires","value":`+string(soon)+`},`+keep+`]`).want(t, 204)
	s.jump(time.Minute, "nudsf-timer")
	r.wait(t, "/t", 1)
	s.noted()
	// A fired timer is kept and can be changed. It fires again when it gets a new time.
	s.patch(s.timers("t"), `[{"op":"add","path":"/metaTags","value":{"a":["b"]}}]`).want(t, 204)
	if got := s.timersFound(filterQuery(t, wire.Compare(wire.Equal, "a", "b"))); !slices.Equal(got, []string{"t"}) {
		t.Errorf("found %v", got)
	}
	if soon, err = json.Marshal(s.clock.now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	s.patch(s.timers("t"), `[{"op":"replace","path":"/expires","value":`+string(soon)+`}]`).want(t, 204)
	s.jump(time.Minute, "nudsf-timer")
	r.wait(t, "/t", 2)
	left := s.patch(s.timers("t"), `[{"op":"add","path":"/timerId","value":"u"},{"op":"replace","path":"/expires","value":"2001-01-01T00:00:00Z"},{"op":"remove","path":"/none"}]`).want(t, 200)
	if report := into[wire.PatchResult](t, left).Report; len(report) != 3 {
		t.Errorf("report %+v", report)
	}
	s.patch(s.timers("none"), `[`+keep+`]`).want(t, 404, wire.CauseTimerNotFound)
}
