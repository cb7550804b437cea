// Package message finds the messages of network functions in packet captures: requests,
// answers and notices of signalling protocols, who sent them to which function, when,
// and which users, sessions and state they name.
//
// It recognises protocols by the content of packets; ports are only a hint. It counts
// unrecognised traffic per pair of functions.
package message

import (
	"net/netip"
	"time"

	"vitrine/affinity/capture"
)

// A Message is one message between two functions. It is valid only during the call that
// delivers it; Name, Cause, From and To are interned and may be kept.
type Message struct {
	ID      uint64 // 1, 2, ... in the order of delivery
	Time    int64  // ns since 1970, at the first place that captured it
	SetBack bool   // a clock was set back since the message before, which may have a later time
	Arrived int64  // ns since 1970, at the last other place that captured it within 50 ms; 0: captured at one place
	Where   capture.Where

	Src, Dst netip.AddrPort // on SCTP of the association's first path, whichever path the message took
	// From and To are functions: the name in Options.Names, or the IP address, or
	// address:port where several functions share an address.
	From, To string

	Protocol Protocol
	Kind     Kind
	Name     string // such as "REGISTER", "200 REGISTER", "Update-Location-Request", "GET /impu/{}/reg"
	Failed   bool   // an answer that reports failure
	Cause    string // the code of an answer, such as "404" or "DIAMETER_ERROR_USER_UNKNOWN"; empty for success
	Bytes    int    // of the message itself

	// Answers is the ID of the request of an answer, or of the first transmission of a
	// Repeat. 0: none, or it is not in the capture.
	Answers uint64

	Identifiers []Identifier // valid until return
	Access      []Access     // valid until return
}

// A Protocol is the protocol of a message.
type Protocol uint8

// The protocols.
const (
	Unknown Protocol = iota
	SIP
	Diameter
	GTPv2
	PFCP
	S1AP
	NGAP
	HTTP  // HTTP/1
	HTTP2 // with HPACK
	Redis
	Mongo
	protocols = iota
)

var protocolNames = [protocols]string{"unknown", "SIP", "Diameter", "GTPv2", "PFCP", "S1AP", "NGAP", "HTTP", "HTTP2", "Redis", "MongoDB"}

func (p Protocol) String() string { return protocolNames[p] }

// A Kind is the role of a message in an exchange.
type Kind uint8

// The kinds of messages.
const (
	Request Kind = iota
	Answer
	Notice // gets no answer
	Repeat // retransmission of the message Answers
)

func (k Kind) String() string { return [...]string{"request", "answer", "notice", "repeat"}[k] }

// An Identifier is a value in a message that names a user, a session, an exchange or a
// record.
type Identifier struct {
	Kind IdentifierKind
	// Hash covers kind, scope and value. Equal hashes mean the same thing, also across
	// protocols.
	Hash uint64
	Text []byte // the value, normalised; valid until return
	// Lasting is true for the name of a user or of a long-lived session, and false for one
	// dialog or one exchange.
	Lasting bool
}

// An IdentifierKind says what an identifier names, and in which scope it is unique.
type IdentifierKind uint8

// The kinds of identifiers.
const (
	CallID          IdentifierKind = iota // SIP
	Branch                                // SIP: of the top Via; a transaction
	Tag                                   // SIP: of From and To, in the dialog's Call-ID
	IMPU                                  // public identity: user@domain or digits
	IMPI                                  // private identity: user@realm
	SessionID                             // Diameter: Session-Id
	HopByHop                              // Diameter, on its connection
	EndToEnd                              // Diameter, of the command: the same on all hops
	IMSI                                  // digits
	MSISDN                                // digits
	GUTI                                  // GUTI or S-TMSI, by MME code and M-TMSI
	MMEUEID                               // S1AP: MME UE S1AP ID, on its association
	ENBUEID                               // S1AP: eNB UE S1AP ID, on its association
	AMFUEID                               // NGAP: AMF UE NGAP ID, on its association
	RANUEID                               // NGAP: RAN UE NGAP ID, on its association
	TEID                                  // GTP: tunnel endpoint, of the address that owns it
	EBI                                   // EPS bearer identity, of its tunnel endpoint
	SEID                                  // PFCP: session endpoint, of the address that owns it
	Sequence                              // GTPv2 or PFCP: sequence number between two endpoints
	StreamID                              // HTTP/2: stream on its connection
	UserKey                               // another key of a user in a path, query or JSON value
	Key                                   // of a store: Redis key, document id
	AddressUE                             // IP address of a UE
	identifierKinds = iota
)

var identifierNames = [identifierKinds]string{"Call-ID", "branch", "tag", "IMPU", "IMPI", "Session-Id", "hop-by-hop", "end-to-end",
	"IMSI", "MSISDN", "GUTI", "MME-UE-S1AP-ID", "eNB-UE-S1AP-ID", "AMF-UE-NGAP-ID", "RAN-UE-NGAP-ID", "TEID", "EBI", "SEID",
	"sequence", "stream", "user-key", "key", "UE-address"}

func (k IdentifierKind) String() string { return identifierNames[k] }

// An Access is a read or a write of a key in a store that functions share.
type Access struct {
	Store    string // the function that keeps the state, interned
	Key      Identifier
	Write    bool
	Reads    bool          // a write that also returns or uses the old value
	Lifetime time.Duration // of the written value; 0: not given
	Bytes    int           // of the written value, or of the whole command in MongoDB; 0 for a read
}
