// Package truth logs every message that a function or a generator sends or receives,
// with the event that the message belongs to. The log is the ground truth for judging
// an analysis of captures.
//
// An event is a number that the function itself allocates. The function begins an event
// when a message requests something from it, and passes the event through its own
// control flow to every message that it sends as a consequence. No message carries the
// event. Each function numbers its events independently. If two functions log the same
// message, that message joins the sender's event and the receiver's event. The
// generator begins the network events and names them.
//
// All methods of a nil *Log do nothing and allocate nothing.
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

// An Event is an event of one function. Zero means that this function does not know the message's
// event. The function at the other end may know it.
type Event uint64

// A Line is one message in a log, as JSON.
type Line struct {
	At       int64          `json:"at"` // nanoseconds since 1970, when it was logged
	Function string         `json:"function"`
	Received bool           `json:"received,omitempty"` // false: sent
	Src      netip.AddrPort `json:"src"`
	Dst      netip.AddrPort `json:"dst"`
	Protocol string         `json:"protocol"`
	Name     string         `json:"name,omitempty"`
	Event    Event          `json:"event,omitempty"`
	Type     string         `json:"type,omitempty"` // type of the network event, if the function began it
	// Key identifies the message among the messages from Src to Dst in a capture. It is
	// a Hash, an Ordinal, an Identifier, or the number of a marked request.
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

// maxBytes limits the size of a log. Without a limit, traffic could fill a disk.
const maxBytes = 4 << 30

// ErrFull is the error of Close for a log that has reached its limit.
var ErrFull = errors.New("the log of messages is full")

// A Log is a file of lines. Its methods may be called concurrently.
type Log struct {
	function string
	last     atomic.Uint64
	marks    atomic.Uint64 // last number of Mark

	mu       sync.Mutex
	file     *os.File
	out      *bufio.Writer
	left     int64
	ordinals map[pair]uint64 // of the next HTTP message, by direction
	failed   error
}

// A pair is one direction between two addresses.
type pair struct{ src, dst netip.AddrPort }

// Open creates the log of a function. It returns nil if path is empty.
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

// write is separate from Write, because a Line then escapes to the heap only if it is logged.
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
		l.failed = err // never happens for this type
		return
	}
	b = append(b, '\n')
	l.left -= int64(len(b))
	if _, err := l.out.Write(b); err != nil && l.failed == nil {
		l.failed = fmt.Errorf("write the log of messages: %w", err)
	}
}

// Hash returns the key of a message, computed from its octets.
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

// Ordinal returns the key of the n-th HTTP message from one address to another, from 0.
// HTTP messages have no Hash, because a function does not see their octets.
func Ordinal(n uint64) string { return "#" + strconv.FormatUint(n, 10) }
