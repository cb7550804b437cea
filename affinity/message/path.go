package message

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"math"
	"time"

	"vitrine/wire/sip"
)

// maxScan is the number of bytes of a body that are searched for identities.
const maxScan = 4 << 10

// resource returns the name of a request, such as "GET /impu/{}/reg-data", and adds the
// identifiers in its path and query.
func (r *reading) resource(s *slot, method, target []byte) string {
	w := &r.words
	w.scratch = append(append(w.scratch[:0], method...), ' ')
	path, query, _ := bytes.Cut(target, []byte("?"))
	if i := bytes.Index(path, []byte("://")); i > 0 { // the form for proxies (RFC 9112 section 3.2.2)
		path = path[i+3:]
		if i = bytes.IndexByte(path, '/'); i < 0 {
			path = nil
		} else {
			path = path[i:]
		}
	}
	var last []byte
	for rest := path; len(rest) > 0; {
		rest = rest[1:] // the slash
		segment := rest
		if i := bytes.IndexByte(rest, '/'); i >= 0 {
			segment, rest = rest[:i], rest[i:]
		} else {
			rest = nil
		}
		w.scratch = append(w.scratch, '/')
		if isVariable(last, segment) {
			w.scratch = append(w.scratch, "{}"...)
			s.userKey(last, segment)
		} else {
			w.scratch = append(w.scratch, segment...)
		}
		last = segment
	}
	if len(path) == 0 {
		w.scratch = append(w.scratch, '/')
	}
	for len(query) > 0 {
		var name, value []byte
		name, value, query = parameter(query)
		if value != nil && (personOf(name) != identifierNone || bytes.Contains(value, []byte("%40")) || bytes.IndexByte(value, '@') >= 0) {
			s.userKey(name, value)
		}
	}
	return w.intern(w.scratch)
}

// parameter splits off the first parameter of a query. The value is nil if there is no "=".
func parameter(query []byte) (name, value, rest []byte) {
	name, rest, _ = bytes.Cut(query, []byte("&"))
	name, value, _ = bytes.Cut(name, []byte("="))
	return name, value, rest
}

// isVariable reports whether a segment of a path is a value rather than a fixed part of the
// API: it follows the name of a kind of user or record, or does not look like a word. A number
// alone is no word, because a version has a letter (TS 29.501 clause 4.4.1).
func isVariable(before, segment []byte) bool {
	if len(segment) == 0 {
		return false
	}
	if personOf(before) != identifierNone {
		return true
	}
	switch string(before) {
	case "kv", "records", "blocks", "users", "sessions", "timers", "subs-to-notify":
		return true
	}
	const longest = 40
	if len(segment) > longest {
		return true
	}
	const most = 2 // digits of a word, such as a version
	digits := 0
	for _, c := range segment {
		switch {
		case c == '@' || c == '%' || c == ':' || c == '=' || c == '+' || c < ' ' || c > '~':
			return true
		case c >= '0' && c <= '9':
			digits++
		}
	}
	return digits > most || digits == len(segment)
}

// identifierNone means that a name has no identifier kind.
const identifierNone IdentifierKind = 255

// personOf returns the kind of identity that follows a path segment, or is the value of a
// query parameter or field, with this name. It returns identifierNone for other names.
func personOf(name []byte) IdentifierKind {
	const longest = 24
	if len(name) == 0 || len(name) > longest {
		return identifierNone
	}
	switch {
	case sip.EqualFold(name, "impu"), sip.EqualFold(name, "aor"), sip.EqualFold(name, "public_id"), sip.EqualFold(name, "publicid"), sip.EqualFold(name, "publicidentity"):
		return IMPU
	case sip.EqualFold(name, "impi"), sip.EqualFold(name, "private_id"), sip.EqualFold(name, "username"), sip.EqualFold(name, "privateid"):
		return IMPI
	case sip.EqualFold(name, "imsi"), sip.EqualFold(name, "supi"):
		return IMSI
	case sip.EqualFold(name, "msisdn"), sip.EqualFold(name, "gpsi"):
		return MSISDN
	case sip.EqualFold(name, "call-id"), sip.EqualFold(name, "callid"), sip.EqualFold(name, "call_id"):
		return CallID
	case sip.EqualFold(name, "session-id"), sip.EqualFold(name, "sessionid"), sip.EqualFold(name, "session_id"):
		return SessionID
	}
	return identifierNone
}

