package s1ap

import (
	"golang.org/x/sys/unix"

	"vitrine/internal/sctp"
	"vitrine/internal/tcpfd"
	"vitrine/reference/epc/s1"
)

// open starts a connection to the MME and returns its socket.
func (a *association) open(transport string) (fd int, err error) {
	if transport == s1.SCTP {
		a.sctp = new(sctp.Records)
		return sctp.Connect(a.target)
	}
	a.sctp = nil
	fd, _, err = tcpfd.Connect(a.target)
	return fd, err
}

// send sends as many frames as the socket takes.
func (a *association) send(frames []byte) (int, unix.Errno) {
	if a.sctp != nil {
		return a.sctp.Send(a.fd, frames)
	}
	return tcpfd.Send(a.fd, frames)
}

// receive receives frames or parts of frames.
func (a *association) receive(into []byte) (int, unix.Errno) {
	if a.sctp != nil {
		return a.sctp.Receive(a.fd, into)
	}
	return tcpfd.Receive(a.fd, into)
}

// connected reports whether a connection attempt has succeeded.
func connected(fd int) bool {
	code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	return err == nil && code == 0
}

// shutdown ends sending. The peer still receives the octets sent before.
func shutdown(fd int) { _ = unix.Shutdown(fd, unix.SHUT_WR) } // fails if the peer has closed
