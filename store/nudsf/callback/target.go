package callback

import (
	"fmt"
	"net/netip"
	"net/url"
	"strings"
)

// maxTarget bounds a callback URI, in bytes.
const maxTarget = 2048

// Targets says where callbacks may go. The zero Targets allows every host.
type Targets struct {
	hosts    map[string]bool // host, or host:port
	domains  []string        // ".example.org"
	prefixes []netip.Prefix
}

// ParseTargets reads an allow-list: host names, host:port, *.domain, addresses and
// prefixes in CIDR notation. A prefix allows addresses that callers write as such, never
// names that resolve into it: allow those by name.
func ParseTargets(allow []string) (Targets, error) {
	t := Targets{}
	if len(allow) > 0 {
		t.hosts = map[string]bool{}
	}
	for _, a := range allow {
		switch {
		case strings.HasPrefix(a, "*."):
			t.domains = append(t.domains, strings.ToLower(a[1:]))
		case strings.Contains(a, "/"):
			p, err := netip.ParsePrefix(a)
			if err != nil {
				return t, fmt.Errorf("callback allow-list: %q is no prefix: write 10.0.0.0/8, a host, host:port or *.domain: %w", a, err)
			}
			t.prefixes = append(t.prefixes, p.Masked())
		case a == "":
			return t, fmt.Errorf("callback allow-list: an entry is empty: write a host, host:port, *.domain or a prefix")
		default:
			t.hosts[strings.ToLower(a)] = true
		}
	}
	return t, nil
}

// Check reads a callback URI and says whether callbacks may go there: http or https,
// no user, a host that the list allows.
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
	return u, nil
}

func (t Targets) allows(u *url.URL) bool {
	if t.hosts == nil {
		return true
	}
	host := strings.ToLower(u.Hostname())
	if t.hosts[host] || t.hosts[strings.ToLower(u.Host)] {
		return true
	}
	for _, d := range t.domains {
		if strings.HasSuffix(host, d) && len(host) > len(d) {
			return true
		}
	}
	if address, err := netip.ParseAddr(host); err == nil {
		for _, p := range t.prefixes {
			if p.Contains(address.Unmap()) {
				return true
			}
		}
	}
	return false
}
