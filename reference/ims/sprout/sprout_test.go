package sprout

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/emiago/sipgo/sip"
	"github.com/icholy/digest"

	"vitrine/reference/ims"
)

func TestDigestResponse(t *testing.T) {
	// RFC 7616 section 3.9.1, the MD5 example.
	ha1 := md5Hex("Mufasa:http-auth@example.org:Circle of Life")
	c := digest.Credentials{
		Nonce: "7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v", URI: "/dir/index.html",
		Cnonce: "f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ", Nc: 1, QOP: "auth",
	}
	if got := digestResponse(ha1, "GET", c); got != "8ca523f5e9506fed4657c9700eebdbec" {
		t.Errorf("got response %s", got)
	}
	// RFC 2069 as corrected (erratum 749), without qop.
	c = digest.Credentials{Nonce: "dcd98b7102dd2f0e8b11d0f600bfb0c093", URI: "/dir/index.html"}
	if got := digestResponse(md5Hex("Mufasa:testrealm@host.com:CircleOfLife"), "GET", c); got != "1949323746fe6a43ef61f9606e7febea" {
		t.Errorf("response without qop: got %s", got)
	}
}

func TestBindings(t *testing.T) {
	now := time.UnixMilli(1_000_000)
	at := func(d time.Duration) int64 { return now.Add(d).UnixMilli() }
	var r registration
	for _, b := range []binding{
		{URI: "a", CallID: "1", CSeq: 1, Expires: at(time.Minute)},
		{URI: "b", CallID: "2", CSeq: 1, Expires: at(time.Hour)},
		{URI: "a", CallID: "1", CSeq: 2, Expires: at(2 * time.Minute)}, // refreshed
		{URI: "c", CallID: "3", CSeq: 1, Expires: at(0)},               // has already expired
	} {
		if err := r.update(b, now); err != nil {
			t.Fatal(err)
		}
	}
	next, last := r.expiry()
	if len(r.Bindings) != 2 || r.Bindings[1].URI != "a" || next.UnixMilli() != at(2*time.Minute) || last.UnixMilli() != at(time.Hour) {
		t.Errorf("%+v expires at %v and %v", r.Bindings, next, last)
	}
	if err := r.update(binding{URI: "a", CallID: "1", CSeq: 2, Expires: at(0)}, now); !errors.Is(err, errStale) {
		t.Errorf("REGISTER out of order: got %v, want errStale", err)
	}
	if err := r.update(binding{URI: "a", CallID: "new", CSeq: 1, Expires: at(0)}, now); err != nil || len(r.Bindings) != 1 {
		t.Errorf("removal of a contact: got %+v, error %v", r.Bindings, err)
	}
	if r.prune(now.Add(time.Hour-time.Millisecond)) || !r.prune(now.Add(time.Hour)) || len(r.Bindings) != 0 {
		t.Errorf("bindings after pruning: got %+v", r.Bindings)
	}
	if next, last := r.expiry(); !next.IsZero() || !last.IsZero() {
		t.Errorf("expiry of an empty registration: got %v and %v, want zero", next, last)
	}
}

// TestTriggers checks conjunctive and disjunctive normal form and negation (TS
// 29.228 annex C).
func TestTriggers(t *testing.T) {
	orig, term := originating, terminating
	invite := ims.SPT{Group: 0, Method: "INVITE"}
	for _, c := range []struct {
		name          string
		cnf           bool
		spots         []ims.SPT
		method        string
		originatingTo bool
		terminatingTo bool
	}{
		{"and", true, []ims.SPT{invite, {Group: 1, SessionCase: &orig}}, "INVITE", true, false},
		{"and, other method", true, []ims.SPT{invite, {Group: 1, SessionCase: &orig}}, "MESSAGE", false, false},
		{"or within a group", true, []ims.SPT{invite, {Group: 0, SessionCase: &term}}, "MESSAGE", false, true},
		{"disjunctive", false, []ims.SPT{invite, {Group: 1, SessionCase: &term}}, "MESSAGE", false, true},
		{"and within a group", false, []ims.SPT{invite, {Group: 0, SessionCase: &term}}, "INVITE", false, true},
		{"negated", true, []ims.SPT{{Group: 0, Method: "INVITE", Negated: true}}, "MESSAGE", true, true},
		{"no spots: always", true, nil, "MESSAGE", true, true},
	} {
		trigger := ims.Trigger{CNF: c.cnf, Spots: c.spots}
		if o, e := matches(trigger, c.method, originating), matches(trigger, c.method, terminating); o != c.originatingTo || e != c.terminatingTo {
			t.Errorf("%s: got originating %t, terminating %t", c.name, o, e)
		}
	}
}

