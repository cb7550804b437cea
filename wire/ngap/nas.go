package ngap

import (
	"encoding/binary"
	"errors"
	"strconv"
)

// The errors of ParseNAS.
var (
	ErrNASShort         = errors.New("ngap: NAS message shorter than its header")            // TS 24.501 clause 7.2.1
	ErrNASDiscriminator = errors.New("ngap: NAS message of a protocol other than 5GMM")      // TS 24.501 clause 9.2
	ErrNASSecurity      = errors.New("ngap: NAS message of an unknown security header type") // TS 24.501 clause 9.3
)

// mobility is the extended protocol discriminator of 5GMM (TS 24.007 clause
// 11.2.3.1A).
const mobility = 0x7e

// A Security is a security header type (TS 24.501 clause 9.3).
type Security uint8

// The security header types.
const (
	Plain               Security = 0
	Protected           Security = 1 // integrity protected
	Ciphered            Security = 2 // integrity protected and ciphered
	ProtectedNewContext Security = 3 // Security mode command
	CipheredNewContext  Security = 4 // Security mode complete
)

// IsCiphered reports whether the body is ciphered. With 5G-EA0 a ciphered body
// is still readable.
func (s Security) IsCiphered() bool { return s == Ciphered || s == CipheredNewContext }

// A NAS is a 5GMM message as NGAP carries it (TS 24.501 clause 9.1.1).
type NAS struct {
	Security Security
	Sequence uint8  // low octet of the NAS COUNT, of protected messages
	Type     Type   // 0 if the body is ciphered, or is not a plain 5GMM message
	Body     []byte // a view: the plain or ciphered message
}

// ParseNAS parses a NAS PDU, and reads the type of a message that is not
// ciphered. With 5G-EA0, the body of a ciphered message is plain, too. So if a
// ciphered body begins with the header of a plain message and a known type,
// ParseNAS returns that type. One in half a million ciphered bodies looks so by
// chance.
func ParseNAS(pdu []byte) (n NAS, err error) {
	const plainHeader, securityHeader = 3, 7
	if len(pdu) < plainHeader {
		return n, ErrNASShort
	}
	if pdu[0] != mobility {
		return n, ErrNASDiscriminator
	}
	n.Security, n.Body = Security(pdu[1]&0x0f), pdu
	switch {
	case n.Security > CipheredNewContext:
		return NAS{}, ErrNASSecurity
	case n.Security != Plain:
		if len(pdu) < securityHeader {
			return NAS{}, ErrNASShort
		}
		n.Sequence, n.Body = pdu[securityHeader-1], pdu[securityHeader:]
	}
	if len(n.Body) >= plainHeader && binary.BigEndian.Uint16(n.Body) == mobility<<8 {
		if t := Type(n.Body[2]); !n.Security.IsCiphered() || t.isKnown() {
			n.Type = t
		}
	}
	return n, nil
}

// A Type is the type of a 5GMM message (TS 24.501 clause 9.7).
type Type uint8

// The types of 5GMM messages that begin or end a procedure of a UE.
const (
	RegistrationRequest    Type = 0x41
	RegistrationAccept     Type = 0x42
	RegistrationComplete   Type = 0x43
	RegistrationReject     Type = 0x44
	DeregistrationRequest  Type = 0x45 // by the UE
	DeregistrationAccept   Type = 0x46
	ServiceRequest         Type = 0x4c
	ServiceReject          Type = 0x4d
	ServiceAccept          Type = 0x4e
	AuthenticationRequest  Type = 0x56
	AuthenticationResponse Type = 0x57
	AuthenticationReject   Type = 0x58
	IdentityRequest        Type = 0x5b
	IdentityResponse       Type = 0x5c
	SecurityModeCommand    Type = 0x5d
	SecurityModeComplete   Type = 0x5e
	UplinkTransport        Type = 0x67
	DownlinkTransport      Type = 0x68
)

// firstType is the lowest type.
const firstType = 0x41

// types are the names in table 9.7.1 of TS 24.501, from firstType on.
var types = [...]string{
	65 - firstType:  "Registration request",
	66 - firstType:  "Registration accept",
	67 - firstType:  "Registration complete",
	68 - firstType:  "Registration reject",
	69 - firstType:  "Deregistration request (UE originating)",
	70 - firstType:  "Deregistration accept (UE originating)",
	71 - firstType:  "Deregistration request (UE terminated)",
	72 - firstType:  "Deregistration accept (UE terminated)",
	76 - firstType:  "Service request",
	77 - firstType:  "Service reject",
	78 - firstType:  "Service accept",
	79 - firstType:  "Control plane service request",
	80 - firstType:  "Network slice-specific authentication command",
	81 - firstType:  "Network slice-specific authentication complete",
	82 - firstType:  "Network slice-specific authentication result",
	84 - firstType:  "Configuration update command",
	85 - firstType:  "Configuration update complete",
	86 - firstType:  "Authentication request",
	87 - firstType:  "Authentication response",
	88 - firstType:  "Authentication reject",
	89 - firstType:  "Authentication failure",
	90 - firstType:  "Authentication result",
	91 - firstType:  "Identity request",
	92 - firstType:  "Identity response",
	93 - firstType:  "Security mode command",
	94 - firstType:  "Security mode complete",
	95 - firstType:  "Security mode reject",
	100 - firstType: "5GMM status",
	101 - firstType: "Notification",
	102 - firstType: "Notification response",
	103 - firstType: "UL NAS transport",
	104 - firstType: "DL NAS transport",
}

func (t Type) isKnown() bool {
	return t >= firstType && int(t)-firstType < len(types) && types[t-firstType] != ""
}

// String returns the name in table 9.7.1 of TS 24.501. It allocates only for
// types without a name here.
func (t Type) String() string {
	if t.isKnown() {
		return types[t-firstType]
	}
	return "5GMM message " + strconv.Itoa(int(t))
}
