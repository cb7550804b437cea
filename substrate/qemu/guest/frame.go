// Package guest runs inside a virtual machine, as its first process and as an agent. The
// agent sets the machine up, runs commands in it and reads its counters, as the host
// requests over a virtio serial port. The package also has the protocol that both ends use.
package guest

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"sync"
)

// PortName is the name of the serial port.
const PortName = "vitrine.agent"

// A Kind is the type of a frame.
type Kind byte

// Kinds of frames, to the guest and from it.
const (
	KindRequest Kind = 'q' // to: a Request; an answer with the same number follows
	KindData    Kind = 'd' // to: bytes of the file that the request of that number writes

	KindHello  Kind = 'h' // from: the agent runs
	KindAnswer Kind = 'a' // from: an Answer
	KindStdout Kind = 'o' // from: standard output of the command of that number
	KindStderr Kind = 'e'
	KindExit   Kind = 'x' // from: an Exit; all output of the command itself came before
	KindClosed Kind = 'c' // from: no process of the command of that number can print any more
	KindUse    Kind = 'u' // from: a Reading
)

// MostPayload bounds a frame's payload, in bytes.
const MostPayload = 1 << 20

// A Frame is one message on the port: 4 bytes with the payload's length, 1 byte with its
// kind, 4 bytes with its number, and the payload. Both integers are big-endian.
type Frame struct {
	Kind    Kind
	Number  uint32 // of the request that the frame belongs to
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
		return Frame{}, fmt.Errorf("a truncated frame: %w", err)
	}
	return f, nil
}

// A Writer writes frames, from any goroutine.
type Writer struct {
	mu sync.Mutex
	w  io.Writer
}

// NewWriter returns a Writer to w.
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

// Requests, and the fields that each uses.
const (
	OpSetup  = "setup"  // Setup
	OpStart  = "start"  // Command; its number is the request's
	OpSignal = "signal" // Target, Signal: to the command's process group
	OpEnd    = "end"    // Target: kill all descendants of the command, and wait for their end
	OpPut    = "put"    // Path, Mode, Size: frames of data follow
	OpOwn    = "own"    // Path: make a link there to the agent's own program
	OpRemove = "remove" // Path: remove it, with all below
	OpHas    = "has"    // Path: fails if it does not exist
	OpOff    = "off"    // switch the machine off
)

// A Request is a request from the host to the agent.
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

// An Answer is the result of a request.
type Answer struct {
	Error string `json:"error,omitempty"` // empty: success
}

// A Setup is the machine's name and network configuration.
type Setup struct {
	Hostname  string  `json:"hostname"`
	MAC       string  `json:"mac,omitempty"` // of the interface to set up; empty: none
	Interface string  `json:"interface,omitempty"`
	Address   string  `json:"address,omitempty"` // with the prefix's length; empty: none
	MTU       int     `json:"mtu,omitempty"`
	Routes    []Route `json:"routes,omitempty"`
}

// A Route is a route of the machine; an empty Via: no gateway.
type Route struct {
	To  string `json:"to"`
	Via string `json:"via,omitempty"`
}

// A Command is a program to run.
type Command struct {
	Args []string `json:"args"`
	Env  []string `json:"env"`
	Dir  string   `json:"dir"`            // made if it does not exist
	User string   `json:"user,omitempty"` // USER or USER:GROUP of the guest; empty: root
}

// An Exit is how a command ended.
type Exit struct {
	Error       string `json:"error,omitempty"` // as Go prints it: "exit status 7"; empty: status 0
	OutOfMemory bool   `json:"out_of_memory,omitempty"`
}

// A Reading is the machine's own counters, from its kernel. They differ from the host's
// counters of the machine.
type Reading struct {
	CPU    float64 `json:"cpu"`    // seconds that its processors were busy since the start, summed
	Steal  float64 `json:"steal"`  // seconds that they waited for the host, if the accelerator reports it
	Memory uint64  `json:"memory"` // bytes in use: total minus available
	Rx     uint64  `json:"rx"`     // bytes received by its interfaces, lo excluded
	Tx     uint64  `json:"tx"`     // bytes sent
}
