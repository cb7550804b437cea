package mongo

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
)

func raw(t testing.TB, d bson.D) bson.Raw {
	t.Helper()
	b, err := bson.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// message returns a message with its header.
func message(op Op, body ...[]byte) []byte {
	b := make([]byte, HeaderSize)
	b = append(b, bytes.Join(body, nil)...)
	binary.LittleEndian.PutUint32(b, uint32(len(b)))
	binary.LittleEndian.PutUint32(b[4:], 7)
	binary.LittleEndian.PutUint32(b[12:], uint32(op))
	return b
}

func parse(b []byte) (r Request, err error) {
	h, err := ParseHeader(b, MaxMessage)
	if err != nil {
		return r, err
	}
	return r, r.Parse(h, b[HeaderSize:min(h.Length, len(b))])
}

// sequence returns a section of kind 1.
func sequence(name string, documents ...[]byte) []byte {
	b := append([]byte(name), 0)
	b = append(b, bytes.Join(documents, nil)...)
	return append(binary.LittleEndian.AppendUint32([]byte{1}, uint32(len(b)+4)), b...)
}

func TestParseReadsCommandsOfBothOperations(t *testing.T) {
	greeting := raw(t, bson.D{{Key: "isMaster", Value: int32(1)}})
	update := raw(t, bson.D{{Key: "update", Value: "subscribers"}})
	first, second := raw(t, bson.D{{Key: "q", Value: 1}}), raw(t, bson.D{{Key: "q", Value: 2}})
	numbers := make([]byte, 8)
	for _, c := range []struct {
		name    string
		message []byte
		command bson.Raw
		of      string
		follow  []bson.Raw
		silent  bool
	}{
		{"query", message(OpQuery, []byte{4, 0, 0, 0}, []byte("admin.$cmd\x00"), numbers, greeting), greeting, "", nil, false},
		{"query with a selection", message(OpQuery, make([]byte, 4), []byte("\x00"), numbers, greeting, first), greeting, "", nil, false},
		{"message", message(OpMsg, make([]byte, 4), []byte{0}, update), update, "", nil, false},
		{"silent message", message(OpMsg, []byte{2, 0, 0, 0}, []byte{0}, update), update, "", nil, true},
		{"message with a checksum", message(OpMsg, []byte{1, 0, 0, 0}, []byte{0}, update, []byte{1, 2, 3, 4}), update, "", nil, false},
		{"sequence behind", message(OpMsg, make([]byte, 4), []byte{0}, update, sequence("updates", first, second)), update, "updates", []bson.Raw{first, second}, false},
		{"sequence before", message(OpMsg, make([]byte, 4), sequence("updates", first), []byte{0}, update), update, "updates", []bson.Raw{first}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := parse(c.message)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(r.Command, c.command) || r.Name != c.of || r.Silent != c.silent || r.Header.ID != 7 {
				t.Errorf("got request %+v", r)
			}
			for _, want := range c.follow {
				if got := r.Next(); !bytes.Equal(got, want) {
					t.Errorf("next document: got %v, want %v", got, want)
				}
			}
			if got := r.Next(); got != nil {
				t.Errorf("got another document: %v", got)
			}
		})
	}
}

func TestParseRefusesMalformedMessages(t *testing.T) {
	command := raw(t, bson.D{{Key: "ping", Value: 1}})
	long := message(OpMsg)
	binary.LittleEndian.PutUint32(long, MaxMessage+1)
	for name, c := range map[string]struct {
		message []byte
		want    error
	}{
		"header cut":          {make([]byte, HeaderSize-1), ErrLength},
		"length of 15":        {append([]byte{15}, make([]byte, 15)...), ErrLength},
		"too long":            {long, ErrLength},
		"compressed":          {message(2012, command), ErrOp},
		"no flags":            {message(OpMsg, []byte{0}), ErrBody},
		"unknown flag":        {message(OpMsg, []byte{4, 0, 0, 0}, []byte{0}, command), ErrBody},
		"no section":          {message(OpMsg, make([]byte, 4)), ErrBody},
		"unknown section":     {message(OpMsg, make([]byte, 4), []byte{2}, command), ErrBody},
		"two commands":        {message(OpMsg, make([]byte, 4), []byte{0}, command, []byte{0}, command), ErrBody},
		"sequence alone":      {message(OpMsg, make([]byte, 4), sequence("updates", command)), ErrBody},
		"document cut":        {message(OpMsg, make([]byte, 4), []byte{0}, command[:len(command)-1]), ErrBody},
		"sequence of garbage": {message(OpMsg, make([]byte, 4), []byte{0}, command, sequence("updates", []byte{9})), ErrBody},
		"name without end":    {message(OpQuery, make([]byte, 4), []byte("admin")), ErrBody},
		"query cut":           {message(OpQuery, make([]byte, 4), []byte{0}, make([]byte, 7)), ErrBody},
	} {
		if _, err := parse(c.message); !errors.Is(err, c.want) {
			t.Errorf("%s: got error %v, want %v", name, err, c.want)
		}
	}
}

// TestReplyAnswersTheOperationOfTheRequest checks that the reply to a greeting has
// the operation that old clients expect.
func TestReplyAnswersTheOperationOfTheRequest(t *testing.T) {
	document := raw(t, bson.D{{Key: "ok", Value: 1.0}})
	for op, want := range map[Op]struct {
		op     Op
		before int // octets between the header and the document
	}{OpQuery: {OpReply, 20}, OpMsg: {OpMsg, 5}} {
		r := Request{Header: Header{ID: 5, Op: op}}
		b := r.AppendReply([]byte("xy"), 9, document)[2:]
		h, err := ParseHeader(b, MaxMessage)
		if err != nil || h != (Header{Length: len(b), ID: 9, To: 5, Op: want.op}) {
			t.Errorf("got header %+v, error %v", h, err)
		}
		if !bytes.Equal(b[HeaderSize+want.before:], document) {
			t.Errorf("got body % x", b[HeaderSize:])
		}
	}
}

// FuzzParse checks that a message is refused or all of it can be read.
func FuzzParse(f *testing.F) {
	command := raw(f, bson.D{{Key: "update", Value: "subscribers"}, {Key: "filter", Value: bson.D{{Key: "imsi", Value: "1"}}}})
	f.Add(message(OpMsg, make([]byte, 4), []byte{0}, command, sequence("updates", command, command)))
	f.Add(message(OpMsg, []byte{3, 0, 0, 0}, []byte{0}, command, make([]byte, 4)))
	f.Add(message(OpQuery, make([]byte, 4), []byte("admin.$cmd\x00"), make([]byte, 8), command))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parse(b)
		if err != nil {
			return
		}
		if len(r.Command)+len(r.Sequence) > len(b) {
			t.Errorf("%d octets of documents in a message of %d", len(r.Command)+len(r.Sequence), len(b))
		}
		if _, err := r.Command.Elements(); err != nil {
			t.Errorf("accepted command with bad elements: %v", err)
		}
		_, _ = r.Command.LookupErr("filter", "imsi")
		for d := r.Next(); d != nil; d = r.Next() {
			_, _ = d.LookupErr("u", "$set", "security.sqn")
		}
		if len(r.Sequence) > 0 {
			t.Errorf("%d octets of the sequence were not read", len(r.Sequence))
		}
	})
}
