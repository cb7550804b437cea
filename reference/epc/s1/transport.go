package s1

import (
	"net"
	"net/netip"

	"vitrine/internal/sctp"
	"vitrine/wire/s1ap/frame"
)

// The transports of S1AP.
const (
	TCP  = "tcp"  // frames over TCP
	SCTP = "sctp" // S1AP's own, where the kernel has it
)

// Describe returns the text about a transport for reports and logs.
func Describe(transport string) string {
	if transport == SCTP {
		return "SCTP"
	}
	return frame.Transport
}

// ListenSCTP listens for SCTP associations. What their connections read and write is
// frames, as on TCP. Without SCTP in the kernel the error is a *vitrine.Unsupported.
func ListenSCTP(at netip.AddrPort) (net.Listener, error) {
	l, err := sctp.Listen(at)
	if err != nil {
		return nil, err
	}
	return l, nil
}
