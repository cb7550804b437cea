// Package guest is what runs inside a virtual machine: its first process, and
// an agent that sets the machine up, runs commands in it and reads its own
// counters, at the bidding of the host at the other end of a virtio serial port.
// The words that both ends use are here too.
package guest

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"sync"
)

// PortName is the serial port's.
const PortName = "vitrine.agent"

// A Kind says what a frame is.
type Kind byte

// Frames to the guest, and from it.
const (
	KindRequest Kind = 'q' // to: a Request; an answer with the same number follows
	KindData    Kind = 'd' // to: bytes of the file that the request of that number puts

	KindHello  Kind = 'h' // from: the agent is there
	KindAnswer Kind = 'a' // from: an Answer
	KindStdout Kind = 'o' // from: what the command of that number printed
	KindStderr Kind = 'e'
	KindExit   Kind = 'x' // from: an Exit; all that the command itself printed came before
	KindClosed Kind = 'c' // from: nothing of the command of that number can print any more
	KindUse    Kind = 'u' // from: a Reading
)

// MostPayload bounds a frame's payload, in bytes.
const MostPayload = 1 << 20

// A Frame is what passes the port: 4 bytes of the payload's length, its kind,
// 4 bytes of number, both big-endian, and the payload.
type Frame struct {
	Kind    Kind
	Number  uint32 // of the request that it belongs to
	Payload []byte
}

const headerSize = 9

// ReadFrame reads the next frame.
func ReadFrame(r *bufio.Reader) (Frame, error) {
	var header [headerSize]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return Frame{}, err
	}
	n := binary.BigEndian.Uint32(header[:4])
	if n > MostPayload {
		return Frame{}, fmt.Errorf("a frame of %d bytes: at most %d are allowed", n, MostPayload)
	}
	f := Frame{Kind: Kind(header[4]), Number: binary.BigEndian.Uint32(header[5:]), Payload: make([]byte, n)}
	_, err := io.ReadFull(r, f.Payload)
	if err != nil {
		return Frame{}, fmt.Errorf("a frame that is cut off: %w", err)
	}
	return f, nil
}

// A Writer writes frames, from any goroutine.
type Writer struct {
	mu sync.Mutex
	w  io.Writer
}

// NewWriter gives a Writer to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Frame writes one frame.
func (w *Writer) Frame(f Frame) error {
	buf := make([]byte, headerSize, headerSize+len(f.Payload))
	binary.BigEndian.PutUint32(buf, uint32(len(f.Payload)))
	buf[4] = byte(f.Kind)
	binary.BigEndian.PutUint32(buf[5:], f.Number)
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err := w.w.Write(append(buf, f.Payload...))
	return err
}

// Value writes a frame whose payload is the value as JSON.
func (w *Writer) Value(kind Kind, number uint32, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return w.Frame(Frame{Kind: kind, Number: number, Payload: text})
}

// What a Request asks for.
const (
	OpSetup  = "setup"  // Setup
	OpStart  = "start"  // Command; its number is the request's
	OpSignal = "signal" // Target, Signal: to the command's process group
	OpEnd    = "end"    // Target: end all that descends from the command, and wait for it
	OpPut    = "put"    // Path, Mode, Size: frames of data follow
	OpOwn    = "own"    // Path: a link there to the agent's own program
	OpRemove = "remove" // Path, and all below
	OpHas    = "has"    // Path: fails when it is not there
	OpOff    = "off"    // switch the machine off
)

// A Request is what the host asks of the agent.
type Request struct {
	Op      string   `json:"op"`
	Setup   *Setup   `json:"setup,omitempty"`
	Command *Command `json:"command,omitempty"`
	Target  uint32   `json:"target,omitempty"`
	Signal  int      `json:"signal,omitempty"`
	Path    string   `json:"path,omitempty"`
	Mode    uint32   `json:"mode,omitempty"` // permission bits
	Dir     bool     `json:"dir,omitempty"`  // put a folder
	Size    int64    `json:"size,omitempty"`
}

// An Answer is how a request went.
type Answer struct {
	Error string `json:"error,omitempty"` // empty: well
}

// A Setup is who and where the machine is.
type Setup struct {
	Hostname  string  `json:"hostname"`
	MAC       string  `json:"mac,omitempty"` // of the interface to set up; empty: none
	Interface string  `json:"interface,omitempty"`
	Address   string  `json:"address,omitempty"` // with the prefix's length; empty: none
	MTU       int     `json:"mtu,omitempty"`
	Routes    []Route `json:"routes,omitempty"`
}

// A Route is one of the machine; an empty Via: without gateway.
type Route struct {
	To  string `json:"to"`
	Via string `json:"via,omitempty"`
}

// A Command is a program to run.
type Command struct {
	Args []string `json:"args"`
	Env  []string `json:"env"`
	Dir  string   `json:"dir"` // made if it is not there
}

// An Exit is how a command ended.
type Exit struct {
	Error       string `json:"error,omitempty"` // as Go says it: "exit status 7"; empty: status 0
	OutOfMemory bool   `json:"out_of_memory,omitempty"`
}

// A Reading is the machine's own counters, as its kernel keeps them: never the
// same as what the host sees of it.
type Reading struct {
	CPU    float64 `json:"cpu"`    // seconds that its processors were busy since it started, all together
	Steal  float64 `json:"steal"`  // seconds that they waited for the host, where the accelerator tells
	Memory uint64  `json:"memory"` // bytes in use: all but what is available
	Rx     uint64  `json:"rx"`     // bytes received by its interfaces, lo excluded
	Tx     uint64  `json:"tx"`     // bytes sent
}
