package message

import (
	"bytes"
	"encoding/binary"
	"errors"

	"vitrine/wire/diameter"
	"vitrine/wire/mongo"
	s1frame "vitrine/wire/s1ap/frame"
	"vitrine/wire/sip"
)

var errFrame = errors.New("s1: frame of a protocol other than S1AP")

// looksFrame reports whether data begins with a frame of S1AP over TCP, in the format of
// package wire/s1ap/frame.
func looksFrame(data []byte) verdict {
	if len(data) < s1frame.HeaderSize+1 {
		if len(data) >= 8 && binary.BigEndian.Uint32(data[4:]) != ppidS1AP || data[0] != 0 {
			return no
		}
		return more
	}
	n := binary.BigEndian.Uint32(data)
	kind := data[s1frame.HeaderSize] &^ 0x60
	if n == 0 || n > s1frame.MaxMessage || binary.BigEndian.Uint32(data[4:]) != ppidS1AP || data[10]|data[11] != 0 || kind != 0 {
		return no
	}
	return yes
}

// looksMongo reports whether data begins with a header of MongoDB's protocol. The first
// messages of a connection are short. So until the protocol is known, the bound is low, and
// fewer other streams look like MongoDB.
func looksMongo(data []byte, x *half) verdict {
	most := mongo.MaxMessage
	if x.conn.protocol == Mongo {
		most = maxFramed
	}
	if len(data) < mongo.HeaderSize {
		if len(data) >= 4 {
			if n := int(binary.LittleEndian.Uint32(data)); n < mongo.HeaderSize || n > most {
				return no
			}
		}
		return more
	}
	h, err := mongo.ParseHeader(data, most)
	if err != nil || h.Op != mongo.OpMsg && h.Op != mongo.OpQuery && h.Op != mongo.OpReply {
		return no
	}
	return yes
}

// looksLike returns the protocol of a stream, recognised by the first bytes of a direction.
func looksLike(data []byte, x *half) (Protocol, verdict) {
	undecided := no
	for _, p := range [...]Protocol{SIP, HTTP, Diameter, S1AP, HTTP2, Redis, Mongo} {
		switch begins(p, data, x) {
		case yes:
			return p, yes
		case more:
			undecided = more
		}
	}
	const enough = 64 // bytes that are enough to recognise any binary protocol
	if undecided == more && len(data) >= enough && (data[0] < ' ' || data[0] > '~') {
		return Unknown, no
	}
	return Unknown, undecided
}

// begins reports whether data begins with a message of a protocol.
func begins(p Protocol, data []byte, x *half) verdict {
	switch p {
	case SIP:
		return looksText(bytes.TrimLeft(data, "\r\n"), sipVersion, 0)
	case HTTP:
		return looksText(data, httpVersion, 1)
	case Diameter:
		return looksDiameter(data)
	case S1AP:
		return looksFrame(data)
	case Mongo:
		return looksMongo(data, x)
	case Redis:
		return looksRedis(data, x)
	case HTTP2:
		return looksHTTP2(data)
	}
	return no
}

// resync looks for the start of a message after lost bytes. It returns how many bytes to
// drop.
func (r *reading) resync(x *half, data []byte) (n int, found bool) {
	p := x.conn.protocol
	if p == HTTP2 { // its decoder resynchronises itself
		return 0, true
	}
	for n < len(data) {
		if p == SIP { // begins would skip the same line ends at each of them
			if n = len(data) - len(bytes.TrimLeft(data[n:], "\r\n")); n == len(data) {
				return n, false
			}
		}
		switch begins(p, data[n:], x) {
		case yes:
			return n, true
		case more:
			if len(data)-n < maxLine {
				return n, false
			}
		}
		step := candidate(p, data[n+1:])
		if step < 0 {
			return len(data), false
		}
		n += 1 + step
	}
	return n, false
}

// candidate returns where the next message may begin in data, or -1.
func candidate(p Protocol, data []byte) int {
	switch p {
	case SIP, HTTP, Redis:
		if i := bytes.IndexByte(data, '\n'); i >= 0 {
			return i + 1
		}
		return -1
	case Diameter:
		return bytes.IndexByte(data, 1)
	case S1AP:
		return bytes.IndexByte(data, 0)
	}
	if len(data) == 0 {
		return -1
	}
	return 0
}

// readFramed reads messages of protocols in which each message states its length.
func (r *reading) readFramed(x *half, data []byte) (n int, err error) {
	for n < len(data) && err == nil {
		k := 0
		switch x.conn.protocol {
		case SIP:
			k, err = r.frameSIP(x, data[n:])
		case Diameter:
			k, err = r.frameDiameter(x, data[n:])
		case S1AP:
			k, err = r.frameS1AP(x, data[n:])
		case Mongo:
			k, err = r.frameMongo(x, data[n:])
		}
		if err != nil {
			k = max(k, 1)
		}
		if k == 0 {
			break
		}
		n += k
	}
	return n, err
}

var endOfHeader = []byte("\r\n\r\n")

// frameSIP reads a message of SIP. It looks for the end of a header once, however the header
// arrives. With an error, it returns the length of the header.
func (r *reading) frameSIP(x *half, data []byte) (int, error) {
	if data[0] == '\r' || data[0] == '\n' { // keep-alives (RFC 5626 section 3.5.1)
		return len(data) - len(bytes.TrimLeft(data, "\r\n")), nil
	}
	if len(data) < x.need {
		return 0, nil
	}
	from := max(x.searched-len(endOfHeader)+1, 0)
	i := bytes.Index(data[from:], endOfHeader)
	if i < 0 {
		if len(data) > maxFramed {
			return len(data), sip.ErrHeader
		}
		x.searched = len(data)
		return 0, nil
	}
	n, err := sip.Length(data, maxFramed)
	if err != nil {
		return from + i + len(endOfHeader), err
	}
	if x.need = n; n > len(data) {
		return 0, nil
	}
	x.need, x.searched = 0, 0
	m := &r.decoders.sip
	if _, err := m.Parse(data[:n]); err != nil {
		r.counts.bad(SIP, reason(err)) // the length is known, so the next message can be read
		return n, nil
	}
	o := r.origin(x)
	o.hash = hashOf(data[:n]) // answers are repeated over TCP too (RFC 3261 section 13.3.1.4)
	r.sip(&o, m, n)
	return n, nil
}

func (r *reading) frameDiameter(x *half, data []byte) (int, error) {
	n, err := diameter.Frame(data, maxFramed)
	if n == 0 || err != nil {
		return 0, err
	}
	m := &r.decoders.diameter
	if _, err := m.Parse(data[:n]); err != nil {
		return 0, err
	}
	o := r.origin(x)
	r.diameter(&o, m)
	return n, nil
}

func (r *reading) frameS1AP(x *half, data []byte) (int, error) {
	if len(data) >= s1frame.HeaderSize && binary.BigEndian.Uint32(data[4:]) != ppidS1AP {
		return 0, errFrame
	}
	message, rest, err := s1frame.Cut(data)
	if message == nil {
		return 0, err
	}
	o := r.origin(x)
	r.s1ap(&o, message)
	return len(data) - len(rest), nil
}
