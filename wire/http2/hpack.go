package http2

import (
	"errors"
)

// A Field is a field of a head or of trailers. Its slices are views, which are
// valid until the next call of the decoder.
type Field struct {
	// Name is nil if it refers to an unknown entry of the dynamic table. Value
	// is nil if it does, too. An empty value is not nil.
	Name, Value []byte
	Sensitive   bool // never indexed (RFC 7541 section 6.2.3)
}

// Bounds of a decoded header block. One octet of a block may stand for a field
// of thousands of octets. Fields above the first two bounds change the dynamic
// table, but are not reported. The decoder rejects a block above the third
// bound.
const (
	maxFields = 1 << 10     // real heads have less than 100
	maxText   = 2 * maxHead // octets that are decoded or copied
	maxCopied = 1 << 20     // octets, including names that are copied within the table
)

// Errors in header blocks, which are wrapped into ErrBlock.
var (
	errInteger = errors.New("integer is cut or too large") // RFC 7541 section 5.1
	errString  = errors.New("string is cut")               // section 5.2
	errCode    = errors.New("invalid Huffman code")        // section 5.2
	errIndex   = errors.New("index without an entry")      // section 2.3.3
	errUpdate  = errors.New("size update behind a field")  // section 4.2
	errCopied  = errors.New("text above the bound")
)

// A blockDecoder decodes the header blocks of one direction (RFC 7541).
type blockDecoder struct {
	table   table
	fields  []Field // of the last block
	dropped int     // its fields above the bounds

	rest   []byte // of the block
	arena  []byte // text of fields that is not verbatim in the block
	copied int    // octets of the block so far
}

func newBlockDecoder() blockDecoder { return blockDecoder{table: newTable()} }

// decode decodes one block. After an error the table differs from the sender's.
func (d *blockDecoder) decode(block []byte) error {
	if d.arena == nil {
		d.arena = make([]byte, 0, 512)
	}
	d.fields, d.arena, d.dropped, d.copied, d.rest = d.fields[:0], d.arena[:0], 0, 0, block
	for isFirst := true; len(d.rest) > 0; {
		c := d.rest[0]
		if c&0xe0 == 0x20 {
			bound, err := d.integer(5)
			if err != nil {
				return err
			}
			if !isFirst {
				return errUpdate
			}
			d.table.resize(bound)
			continue
		}
		isFirst = false
		if err := d.field(c); err != nil {
			return err
		}
		if d.copied > maxCopied {
			return errCopied
		}
	}
	return nil
}

// field reads one field, which begins with c (RFC 7541 sections 6.1 and 6.2).
func (d *blockDecoder) field(c byte) error {
	before := len(d.arena)
	isFull := len(d.fields) == maxFields || before > maxText
	var f Field
	var err error
	switch {
	case c&0x80 != 0:
		f.Name, f.Value, err = d.indexed(7, !isFull, !isFull)
	case c&0x40 != 0:
		f, err = d.literal(6)
		if err == nil {
			d.table.insert(f.Name, f.Value)
		}
	default:
		f, err = d.literal(4)
		f.Sensitive = c&0x10 != 0
	}
	if err != nil {
		return err
	}
	if isFull || len(d.arena) > maxText {
		d.arena = d.arena[:before]
		d.dropped++
		return nil
	}
	d.fields = append(d.fields, f)
	return nil
}

// literal reads a field with a literal value. Its name is literal or an index.
func (d *blockDecoder) literal(prefix int) (f Field, err error) {
	if d.rest[0]&(1<<prefix-1) != 0 {
		f.Name, _, err = d.indexed(prefix, true, false)
	} else {
		d.rest = d.rest[1:]
		f.Name, err = d.text()
	}
	if err != nil {
		return f, err
	}
	f.Value, err = d.text()
	return f, err
}

// indexed reads an index and returns the name and the value of the entry, if
// they are wanted. It copies text of the dynamic table, because a later
// insertion of this block may move the text.
func (d *blockDecoder) indexed(prefix int, named, valued bool) (name, value []byte, err error) {
	i, err := d.integer(prefix)
	if err != nil {
		return nil, nil, err
	}
	if i == 0 {
		return nil, nil, errIndex
	}
	if i <= uint64(len(static)) {
		e := &static[i-1]
		return e.name, e.value, nil
	}
	name, value, ok := d.table.find(i - uint64(len(static)))
	if !ok {
		return nil, nil, errIndex
	}
	if named && name != nil {
		name = d.keep(name)
	}
	if valued && value != nil {
		value = d.keep(value)
	}
	return name, value, nil
}

func (d *blockDecoder) keep(text []byte) []byte {
	at := len(d.arena)
	d.arena = append(d.arena, text...)
	d.copied += len(text)
	return d.arena[at:len(d.arena):len(d.arena)]
}

// text reads a string (RFC 7541 section 5.2).
func (d *blockDecoder) text() ([]byte, error) {
	if len(d.rest) == 0 {
		return nil, errString
	}
	coded := d.rest[0]&0x80 != 0
	size, err := d.integer(7)
	if err != nil {
		return nil, err
	}
	if size > uint64(len(d.rest)) {
		return nil, errString
	}
	octets := d.rest[:size:size]
	d.rest = d.rest[size:]
	if !coded {
		return octets, nil
	}
	at := len(d.arena)
	var ok bool
	if d.arena, ok = appendHuffman(d.arena, octets); !ok {
		return nil, errCode
	}
	return d.arena[at:len(d.arena):len(d.arena)], nil
}

// integer reads an integer that begins in the low bits of an octet (RFC 7541
// section 5.1). It rejects more than 32 bits, because no valid integer is
// longer.
func (d *blockDecoder) integer(prefix int) (uint64, error) {
	const maxInteger, maxOctets = 1<<32 - 1, 9
	mask := uint64(1)<<prefix - 1
	v := uint64(d.rest[0]) & mask
	d.rest = d.rest[1:]
	if v < mask {
		return v, nil
	}
	for i, c := range d.rest {
		if i == maxOctets {
			break
		}
		v += uint64(c&0x7f) << (7 * i)
		if c&0x80 != 0 {
			continue
		}
		if v > maxInteger {
			break
		}
		d.rest = d.rest[i+1:]
		return v, nil
	}
	return 0, errInteger
}
