// Package inherit takes over listening sockets from the previous process, so that a restart
// of the director loses no connection in their backlogs.
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
	l, err := takeOver[*net.TCPListener](address, inherited, func(file *os.File) (net.Listener, bool) {
		if sctp.Is(file) { // package net would accept an SCTP socket as TCP
			return nil, false
		}
		l, err := net.FileListener(file) // duplicates the descriptor
		return l, err == nil             // else the file is not a listener
	})
	if l != nil || err != nil {
		return l, err
	}
	network := "tcp6"
	if address.Addr().Is4() {
		network = "tcp4"
	}
	return net.ListenTCP(network, net.TCPAddrFromAddrPort(address))
}

// ListenSCTP is like ListenTCP, for SCTP.
func ListenSCTP(address netip.AddrPort, inherited []*os.File) (*sctp.Listener, error) {
	l, err := takeOver[*sctp.Listener](address, inherited, func(file *os.File) (net.Listener, bool) {
		l, ok := sctp.Inherit(file)
		return l, ok
	})
	if l != nil || err != nil {
		return l, err
	}
	return sctp.Listen(address)
}

// takeOver returns the inherited listener of an address; nil: there is none. open duplicates
// the descriptor of a file if it is a listener.
func takeOver[L net.Listener](address netip.AddrPort, inherited []*os.File, open func(*os.File) (net.Listener, bool)) (none L, err error) {
	for _, file := range inherited {
		l, ok := open(file)
		if !ok {
			continue
		}
		if own, ok := l.(L); ok && own.Addr().(*net.TCPAddr).AddrPort() == address {
			return own, nil
		}
		if err := l.Close(); err != nil {
			return none, fmt.Errorf("close inherited listener %v: %w", l.Addr(), err)
		}
	}
	return none, nil
}
