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
	SCTP = "sctp" // S1AP's standard transport; needs SCTP in the kernel
)

// Describe returns a description of a transport for reports and logs.
func Describe(transport string) string {
	if transport == SCTP {
		return "SCTP"
	}
	return frame.Transport
}

// ListenSCTP listens for SCTP associations. Their connections read and write frames,
// as TCP connections do. Without SCTP in the kernel, the error is a
// *vitrine.Unsupported.
func ListenSCTP(at netip.AddrPort) (net.Listener, error) {
	l, err := sctp.Listen(at)
	if err != nil {
		return nil, err
	}
	return l, nil
}
