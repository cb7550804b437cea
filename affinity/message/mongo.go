package message

import (
	"bytes"
	"encoding/binary"

	"vitrine/wire/mongo"
)

const (
	maxMongo  = 48_000_000 // bytes of a message that servers accept
	partMongo = 64 << 10   // bytes that are read of a message above maxFramed
)

// opCompressed is the code of OP_COMPRESSED, whose messages are not read.
const opCompressed mongo.Op = 2012

// frameMongo reads a message of MongoDB's protocol, or the beginning of a long one.
func (r *reading) frameMongo(x *half, data []byte) (int, error) {
	if x.slot != nil { // the rest of a long message
		n := min(x.left, len(data))
		r.restMongo(x, n)
		return n, nil
	}
	if len(data) < mongo.HeaderSize {
		return 0, nil
	}
	h, err := mongo.ParseHeader(data, maxMongo)
	if err != nil {
		return 0, err
	}
	part := h.Length
	if part > maxFramed {
		switch h.Op { // behind a gap, a false header must not hide up to 48 MB of messages
		case mongo.OpMsg, mongo.OpQuery, mongo.OpReply, opCompressed:
		default:
			return 0, mongo.ErrOp
		}
		part = partMongo
	}
	if len(data) < part {
		return 0, nil
	}
	c := x.conn
	if h.To == 0 && c.client < 0 {
		c.client = x.side
	}
	o := r.origin(x)
	s := r.slot(&o, Mongo)
	s.m.Bytes = h.Length
	document, item := mongoDocument(h, data[mongo.HeaderSize:part])
	if h.To != 0 {
		s.part, s.key, s.m.Kind, s.status = only, join(c.link, uint64(h.To)), Answer, plain
		if ok, found := bsonNumber(document, "ok"); found && ok == 0 {
			code, _ := bsonNumber(document, "code")
			s.m.Failed, s.m.Cause = true, r.code(Mongo, code)
		}
	} else {
		s.part, s.key = opens, join(c.link, uint64(h.ID))
		r.mongoCommand(s, document, item)
	}
	s.bson(document, 0)
	s.bson(item, 0)
	if x.left = h.Length - part; x.left > 0 {
		x.slot = s
	} else {
		r.commit(s)
	}
	return part, nil
}

// restMongo skips the next n bytes of a long message, and delivers it at its end.
func (r *reading) restMongo(x *half, n int) {
	if x.left -= n; x.left == 0 {
		x.slot.m.Time = x.at
		r.commit(x.slot)
		x.slot = nil
	}
}

// mongoDocument returns the document of a message, the command or the reply, and the first of the
// documents behind it, such as the updates of a command. Both are as far as body has them, and nil if
// the message has none or is malformed.
func mongoDocument(h mongo.Header, body []byte) (document, item []byte) {
	switch h.Op {
	case mongo.OpMsg:
		const flags = 4
		if len(body) > flags && body[flags] == 0 {
			document = cutDocument(body[flags+1:])
			item = cutSequence(body[flags+1+len(document):])
		}
	case mongo.OpQuery:
		const flags, numbers = 4, 8
		if len(body) > flags {
			if _, rest, ok := bytes.Cut(body[flags:], []byte{0}); ok && len(rest) > numbers {
				document = cutDocument(rest[numbers:])
			}
		}
	case mongo.OpReply:
		const before = 20 // flags, cursor, first document, count
		if len(body) > before {
			document = cutDocument(body[before:])
		}
	}
	return document, item
}

// cutSequence returns the first document of the sequence that b begins with: a section of OP_MSG that
// has its kind, its length and its name before the documents.
func cutSequence(b []byte) []byte {
	const kind, before = 1, 5
	if len(b) < before || b[0] != kind {
		return nil
	}
	_, documents, _ := bytes.Cut(b[before:], []byte{0})
	return cutDocument(documents)
}

// cutDocument returns the document that b begins with, as far as b has it.
func cutDocument(b []byte) []byte {
	if len(b) < 5 {
		return nil
	}
	n := binary.LittleEndian.Uint32(b)
	if n < 5 {
		return nil
	}
	return b[:min(uint64(n), uint64(len(b)))]
}

// bsonElements iterates over the elements of a document (bsonspec.org).
type bsonElements struct {
	rest  []byte
	kind  byte
	name  []byte
	value []byte
}

// elementsOf returns an iterator over a document that cutDocument returned.
func elementsOf(document []byte) bsonElements {
	if len(document) < 5 {
		return bsonElements{}
	}
	return bsonElements{rest: document[4 : len(document)-1]}
}

