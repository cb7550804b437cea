// Package truth logs every message that a function or a generator sends or receives,
// with the event that it belongs to. So an analysis of captures can be judged.
//
// An event is a number that the function itself gives: it begins one for a message that
// asks it for something, and carries it through its own control flow to all that it
// sends because of that. No message has a mark of it. Two functions number their events
// independently; a message that both log joins the event of its sender with that of its
// receiver. The generator, which begins the network events, names them.
//
// All methods of a nil *Log do nothing, and allocate nothing.
package truth

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// An Event is an event of one function. Zero means that the function does not know
// which event a message belongs to; the other end may.
type Event uint64

// A Line is one message in a log, as JSON.
type Line struct {
	At       int64          `json:"at"` // nanoseconds since 1970, when it was logged
	Function string         `json:"function"`
	Received bool           `json:"received,omitempty"` // else it was sent
	Src      netip.AddrPort `json:"src"`
	Dst      netip.AddrPort `json:"dst"`
	Protocol string         `json:"protocol"`
	Name     string         `json:"name,omitempty"`
	Event    Event          `json:"event,omitempty"`
	Type     string         `json:"type,omitempty"` // of the network event, if the function begins it
	// Key finds the message among those from Src to Dst in a capture: Hash, Ordinal,
	// Identifier, or the number of a marked request.
	Key string `json:"key"`
}

// The protocols of lines.
const (
	SIP      = "sip"
	HTTP     = "http"
	Diameter = "diameter"
	GTP      = "gtp"
	S1AP     = "s1ap"
)

// maxBytes is where a log ends, so that traffic cannot fill a disk.
const maxBytes = 4 << 30

// ErrFull is the error of Close for a log that has reached its limit.
var ErrFull = errors.New("the log of messages is full")

// A Log is a file of lines. Its methods may be called concurrently.
type Log struct {
	function string
	last     atomic.Uint64
	marks    atomic.Uint64 // of Mark

	mu       sync.Mutex
	file     *os.File
	out      *bufio.Writer
	left     int64
	ordinals map[pair]uint64 // of HTTP messages
	failed   error
}

// A pair is a direction between two addresses.
type pair struct{ src, dst netip.AddrPort }

// Open makes a log of a function. It returns nil if path is empty.
func Open(path, function string) (*Log, error) {
	if path == "" {
		return nil, nil
	}
	file, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("open the log of messages: %w", err)
	}
	return &Log{
		function: function, file: file, out: bufio.NewWriterSize(file, 1<<16), left: maxBytes, ordinals: map[pair]uint64{},
	}, nil
}

// Close writes what is buffered and closes the file.
func (l *Log) Close() error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(l.failed, l.out.Flush(), l.file.Close())
}

// Begin begins an event.
func (l *Log) Begin() Event {
	if l == nil {
		return 0
	}
	return Event(l.last.Add(1))
}

// Write logs a message. The log sets At and Function.
func (l *Log) Write(m Line) {
	if l != nil {
		l.write(m)
	}
}

// write is apart from Write, so that a Line is on the heap only if it is logged.
func (l *Log) write(m Line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.append(&m)
}

// append writes a line. The caller holds mu.
func (l *Log) append(m *Line) {
	if l.left <= 0 {
		l.failed = ErrFull
		return
	}
	m.At, m.Function = time.Now().UnixNano(), l.function
	b, err := json.Marshal(m)
	if err != nil {
		l.failed = err // no value of this type fails to marshal
		return
	}
	b = append(b, '\n')
	l.left -= int64(len(b))
	if _, err := l.out.Write(b); err != nil && l.failed == nil {
		l.failed = fmt.Errorf("write the log of messages: %w", err)
	}
}

// Hash returns the key of a message by its octets.
func Hash(message []byte) string {
	h := fnv.New64a()
	_, _ = h.Write(message) // never fails
	return strconv.FormatUint(h.Sum64(), 16)
}

// Identifier returns the key of a Diameter message.
func Identifier(hopByHop uint32, request bool) string {
	kind := "answer "
	if request {
		kind = "request "
	}
	return kind + strconv.FormatUint(uint64(hopByHop), 16)
}

// Ordinal returns the key of the n-th HTTP message, from 0, from one address to
// another. HTTP messages have no octets where a function sees them.
func Ordinal(n uint64) string { return "#" + strconv.FormatUint(n, 10) }
