package message

import (
	"bytes"
	"errors"
	"strconv"

	"github.com/cespare/xxhash/v2"

	"vitrine/wire/sip"
)

// sipDatagram reads the SIP messages of a datagram.
func (r *reading) sipDatagram(o *origin, data []byte, missing int) {
	for len(data) > 0 {
		data = data[r.sipMessage(o, data, missing):]
	}
}

// sipMessage reads the SIP message that data begins with, and returns its length. Bytes that begin
// no other message belong to it. If the capture cut the body, the header is enough.
func (r *reading) sipMessage(o *origin, data []byte, missing int) int {
	m := &r.decoders.sip
	n, err := m.Parse(data)
	if err == nil && looksSIP(data[n:]) {
		missing = 0 // only the last message lacks bytes
	} else {
		n = len(data)
	}
	if missing > 0 && errors.Is(err, sip.ErrLength) && bytes.Contains(data, endOfHeader) {
		// The body is shorter than Content-Length says; the header is whole.
		if m.Salvage(data) {
			err = nil
			m.SequenceMethod = m.Method
		}
	}
	o.hash = hashOf(data[:n])
	switch {
	case errors.Is(err, sip.ErrEmpty):
	case err != nil:
		r.counts.unread(SIP, err, missing)
	default:
		r.sip(o, m, n+missing)
	}
	return n
}

// sip delivers a parsed message.
func (r *reading) sip(o *origin, m *sip.Message, size int) {
	s := r.slot(o, SIP)
	s.m.Bytes = size
	branch, _ := sip.Param(m.Via, "branch")
	call := xxhash.Sum64(m.CallID)
	s.part, s.key = closes, sipKey(o, m, branch, call)
	method := r.words.intern(SIP, m.SequenceMethod)
	if m.IsRequest() {
		s.part, s.m.Name = opens, method
		if method == "ACK" {
			s.m.Kind = Notice
			s.key = join(s.key, s.hash)
		}
	} else {
		s.m.Kind = Answer
		s.m.Name = r.answerName(SIP, m.Status, method)
		if m.Status > 100 && m.Status < 200 {
			s.part = rings
		}
		if m.Status >= 300 {
			s.m.Cause = r.code(SIP, m.Status)
		}
		switch m.Status {
		case 401, 407, 494: // a challenge is not a failure: it asks for another round (RFC 3261 section 22, RFC 3329)
		default:
			s.m.Failed = m.Status >= 400
		}
	}
	r.sipIdentifiers(s, m, branch, call)
	r.commit(s)
}

// sipKey returns the key that a request and its answers share at one hop (RFC 3261 section
// 17.1.3; section 17.2.3 for branches of RFC 2543).
func sipKey(o *origin, m *sip.Message, branch []byte, call uint64) uint64 {
	ends := hashPair(hashAddr(o.src.Addr()), hashAddr(o.dst.Addr()))
	key := join(ends, xxhash.Sum64(m.SequenceMethod))
	if bytes.HasPrefix(branch, []byte(sip.BranchCookie)) {
		return join(key, xxhash.Sum64(branch))
	}
	tag, _ := sip.Param(m.From, "tag")
	return join(join(key, call), join(xxhash.Sum64(tag), uint64(m.Sequence)))
}

// plain is the status of answers in protocols without a status.
const plain = -1

// answerName returns the name of an answer, such as "200 REGISTER" or "GET reply".
func (r *reading) answerName(p Protocol, status int, request string) string {
	w := &r.words
	w.scratch = w.scratch[:0]
	if status != plain {
		w.scratch = strconv.AppendInt(w.scratch, int64(status), 10)
	}
	if request != "" {
		w.scratch = append(append(w.scratch, ' '), request...)
	}
	if status == plain {
		w.scratch = append(w.scratch, " reply"...)
	}
	return w.intern(p, bytes.TrimLeft(w.scratch, " "))
}

// code returns the text of a status or cause.
func (r *reading) code(p Protocol, n int) string {
	w := &r.words
	w.scratch = strconv.AppendInt(w.scratch[:0], int64(n), 10)
	return w.intern(p, w.scratch)
}

var (
	asserted  = []byte("\nP-Asserted-Identity:")
	preferred = []byte("\nP-Preferred-Identity:")
	service   = []byte("\nP-Served-User:")
	vendor    = []byte("\nP-")
)

func (r *reading) sipIdentifiers(s *slot, m *sip.Message, branch []byte, call uint64) {
	s.add(CallID, 0, m.CallID)
	if len(branch) > 0 {
		s.add(Branch, 0, branch)
	}
	s.user(m.From)
	s.user(m.To)
	if tag, ok := sip.Param(m.From, "tag"); ok {
		s.add(Tag, call, tag)
	}
	tag, dialog := sip.Param(m.To, "tag")
	if dialog {
		s.add(Tag, call, tag)
	}
	if m.IsRequest() && !dialog && bytes.IndexByte(m.URI, '@') > 0 { // within a dialog the request URI is a contact
		s.public(m.URI)
	}
	if m.Authorization != nil {
		if name := sip.Unquote(sip.AuthParam(m.Authorization, "username")); len(name) > 0 {
			s.person(IMPI, name)
		}
	}
	if bytes.Contains(m.Header, vendor) {
		for _, name := range [...][]byte{asserted, preferred, service} {
			if i := bytes.Index(m.Header, name); i >= 0 {
				value := m.Header[i+len(name):]
				if end := bytes.IndexByte(value, '\r'); end >= 0 {
					value = value[:end]
				}
				first, _ := sip.CutElement(bytes.TrimLeft(value, " \t"))
				s.user(first)
			}
		}
	}
}

// user adds the user of a From, To or similar value.
func (s *slot) user(value []byte) {
	uri := sip.Address(value)
	if bytes.IndexByte(uri, '@') > 0 || bytes.HasPrefix(uri, []byte("tel:")) {
		s.public(uri)
	}
}
