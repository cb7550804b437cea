package message

import (
	"net/netip"
	"slices"
	"strings"
)

// The bounds on the number of functions. Those that Options.Name names are always made.
const (
	maxFunctions = 1 << 16
	// maxStrangers is how many there may be for traffic in unknown protocols to make another one, so that
	// user traffic leaves room for functions that send messages.
	maxStrangers = maxFunctions / 2
)

// others is the name of the function of all addresses beyond these bounds.
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
	rest   Function    // of the addresses beyond the bounds
	given  uint64      // messages from or to rest
	last   [2]struct { // the last results of of, by its i
		addr netip.Addr
		f    *Function
	}
}

func (f *functions) init(name, hide func(string) string) {
	f.name, f.hide = name, hide
	f.plain, f.ports = map[netip.Addr]*Function{}, map[netip.AddrPort]*Function{}
	f.shared, f.named = map[netip.Addr]bool{}, map[string]*Function{}
	f.rest.Name = others
}

// share records that an address sends to itself, so it has several functions.
func (f *functions) share(a netip.Addr) {
	if len(f.shared) < maxFunctions && !f.shared[a] {
		f.shared[a] = true
		f.last[0].f, f.last[1].f = nil, nil
	}
}

// of returns the function at an address, and makes it if there are fewer than most functions. port says that
// the function receives requests at the port, so the port can distinguish functions of one address. i selects
// a cache of the last result.
func (f *functions) of(a netip.AddrPort, port bool, i, most int) *Function {
	if port && (f.name != nil || len(f.shared) > 0 || a.Addr().IsLoopback()) {
		if found := f.at(a, most); found != nil {
			return found
		}
	}
	addr := a.Addr()
	if last := &f.last[i]; last.f != nil && last.addr == addr {
		return last.f
	}
	found := f.plain[addr]
	if known := found != nil; !known || found == &f.rest && len(f.named) < most {
		found = f.make(addr.Unmap().String(), most)
		if known || len(f.plain) < maxFunctions {
			f.plain[addr] = found
		}
	}
	if found != &f.rest { // the next message may make a function
		f.last[i].addr, f.last[i].f = addr, found
	}
	return found
}

// at returns the function at an address and port, or nil if the address alone determines
// it.
func (f *functions) at(a netip.AddrPort, most int) *Function {
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
		found = f.make(text, most)
	}
	if found != &f.rest && len(f.ports) < maxFunctions {
		f.ports[a] = found
	}
	return found
}

// make returns the function with the default name text. Options.Name or Options.Hide may
// replace the name. If there are most functions, it makes only those that Options.Name names.
func (f *functions) make(text string, most int) *Function {
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
	if name == "" && len(f.named) >= most {
		return &f.rest
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
	if f.rest.Sent+f.rest.Received > 0 {
		all = append(all, f.rest)
	}
	slices.SortFunc(all, func(a, b Function) int { return strings.Compare(a.Name, b.Name) })
	return all
}
