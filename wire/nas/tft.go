package nas

import "encoding/binary"

// A TFTOperation says what a traffic flow template does (TS 24.008 table 10.5.162).
type TFTOperation uint8

// The operations used here.
const (
	CreateTFT     TFTOperation = 1
	DeleteFilters TFTOperation = 5
)

// A Filter is a packet filter. A filter to delete has only an identifier.
type Filter struct {
	ID         uint8 // 0 to 15
	Direction  uint8 // 1 downlink, 2 uplink, 3 both
	Precedence uint8 // 0 is evaluated first
	Components []byte
}

// The types of components (TS 24.008 table 10.5.162).
const (
	RemoteIPv4       = 0x10 // address and mask
	ProtocolNumber   = 0x30
	SingleRemotePort = 0x50
)

// A TFT is a traffic flow template or a traffic flow aggregate (TS 24.008
// clause 10.5.6.12). It iterates over the packet filters that the operation
// adds, replaces or deletes. Filter belongs to the filter that Next reached.
type TFT struct {
	Operation TFTOperation
	Filter
	Malformed bool // Next stopped before the end

	rest []byte
	left int
}

// ParseTFT returns an iterator over the filters of a template. It returns false if the
// value is empty or its operation is reserved.
func ParseTFT(v []byte) (t TFT, ok bool) {
	if len(v) == 0 {
		return t, false
	}
	t.Operation, t.left, t.rest = TFTOperation(v[0]>>5), int(v[0]&0x0f), v[1:]
	return t, t.Operation != 0 && t.Operation != 7
}

// Next moves to the next filter and reports whether there is one.
func (t *TFT) Next() bool {
	if t.left == 0 || t.Malformed {
		return false
	}
	t.left--
	if len(t.rest) == 0 {
		return t.fail()
	}
	t.Filter = Filter{ID: t.rest[0] & 0x0f}
	if t.Operation == DeleteFilters {
		t.rest = t.rest[1:]
		return true
	}
	if len(t.rest) < 3 || int(t.rest[2]) > len(t.rest)-3 {
		return t.fail()
	}
	end := 3 + int(t.rest[2])
	t.Direction, t.Precedence, t.Components = t.rest[0]>>4&0x03, t.rest[1], t.rest[3:end:end]
	t.rest = t.rest[end:]
	return true
}

func (t *TFT) fail() bool {
	t.rest, t.Malformed = nil, true
	return false
}

// AppendTFT appends a template: an operation and at most 15 filters.
func AppendTFT(b []byte, o TFTOperation, filters ...Filter) []byte {
	if len(filters) > 0x0f {
		panic("nas: a traffic flow template has at most 15 packet filters")
	}
	b = append(b, byte(o)<<5|byte(len(filters)))
	for _, f := range filters {
		if o == DeleteFilters {
			b = append(b, f.ID&0x0f)
			continue
		}
		b = append(b, f.Direction&0x03<<4|f.ID&0x0f, f.Precedence)
		b = appendLV(b, f.Components)
	}
	return b
}

// AppendFlow appends the components of the packets of an IP protocol to and from a
// port of one IPv4 address.
func AppendFlow(b []byte, protocol uint8, remote [4]byte, port uint16) []byte {
	b = append(append(b, RemoteIPv4), remote[:]...)
	b = append(b, 0xff, 0xff, 0xff, 0xff, ProtocolNumber, protocol, SingleRemotePort)
	return binary.BigEndian.AppendUint16(b, port)
}
