package sidecar

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/emiago/sipgo/sip"

	"vitrine/reference/ims/sipudp"
)

func at(contact string, cseq uint32) location { return location{Contact: contact, CSeq: cseq} }

func TestMerge(t *testing.T) {
	for name, c := range map[string]struct {
		had, has, granted []location
		asked             string
		want              []location
	}{
		"a first contact": {granted: []location{at("<sip:a@h>", 1)}, asked: "sip:a@h", want: []location{at("<sip:a@h>", 1)}},
		"a contact removed": {
			had: []location{at("<sip:a@h>", 1)}, has: []location{at("<sip:a@h>", 1)}, asked: "sip:a@h", want: nil,
		},
		"the function dropped the other contact": {
			had: []location{at("<sip:b@h>", 1)}, has: []location{at("<sip:b@h>", 1)}, granted: []location{at("<sip:a@h>", 1)}, asked: "sip:a@h",
			want: []location{at("<sip:a@h>", 1)},
		},
		"another instance added a contact": {
			has: []location{at("<sip:b@h>", 1)}, granted: []location{at("<sip:a@h>", 1)}, asked: "sip:a@h",
			want: []location{at("<sip:a@h>", 1), at("<sip:b@h>", 1)},
		},
		"another instance removed a contact": {
			had: []location{at("<sip:b@h>", 1)}, granted: []location{at("<sip:a@h>", 1), at("<sip:b@h>", 1)}, asked: "sip:a@h",
			want: []location{at("<sip:a@h>", 1)},
		},
		"another instance refreshed a contact": {
			had: []location{at("<sip:b@h>", 1)}, has: []location{at("<sip:b@h>", 2)}, granted: []location{at("<sip:a@h>", 1), at("<sip:b@h>", 1)}, asked: "sip:a@h",
			want: []location{at("<sip:a@h>", 1), at("<sip:b@h>", 2)},
		},
		"another instance removed the contact that is bound here": {
			had: []location{at("<sip:a@h>", 1)}, granted: []location{at("<sip:a@h>", 2)}, asked: "sip:a@h", want: []location{at("<sip:a@h>", 2)},
		},
		"a contact that only the function knows": {
			granted: []location{at("<sip:a@h>", 1), at("<sip:c@h>", 0)}, asked: "sip:a@h", want: []location{at("<sip:a@h>", 1), at("<sip:c@h>", 0)},
		},
	} {
		got := merge(c.had, c.has, c.granted, []contact{{uri: c.asked}})
		if !slices.EqualFunc(got, c.want, func(a, b location) bool { return a.Contact == b.Contact && a.CSeq == b.CSeq }) {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}

func TestReadContact(t *testing.T) {
	for text, want := range map[string]contact{
		"<sip:a@h>":         {"<sip:a@h>", "sip:a@h", ""},
		"sip:a@h;expires=7": {"sip:a@h", "sip:a@h", "7"},
		`"A, \"B\"" <sip:a@h;x=1>;q=0.5;Expires=7`: {`"A, \"B\"" <sip:a@h;x=1>;q=0.5`, "sip:a@h;x=1", "7"},
		`<sip:a@h>;expires=7;+sip.instance="<u>"`:  {`<sip:a@h>;+sip.instance="<u>"`, "sip:a@h", "7"},
		"<sip:a@h>;ob": {"<sip:a@h>;ob", "sip:a@h", ""},
	} {
		if got := readContact([]byte(text)); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}

func TestReadLocationsDropsTheExpired(t *testing.T) {
	now := time.Unix(1000, 0)
	value, err := json.Marshal([]location{{Contact: "<sip:a@h>", Expires: now}, {Contact: "<sip:b@h>", Expires: now.Add(time.Second)}})
	if err != nil {
		t.Fatal(err)
	}
	all, err := readLocations(value, now)
	if err != nil || len(all) != 1 || all[0].uri() != "sip:b@h" {
		t.Errorf("got %v, %v", all, err)
	}
}

// TestExpiredLocationIsRemoved has a location expire while others are restored. The REGISTER for it
// must be valid.
func TestExpiredLocationIsRemoved(t *testing.T) {
	of := sip.Uri{Scheme: "sip", User: "a", Host: "h"}
	for life, want := range map[time.Duration]string{
		-5 * time.Second: "<sip:a@h>;expires=0", 0: "<sip:a@h>;expires=0", time.Millisecond: "<sip:a@h>;expires=1",
	} {
		if got := registerOf(of, &location{Contact: "<sip:a@h>"}, life).GetHeader("Contact").Value(); got != want {
			t.Errorf("%s: got Contact %s, want %s", life, got, want)
		}
	}
}

// FuzzRegister checks for any REGISTER and any answer that what is stored of them can be
// read again, and adds no line to the REGISTERs that restore it.
func FuzzRegister(f *testing.F) {
	const message = "Via: SIP/2.0/UDP h;branch=z9hG4bK1\r\nFrom: <sip:a@h>;tag=1\r\nTo: <sip:a@h>\r\nCall-ID: 1\r\nCSeq: 1 REGISTER\r\n" +
		"Contact: <sip:a@1.2.3.4>;q=0.5;expires=7, \"B\" <sip:b@h>\r\nPath: <sip:p;lr>\r\nContent-Length: 0\r\n\r\n"
	f.Add([]byte("REGISTER sip:h SIP/2.0\r\n"+message), []byte("SIP/2.0 200 OK\r\n"+message))
	f.Add([]byte("REGISTER sip:h SIP/2.0\r\nContact: *\r\n"+message), []byte("SIP/2.0 200 OK\r\nExpires: 5\r\n"+message))
	f.Fuzz(func(t *testing.T, request, answer []byte) {
		first, err1 := sipudp.Parse(sip.NewParser(), request)
		second, err2 := sipudp.Parse(sip.NewParser(), answer)
		req, isRequest := first.(*sip.Request)
		res, isResponse := second.(*sip.Response)
		if err1 != nil || err2 != nil || !isRequest || !isResponse {
			return
		}
		now := time.Unix(1000, 0)
		all := merge(nil, nil, granted(req, res, nil, now), contacts(req.GetHeaders("Contact")))
		value, err := json.Marshal(all)
		if err != nil {
			t.Fatal(err)
		}
		again, err := readLocations(value, now)
		if err != nil {
			t.Fatalf("%v: %s", err, value)
		}
		for i := range again {
			own := registerOf(userOf(req, spelling{}).uri, &again[i], time.Minute)
			own.PrependHeader(&sip.ViaHeader{ProtocolName: "SIP", ProtocolVersion: "2.0", Transport: "UDP", Host: "h", Params: sip.HeaderParams{{K: "branch", V: "z9hG4bK1"}}})
			if data := sipudp.Bytes(own); bytes.Count(data, []byte("\r\n")) != len(own.Headers())+2 {
				t.Fatalf("a value ends its line: %q", data)
			}
		}
	})
}
