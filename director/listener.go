package director

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Networks of listeners.
const (
	UDP  = "udp"
	TCP  = "tcp"
	SCTP = "sctp" // for S1AP
)

// A Listener is an address on which the director receives messages.
type Listener struct {
	Network string
	Address netip.AddrPort
}

// ParseListener reads udp://127.0.0.1:5060, tcp://[::1]:5060 or sctp://127.0.0.1:36412.
func ParseListener(text string) (Listener, error) {
	network, rest, ok := strings.Cut(text, "://")
	if !ok || (network != UDP && network != TCP && network != SCTP) {
		return Listener{}, fmt.Errorf("%q: want udp:// or tcp:// (S1AP: tcp:// or sctp://), an IP address and a port", text)
	}
	a, err := netip.ParseAddrPort(rest)
	if err != nil || a.Addr().Zone() != "" {
		return Listener{}, fmt.Errorf("%q: want an IP address and a port after %s://", text, network)
	}
	return Listener{network, netip.AddrPortFrom(a.Addr().Unmap(), a.Port())}, nil
}

// addressesOf returns the addresses of listeners.
func addressesOf(listeners []string) (all []netip.AddrPort, err error) {
	for _, text := range listeners {
		l, err := ParseListener(text)
		if err != nil {
			return nil, err
		}
		all = append(all, l.Address)
	}
	return all, nil
}

// advertises reports whether messages name the advertised host in place of a listener's address. An
// IP address counts only for listeners of its family: clients of the other family cannot send to it.
func (l *Listen) advertises(listener netip.Addr) bool {
	ip, err := netip.ParseAddr(strings.Trim(l.Advertise, "[]"))
	return l.Advertise != "" && (err != nil || ip.Unmap().Is4() == listener.Is4())
}

// sendsTo reports whether there is a listener to send from to an address of a type's instances. SIP needs
// one of the type's transport and of the address's family, GTP-C one of the family, S1AP none. The zero
// address stands for both families.
func (l *Listen) sendsTo(t *Type, to netip.Addr) bool {
	network, listeners := UDP, l.GTPC
	switch t.Protocol {
	case SIP:
		network, listeners = cmp.Or(t.Transport, UDP), l.SIP
	case S1AP:
		return true
	}
	return slices.ContainsFunc(listeners, func(text string) bool {
		from, err := ParseListener(text)
		return err == nil && from.Network == network && (!to.IsValid() || from.Address.Addr().Is4() == to.Is4())
	})
}

// otherFiles is room for the descriptors that are not counted in warnOfFiles.
const otherFiles = 256

// warnOfFiles logs if the process may open fewer files than the limit of TCP connections needs. Without
// a descriptor, the director accepts no connection and cannot check an instance.
func (d *Director) warnOfFiles(c *Config, limit uint64) {
	need := c.Memory.Connections + d.epochs.View().Table.Len() + otherFiles // a check has a socket
	streams := slices.ContainsFunc(c.Listen.SIP, func(text string) bool { return strings.HasPrefix(text, TCP+"://") })
	if streams && limit < uint64(need) {
		d.log.Warn("the limit of open files is low: raise it (LimitNOFILE of systemd, ulimit -n), or lower memory.connections", "limit", limit, "may_need", need)
	}
}

// openFiles returns how many files the process may open.
func openFiles() uint64 {
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return math.MaxUint64 // then there is nothing to warn of
	}
	return files.Cur
}

func (l Listener) String() string { return l.Network + "://" + l.Address.String() }
