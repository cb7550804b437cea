// Package mongo reads requests and builds replies of MongoDB's wire protocol:
// OP_MSG, and OP_QUERY, which carries a client's greeting. The specification is
// https://www.mongodb.com/docs/manual/reference/mongodb-wire-protocol.
// Documents are BSON, in the types of package bson.
package mongo

import (
	"bytes"
	"encoding/binary"
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// HeaderSize is the number of octets before the body of a message.
const HeaderSize = 16

// MaxMessage is the longest message that a server of subscribers accepts, in
// octets. Requests for one subscriber have some hundred octets. MongoDB itself
// accepts 48,000,000.
const MaxMessage = 64 << 10

// The errors of messages. After such a message, the connection cannot be read
// on.
var (
	ErrLength = errors.New("mongo: message is shorter than its header or too long")
	ErrOp     = errors.New("mongo: operation is neither OP_MSG nor OP_QUERY")
	ErrBody   = errors.New("mongo: message is malformed")
)

// An Op is the code of an operation.
type Op uint32

// The operations.
const (
	OpReply Op = 1
	OpQuery Op = 2004
	OpMsg   Op = 2013
)

// A Header is the header of a message.
type Header struct {
	Length int // of the message with its header, in octets
	ID     uint32
	To     uint32 // ID of the request that is answered
	Op     Op
}

// ParseHeader reads a header, which b must hold. It refuses a message of more than
// most octets.
func ParseHeader(b []byte, most int) (h Header, err error) {
	if len(b) < HeaderSize {
		return h, ErrLength
	}
	n := binary.LittleEndian.Uint32(b)
	if n < HeaderSize || uint64(n) > uint64(most) {
		return h, ErrLength
	}
	return Header{
		Length: int(n), ID: binary.LittleEndian.Uint32(b[4:]),
		To: binary.LittleEndian.Uint32(b[8:]), Op: Op(binary.LittleEndian.Uint32(b[12:])),
	}, nil
}

// The flags of OP_MSG.
const (
	checksumPresent = 1 << 0
	moreToCome      = 1 << 1
	known           = 1<<16 - 1 // unknown flags among these bits are an error, others are not
)

// A Request is a command. Its parts are views into the message.
type Request struct {
	Header  Header
	Command bson.Raw // its first element names the command
	// Name and Sequence are a document sequence: the name of the command's
	// element that it stands for, and the documents one after another.
	Name     string
	Sequence []byte
	Silent   bool // the client expects no reply
}

// Parse reads the body of a message. It checks the elements of the documents
// themselves, but not of the documents inside them; these are checked when they
// are read.
func (r *Request) Parse(h Header, body []byte) error {
	*r = Request{Header: h}
	switch h.Op {
	case OpQuery:
		return r.parseQuery(body)
	case OpMsg:
		return r.parseMsg(body)
	}
	return ErrOp
}

// parseQuery reads flags, the name of a collection, two numbers and a document.
// It ignores a selection of fields that may follow.
func (r *Request) parseQuery(b []byte) error {
	const flags, numbers = 4, 8
	if len(b) < flags {
		return ErrBody
	}
	_, b, ok := bytes.Cut(b[flags:], []byte{0})
	if !ok || len(b) < numbers {
		return ErrBody
	}
	r.Command, _, ok = document(b[numbers:])
	if !ok {
		return ErrBody
	}
	return nil
}

// parseMsg reads flags and sections: one document, and at most one sequence of them.
func (r *Request) parseMsg(b []byte) error {
	if len(b) < 4 {
		return ErrBody
	}
	flags := binary.LittleEndian.Uint32(b)
	b = b[4:]
	if flags&known&^(checksumPresent|moreToCome) != 0 {
		return ErrBody
	}
	if flags&checksumPresent != 0 {
		if len(b) < 4 {
			return ErrBody
		}
		b = b[:len(b)-4] // TCP has a checksum of its own
	}
	r.Silent = flags&moreToCome != 0
	for len(b) > 0 {
		kind := b[0]
		rest, ok := r.section(kind, b[1:])
		if !ok {
			return ErrBody
		}
		b = rest
	}
	if r.Command == nil {
		return ErrBody
	}
	return nil
}

// section reads one section and returns the octets after it.
func (r *Request) section(kind byte, b []byte) (rest []byte, ok bool) {
	switch {
	case kind == 0 && r.Command == nil:
		r.Command, rest, ok = document(b)
		return rest, ok
	case kind == 1 && r.Sequence == nil:
		const size = 4
		n, ok := length(b)
		if !ok {
			return nil, false
		}
		name, documents, ok := bytes.Cut(b[size:n], []byte{0})
		if !ok {
			return nil, false
		}
		r.Name, r.Sequence = string(name), documents
		for len(documents) > 0 {
			if _, documents, ok = document(documents); !ok {
				return nil, false
			}
		}
		return b[n:], true
	}
	return nil, false
}

// Next returns the next document of the sequence, or nil after the last one.
func (r *Request) Next() bson.Raw {
	d, rest, ok := document(r.Sequence)
	if !ok {
		return nil
	}
	r.Sequence = rest
	return d
}

// length reads the length at the start of b, which includes itself.
func length(b []byte) (n int, ok bool) {
	if len(b) < 4 {
		return 0, false
	}
	size := binary.LittleEndian.Uint32(b)
	if size < 4 || uint64(size) > uint64(len(b)) {
		return 0, false
	}
	return int(size), true
}

// document splits off the document at the start of b.
func document(b []byte) (d bson.Raw, rest []byte, ok bool) {
	n, ok := length(b)
	if !ok {
		return nil, nil, false
	}
	d = bson.Raw(b[:n:n])
	return d, b[n:], d.Validate() == nil
}

// AppendReply appends the reply to a request: the document, in the reply
// operation for the request's operation.
func (r *Request) AppendReply(b []byte, id uint32, document bson.Raw) []byte {
	start := len(b)
	b = append(b, 0, 0, 0, 0) // length
	b = binary.LittleEndian.AppendUint32(b, id)
	b = binary.LittleEndian.AppendUint32(b, r.Header.ID)
	if r.Header.Op == OpQuery {
		const awaitCapable = 8
		b = binary.LittleEndian.AppendUint32(b, uint32(OpReply))
		b = binary.LittleEndian.AppendUint32(b, awaitCapable)
		b = append(b, make([]byte, 12)...) // cursor, first document
		b = binary.LittleEndian.AppendUint32(b, 1)
	} else {
		b = binary.LittleEndian.AppendUint32(b, uint32(OpMsg))
		b = append(b, 0, 0, 0, 0, 0) // flags, kind of the section
	}
	b = append(b, document...)
	binary.LittleEndian.PutUint32(b[start:], uint32(len(b)-start))
	return b
}
