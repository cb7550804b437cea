package nudsftest

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"vitrine/store/nudsf/wire"
)

// owner is client as a query.
const owner = "?nfId=11111111-1111-4111-8111-111111111111"

func client() *wire.ClientID { return &wire.ClientID{NfID: "11111111-1111-4111-8111-111111111111"} }

// notification decodes the notification of a post.
func (p post) notification(t *testing.T) wire.Notification {
	t.Helper()
	n, err := wire.ReadNotification(p.contentType, bytes.NewReader(p.body), wire.DefaultLimits())
	if err != nil {
		t.Fatalf("%v: %s", err, p.body)
	}
	return n
}

func testSubscriptions(t *testing.T, s *server) {
	r := receive(t)
	sub := wire.Subscription{ClientID: client(), CallbackReference: r.base + "/changes"}
	s.do("GET", s.subscription("s1"), nil).want(t, 404, wire.CauseSubscriptionNotFound)
	made := s.putJSON(s.subscription("s1"), sub).want(t, 201)
	if made.Header.Get("Location") != s.subscription("s1") {
		t.Errorf("Location %q", made.Header.Get("Location"))
	}
	s.do("GET", s.subscription("s1"), nil, "If-None-Match", made.etag()).want(t, 304)
	if list := into[[]wire.Subscription](t, s.do("GET", strings.TrimSuffix(s.subscription(""), "/"), nil).want(t, 200)); len(list) != 1 {
		t.Errorf("list %+v", list)
	}

	s.put("r", sample()).want(t, 201)
	s.put("r", wire.Record{Meta: wire.Meta{Tags: wire.Tags{"v": {"2"}}}}).want(t, 204)
	s.do("PUT", s.records("r", "blocks", "b"), []byte("new"), "Content-Type", "text/plain").want(t, 201)
	s.do("DELETE", s.records("r"), nil).want(t, 204)
	posts := r.wait(t, "/changes", 4)
	for i, want := range []string{wire.Created, wire.Updated, wire.Updated, wire.Deleted} {
		n := posts[i].notification(t)
		if n.Descriptor.OperationType != want || n.Descriptor.RecordRef != s.records("r") || n.Descriptor.SubscriptionID != "s1" ||
			posts[i].kind != "Nudsf_DataRepository_onDataChange" || posts[i].proto != "HTTP/2.0" {
			t.Errorf("notification %d: %+v %+v", i, n.Descriptor, posts[i].kind)
		}
	}
	if n := posts[0].notification(t); !same(n.Record, sample()) {
		t.Errorf("created: %+v", n.Record)
	}
	if n := posts[3].notification(t); len(n.Record.Blocks) != 1 || string(n.Record.Blocks[0].Content) != "new" {
		t.Errorf("deleted: %+v", n.Record)
	}

	other := sub
	other.ClientID = &wire.ClientID{NfSetID: "set1"}
	s.putJSON(s.subscription("s1"), other).want(t, 403, wire.CauseSubscriptionExists)
	s.do("DELETE", s.subscription("s1")+"?nfSetId=set1", nil).want(t, 403, wire.CauseSubscriptionExists)
	s.putJSON(s.subscription("s1"), sub).want(t, 200)
	gone := s.do("DELETE", s.subscription("s1")+owner+"&get-previous=true", nil).want(t, 200)
	if list := into[[]wire.Subscription](t, gone); len(list) != 1 || list[0].CallbackReference != sub.CallbackReference {
		t.Errorf("deleted %+v", list)
	}
	s.do("DELETE", s.subscription("s1")+owner, nil).want(t, 404, wire.CauseSubscriptionNotFound)
	s.put("r", sample()).want(t, 201)
	s.putJSON(s.subscription("s2"), wire.Subscription{ClientID: client(), CallbackReference: r.base + "/later"}).want(t, 201)
	s.put("r", sample()).want(t, 204)
	r.wait(t, "/later", 1)
	if got := r.at("/changes"); len(got) != 4 {
		t.Errorf("%d notifications after the subscription was deleted", len(got)-4)
	}
}

func testSubscriptionFilter(t *testing.T, s *server) {
	r := receive(t)
	sub := wire.Subscription{ClientID: client(), CallbackReference: r.base + "/changes", SubFilter: &wire.SubFilter{
		MonitoredResourceURIs: []string{s.records("watched")}, Operations: []string{wire.Deleted},
	}}
	missing := s.putJSON(s.subscription("s"), sub).want(t, 409)
	if uris := into[[]string](t, missing); len(uris) != 1 || uris[0] != s.records("watched") {
		t.Errorf("409 with %v", uris)
	}
	s.put("watched", sample()).want(t, 201)
	s.putJSON(s.subscription("s"), sub).want(t, 201)
	s.patch(s.subscription("s"), `[{"op":"add","path":"/subFilter/monitoredResourceUris/-","value":"/records/misspelt"}]`).want(t, 409, "")
	s.put("watched", sample()).want(t, 204)
	s.put("other", sample()).want(t, 201)
	s.do("DELETE", s.records("other"), nil).want(t, 204)
	s.do("DELETE", s.records("watched"), nil).want(t, 204)
	if n := r.wait(t, "/changes", 1)[0].notification(t); n.Descriptor.OperationType != wire.Deleted || n.Descriptor.RecordRef != s.records("watched") {
		t.Errorf("%+v", n.Descriptor)
	}
	s.patch(s.subscription("s"), `[{"op":"replace","path":"/subFilter/operations","value":["UPDATED"]}]`).want(t, 204) // the record is gone
	report := s.patch(s.subscription("s"), `[{"op":"remove","path":"/subFilter"},{"op":"replace","path":"/clientId","value":{"nfId":"thief"}}]`).want(t, 200)
	if left := into[wire.PatchResult](t, report).Report; len(left) != 1 || left[0].Path != "/clientId" {
		t.Errorf("report %+v", left)
	}
	s.put("any", sample()).want(t, 201)
	if n := r.wait(t, "/changes", 2)[1].notification(t); n.Descriptor.RecordRef != s.records("any") {
		t.Errorf("%+v", n.Descriptor)
	}
	for _, bad := range []string{
		`{}`, `{"clientId":{},"callbackReference":"http://h"}`, `{"clientId":{"nfId":"x"},"callbackReference":"ftp://h"}`,
		`{"clientId":{"nfId":"x"},"callbackReference":"http://h","expiry":"2001-01-01T00:00:00Z"}`, `{"clientId":`,
		`{"clientId":{"nfId":"x"},"callbackReference":"http://h","subFilter":{"operations":["EATEN"]}}`,
	} {
		s.wrong("PUT", s.subscription("bad"), []byte(bad), "Content-Type", wire.TypeJSON).want(t, 400)
	}
}

