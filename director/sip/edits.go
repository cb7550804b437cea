package sip

import "bytes"

// maxEdits is the maximum number of edits in one message.
const maxEdits = 16

// An edit replaces the bytes from at to end.
type edit struct {
	at, end int
	with    []byte
}

// edits are the changes to one message. The message is not copied: compose returns views
// of the message and of the inserted texts.
type edits struct {
	data  []byte
	list  [maxEdits]edit
	n     int
	full  bool // an edit was refused
	parts [2*maxEdits + 1][]byte
}

func (e *edits) reset(data []byte) { e.data, e.n, e.full = data, 0, false }

// offset returns where a view of the message begins.
func (e *edits) offset(view []byte) int { return cap(e.data) - cap(view) }

// end returns where a view of the message ends.
func (e *edits) end(view []byte) int { return e.offset(view) + len(view) }

// lineEnd returns where the line after the view's line begins.
func (e *edits) lineEnd(view []byte) int {
	end := e.end(view)
	return end + bytes.IndexByte(e.data[end:], '\n') + 1
}

// lineStart returns where the view's line begins.
func (e *edits) lineStart(view []byte) int {
	return bytes.LastIndexByte(e.data[:e.offset(view)], '\n') + 1
}

func (e *edits) insert(at int, with []byte) { e.replace(at, at, with) }
func (e *edits) cut(at, end int)            { e.replace(at, end, nil) }
func (e *edits) replace(at, end int, with []byte) {
	if e.n == maxEdits {
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

// compose returns the parts of the edited message from start to end.
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
