package sip

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"vitrine/director/overload"
	"vitrine/director/table"
	"vitrine/wire/sip"
)

// A Key is the part of a request that steering hashes.
type Key uint8

// The keys.
const (
	ByCallID     Key = iota
	ByFrom           // the URI in From
	ByTo             // the URI in To
	ByRequestURI     // without its parameters
)

var keyNames = [...]string{ByCallID: "call-id", ByFrom: "from", ByTo: "to", ByRequestURI: "request-uri"}

func (k Key) String() string { return keyNames[k] }

// ParseKey reads a key's name; the empty one is call-id.
func ParseKey(name string) (Key, error) {
	for k, n := range keyNames {
		if name == n {
			return Key(k), nil
		}
	}
	if name == "" {
		return ByCallID, nil
	}
	return 0, fmt.Errorf("key %q: must be one of %s", name, strings.Join(keyNames[:], ", "))
}

// A Rule maps requests to an aggregate type. ACK, CANCEL, BYE, PRACK, UPDATE and INFO
// follow the rules for INVITE, and NOTIFY those for SUBSCRIBE, unless a rule names them.
type Rule struct {
	Method string // empty: any
	Event  string // the event package of the Event header; empty: any
	Type   string // the aggregate type
	Key    Key
}

// A TypeOptions holds the options of one aggregate type.
type TypeOptions struct {
	Dialogs bool           // a draining instance keeps its dialogs to their end
	Stream  bool           // the director uses TCP to instances; else UDP
	Gate    *overload.Gate // nil: none
	// Provisional lets the gate also measure the time from INVITE to its first response
	// other than 100 Trying.
	// Otherwise the gate measures other requests only.
	Provisional bool
}

// A RulesConfig configures Rules.
type RulesConfig struct {
	Types   []string // as in the table
	Options map[string]TypeOptions
	Rules   []Rule   // the first match counts
	Names   []string // hosts, beside the listeners', that name the director in Route and Request-URI
	// Region returns the region of a client; nil: no regions.
	Region func(netip.Addr) table.Region
	// Trusted are networks that are trusted like the instances' own addresses: their
	// requests may go outward by the director's Path or Record-Route, and their responses
	// count.
	Trusted []netip.Prefix
	// Feedback makes the director ask instances for overload feedback (RFC 7339) in its
	// Via.
	Feedback bool
	// Overload is the feedback for clients that ask for it; nil: none.
	Overload *overload.Feedback
	// Quota limits the requests of each source that is neither an instance nor trusted; nil:
	// no limit.
	Quota *overload.Quota
}

// Rules is an immutable set of steering rules.
type Rules struct {
	types    []typeRules // by table.Type
	rules    []steeringRule
	names    []string // in lower case
	region   func(netip.Addr) table.Region
	trusted  []netip.Prefix
	feedback bool
	overload *overload.Feedback
	quota    *overload.Quota
	all      table.Types // that a rule names
}

type typeRules struct {
	TypeOptions
	name []byte
}

type steeringRule struct {
	method, event string
	ty            table.Type
	key           Key
}

// NewRules checks and prepares rules. A type's name goes into URIs, so it must consist of
// letters, digits, '-' and '_'.
func NewRules(c RulesConfig) (*Rules, error) {
	r := &Rules{region: c.Region, trusted: slices.Clone(c.Trusted), feedback: c.Feedback, overload: c.Overload, quota: c.Quota}
	for _, name := range c.Types {
		if name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") != "" {
			return nil, fmt.Errorf("type %q: its name must consist of letters, digits, '-' and '_', because it goes into Record-Route", name)
		}
		r.types = append(r.types, typeRules{c.Options[name], []byte(name)})
	}
	for name := range c.Options {
		if r.typeOf([]byte(name)) == noType {
			return nil, fmt.Errorf("options of type %q: there is no such type", name)
		}
	}
	for i, in := range c.Rules {
		ty := r.typeOf([]byte(in.Type))
		if ty == noType {
			return nil, fmt.Errorf("rule %d: no type %q; there are %s", i+1, in.Type, strings.Join(c.Types, ", "))
		}
		if int(in.Key) >= len(keyNames) {
			return nil, fmt.Errorf("rule %d: unknown key number %d", i+1, in.Key)
		}
		r.rules = append(r.rules, steeringRule{in.Method, in.Event, ty, in.Key})
		r.all.Add(ty)
	}
	for _, name := range c.Names {
		r.names = append(r.names, strings.ToLower(name))
	}
	return r, nil
}

// typeOf returns the type with a name, or noType.
func (r *Rules) typeOf(name []byte) table.Type {
	for i := range r.types {
		if bytes.Equal(r.types[i].name, name) {
			return table.Type(i)
		}
	}
	return noType
}

// find returns the rule for a request, or nil. named reports whether any rule names the
// method, or the method that it follows.
func (r *Rules) find(m *sip.Message) (found *steeringRule, named bool) {
	found, named = r.match(m.Method, m.Event)
	if method := followed(m.Method); method != nil && !named {
		found, named = r.match(method, m.Event)
	}
	if found != nil {
		return found, true
	}
	for i := range r.rules {
		if r.rules[i].method == "" && matchesEvent(r.rules[i].event, m.Event) {
			return &r.rules[i], named
		}
	}
	return nil, named
}

var invite, subscribe = []byte("INVITE"), []byte("SUBSCRIBE")

// followed returns the method whose rules a method without rules follows; nil: none.
func followed(method []byte) []byte {
	switch string(method) {
	case "ACK", "CANCEL", "BYE", "PRACK", "UPDATE", "INFO":
		return invite
	case "NOTIFY":
		return subscribe
	}
	return nil
}

func (r *Rules) match(method, event []byte) (found *steeringRule, named bool) {
	for i := range r.rules {
		if r.rules[i].method != string(method) {
			continue
		}
		named = true
		if matchesEvent(r.rules[i].event, event) {
			return &r.rules[i], true
		}
	}
	return nil, named
}

// matchesEvent reports whether an Event header names the package; the header's parameters do not
// count (RFC 6665 section 8.2.1).
func matchesEvent(want string, event []byte) bool {
	if want == "" {
		return true
	}
	return string(sip.WithoutParams(event)) == want
}

// appendEvents appends Allow-Events, which a 489 must have (RFC 6665 section 8.2), with the event
// packages that the rules have for the method.
func (r *Rules) appendEvents(b, method []byte) []byte {
	if _, named := r.match(method, nil); !named {
		method = followed(method)
	}
	before := "Allow-Events: "
	for i := range r.rules {
		if rule := &r.rules[i]; rule.event != "" && (rule.method == "" || rule.method == string(method)) {
			b = append(append(b, before...), rule.event...)
			before = ", "
		}
	}
	return append(b, '\r', '\n')
}

// hash returns the key that the rule steers a request by. callID is the hash of the
// Call-ID.
func (r *steeringRule) hash(m *sip.Message, callID uint64) uint64 {
	var text []byte
	switch r.key {
	case ByFrom:
		text = sip.Address(m.From)
	case ByTo:
		text = sip.Address(m.To)
	case ByRequestURI:
		text = m.URI
	default:
		return callID
	}
	return table.Key(sip.WithoutURIParams(text))
}

func (r *Rules) regionOf(a netip.Addr) table.Region {
	if r.region == nil {
		return 0
	}
	return r.region(a)
}