func testSubscriptionExpiry(t *testing.T, s *server) {
	r := receive(t)
	soon := s.clock.now().Add(time.Hour)
	early := uint32(1800)
	s.putJSON(s.subscription("s"), wire.Subscription{
		ClientID: client(), CallbackReference: r.base + "/changes", ExpiryCallbackReference: r.base + "/ends", Expiry: &soon, ExpiryNotification: &early,
	}).want(t, 201)
	s.jump(30*time.Minute, "nudsf-dr")
	p := r.wait(t, "/ends", 1)[0]
	if p.kind != "Nudsf_DataRepository_subscriptionExpiryNotification" {
		t.Errorf("notified by %s", p.kind)
	}
	s.noted()
	s.patch(s.subscription("s"), `[{"op":"add","path":"/subFilter","value":{"operations":["DELETED"]}}]`).want(t, 204) // causes no second notification
	var info wire.NotificationInfo
	if err := json.Unmarshal(p.body, &info); err != nil || len(info.ExpiredSubscriptions) != 1 || *info.ExpiredSubscriptions[0].ClientID != *client() {
		t.Errorf("%v: %s", err, p.body)
	}
	s.do("GET", s.subscription("s"), nil).want(t, 200)
	s.jump(30*time.Minute, "nudsf-dr")
	s.do("GET", s.subscription("s"), nil).want(t, 404)
	s.noted()
	s.put("r", sample()).want(t, 201)
	s.putJSON(s.subscription("s2"), wire.Subscription{ClientID: client(), CallbackReference: r.base + "/later"}).want(t, 201)
	s.put("r", sample()).want(t, 204)
	r.wait(t, "/later", 1)
	if n := len(r.at("/changes")) + len(r.at("/ends")); n != 1 {
		t.Errorf("%d notifications in place of 1", n)
	}
}

func testRecordExpiry(t *testing.T, s *server) {
	r := receive(t)
	s.putJSON(s.subscription("s"), wire.Subscription{ClientID: client(), CallbackReference: r.base + "/changes"}).want(t, 201)
	ttl := time.Now().Add(300 * time.Millisecond)
	record := sample()
	record.Meta.TTL, record.Meta.CallbackReference = &ttl, r.base+"/expired"
	s.put("e", record).want(t, 201)
	quiet := wire.Record{Meta: wire.Meta{TTL: &ttl}}
	s.put("q", quiet).want(t, 201)
	p := r.wait(t, "/expired", 1)[0]
	if time.Now().Before(ttl) {
		t.Error("expired before its time")
	}
	notified, err := wire.ReadRecord(p.contentType, bytes.NewReader(p.body), wire.DefaultLimits())
	if err != nil || !same(notified, record) || p.location != s.records("e") || p.kind != "Nudsf_DataRepository_recordExpired" {
		t.Errorf("%v: %s %s: %s", err, p.kind, p.location, p.body)
	}
	s.do("GET", s.records("e"), nil).want(t, 404, wire.CauseRecordNotFound)
	if got := s.found(wire.All()); got != nil {
		t.Errorf("search finds %v", got)
	}
	posts := r.wait(t, "/changes", 4) // two created, two deleted
	deleted := 0
	for _, p := range posts {
		if p.notification(t).Descriptor.OperationType == wire.Deleted {
			deleted++
		}
	}
	if deleted != 2 || len(r.at("/expired")) != 1 {
		t.Errorf("%d deletions notified, %d expiries", deleted, len(r.at("/expired")))
	}

	// If the ttl is removed, the record does not expire.
	s.noted()
	ttl = s.clock.now().Add(time.Hour)
	s.put("kept", record).want(t, 201)
	s.patch(s.records("kept", "meta"), `[{"op":"remove","path":"/ttl"}]`).want(t, 204)
	near := s.clock.now().Add(time.Hour)
	s.put("later", wire.Record{Meta: wire.Meta{TTL: &near}}).want(t, 201)
	s.jump(time.Hour, "nudsf-dr")
	r.wait(t, "/changes", 8) // kept: created and updated; later: created and deleted
	s.do("GET", s.records("later"), nil).want(t, 404)
	s.do("GET", s.records("kept"), nil).want(t, 200)

	// An expired record is absent, whether or not the agenda has handled it.
	past := time.Now().Add(-time.Hour)
	s.put("past", wire.Record{Meta: wire.Meta{TTL: &past}}).want(t, http.StatusCreated)
	s.do("GET", s.records("past"), nil).want(t, 404)
}