// userKey adds the user in the value that follows name.
func (s *slot) userKey(name, value []byte) {
	if len(value) == 0 || len(value) > maxText {
		return
	}
	kind := personOf(name)
	switch kind {
	case IMSI, MSISDN:
		for _, prefix := range [...]string{"imsi-", "msisdn-"} {
			value = bytes.TrimPrefix(value, []byte(prefix))
		}
		s.add(kind, 0, value)
	case CallID, SessionID:
		from := len(s.text)
		s.text = appendDecoded(s.text, value)
		s.identify(kind, 0, from)
	case IMPI, IMPU:
		s.encoded(kind, value)
	default:
		s.token(value)
	}
}

// token adds an identity that is recognised by its form alone, if the value is one.
func (s *slot) token(value []byte) {
	switch {
	case bytes.HasPrefix(value, []byte("imsi-")) && isDigits(value[5:]):
		s.add(IMSI, 0, value[5:])
	case bytes.HasPrefix(value, []byte("msisdn-")) && isDigits(value[7:]):
		s.add(MSISDN, 0, value[7:])
	case len(value) == 15 && isDigits(value):
		s.add(IMSI, 0, value)
	case bytes.HasPrefix(value, []byte("tel:")), bytes.HasPrefix(value, []byte("tel%3A")), isPerson(value):
		from := len(s.text)
		s.text = appendDecoded(s.text, value)
		text := s.text[from:]
		s.text = s.text[:from]
		s.public(withoutPath(text)) // safe in place: it never writes beyond what it has read
	}
}

// withoutPath returns the user in the key of a record, such as reg/sip:alice@ims.test. A
// URI may have a slash in its user (RFC 3261 section 25.1).
func withoutPath(value []byte) []byte {
	if bytes.HasPrefix(value, []byte("sip")) || bytes.HasPrefix(value, []byte("tel:")) {
		return value
	}
	at := max(bytes.LastIndexByte(value, '@'), 0)
	return value[bytes.LastIndexByte(value[:at], '/')+1:]
}

// encoded adds an identity of a user that may be percent-encoded.
func (s *slot) encoded(kind IdentifierKind, value []byte) {
	from := len(s.text)
	s.text = appendDecoded(s.text, value)
	text := s.text[from:]
	s.text = s.text[:from]
	s.person(kind, text) // safe in place: it never writes beyond what it has read
}

// isPerson reports whether a value is user@domain, perhaps with a scheme.
func isPerson(value []byte) bool {
	at, size := bytes.IndexByte(value, '@'), 1
	if at < 0 {
		at, size = bytes.Index(value, []byte("%40")), 3
	}
	const shortest = 3 // bytes of a domain
	if at <= 0 || at+size+shortest > len(value) {
		return false
	}
	for _, c := range value[:at] {
		if c <= ' ' || c >= 0x7f {
			return false
		}
	}
	for i, c := range value[at+size:] {
		letter := c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9'
		switch {
		case letter, i > 0 && (c == '.' || c == '-'):
		case i >= shortest && (c == ':' || c == ';' || c == '?' || c == '%'): // port, parameters
			return true
		default:
			return false
		}
	}
	return true
}

// appendDecoded appends text without percent-encoding.
func appendDecoded(b, text []byte) []byte {
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c == '%' && i+2 < len(text) && isHex(text[i+1]) && isHex(text[i+2]) {
			c = unhex(text[i+1])<<4 | unhex(text[i+2])
			i += 2
		}
		b = append(b, c)
	}
	return b
}

// scan adds the identities in a text such as JSON or XML: values that are named as
// identities, and those that look like one. It stops where the text is binary.
//
// It reads JSON by itself, because each message with a body is scanned, and the body may be
// XML, a form, or cut off. BenchmarkScan: 0.9 us without an allocation, where encoding/json
// takes 9.4 us and 104 allocations for the tokens alone.
func (s *slot) scan(text []byte) {
	var name []byte // the value before, which may be the name of a field
	end := 0        // of name
	for i := 0; i < len(text); {
		if text[i] < '\t' {
			return
		}
		if isDelimiter(text[i]) {
			i++
			continue
		}
		from := i
		for i < len(text) && !isDelimiter(text[i]) {
			i++
		}
		value := bytes.TrimRight(text[from:i], ":")
		switch {
		case len(value) == 0:
			continue
		case len(value) > 1 && personOf(name) != identifierNone && bytes.ContainsAny(text[end:from], ":=>"):
			s.userKey(name, value)
		case len(value) >= 6:
			s.token(value)
		}
		name, end = value, from+len(value)
	}
}

// isDelimiter reports whether a byte separates values in JSON, XML and forms.
func isDelimiter(c byte) bool {
	switch c {
	case ' ', '\t', '\r', '\n', '"', '\'', '<', '>', ',', '{', '}', '[', ']', '(', ')', '&', '=', ';':
		return true
	}
	return c < ' '
}

