package sidecar

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/emiago/sipgo/sip"

	wiresip "vitrine/wire/sip"
)

// A location is a contact of a user, as a REGISTER bound it (RFC 3261 section 10).
type location struct {
	Contact string    `json:"contact"`        // without expires
	Path    []string  `json:"path,omitempty"` // the REGISTER's Path values (RFC 3327)
	CallID  string    `json:"call_id,omitempty"`
	CSeq    uint32    `json:"cseq,omitempty"`
	Expires time.Time `json:"expires"`
}

func (l *location) uri() string { return string(wiresip.Address([]byte(l.Contact))) }

// find returns the location with a URI, or nil. RFC 3261 section 19.1.4 has a
// comparison of URIs that ignores case and order. Like many registrars, find compares
// text: a function answers with the text of the REGISTER.
func find(all []location, uri string) *location {
	i := slices.IndexFunc(all, func(l location) bool { return l.uri() == uri })
	if i < 0 {
		return nil
	}
	return &all[i]
}

// readLocations reads a record of the store, without the locations that have expired.
func readLocations(value []byte, now time.Time) ([]location, error) {
	if value == nil {
		return nil, nil
	}
	var all []location
	if err := json.Unmarshal(value, &all); err != nil {
		return nil, fmt.Errorf("read the locations in the store: %w", err)
	}
	return slices.DeleteFunc(all, func(l location) bool { return !l.Expires.After(now) }), nil
}

// lastExpiry returns when the last of the locations expires.
func lastExpiry(all []location) time.Time {
	var last time.Time
	for _, l := range all {
		if l.Expires.After(last) {
			last = l.Expires
		}
	}
	return last
}

// A contact is an element of a Contact header.
type contact struct {
	text    string // without expires
	uri     string
	expires string // the parameter's value; "" if there is none
}

// findContact returns the element with a URI, or nil.
func findContact(all []contact, uri string) *contact {
	i := slices.IndexFunc(all, func(c contact) bool { return c.uri == uri })
	if i < 0 {
		return nil
	}
	return &all[i]
}

// contacts returns the elements of all Contact headers of a message.
func contacts(headers []sip.Header) []contact {
	var all []contact
	for _, h := range headers {
		for rest := []byte(h.Value()); len(rest) > 0; {
			var one []byte
			if one, rest = wiresip.CutElement(rest); len(one) > 0 {
				all = append(all, readContact(one))
			}
		}
	}
	return all
}

// readContact takes the expires parameter off an element.
func readContact(value []byte) contact {
	bare := wiresip.WithoutParams(value)
	c := contact{uri: string(wiresip.Address(value))}
	var text strings.Builder
	text.Write(bare)
	for rest := value[len(bare):]; len(rest) > 0; {
		var name, of []byte
		name, of, rest = wiresip.CutParam(rest)
		switch {
		case wiresip.EqualFold(name, "expires"):
			c.expires = string(of)
		case len(of) > 0:
			text.WriteString(";" + string(name) + "=" + string(of))
		default:
			text.WriteString(";" + string(name))
		}
	}
	c.text = text.String()
	return c
}

// defaultExpires is the lifetime of a binding for which the registrar states none (RFC
// 3261 section 10.2.1.1: the choice is the registrar's).
const defaultExpires = time.Hour

// granted returns what the function has after a REGISTER, by its answer. had is what it
// had before.
func granted(req *sip.Request, res *sip.Response, had []location, now time.Time) []location {
	asked := contacts(req.GetHeaders("Contact"))
	var general string // the answer's Expires header
	if h := res.GetHeader("Expires"); h != nil {
		general = h.Value()
	}
	var all []location
	for _, c := range contacts(res.GetHeaders("Contact")) {
		l := location{Contact: c.text}
		if bound := findContact(asked, c.uri); bound != nil {
			l = location{Contact: bound.text, Path: values(req.GetHeaders("Path")), CallID: req.CallID().Value(), CSeq: req.CSeq().SeqNo}
		} else if old := find(had, c.uri); old != nil {
			l = *old
		}
		l.Expires = now.Add(lifetime(c.expires, general))
		all = append(all, l)
	}
	return all
}

// lifetime reads the first of the texts that is a number of seconds.
func lifetime(texts ...string) time.Duration {
	for _, text := range texts {
		if n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 32); err == nil {
			return time.Duration(n) * time.Second
		}
	}
	return defaultExpires
}

func values(headers []sip.Header) []string {
	var all []string
	for _, h := range headers {
		all = append(all, h.Value())
	}
	return all
}

// merge returns what the store must hold after a REGISTER for the contacts asked. had is
// what the store held before the REGISTER, has is what it holds now, and granted is what
// the function has. A location that another instance has added or refreshed since stays
// as that instance wrote it, and one that another instance has removed goes, unless the
// REGISTER was about it.
func merge(had, has, granted []location, asked []contact) []location {
	var all []location
	for _, l := range granted {
		uri := l.uri()
		now := find(has, uri)
		switch {
		case findContact(asked, uri) != nil || now == nil && find(had, uri) == nil:
			all = append(all, l)
		case now != nil:
			all = append(all, *now)
		}
	}
	for _, l := range has {
		if uri := l.uri(); findContact(asked, uri) == nil && find(had, uri) == nil && find(granted, uri) == nil {
			all = append(all, l)
		}
	}
	return all
}
