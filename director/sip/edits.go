package sip

import "bytes"

// mostEdits is how many places of one message are changed at most.
const mostEdits = 16

// An edit puts with in the place of the bytes from at to end.
type edit struct {
	at, end int
	with    []byte
}

// edits are the changes to one message. The message is not copied: what comes
// out is a list of views of it and of what is put in.
type edits struct {
	data  []byte
	list  [mostEdits]edit
	n     int
	full  bool // more were asked for
	parts [2*mostEdits + 1][]byte
}

func (e *edits) reset(data []byte) { e.data, e.n, e.full = data, 0, false }

// offset is where a view of the message begins.
func (e *edits) offset(view []byte) int { return cap(e.data) - cap(view) }

// end is where a view of the message ends.
func (e *edits) end(view []byte) int { return e.offset(view) + len(view) }

// lineEnd is where the line after that of the view begins.
func (e *edits) lineEnd(view []byte) int {
	end := e.end(view)
	return end + bytes.IndexByte(e.data[end:], '\n') + 1
}

// lineStart is where the line of the view begins.
func (e *edits) lineStart(view []byte) int {
	return bytes.LastIndexByte(e.data[:e.offset(view)], '\n') + 1
}

func (e *edits) insert(at int, with []byte) { e.replace(at, at, with) }
func (e *edits) cut(at, end int)            { e.replace(at, end, nil) }
func (e *edits) replace(at, end int, with []byte) {
	if e.n == mostEdits {
		e.full = true
		return
	}
	i := e.n
	for i > 0 && e.list[i-1].at > at {
		e.list[i] = e.list[i-1]
		i--
	}
	e.list[i] = edit{at, end, with}
	e.n++
}

// compose gives the parts of the message from start to end as edited.
func (e *edits) compose(start, end int) [][]byte {
	parts := e.parts[:0]
	for _, d := range e.list[:e.n] {
		if d.at > start {
			parts = append(parts, e.data[start:d.at])
		}
		if len(d.with) > 0 {
			parts = append(parts, d.with)
		}
		start = max(start, d.end)
	}
	if end > start {
		parts = append(parts, e.data[start:end])
	}
	return parts
}
