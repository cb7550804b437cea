package callback

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// maxTarget bounds a callback URI, in bytes.
const maxTarget = 2048

// Targets are the hosts that callbacks may go to. The zero Targets allows every host outside the
// denied networks.
type Targets struct {
	listed   bool            // only hosts on the list are allowed
	any      bool            // the list allows every host
	hosts    map[string]bool // host, or host:port
	domains  []string        // ".example.org"
	prefixes []netip.Prefix
	sockets  []netip.AddrPort // addresses with a port

	own []netip.AddrPort // this product's listeners
}

// denied returns the networks that are denied by default. They hold services of this host and its
// hypervisor, which a stranger must not choose as a receiver.
func denied() map[string][]netip.Prefix {
	return map[string][]netip.Prefix{
		"loopback":    {netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")},
		"link-local":  {netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("fe80::/10")},
		"multicast":   {netip.MustParsePrefix("224.0.0.0/4"), netip.MustParsePrefix("ff00::/8")},
		"unspecified": {netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("::/128")},
		"broadcast":   {netip.MustParsePrefix("255.255.255.255/32")},
	}
}

// A Denied is the error of a message whose target resolves to a denied address. Another try would
// not change it.
type Denied struct {
	Address netip.AddrPort
	Because string // for example "is loopback"
}

func (e *Denied) Error() string {
	return fmt.Sprintf("callbacks may not go to %s, which %s", e.Address, e.Because)
}

// ParseTargets reads an allow-list: host names, host:port, *.domain, * for every host, addresses,
// and prefixes in CIDR notation. A prefix allows literal addresses, not names that resolve to such
// addresses: list those by name.
//
// Loopback, link-local, multicast, unspecified and broadcast addresses need an entry of their own:
// the address, with or without a port, or a prefix within their network. A name is not enough,
// because its owner chooses the address.
func ParseTargets(allow []string) (Targets, error) {
	t := Targets{listed: len(allow) > 0, hosts: map[string]bool{}}
	for _, a := range allow {
		switch {
		case a == "":
			return t, fmt.Errorf("callback allow-list: an entry is empty: write a host, host:port, *.domain, * or a prefix")
		case a == "*":
			t.any = true
		case strings.HasPrefix(a, "*."):
			t.domains = append(t.domains, strings.ToLower(a[1:]))
		case strings.Contains(a, "/"):
			p, err := netip.ParsePrefix(a)
			if err != nil {
				return t, fmt.Errorf("callback allow-list: %q is no prefix: write 10.0.0.0/8, a host, host:port or *.domain: %w", a, err)
			}
			t.prefixes = append(t.prefixes, p.Masked())
		default:
			t.addHost(a)
		}
	}
	return t, nil
}

// addHost adds a host or host:port. If it is an address, addHost also allows dialing it.
func (t *Targets) addHost(host string) {
	t.hosts[strings.ToLower(host)] = true
	if at, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		at = at.Unmap()
		t.prefixes = append(t.prefixes, netip.PrefixFrom(at, at.BitLen()))
	} else if at, err := netip.ParseAddrPort(host); err == nil {
		t.sockets = append(t.sockets, normalize(at))
	}
}

// Without returns targets that also deny the listeners own, whatever the list says. A listener on
// an unspecified address counts for every address of this host.
func (t Targets) Without(own ...netip.AddrPort) Targets {
	t.own = slices.Clone(t.own)
	for _, o := range own {
		t.own = append(t.own, normalize(o))
	}
	return t
}

// Check parses a callback URI and returns an error unless callbacks may go there. It must be http
// or https, without user and fragment, and name a host that the list allows and that is not a
// denied address. The address of a name is checked when it is dialed.
func (t Targets) Check(uri string) (*url.URL, error) {
	if len(uri) > maxTarget {
		return nil, fmt.Errorf("callback URI is over %d bytes", maxTarget)
	}
	u, err := url.Parse(uri)
	switch {
	case err != nil:
		return nil, fmt.Errorf("callback URI: %w", err)
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("callback URI %q: only http and https are allowed", uri)
	case u.Hostname() == "" || u.User != nil || u.Fragment != "":
		return nil, fmt.Errorf("callback URI %q: needs a host, and no user or fragment", uri)
	case !t.allows(u):
		return nil, fmt.Errorf("callback URI %q: the host is not on the allow-list of callbacks", uri)
	}
	if at, err := netip.ParseAddr(u.Hostname()); err == nil {
		if err := t.Dial(netip.AddrPortFrom(at, port(u))); err != nil {
			return nil, fmt.Errorf("callback URI %q: %w", uri, err)
		}
	}
	return u, nil
}

// port returns the port of a URI; 0 if it is not a number.
func port(u *url.URL) uint16 {
	switch {
	case u.Port() != "":
		n, err := strconv.ParseUint(u.Port(), 10, 16)
		if err != nil {
			return 0
		}
		return uint16(n)
	case u.Scheme == "https":
		return 443
	}
	return 80
}

func (t Targets) allows(u *url.URL) bool {
	if !t.listed || t.any {
		return true
	}
	host := strings.ToLower(u.Hostname())
	if t.hosts[host] || t.hosts[net.JoinHostPort(host, strconv.Itoa(int(port(u))))] {
		return true
	}
	for _, d := range t.domains {
		if strings.HasSuffix(host, d) && len(host) > len(d) {
			return true
		}
	}
	address, err := netip.ParseAddr(host)
	return err == nil && t.within(address.Unmap())
}

func (t Targets) within(a netip.Addr) bool {
	return slices.ContainsFunc(t.prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
}

// Dial returns nil or a *Denied: whether a connection to an address is allowed.
func (t Targets) Dial(to netip.AddrPort) error {
	to = normalize(to)
	if t.isOwn(to) {
		return &Denied{to, "this store listens on"}
	}
	for name, networks := range denied() {
		for _, n := range networks {
			if n.Contains(to.Addr()) && !t.excepted(to, n) {
				return &Denied{to, "is " + name + ": allow it with --allow-callback " + to.String()}
			}
		}
	}
	return nil
}

// excepted reports whether the list has the address itself or a prefix within its network that
// contains it. A prefix wider than the network does not count: 0.0.0.0/0 means other hosts.
func (t Targets) excepted(to netip.AddrPort, network netip.Prefix) bool {
	if slices.Contains(t.sockets, to) {
		return true
	}
	return slices.ContainsFunc(t.prefixes, func(p netip.Prefix) bool {
		return p.Bits() >= network.Bits() && p.Contains(to.Addr())
	})
}

// isOwn reports whether this product listens on an address.
func (t Targets) isOwn(to netip.AddrPort) bool {
	for _, o := range t.own {
		if o.Port() != to.Port() {
			continue
		}
		if o.Addr() == to.Addr() || o.Addr().IsUnspecified() && isLocal(to.Addr()) {
			return true
		}
	}
	return false
}

// isLocal reports whether this host has an address. If the interfaces cannot be listed, it returns
// true.
func isLocal(a netip.Addr) bool {
	if a.IsLoopback() || a.IsUnspecified() {
		return true
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return true
	}
	for _, one := range all {
		if n, ok := one.(*net.IPNet); ok {
			if local, ok := netip.AddrFromSlice(n.IP); ok && local.Unmap() == a {
				return true
			}
		}
	}
	return false
}

// control is for net.Dialer.Control. It sees the address after the name was resolved.
func (t Targets) control(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("callback: dial %q: %w", address, err)
	}
	return t.Dial(to)
}

// normalize removes the zone and maps an IPv4-mapped address to IPv4.
func normalize(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}
