package http2

import (
	"encoding/binary"
	"fmt"
)

// Parameters iterates over the parameters of a SETTINGS frame in order. ID and
// Value belong to the parameter that Next reached.
type Parameters struct {
	ID    Setting
	Value uint32

	rest []byte
}

// Next moves to the next parameter and reports whether there is one.
func (p *Parameters) Next() bool {
	if len(p.rest) < 6 {
		return false
	}
	p.ID = Setting(binary.BigEndian.Uint16(p.rest))
	p.Value = binary.BigEndian.Uint32(p.rest[2:])
	p.rest = p.rest[6:]
	return true
}

// A Setting identifies a parameter of SETTINGS (section 6.5.2).
type Setting uint16

// The settings of RFC 9113, and the setting of RFC 8441.
const (
	HeaderTableSize       Setting = 1
	EnablePush            Setting = 2
	MaxConcurrentStreams  Setting = 3
	InitialWindowSize     Setting = 4
	MaxFrameSize          Setting = 5
	MaxHeaderListSize     Setting = 6
	EnableConnectProtocol Setting = 8
)

// A Code says why a stream or a connection ends (section 7).
type Code uint32

// The codes.
const (
	NoError Code = iota
	ProtocolError
	InternalError
	FlowControlError
	SettingsTimeout
	StreamClosed
	FrameSizeError
	RefusedStream
	Cancel
	CompressionError
	ConnectError
	EnhanceYourCalm
	InadequateSecurity
	HTTP11Required
)

// names are the names of the codes. It is read-only.
var names = [...]string{
	"no error", "protocol error", "internal error", "flow control error", "settings timeout", "stream closed", "frame size error",
	"refused stream", "cancel", "compression error", "connect error", "enhance your calm", "inadequate security", "HTTP/1.1 required",
}

func (c Code) String() string {
	if int64(c) < int64(len(names)) {
		return names[c]
	}
	return fmt.Sprintf("code %d", uint32(c))
}