// next moves to the next element. It stops at types that do not occur in commands.
func (e *bsonElements) next() bool {
	if len(e.rest) < 2 {
		return false
	}
	e.kind = e.rest[0]
	name, rest, ok := bytes.Cut(e.rest[1:], []byte{0})
	if !ok {
		return false
	}
	size, known := 0, true
	switch e.kind {
	case 0x01, 0x09, 0x11, 0x12: // double, date, timestamp, int64
		size = 8
	case 0x02, 0x05, 0x0d: // string, binary, code
		size, known = prefixed(rest, 4)
		if e.kind == 0x05 {
			size++
		}
	case 0x03, 0x04: // document, array
		size, known = prefixed(rest, 0)
	case 0x06, 0x0a: // undefined, null
	case 0x07: // object id
		size = 12
	case 0x08: // boolean
		size = 1
	case 0x10: // int32
		size = 4
	default:
		known = false
	}
	if !known || size > len(rest) {
		return false
	}
	e.name, e.value, e.rest = name, rest[:size], rest[size:]
	return true
}

// prefixed returns the size of a value that begins with its length. from is the number of
// bytes that the length does not count.
func prefixed(b []byte, from int) (int, bool) {
	if len(b) < 4 {
		return 0, false
	}
	n := uint64(binary.LittleEndian.Uint32(b)) + uint64(from)
	return int(min(n, 1<<30)), n >= 4 && n <= uint64(len(b))
}

// bsonNumber returns the number of an element.
func bsonNumber(document []byte, name string) (int, bool) {
	for e := elementsOf(document); e.next(); {
		if string(e.name) != name {
			continue
		}
		switch e.kind {
		case 0x10:
			return int(int32(binary.LittleEndian.Uint32(e.value))), true
		case 0x12:
			return int(int64(binary.LittleEndian.Uint64(e.value))), true
		case 0x01:
			if binary.LittleEndian.Uint64(e.value) == 0 {
				return 0, true
			}
			return 1, true
		case 0x08:
			return int(e.value[0]), true
		}
	}
	return 0, false
}

// mongoCommand names a request by its command and collection, and adds the state that it
// reads or writes: a document, or the whole collection if no document is named.
func (r *reading) mongoCommand(s *slot, document, item []byte) {
	e := elementsOf(document)
	if !e.next() {
		s.m.Name = "(other)"
		return
	}
	w := &r.words
	w.scratch = append(w.scratch[:0], e.name...)
	collection := bsonString(&e)
	if collection != nil {
		w.scratch = append(append(w.scratch, ' '), collection...)
	}
	s.m.Name = w.intern(Mongo, w.scratch)
	write, reads := false, false
	switch string(e.name) {
	case "insert", "update", "delete":
		write = true
	case "findAndModify", "findandmodify":
		write, reads = true, true
	case "find", "aggregate", "count", "distinct":
	default:
		return
	}
	if collection == nil {
		return
	}
	key := mongoKey(document, item)
	from := len(s.text)
	s.text = append(s.text, collection...)
	if key != nil {
		s.text = append(append(s.text, '/'), key...)
	}
	if a := s.access(from, write); a != nil && write {
		a.Bytes, a.Reads = s.m.Bytes, reads
	}
}

// bsonString returns the text of an element that is a string, or nil.
func bsonString(e *bsonElements) []byte {
	if e.kind != 0x02 || len(e.value) < 5 {
		return nil
	}
	return e.value[4 : len(e.value)-1]
}

// mongoKey returns the text that names the document of a command: the first string in its filter, or
// the _id of a new document. Of several updates, deletions or new documents the first one counts. item
// is that one if it is behind the command.
func mongoKey(document, item []byte) []byte {
	for e := elementsOf(document); e.next(); {
		switch string(e.name) {
		case "filter", "query":
			return bsonFirst(cutDocument(e.value))
		case "updates", "deletes", "documents":
			if list := elementsOf(cutDocument(e.value)); list.next() {
				item = cutDocument(list.value)
			}
		}
	}
	for e := elementsOf(item); e.next(); {
		switch string(e.name) {
		case "q":
			return bsonFirst(cutDocument(e.value))
		case "_id":
			return bsonString(&e)
		}
	}
	return nil
}

// bsonFirst returns the first string of a document, or nil.
func bsonFirst(document []byte) []byte {
	for e := elementsOf(document); e.next(); {
		if text := bsonString(&e); text != nil {
			return text
		}
	}
	return nil
}

// bson adds the identities in a document.
func (s *slot) bson(document []byte, depth int) {
	const deepest = 4
	for e := elementsOf(document); e.next(); {
		switch {
		case (e.kind == 0x03 || e.kind == 0x04) && depth < deepest:
			s.bson(cutDocument(e.value), depth+1)
		case e.kind == 0x02:
			if text := bsonString(&e); text != nil {
				s.userKey(e.name, text)
			}
		}
	}
}
