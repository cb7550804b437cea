package pseudonym

import (
	"net/netip"
	"strings"

	"vitrine/affinity/message"
)

// user is the class of all names of users. So an IMSI and the IMPI that begins with it have
// the same pseudonym, and so have an MSISDN and a telephone number in a URI.
const user = "user"

// Identifier returns the pseudonym of an identifier.
func (k *Key) Identifier(kind message.IdentifierKind, text string) string {
	return k.identifier(kind.String(), text)
}

func (k *Key) identifier(kind, text string) string {
	switch kind {
	case message.IMPU.String(), message.IMPI.String(), message.IMSI.String(), message.MSISDN.String(), message.UserKey.String():
		return k.person(text)
	case message.AddressUE.String():
		return k.Function(text)
	}
	return k.text(kind, text)
}

// Named returns the pseudonym of an identifier that follows the name of its kind, as in
// correlate.Explanation.
func (k *Key) Named(text string) string {
	kind, value, _ := strings.Cut(text, " ")
	return kind + " " + k.identifier(kind, value)
}

// person returns the pseudonym of user@domain, or of digits. The domain has its own
// pseudonym, because it may identify a person or be an address.
func (k *Key) person(text string) string {
	name, domain, ok := strings.Cut(text, "@")
	hidden := k.text(user, strings.TrimPrefix(name, "+"))
	if !ok {
		return hidden
	}
	if at := k.Function(domain); at != domain {
		return hidden + "@" + at
	}
	return hidden + "@" + k.text("domain", domain)
}

// Function returns the pseudonym of an address, or of the address in address:port. It
// leaves other text unchanged. The pseudonym is an address in the documentation range (RFC
// 3849), so that programs that expect an address can read it.
func (k *Key) Function(text string) string {
	if addr, err := netip.ParseAddr(text); err == nil {
		return k.addr(addr).String()
	}
	if end, err := netip.ParseAddrPort(text); err == nil {
		return k.end(end).String()
	}
	return text
}

// addr returns the pseudonym of an address.
func (k *Key) addr(addr netip.Addr) netip.Addr {
	b := [16]byte{0x20, 0x01, 0x0d, 0xb8}
	copy(b[8:], k.hash("address", addr.Unmap().String()))
	return netip.AddrFrom16(b)
}

// end returns the pseudonym of an address and port. It keeps the port, which shows the
// protocol.
func (k *Key) end(end netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(k.addr(end.Addr()), end.Port())
}

// Message replaces all identities in a message. No later reader may need the real
// identities.
func (k *Key) Message(m *message.Message) {
	m.Src, m.Dst = k.end(m.Src), k.end(m.Dst)
	m.Name = k.Name(m.Protocol, m.Name)
	for i := range m.Identifiers {
		id := &m.Identifiers[i]
		id.Text = []byte(k.Identifier(id.Kind, string(id.Text)))
	}
	for i := range m.Access {
		key := &m.Access[i].Key
		key.Text = []byte(k.Identifier(key.Kind, string(key.Text)))
	}
}
