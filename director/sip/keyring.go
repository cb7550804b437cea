package sip

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/dchest/siphash"

	"vitrine/wire/sip"
)

// A SigningKey is one key of a Keyring. It signs and verifies the director's own entries in
// messages.
type SigningKey struct {
	ID     uint8
	Secret [16]byte
	Via    bool // it verifies Via
	Route  bool // it verifies Record-Route and Path
}

// A Keyring is the set of keys in force. It is immutable. Directors side by side use the
// same keys.
type Keyring struct {
	signer *signingKey
	keys   [256]signingKey // by ID
}

type signingKey struct {
	id         uint64
	k0, k1     uint64
	via, route bool
}

// NewKeyring returns a Keyring; the first key signs.
func NewKeyring(keys []SigningKey) (*Keyring, error) {
	if len(keys) == 0 {
		return nil, fmt.Errorf("no key signs: want at least one")
	}
	r := new(Keyring)
	for _, k := range keys {
		if r.keys[k.ID].id != 0 || k.ID == 0 {
			return nil, fmt.Errorf("key %d: want IDs from 1 to 255, each once", k.ID)
		}
		r.keys[k.ID] = signingKey{
			id: uint64(k.ID), k0: binary.LittleEndian.Uint64(k.Secret[:8]), k1: binary.LittleEndian.Uint64(k.Secret[8:]),
			via: k.Via, route: k.Route,
		}
	}
	r.signer = &r.keys[keys[0].ID]
	return r, nil
}

// randomKeyring returns a Keyring with a random key, which only this process has.
func randomKeyring() (*Keyring, error) {
	key := SigningKey{ID: 1, Via: true, Route: true}
	_, _ = rand.Read(key.Secret[:]) // never fails (crypto/rand)
	return NewKeyring([]SigningKey{key})
}

const (
	// macName is the Via parameter of the MAC.
	macName = "vm"
	// macSize is the length of the parameter in hexadecimal digits: the key's ID and a
	// SipHash-2-4 of 128 bits.
	macSize = 4 + 32
)

// The bytes that a MAC covers begin with one of these, so that a MAC from Via does
// not verify in Route, and a MAC from Route does not verify in Via.
const (
	viaKind   = 'v'
	routeKind = 'r'
)

// find returns the key that a MAC names; nil if there is no MAC or no such key.
func (r *Keyring) find(mac []byte) *signingKey {
	if len(mac) != macSize {
		return nil
	}
	id, ok := parseHex(mac[:4])
	if !ok || id >= uint64(len(r.keys)) || r.keys[id].id != id || id == 0 {
		return nil
	}
	return &r.keys[id]
}

// append appends the key's ID and the MAC.
func (k *signingKey) append(b, over []byte) []byte {
	low, high := siphash.Hash128(k.k0, k.k1, over)
	return appendHex(appendHex(appendHex(b, k.id, 4), low, 16), high, 16)
}

// verify reports whether mac, which names this key, is the MAC of over. Its run time does
// not depend on how many digits are right.
func (k *signingKey) verify(mac, over []byte) bool {
	low, high := siphash.Hash128(k.k0, k.k1, over)
	givenLow, ok1 := parseHex(mac[4:20])
	givenHigh, ok2 := parseHex(mac[20:])
	return ok1 && ok2 && low^givenLow|high^givenHigh == 0
}

// A way is where a response goes. The MAC in Via covers it, together with the stamp.
type way struct {
	flow   netip.AddrPort // remote address of the connection that the request came on; invalid: UDP
	reply  netip.AddrPort
	counts bool // the request begins or ends a counted dialog
}

// viaInput returns the input of the MAC in Via. It consists of values, not of text,
// because proxies may rewrite a Via.
func (p *Proxy) viaInput(s *stamp, w *way) []byte {
	b := append(p.over[:0], viaKind, 0)
	if w.counts {
		b[1] = 1
	}
	b = binary.BigEndian.AppendUint32(b, s.head())
	b = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(b, s.transaction), s.loop)
	p.over = appendAddress(appendAddress(b, w.flow), w.reply)
	return p.over
}

// markInput returns the input of the MAC in Record-Route and Path. An inward entry is
// valid for its own dialog only, which Call-ID identifies. An outward entry, as in Path,
// is valid for any dialog, but counts only in requests from an instance.
func (p *Proxy) markInput(k *signingKey, m *routeMark, callID []byte) []byte {
	b := append(p.over[:0], routeKind, 0)
	if m.outward {
		b[1] = 1
	} else {
		b = binary.BigEndian.AppendUint64(b, siphash.Hash(k.k0, k.k1, callID))
	}
	b = binary.BigEndian.AppendUint16(b, m.id)
	b = append(binary.BigEndian.AppendUint16(b, uint16(len(m.flow))), m.flow...)
	p.over = append(b, m.typeName...)
	return p.over
}

// appendAddress appends 18 bytes: the IP address (IPv4 as mapped into IPv6) and the port;
// zeros if a is invalid.
func appendAddress(b []byte, a netip.AddrPort) []byte {
	var ip [16]byte
	if a.IsValid() {
		ip = a.Addr().As16()
	}
	return binary.BigEndian.AppendUint16(append(b, ip[:]...), a.Port())
}

// replyOf returns where the response to a request with the Via v goes. That is the source
// IP address. Over UDP, the port is the source port if the client asks for that (rport);
// otherwise it is the port in sent-by (RFC 3261 section 18.2.2, RFC 3581 section 4). maddr
// is ignored.
func replyOf(v *sip.ViaHop, from netip.AddrPort, stream bool) netip.AddrPort {
	if v.RPort != nil && !stream {
		return from
	}
	return netip.AddrPortFrom(from.Addr(), cmp.Or(v.Port, sip.DefaultPort))
}

// readReply recovers the result of replyOf from the parameters that received wrote into the
// Via. ok is false if the Via does not contain them.
func readReply(v *sip.ViaHop, stream bool) (a netip.AddrPort, ok bool) {
	host := v.Host
	if len(v.Received) > 0 {
		host = v.Received
	}
	addr, ok := sip.ParseHost(host)
	port := cmp.Or(v.Port, sip.DefaultPort)
	if ok && v.RPort != nil && !stream {
		port, ok = sip.ParsePort(v.RPort)
	}
	return netip.AddrPortFrom(addr, port), ok
}
