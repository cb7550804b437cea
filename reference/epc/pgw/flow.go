package pgw

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"vitrine/wire/gtpc"
	"vitrine/wire/nas"
)

// A dedicated bearer here carries the packets of one IP protocol to and from one port
// of one IPv4 address. S11 and S5 describe them by a traffic flow template (TS 24.008
// clause 10.5.6.12), Gx by an IPFilterRule (RFC 6733 clause 4.3.1, TS 29.212 clause
// 5.4.2).

// A flow identifies the packets of a dedicated bearer.
type flow struct {
	protocol uint8
	remote   netip.Addr
	port     uint16
}

func (f flow) String() string {
	return fmt.Sprintf("permit out %d from %v %d to assigned", f.protocol, f.remote, f.port)
}

// flowSize is the number of octets of a flow's components.
var flowSize = len(nas.AppendFlow(nil, 0, [4]byte{}, 0))

// describe returns, as text, the flow of a traffic aggregate description that requests
// a bearer. The error is a gtpc.Result.
func describe(tad []byte) (string, error) {
	t, ok := nas.ParseTFT(tad)
	if !ok || t.Operation != nas.CreateTFT || !t.Next() {
		return "", gtpc.Result{Cause: gtpc.TFTSyntactic, Offending: gtpc.TAD}
	}
	c := t.Components
	if t.Next() || t.Malformed {
		return "", gtpc.Result{Cause: gtpc.FiltersSyntactic, Offending: gtpc.TAD}
	}
	if len(c) == flowSize {
		f := flow{protocol: c[10], remote: netip.AddrFrom4([4]byte(c[1:])), port: binary.BigEndian.Uint16(c[flowSize-2:])}
		if string(nas.AppendFlow(nil, f.protocol, f.remote.As4(), f.port)) == string(c) {
			return f.String(), nil
		}
	}
	return "", gtpc.Result{Cause: gtpc.FiltersSemantic, Offending: gtpc.TAD} // other packet filter components
}

// deletes reports whether a traffic aggregate description deletes packet filters.
func deletes(tad []byte) bool {
	t, ok := nas.ParseTFT(tad)
	return ok && t.Operation == nas.DeleteFilters && t.Next() && !t.Next() && !t.Malformed
}

// template converts a rule's flows to a traffic flow template. The error is a
// gtpc.Result.
func template(flows []string) ([]byte, error) {
	const bidirectional, most = 3, 15
	var filters []nas.Filter
	for i, text := range flows {
		f, ok := parseFlow(text)
		if !ok || i == most {
			return nil, gtpc.Result{Cause: gtpc.FiltersSemantic, Offending: gtpc.BearerTFT}
		}
		filters = append(filters, nas.Filter{
			ID: uint8(i), Direction: bidirectional, Precedence: uint8(i), Components: nas.AppendFlow(nil, f.protocol, f.remote.As4(), f.port),
		})
	}
	if len(filters) == 0 {
		return nil, gtpc.Result{Cause: gtpc.TFTSemantic, Offending: gtpc.BearerTFT}
	}
	return nas.AppendTFT(nil, nas.CreateTFT, filters...), nil
}

// parseFlow parses an IPFilterRule in the format of flow.String.
func parseFlow(text string) (f flow, ok bool) {
	words := strings.Fields(text)
	if len(words) != 8 {
		return f, false
	}
	protocol, err := strconv.ParseUint(words[2], 10, 8)
	if err != nil {
		return f, false
	}
	remote, err := netip.ParseAddr(words[4])
	if err != nil || !remote.Is4() {
		return f, false
	}
	port, err := strconv.ParseUint(words[5], 10, 16)
	if err != nil {
		return f, false
	}
	f = flow{uint8(protocol), remote, uint16(port)}
	return f, f.String() == strings.Join(words, " ")
}
