package correlate

import (
	"strings"

	"vitrine/affinity/message"
)

// A name is the name of a message, with the properties that the protocol gives to such
// messages.
type name struct {
	text        string
	kind        string // the type of a transaction that it begins
	open        bool   // the type of a transaction that it begins depends on the messages that follow
	bearer      bool   // it creates a bearer
	begins      bool   // it begins a transaction, unless a request that its sender has to answer caused it
	radio       bool   // like begins, but a UE or eNodeB sends it of its own accord, even if it has a request to answer
	renews      bool   // like begins, but after a challenge it continues the transaction
	challenge   bool   // it asks for credentials
	provisional bool   // the final answer follows
	rings       bool   // a call rings, or waits otherwise: the final answer may follow minutes later
	established bool   // it accepts a call
	bye         bool   // it ends a call
	alive       bool   // it keeps a path alive
	pages       bool   // its receiver reacts with a message that otherwise begins a transaction
	command     bool   // a command of GTPv2: a request of its receiver answers it
	executes    bool   // such a request
}

type nameKey struct {
	protocol message.Protocol
	text     string
}

// names interns the names of messages.
type names struct {
	index map[nameKey]int32
	list  []name
}

func (n *names) of(m *message.Message) int32 {
	key := nameKey{m.Protocol, m.Name}
	at, ok := n.index[key]
	if !ok {
		at = int32(len(n.list))
		n.list = append(n.list, newName(m.Protocol, m.Name))
		n.index[key] = at
	}
	return at
}

func newName(p message.Protocol, text string) name {
	n := name{text: text, kind: typeOf(p, text)}
	if p == message.SIP {
		n.sip(text)
		return n
	}
	plain := simplify(text)
	n.pages, n.bearer, n.open = plain == "paging", plain == "createbearerrequest", plain == "reauthrequest"
	n.alive = keepsAlive(plain)
	switch plain { // TS 29.274 clause 7.6
	case "modifybearercommand", "deletebearercommand", "bearerresourcecommand":
		n.command = true
	case "createbearerrequest", "updatebearerrequest", "deletebearerrequest":
		n.executes = true
	}
	for _, begin := range radioBeginnings() {
		n.begins = n.begins || strings.Contains(plain, begin)
	}
	// A Detach or Deregistration Request of the network may have its cause in a request to the MME or AMF.
	n.radio = n.begins && !strings.HasPrefix(plain, "downlinknastransport")
	for _, begin := range beginnings() {
		n.begins = n.begins || strings.Contains(plain, begin)
	}
	return n
}

// sip sets the properties of a SIP message from its name: a method, or a status and the
// method that it answers.
func (n *name) sip(text string) {
	status, method, _ := strings.Cut(text, " ")
	if len(status) == 3 && status[0] >= '1' && status[0] <= '6' {
		n.provisional = status[0] == '1'
		n.rings = n.provisional && status != "100" && strings.HasPrefix(method, "INVITE")
		n.challenge = status == "401" || status == "407" || status == "494" // RFC 3261 section 22, RFC 3329
		n.established = status[0] == '2' && strings.HasPrefix(method, "INVITE")
		return
	}
	switch status {
	case "ACK", "PRACK", "UPDATE", "INFO", "CANCEL", "NOTIFY": // within an existing dialog or transaction
	case "BYE":
		n.bye = true
	default:
		n.renews = true
	}
}

// radioBeginnings returns parts of the names of messages by which a UE or eNodeB begins a
// procedure of its own accord (TS 24.301 clause 5, TS 24.501, TS 36.413 clause 8).
func radioBeginnings() []string {
	return []string{
		"initialuemessage", "attachrequest", "detachrequest", "servicerequest", "trackingareaupdaterequest",
		"registrationrequest", "deregistrationrequest",
		"pathswitchrequest", "handoverrequired", "uecontextreleaserequest",
	}
}

// keepsAlive reports whether a message asks if a path is alive, or answers that: TS 29.274
// clause 7.1, TS 29.244 clause 6.2.2, RFC 6733 section 5.5. The name is simplified.
func keepsAlive(plain string) bool {
	switch plain {
	case "echorequest", "echoresponse", "heartbeatrequest", "heartbeatresponse", "devicewatchdogrequest", "devicewatchdoganswer":
		return true
	}
	return false
}

// beginnings returns parts of the names of messages by which the network begins a
// procedure. They begin a transaction although they name a session. A function that
// receives one may send another one because of it.
func beginnings() []string {
	return []string{
		"reauthrequest", "abortsessionrequest", // Diameter, from the server
		"insertsubscriberdatarequest", "cancellocationrequest", "pushprofilerequest", "registrationterminationrequest",
		"createbearerrequest", "updatebearerrequest", "deletebearerrequest", // GTPv2, from the P-GW
		"modifybearercommand", "deletebearercommand", "bearerresourcecommand", "downlinkdatanotification", "downlinkdata",
	}
}

// simplify removes case and punctuation.
func simplify(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			return r
		}
		return -1
	}, text)
}

// typeOf names the type of a transaction by the message that begins it, as the built-in
// call flows do.
func typeOf(p message.Protocol, text string) string {
	if p == message.SIP {
		method, _, _ := strings.Cut(text, " ")
		return label(method)
	}
	plain := simplify(text)
	for _, known := range [][2]string{
		{"deregistrationrequest", "DEREGISTRATION"}, {"registrationrequest", "REGISTRATION"},
		{"attachrequest", "ATTACH"}, {"detachrequest", "DETACH"}, {"trackingareaupdaterequest", "TAU"}, {"servicerequest", "SR"},
		{"pathswitchrequest", "HANDOVER"}, {"handoverrequired", "HANDOVER"},
		{"uecontextreleaserequest", "S1-RELEASE"}, {"createbearerrequest", "BEARER-CRT"}, {"downlinkdatanotification", "PAGING"},
	} {
		if strings.Contains(plain, known[0]) {
			return known[1]
		}
	}
	return label(text)
}

// final returns the type of a transaction that is over.
func final(c *Correlator, e *Event) string {
	if !c.names.list[e.Steps[0].Name].open {
		return e.kind
	}
	for i := range e.Steps {
		if n := &c.names.list[e.Steps[i].Name]; n.bearer {
			return typeOf(message.GTPv2, n.text)
		}
	}
	return e.kind
}

// label makes the name of a type from the name of a message. It keeps letters, digits and
// -_./+, which call-flow files allow.
func label(text string) string {
	const allowed, longest = "-_./+", 40
	var b strings.Builder
	gap := false
	for _, r := range text {
		ok := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune(allowed, r)
		if !ok {
			gap = b.Len() > 0
			continue
		}
		if gap && b.Len() < longest-1 {
			b.WriteByte('-')
		}
		gap = false
		if b.Len() == longest {
			break
		}
		b.WriteRune(r)
	}
	if b.Len() == 0 {
		return "OTHER"
	}
	return strings.ToUpper(strings.TrimRight(b.String(), "-/"))
}
