package gtpc

import (
	"fmt"
	"net/netip"
	"slices"

	"vitrine/director/overload"
	"vitrine/director/table"
	"vitrine/wire/gtpc"
)

// A Rule maps messages to an aggregate type. The first rule that matches counts.
type Rule struct {
	// Message is a name in gtpc.Types, such as create-session; empty: any message.
	Message string
	// Interface is the interface of the sender's F-TEID: s11, s4, s5, s10, s3 or s16;
	// empty: any. A message without F-TEID matches if its TEID belongs to the rule's
	// Type.
	Interface string
	// Relocation limits the rule to Create Session Requests that move a session to another
	// S-GW. The P-GW TEID shows it: it is 0 in an attach, and set in a handover or tracking
	// area update (TS 29.274 table 7.2.1-1).
	Relocation bool
	// Type is the name of the aggregate type.
	Type string
}

// A TypeOption says how an aggregate type is steered.
type TypeOption struct {
	Type string
	// Number is the type's number in the TEID prefixes of its instances, 1 to MaxNumber;
	// 0: its functions cannot use prefixes.
	Number uint8
	// Sessions lets a draining instance keep its sessions until they end. Otherwise it
	// keeps only its transactions.
	Sessions bool
	// Gate admits new transactions; a nil Gate admits all.
	Gate *overload.Gate
}

// A Policy is the prepared form of a director's rules. It is immutable.
type Policy struct {
	Quota *overload.Quota // limits the requests of each peer; nil: no limit. Set it before the Policy is used.
	Peers []netip.Prefix  // the networks of peers; empty: any. Set it before the Policy is used.

	rules    []Rule
	byType   [256][]rule
	options  [table.MaxTypes]TypeOption
	numbered [MaxNumber + 1]table.Type
	has      [MaxNumber + 1]bool
	learns   bool // the rules name a type without prefixes
}

type rule struct {
	at         int // in Policy.rules
	ty         table.Type
	interfaces []gtpc.Interface // empty: any
	relocation bool
}

// Interfaces returns the names that rules may use, with the sender's ends of each
// interface.
func Interfaces() map[string][]gtpc.Interface {
	return map[string][]gtpc.Interface{
		"s11": {gtpc.S11MME, gtpc.S11SGW}, "s4": {gtpc.S4SGSN, gtpc.S11SGW}, "s5": {gtpc.S5SGW, gtpc.S5PGW},
		"s10": {gtpc.S10MME}, "s3": {gtpc.S3MME, gtpc.S3SGSN}, "s16": {gtpc.S16SGSN},
	}
}

// NewPolicy prepares rules for a table's types.
func NewPolicy(types []string, options []TypeOption, rules []Rule) (*Policy, error) {
	p := &Policy{rules: slices.Clone(rules)}
	for _, o := range options {
		at := slices.Index(types, o.Type)
		if at < 0 {
			return nil, fmt.Errorf("option of type %q: there is no such type; there are %v", o.Type, types)
		}
		if o.Number > MaxNumber {
			return nil, fmt.Errorf("type %s: number %d: must be from 1 to %d", o.Type, o.Number, MaxNumber)
		}
		if o.Number > 0 && p.has[o.Number] {
			return nil, fmt.Errorf("type %s: another type has the number %d too", o.Type, o.Number)
		}
		p.options[at] = o
		if o.Number > 0 {
			p.numbered[o.Number], p.has[o.Number] = table.Type(at), true
		}
	}
	names, interfaces := gtpc.Types(), Interfaces()
	for i, r := range rules {
		at := slices.Index(types, r.Type)
		if at < 0 {
			return nil, fmt.Errorf("rule %d: no type %q; there are %v", i+1, r.Type, types)
		}
		c := rule{at: i, ty: table.Type(at), interfaces: interfaces[r.Interface], relocation: r.Relocation}
		if r.Interface != "" && c.interfaces == nil {
			return nil, fmt.Errorf("rule %d: no interface %q: must be one of s3, s4, s5, s10, s11, s16", i+1, r.Interface)
		}
		of, known := names[r.Message]
		if r.Message != "" && !known {
			return nil, fmt.Errorf("rule %d: no message %q: see the list in docs/director-gtpc.md", i+1, r.Message)
		}
		if r.Relocation && of != gtpc.CreateSessionRequest {
			return nil, fmt.Errorf("rule %d: relocation applies to create-session only", i+1)
		}
		for ty := range p.byType {
			if r.Message == "" || of == gtpc.Type(ty) {
				p.byType[ty] = append(p.byType[ty], c)
			}
		}
		p.learns = p.learns || p.options[at].Number == 0
	}
	return p, nil
}

// classify returns the rule that matches a message; of is the owner of its TEID.
func (p *Policy) classify(m *message, of owner) (*rule, bool) {
	rules := p.byType[m.Type]
	for i := range rules {
		r := &rules[i]
		switch {
		case r.relocation && !m.relocates():
		case len(r.interfaces) == 0:
			return r, true
		case m.hasSender:
			if slices.Contains(r.interfaces, m.sender.Interface) {
				return r, true
			}
		case of.id != 0 && of.ty == r.ty:
			return r, true
		}
	}
	return nil, false
}

// prefixOf returns the prefix of an instance under this policy.
func (p *Policy) prefixOf(i instance) (Prefix, bool) { return PrefixOf(p.options[i.ty].Number, i.id) }
