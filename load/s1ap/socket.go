package s1ap

import "golang.org/x/sys/unix"

// connected reports whether a connection that was started has been made.
func connected(fd int) bool {
	code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	return err == nil && code == 0
}

// shutdown says that no more will be sent. What was sent arrives.
func shutdown(fd int) { _ = unix.Shutdown(fd, unix.SHUT_WR) } // fails if the peer has closed
