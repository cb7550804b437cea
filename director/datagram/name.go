package datagram

import (
	"encoding/binary"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A name is an address as the kernel has it: room for both families.
type name = unix.RawSockaddrInet6

// putName writes an address and says its length.
func putName(n *name, a netip.AddrPort) uint32 {
	if addr := a.Addr(); addr.Is4() {
		v4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(n))
		v4.Family, v4.Addr, v4.Port = unix.AF_INET, addr.As4(), swap(a.Port())
		return unix.SizeofSockaddrInet4
	}
	n.Family, n.Addr, n.Port, n.Flowinfo, n.Scope_id = unix.AF_INET6, a.Addr().As16(), swap(a.Port()), 0, 0
	return unix.SizeofSockaddrInet6
}

func getName(n *name) netip.AddrPort {
	if n.Family == unix.AF_INET {
		v4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(n))
		return netip.AddrPortFrom(netip.AddrFrom4(v4.Addr), swap(v4.Port))
	}
	return netip.AddrPortFrom(netip.AddrFrom16(n.Addr), swap(n.Port))
}

// swap turns a port from or into network byte order.
func swap(port uint16) uint16 {
	var b [2]byte
	binary.NativeEndian.PutUint16(b[:], port)
	return binary.BigEndian.Uint16(b[:])
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
	}
	return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
}

func addrPort(s unix.Sockaddr) netip.AddrPort {
	switch s := s.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(s.Addr), uint16(s.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(s.Addr), uint16(s.Port))
	}
	return netip.AddrPort{}
}
