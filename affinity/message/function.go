package message

import (
	"net/netip"
	"slices"
	"strings"
)

// maxFunctions bounds the number of named functions.
const maxFunctions = 1 << 16

// others is the function of all addresses beyond maxFunctions.
const others = "others"

// A Function is who sends and receives messages.
type Function struct {
	Name     string `json:"function"`
	Sent     uint64 `json:"sent"`     // messages
	Received uint64 `json:"received"` // messages
	Bytes    uint64 `json:"bytes"`    // of messages sent and received
}

// functions maps addresses to functions.
type functions struct {
	name   func(string) string // may be nil
	hide   func(string) string // may be nil
	plain  map[netip.Addr]*Function
	ports  map[netip.AddrPort]*Function
	shared map[netip.Addr]bool // several functions have the address
	named  map[string]*Function
	last   [2]struct { // the last results of of, by its i
		addr netip.Addr
		f    *Function
	}
}

func (f *functions) init(name, hide func(string) string) {
	f.name, f.hide = name, hide
	f.plain, f.ports = map[netip.Addr]*Function{}, map[netip.AddrPort]*Function{}
	f.shared, f.named = map[netip.Addr]bool{}, map[string]*Function{}
}

// share records that an address sends to itself, so it has several functions.
func (f *functions) share(a netip.Addr) {
	if len(f.shared) < maxFunctions && !f.shared[a] {
		f.shared[a] = true
		f.last[0].f, f.last[1].f = nil, nil
	}
}

// of returns the function at an address. port says that the function receives requests at
// the port, so the port can distinguish functions of one address. i selects a cache of the
// last result.
func (f *functions) of(a netip.AddrPort, port bool, i int) *Function {
	if port && (f.name != nil || len(f.shared) > 0 || a.Addr().IsLoopback()) {
		if found := f.at(a); found != nil {
			return found
		}
	}
	addr := a.Addr()
	if last := &f.last[i]; last.f != nil && last.addr == addr {
		return last.f
	}
	found := f.plain[addr]
	if found == nil {
		found = f.make(addr.Unmap().String())
		if len(f.plain) < maxFunctions {
			f.plain[addr] = found
		}
	}
	f.last[i].addr, f.last[i].f = addr, found
	return found
}

// at returns the function at an address and port, or nil if the address alone determines
// it.
func (f *functions) at(a netip.AddrPort) *Function {
	split := a.Addr().IsLoopback() || f.shared[a.Addr()]
	if !split && f.name == nil {
		return nil
	}
	found, ok := f.ports[a]
	if ok && (found != nil || !split) {
		return found
	}
	text := netip.AddrPortFrom(a.Addr().Unmap(), a.Port()).String()
	if split || f.name(text) != "" {
		found = f.make(text)
	}
	if len(f.ports) < maxFunctions {
		f.ports[a] = found
	}
	return found
}

// make returns the function with the default name text. Options.Name or Options.Hide may
// replace the name.
func (f *functions) make(text string) *Function {
	name := ""
	if f.name != nil {
		name = f.name(text)
	}
	switch {
	case name != "":
		text = name
	case f.hide != nil:
		text = f.hide(text)
	}
	if found := f.named[text]; found != nil {
		return found
	}
	if len(f.named) >= maxFunctions {
		text = others
		if found := f.named[text]; found != nil {
			return found
		}
	}
	found := &Function{Name: text}
	f.named[text] = found
	return found
}

// list returns the functions that sent or received messages, by name. It is never nil, so that JSON
// has a list.
func (f *functions) list() []Function {
	all := []Function{}
	for _, one := range f.named {
		if one.Sent+one.Received > 0 {
			all = append(all, *one)
		}
	}
	slices.SortFunc(all, func(a, b Function) int { return strings.Compare(a.Name, b.Name) })
	return all
}
