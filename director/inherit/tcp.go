// Package inherit takes over listening sockets from the process before, so that a restart
// of the director loses no connection that waits in one.
package inherit

import (
	"fmt"
	"net"
	"net/netip"
	"os"

	"vitrine/internal/sctp"
)

// ListenTCP takes over the inherited listener of an address, or opens a new one.
// Descriptors of other sockets stay as they are.
func ListenTCP(address netip.AddrPort, inherited []*os.File) (*net.TCPListener, error) {
	for _, file := range inherited {
		if sctp.Is(file) {
			continue
		}
		l, err := net.FileListener(file) // duplicates the descriptor; fails if the file is not a listener
		if err != nil {
			continue
		}
		if tcp, ok := l.(*net.TCPListener); ok && tcp.Addr().(*net.TCPAddr).AddrPort() == address {
			return tcp, nil
		}
		if err := l.Close(); err != nil {
			return nil, fmt.Errorf("close inherited listener %v: %w", l.Addr(), err)
		}
	}
	network := "tcp6"
	if address.Addr().Is4() {
		network = "tcp4"
	}
	return net.ListenTCP(network, net.TCPAddrFromAddrPort(address))
}

// ListenSCTP is like ListenTCP, for SCTP.
func ListenSCTP(address netip.AddrPort, inherited []*os.File) (*sctp.Listener, error) {
	for _, file := range inherited {
		l, ok := sctp.Inherit(file)
		if !ok {
			continue
		}
		if l.Addr().(*net.TCPAddr).AddrPort() == address {
			return l, nil
		}
		if err := l.Close(); err != nil {
			return nil, fmt.Errorf("close inherited listener %v: %w", l.Addr(), err)
		}
	}
	return sctp.Listen(address)
}
