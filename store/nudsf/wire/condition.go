package wire

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// ETag returns the entity tag of a version: a strong validator (RFC 9110 section 8.8.3).
func ETag(version uint64) string { return `"` + strconv.FormatUint(version, 36) + `"` }

// A Precondition holds the conditional headers of a request (RFC 9110 section 13.1; TS 29.598
// clause 6.1.2.2.2).
type Precondition struct {
	ifMatch, ifNoneMatch []string
	modifiedSince        time.Time
}

// ReadPrecondition reads the conditional headers. It ignores an If-Modified-Since that is not a
// date (RFC 9110 section 13.1.3).
func ReadPrecondition(h http.Header) Precondition {
	p := Precondition{ifMatch: etags(h.Values("If-Match")), ifNoneMatch: etags(h.Values("If-None-Match"))}
	if p.ifNoneMatch == nil {
		if t, err := http.ParseTime(h.Get("If-Modified-Since")); err == nil {
			p.modifiedSince = t
		}
	}
	return p
}

// None reports whether the request has no conditions.
func (p Precondition) None() bool {
	return p.ifMatch == nil && p.ifNoneMatch == nil && p.modifiedSince.IsZero()
}

// Holds reports whether a change is allowed if the entity has this tag; "" means no entity.
func (p Precondition) Holds(etag string) bool {
	if p.ifMatch != nil && !anyTag(p.ifMatch, etag, false) {
		return false
	}
	return p.ifNoneMatch == nil || !anyTag(p.ifNoneMatch, etag, true)
}

// Status returns 0 if the entity is to be sent, else 304 or 412.
func (p Precondition) Status(etag string, modified time.Time) int {
	switch {
	case p.ifMatch != nil && !anyTag(p.ifMatch, etag, false):
		return http.StatusPreconditionFailed
	case p.ifNoneMatch != nil && anyTag(p.ifNoneMatch, etag, true):
		return http.StatusNotModified
	case !p.modifiedSince.IsZero() && !modified.Truncate(time.Second).After(p.modifiedSince):
		return http.StatusNotModified
	}
	return 0
}

// etags splits a list of entity tags; nil if there is no header. Tags hold no quotes but may hold
// commas.
func etags(headers []string) []string {
	var tags []string
	for _, h := range headers {
		for h = strings.TrimLeft(h, " \t,"); h != ""; h = strings.TrimLeft(h, " \t,") {
			end := strings.IndexByte(h, ',')
			if open := strings.IndexByte(h, '"'); open >= 0 && (end < 0 || open < end) {
				if closing := strings.IndexByte(h[open+1:], '"'); closing >= 0 {
					end = open + closing + 2
				}
			}
			if end < 0 {
				end = len(h)
			}
			tags = append(tags, strings.TrimSpace(h[:end]))
			h = h[end:]
		}
	}
	if tags == nil && headers != nil {
		tags = []string{""} // an empty header matches nothing
	}
	return tags
}

// anyTag reports whether one of the tags is the entity's. "*" matches any existing entity.
func anyTag(tags []string, etag string, weak bool) bool {
	if etag == "" {
		return false
	}
	for _, t := range tags {
		if weak {
			t = strings.TrimPrefix(t, "W/")
		}
		if t == "*" || t == etag {
			return true
		}
	}
	return false
}

// Validators sets the headers that later conditional requests refer to.
func Validators(h http.Header, etag string, modified time.Time) {
	h.Set("ETag", etag)
	h.Set("Last-Modified", modified.UTC().Format(http.TimeFormat))
}
