package s1ap

import (
	"fmt"
	"net/netip"
	"slices"

	"vitrine/director/overload"
	"vitrine/director/table"
	"vitrine/wire/identity"
)

// A kind is what the first message of a UE's connection asks for. NAS says so in clear.
type kind uint8

const (
	other kind = iota // NAS does not say, or nothing that a rule names
	attach
	detach
	service
	extendedService
	update
	kinds

	// These are no first messages.
	handover
	pathSwitch
	none
)

// messages are the names of the kinds in rules.
func messages() map[string]kind {
	return map[string]kind{
		"attach": attach, "detach": detach, "service-request": service, "extended-service-request": extendedService, "tracking-area-update": update,
	}
}

func (k kind) String() string {
	for name, of := range messages() {
		if of == k {
			return name
		}
	}
	return "other"
}

// Messages returns the names that rules may use.
func Messages() []string {
	var all []string
	for name := range messages() {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// A reason is why a UE connects: the RRC Establishment Cause (TS 36.413 clause 9.2.1.3a),
// counted from one.
type reason uint8

const unknown reason = 0

// causes are the names of the reasons, in the order of TS 36.413, after that of unknown.
var causes = [...]string{
	"", "emergency", "high-priority-access", "mt-access", "mo-signalling", "mo-data", "delay-tolerant-access", "mo-voice-call", "mo-exception-data",
}

// Causes returns the names of the RRC establishment causes that rules may use, in the order
// of TS 36.413.
func Causes() []string { return causes[1:] }

// String returns the name; empty: unknown.
func (r reason) String() string { return causes[r] }

// A Rule maps the first message of a UE's connection to an aggregate type. The first rule
// that matches counts.
type Rule struct {
	Message string // one of Messages; empty: any
	Cause   string // one of Causes; empty: any
	Type    string // the name of the aggregate type
}

// A TypeOption says how an aggregate type is steered.
type TypeOption struct {
	Type string
	// Sessions lets a draining instance keep the UEs whose S-TMSI names it. Otherwise it
	// keeps only the connections that it has, and its UEs' next one goes elsewhere: the
	// instances share their UEs through a store.
	Sessions bool
	SCTP     bool           // reaches the instances over SCTP, and otherwise by frames over TCP
	Gate     *overload.Gate // admits new transactions; nil: all
}

// DefaultRules returns the rules of Table 1 of the Contain-ed paper for three aggregate
// types that contain an MME. The handover of a UE stays at the instance that its
// connection is at. A UE that calls connects for a dedicated bearer.
func DefaultRules(attachDetach, handoverSR, bearerCRT string) []Rule {
	return []Rule{
		{Message: "service-request", Cause: "mo-voice-call", Type: bearerCRT},
		{Message: "service-request", Type: handoverSR}, {Message: "extended-service-request", Type: handoverSR},
		{Message: "tracking-area-update", Type: handoverSR}, {Type: attachDetach},
	}
}

// A Pool is the MME that eNodeBs see.
type Pool struct {
	Name     string // 1 to 150 characters
	PLMN     identity.PLMN
	Group    uint16 // MME group
	Codes    []byte // MME codes of the group's MMEs; empty: all 256
	Capacity uint8  // relative to that of other pools
}

// A Policy is the prepared form of a director's rules. It is immutable.
type Policy struct {
	Quota   *overload.Quota // limits the new transactions of each source; nil: no limit. Set it before the Policy is used.
	ENodeBs []netip.Prefix  // the networks of eNodeBs; empty: any. Set it before the Policy is used.
	Pool    Pool            // Set it before the Policy is used.

	rules   [kinds][len(causes)]rule
	options [table.MaxTypes]TypeOption
	types   []table.Type // that have instances with S1AP
	sctp    []table.Type // that are reached over SCTP
}

type rule struct {
	at    int // in the rules that NewPolicy was given
	ty    table.Type
	given bool
}

// NewPolicy prepares rules for a table's types. Options name the types that speak S1AP.
func NewPolicy(types []string, options []TypeOption, rules []Rule) (*Policy, error) {
	p := new(Policy)
	for _, o := range options {
		at := slices.Index(types, o.Type)
		if at < 0 {
			return nil, fmt.Errorf("option of type %q: there is no such type; there are %v", o.Type, types)
		}
		p.options[at] = o
		p.types = append(p.types, table.Type(at))
		if o.SCTP {
			p.sctp = append(p.sctp, table.Type(at))
		}
	}
	names := messages()
	for i, r := range rules {
		at := slices.Index(types, r.Type)
		if at < 0 || !slices.Contains(p.types, table.Type(at)) {
			return nil, fmt.Errorf("rule %d: no type %q with S1AP", i+1, r.Type)
		}
		of, known := names[r.Message]
		if r.Message != "" && !known {
			return nil, fmt.Errorf("rule %d: no message %q: must be one of %v", i+1, r.Message, Messages())
		}
		if r.Cause != "" && !slices.Contains(Causes(), r.Cause) {
			return nil, fmt.Errorf("rule %d: no cause %q: must be one of %v", i+1, r.Cause, Causes())
		}
		p.fill(r, of, rule{at: i, ty: table.Type(at), given: true})
	}
	return p, nil
}

// fill enters a rule for all that it matches and no earlier rule does.
func (p *Policy) fill(r Rule, of kind, entry rule) {
	for k := range p.rules {
		for why := range p.rules[k] {
			matches := (r.Message == "" || kind(k) == of) && (r.Cause == "" || causes[why] == r.Cause)
			if matches && !p.rules[k][why].given {
				p.rules[k][why] = entry
			}
		}
	}
}

// classify returns the rule that matches a kind of message of a UE that connects for a
// reason.
func (p *Policy) classify(k kind, why reason) (rule, bool) {
	r := p.rules[k][why]
	return r, r.given
}

// admits reports whether eNodeBs may connect from an address.
func (p *Policy) admits(a netip.Addr) bool {
	if len(p.ENodeBs) == 0 {
		return true
	}
	a = a.Unmap()
	return slices.ContainsFunc(p.ENodeBs, func(n netip.Prefix) bool { return n.Contains(a) })
}

// find returns the instance with a number: the high octet of its MME UE S1AP IDs, and the
// MME code of its GUTIs. The number is the ID of one instance among those of all types.
func (p *Policy) find(t *table.Table, number uint8) *table.Target {
	for _, ty := range p.types {
		if target := t.ByID(ty, uint16(number)); target != nil {
			return target
		}
	}
	return nil
}

// MaxID is the highest ID of an instance.
const MaxID = 255

// numberOf returns the number of the instance that gave an MME UE S1AP ID. 0 is the
// director itself.
func numberOf(mme uint32) uint8 { return uint8(mme >> 24) }
