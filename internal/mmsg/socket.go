package mmsg

import (
	"encoding/binary"
	"net/netip"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Name is an address in the kernel's format, with room for IPv4 and IPv6.
type Name unix.RawSockaddrInet6

// NameSize is the size of a Name in bytes.
const NameSize = unix.SizeofSockaddrInet6

// Put writes an address and returns its length in bytes.
func (n *Name) Put(a netip.AddrPort) uint32 {
	if addr := a.Addr(); addr.Is4() {
		v4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(n))
		v4.Family, v4.Addr, v4.Port = unix.AF_INET, addr.As4(), NetworkOrder(a.Port())
		return unix.SizeofSockaddrInet4
	}
	n.Family, n.Addr, n.Port, n.Flowinfo, n.Scope_id = unix.AF_INET6, a.Addr().As16(), NetworkOrder(a.Port()), 0, 0
	return unix.SizeofSockaddrInet6
}

// AddrPort returns the address. An IPv6 address has no zone.
func (n *Name) AddrPort() netip.AddrPort {
	if n.Family == unix.AF_INET {
		v4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(n))
		return netip.AddrPortFrom(netip.AddrFrom4(v4.Addr), NetworkOrder(v4.Port))
	}
	return netip.AddrPortFrom(netip.AddrFrom16(n.Addr), NetworkOrder(n.Port))
}

// NetworkOrder converts a number to network byte order, or back.
func NetworkOrder(v uint16) uint16 {
	var b [2]byte
	binary.NativeEndian.PutUint16(b[:], v)
	return binary.BigEndian.Uint16(b[:])
}

// Sockaddr converts an address for package unix.
func Sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
	}
	return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
}

// Local returns the address that an IP socket is bound to. It is not valid for other sockets.
func Local(fd int) (netip.AddrPort, error) {
	name, err := unix.Getsockname(fd)
	if err != nil {
		return netip.AddrPort{}, os.NewSyscallError("getsockname", err)
	}
	switch name := name.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(name.Addr), uint16(name.Port)), nil
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(name.Addr), uint16(name.Port)), nil
	}
	return netip.AddrPort{}, nil
}

// GrowReceive asks for a receive buffer of that many bytes. Only a privileged process may exceed
// the system's limit. The kernel may grant less; Drops counts the loss.
func GrowReceive(fd, bytes int) { grow(fd, unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, bytes) }

// ReceiveBuffer returns the size of the receive buffer in bytes, with the kernel's overhead: twice the
// bytes that were granted (socket(7)). It is 0 if the kernel does not report it.
func ReceiveBuffer(fd int) int {
	bytes, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF)
	if err != nil {
		return 0
	}
	return bytes
}

// GrowSend is like GrowReceive for the send buffer.
func GrowSend(fd, bytes int) { grow(fd, unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, bytes) }

func grow(fd, force, plain, bytes int) {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, force, bytes) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, plain, bytes)
	}
}

// Drops returns the number of messages that the kernel dropped because the receive buffer was
// full. SO_RXQ_OVFL has the same number, but the kernel passes it only with a message.
func Drops(fd int) (uint32, error) {
	var info [9]uint32 // SO_MEMINFO: the last is SK_MEMINFO_DROPS
	size := uint32(unsafe.Sizeof(info))
	_, _, errno := unix.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return 0, os.NewSyscallError("getsockopt SO_MEMINFO", errno)
	}
	return info[8], nil
}