// state adds the access of an HTTP request to a store. It knows the APIs of Vitrine's own
// store and of Nudsf_DataRepository (TS 29.598).
func (s *slot) state(method, target []byte) {
	path, query, _ := bytes.Cut(target, []byte("?"))
	var storage, key []byte
	if string(method) == "POST" && string(path) == "/kv" {
		s.batched, s.space = true, spaceOf(query)
		return
	}
	if rest, ok := bytes.CutPrefix(path, []byte("/kv/")); ok {
		key, s.space = rest, spaceOf(query)
	} else if rest, ok := bytes.CutPrefix(path, []byte("/nudsf-dr/")); ok {
		if i := bytes.Index(rest, []byte("/records/")); i >= 0 {
			_, storage, _ = bytes.Cut(rest[:i+1], []byte("/")) // REALM/STORAGE/, behind the version
			key = rest[i+len("/records/"):]
			if i := bytes.IndexByte(key, '/'); i >= 0 { // its meta data or a block of it
				key = key[:i]
			}
		}
	}
	if len(key) == 0 {
		return
	}
	write := true
	switch string(method) {
	case "GET", "HEAD", "OPTIONS":
		write = false
	}
	from := len(s.text)
	s.text = appendDecoded(s.text, storage)
	behind := len(s.text) - from
	s.text = appendDecoded(s.text, key)
	a := s.access(from, write)
	if a == nil {
		return
	}
	for len(query) > 0 {
		var name, value []byte
		name, value, query = parameter(query)
		if string(name) == "ttl" {
			a.Lifetime = lifetime(value)
		}
	}
	s.scan(a.Key.Text[min(behind, len(a.Key.Text)):]) // the storage is the same for all users
}

// spaceOf returns a hash of the namespace that a query of Vitrine's store names, or 0 if it names none.
func spaceOf(query []byte) uint64 {
	for len(query) > 0 {
		var name, value []byte
		if name, value, query = parameter(query); string(name) == "space" && len(value) > 0 {
			return hashOf(value)
		}
	}
	return 0
}

// access adds an access. Its key is the text appended since from. It returns nil if the key
// is empty or the message has too many identifiers.
func (s *slot) access(from int, write bool) *Access {
	id := s.identify(Key, hashAddr(s.m.Dst.Addr())+s.space, from)
	if id == nil {
		return nil
	}
	s.m.Access = append(s.m.Access, Access{Store: s.m.To, Key: *id, Write: write})
	return &s.m.Access[len(s.m.Access)-1]
}

// batch adds the accesses of a batch of Vitrine's store: POST /kv with a list of changes
// (docs/store.md). A body that was cut off after maxScan bytes counts up to there.
func (s *slot) batch(body []byte) {
	d := json.NewDecoder(bytes.NewReader(body))
	for t, err := d.Token(); t != json.Delim('['); t, err = d.Token() { // before the changes
		if err != nil {
			return
		}
	}
	for d.More() {
		var c change
		err := c.read(d)
		if c.key != "" {
			from := len(s.text)
			s.text = append(s.text, c.key...)
			if a := s.access(from, c.op != "check"); a != nil {
				a.Bytes, a.Lifetime = base64.StdEncoding.DecodedLen(len(c.value)), lifetime([]byte(c.ttl))
			}
		}
		if err != nil {
			return
		}
	}
}

// A change is an element of a batch.
type change struct{ op, key, value, ttl string }

// read reads a change. After an error, such as the end of a body that was cut off, the
// fields before it are set.
func (c *change) read(d *json.Decoder) error {
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return cmp.Or(err, errChange)
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		value, err := d.Token()
		if err != nil {
			return err
		}
		text, _ := value.(string)
		switch name {
		case "op":
			c.op = text
		case "key":
			c.key = text
		case "value":
			c.value = text
		case "ttl":
			c.ttl = text
		}
	}
	_, err := d.Token()
	return err
}

var errChange = errors.New("message: a change of a batch is no object")

// lifetime reads a ttl of Vitrine's store: seconds, or a duration such as 90s. It returns 0
// for a text that is neither, and for a negative duration, which the store refuses.
func lifetime(text []byte) time.Duration {
	if seconds, ok := parseDigits(text); ok {
		return time.Duration(min(seconds, math.MaxInt32)) * time.Second
	}
	d, _ := time.ParseDuration(string(text)) // 0 with an error; the string allocates
	return max(d, 0)
}