func TestRegInfo(t *testing.T) {
	r := registration{
		Identities: []string{"sip:a@ims.test", "tel:+1"},
		Bindings: []binding{
			{URI: "sip:a@192.0.2.1?x=<&>", Expires: time.Now().Add(time.Hour).UnixMilli()},
			{URI: "sip:a@192.0.2.2", Expires: time.Now().Add(time.Hour).UnixMilli()},
		},
	}
	document := func() (doc regInfoDocument, body []byte) {
		t.Helper()
		body, err := regInfo("sip:a@ims.test", r, 3, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if err := xml.Unmarshal(body, &doc); err != nil {
			t.Fatal(err)
		}
		return doc, body
	}
	doc, body := document()
	if doc.Version != 3 || doc.State != "full" || len(doc.Registrations) != 2 || doc.Registrations[1].AOR != "tel:+1" ||
		doc.Registrations[0].State != "active" || doc.Registrations[0].Contacts[0].URI != r.Bindings[0].URI {
		t.Errorf("%s", body)
	}
	ids := map[string]bool{}
	for _, reg := range doc.Registrations {
		for _, c := range reg.Contacts {
			ids[c.ID] = true
		}
	}
	if len(ids) != 4 {
		t.Errorf("got %d IDs of 4 contacts: %s", len(ids), body)
	}
	r.Bindings = r.Bindings[1:]
	if later, _ := document(); later.Registrations[0].Contacts[0].ID != doc.Registrations[0].Contacts[1].ID {
		t.Errorf("the ID of a contact changed when another one went")
	}
}

func TestSubscriptionsAreLimited(t *testing.T) {
	var r registration
	for i := range maxSubscriptions {
		if err := watch(&r, subscription{CallID: fmt.Sprint(i)}, false); err != nil {
			t.Fatal(err)
		}
	}
	if err := watch(&r, subscription{CallID: "more"}, false); err == nil || len(r.Subscriptions) != maxSubscriptions {
		t.Errorf("one more: got error %v, %d subscriptions", err, len(r.Subscriptions))
	}
	if err := watch(&r, subscription{CallID: "0"}, true); err != nil || r.Subscriptions[0].CSeq != 2 {
		t.Errorf("a refresh: got error %v, CSeq %d of its NOTIFY, want 2", err, r.Subscriptions[0].CSeq)
	}
}

// TestEndedSubscription checks that a SUBSCRIBE with Expires 0 ends the subscription by every clock.
func TestEndedSubscription(t *testing.T) {
	s, now := &server{maxExpires: 10 * time.Minute}, time.UnixMilli(1_000_000)
	for expires, want := range map[string]int64{"0": 0, "60": 1_060_000, "9999": 1_600_000} {
		req, ok := request("Contact: <sip:a@h>\r\nExpires: " + expires)
		if !ok {
			t.Fatalf("cannot parse a request with Expires %s", expires)
		}
		if got, err := s.dialog(req, now); err != nil || got.Expires != want {
			t.Errorf("Expires %s: the subscription ends at %d, error %v, want %d", expires, got.Expires, err, want)
		}
	}
}

// TestAnswersThatEndASubscription checks the statuses of RFC 6665 section 4.2.2.
func TestAnswersThatEndASubscription(t *testing.T) {
	for status, want := range map[int]bool{200: false, 403: false, 404: true, 408: true, 480: true, 481: true, 485: true, 486: false, 489: true, 500: false, 503: false, 604: true} {
		if got := endsSubscription(status); got != want {
			t.Errorf("%d ends the subscription: got %t, want %t", status, got, want)
		}
	}
}

// TestUnwatch removes a subscription whose NOTIFY failed, unless the next NOTIFY decides.
func TestUnwatch(t *testing.T) {
	now := time.UnixMilli(1000)
	for _, c := range []struct {
		name         string
		expires, due int64
		ends         bool
	}{
		{"unchanged", 5000, 2000, true},
		{"refreshed since", 6000, 2000, false},
		{"the registration's timer is due", 5000, 1000, false},
	} {
		r := registration{Due: c.due, Subscriptions: []subscription{{CallID: "1", Expires: 5000}, {CallID: "2", Expires: c.expires}}}
		left := 2
		if c.ends {
			left = 1
		}
		err := r.unwatch(subscription{CallID: "2", Expires: 5000}, now)
		if (err == nil) != c.ends || len(r.Subscriptions) != left || r.Subscriptions[0].CallID != "1" {
			t.Errorf("%s: got error %v, subscriptions %+v", c.name, err, r.Subscriptions)
		}
	}
}

func TestIdentity(t *testing.T) {
	for host, want := range map[string]bool{ims.Domain: true, "IMS.Test": true, "elsewhere.test": false} {
		got, err := identity(&sip.Uri{User: "a", Host: host})
		if (err == nil) != want || want && got != ims.PublicID("a") {
			t.Errorf("host %s: got %q, error %v", host, got, err)
		}
	}
}

// request parses a REGISTER with additional header lines.
func request(lines string) (*sip.Request, bool) {
	msg, err := sip.ParseMessage([]byte("REGISTER sip:ims.test SIP/2.0\r\nVia: SIP/2.0/UDP h;branch=z9hG4bK1\r\nFrom: <sip:a@ims.test>;tag=1\r\n" +
		"To: <sip:a@ims.test>\r\nCall-ID: c\r\nCSeq: 1 REGISTER\r\n" + lines + "\r\n\r\n"))
	if err != nil {
		return nil, false
	}
	req, ok := msg.(*sip.Request)
	return req, ok && req.CallID() != nil && req.CSeq() != nil && req.To() != nil
}

func TestContacts(t *testing.T) {
	s := &server{maxExpires: 10 * time.Minute}
	now := time.UnixMilli(0)
	for lines, want := range map[string]string{
		"Contact: <sip:a@h>":                          "sip:a@h 300",
		"Contact: <sip:a@h>\r\nExpires: 60":           "sip:a@h 60",
		"Contact: <sip:a@h>;expires=7\r\nExpires: 60": "sip:a@h 7",
		"Contact: <sip:a@h>\r\nExpires: 99999":        "sip:a@h 600",
		"Contact: <sip:a@h>, <sip:b@h>;expires=0":     "sip:a@h 300,sip:b@h 0",
		"Contact: *\r\nExpires: 0":                    "*",
		"X: none":                                     "",
		"Contact: *":                                  "400 Bad Wildcard Contact",
		"Contact: <sip:a@h>\r\nExpires: later":        "400 Bad Expires",
		"Contact: <sip:a@h>;expires=x":                "400 Bad Contact",
		"Path: <sip:t@10.0.0.1;lr>, <sip:10.0.0.2;lr>\r\nContact: <sip:a@h>": "sip:a@h 300 via sip:t@10.0.0.1;lr sip:10.0.0.2;lr",
	} {
		req, ok := request(lines)
		if !ok {
			t.Fatalf("cannot parse %q", lines)
		}
		c, err := s.contacts(req, now)
		var got []string
		if c.all {
			got = append(got, "*")
		}
		for _, b := range c.bindings {
			text := fmt.Sprintf("%s %d", b.URI, b.Expires/1000)
			if len(b.Path) > 0 {
				text += " via " + strings.Join(b.Path, " ")
			}
			got = append(got, text)
		}
		if err != nil {
			got = []string{err.Error()}
		}
		if strings.Join(got, ",") != want {
			t.Errorf("%q: got %q, want %q", lines, got, want)
		}
	}
}

func FuzzContacts(f *testing.F) {
	f.Add("Contact: <sip:a@h>;expires=7\r\nExpires: 60")
	f.Add("Contact: *\r\nExpires: 0")
	f.Add("Path: <sip:t@10.0.0.1;lr>, <sip:10.0.0.2;lr>\r\nContact: \"a, b\" <sip:a@h;x=\"<\">")
	f.Fuzz(func(t *testing.T, lines string) {
		req, ok := request(lines)
		if !ok {
			return
		}
		s := &server{maxExpires: 10 * time.Minute}
		c, err := s.contacts(req, time.UnixMilli(0))
		if err != nil {
			return
		}
		for _, b := range c.bindings {
			if b.Expires < 0 || b.Expires > s.maxExpires.Milliseconds() {
				t.Errorf("%q: got an expiry of %d ms", lines, b.Expires)
			}
			_ = retarget(req.Clone(), b)
		}
	})
}

func FuzzCredentials(f *testing.F) {
	f.Add(`Digest username="a@ims.test",realm="ims.test",nonce="n",uri="sip:ims.test",response="r",qop=auth,nc=00000001,cnonce="c"`)
	f.Add(`Digest username="a`)
	f.Add(`Basic YTpi`)
	f.Fuzz(func(t *testing.T, value string) {
		c, err := parseCredentials(sip.NewHeader("Authorization", value))
		if err == nil {
			digestResponse("ha1", "REGISTER", c)
		}
	})
}

func FuzzRegistration(f *testing.F) {
	f.Add([]byte(`{"identities":["sip:a@ims.test"],"bindings":[{"uri":"sip:a@h","path":["sip:t@10.0.0.1;lr"],"expires":5}],"due":5}`))
	f.Add([]byte(``))
	f.Fuzz(func(t *testing.T, value []byte) {
		r, err := parseRegistration(value)
		if err != nil {
			return
		}
		r.prune(time.UnixMilli(1))
		r.expiry()
		if _, err := regInfo("sip:a@ims.test", r, 0, time.UnixMilli(1)); err != nil {
			t.Error(err)
		}
		again, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parseRegistration(again); err != nil {
			t.Errorf("registration %s cannot be parsed again: %v", value, err)
		}
	})
}

func FuzzRegData(f *testing.F) {
	f.Add([]byte(`<ClearwaterRegData><RegistrationState>REGISTERED</RegistrationState><IMSSubscription><PrivateID>a</PrivateID><ServiceProfile><InitialFilterCriteria><Priority>1</Priority><TriggerPoint><ConditionTypeCNF>true</ConditionTypeCNF><SPT><Group>0</Group><Method>INVITE</Method></SPT></TriggerPoint><ApplicationServer><ServerName>sip:mmtel.ims.test</ServerName></ApplicationServer></InitialFilterCriteria></ServiceProfile></IMSSubscription></ClearwaterRegData>`))
	f.Fuzz(func(t *testing.T, document []byte) {
		if data, err := parseRegData(document); err == nil {
			usesTelephonyServer(data.Subscription.Profile, "INVITE", originating)
		}
	})
}
