package s1ap

import (
	"fmt"
	"net/netip"
	"slices"

	"vitrine/director/overload"
	"vitrine/director/table"
	"vitrine/internal/source"
	"vitrine/wire/identity"
)

// A kind is the kind of transaction that the first message of a UE's connection begins, from
// the cleartext part of NAS.
type kind uint8

const (
	other kind = iota // NAS does not have it, or rules have no name for it
	attach
	detach
	service
	extendedService
	update
	kinds

	// The kinds below do not come from a first message, and rules cannot name them.
	handover
	pathSwitch
	none
)

// messages returns the kinds by their names in rules.
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

// Messages returns the values of Rule.Message.
func Messages() []string {
	var all []string
	for name := range messages() {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// A reason is why a UE connects: the value of the RRC Establishment Cause (TS 36.413 clause
// 9.2.1.3a) plus one.
type reason uint8

// The reasons that the director itself tells apart.
const (
	unknown reason = iota
	emergency
	highPriority
)

// causes has the names of the reasons: first unknown, then in the order of TS 36.413.
var causes = [...]string{
	"", "emergency", "high-priority-access", "mt-access", "mo-signalling", "mo-data", "delay-tolerant-access", "mo-voice-call", "mo-exception-data",
}

// Causes returns the values of Rule.Cause, in the order of TS 36.413.
func Causes() []string { return causes[1:] }

// String returns the name of a reason. Empty: unknown.
func (r reason) String() string { return causes[r] }

// A Rule maps the first message of a UE's connection to an aggregate type. The first matching
// rule applies.
type Rule struct {
	Message string // one of Messages; empty: any
	Cause   string // one of Causes; empty: any
	Type    string // name of the aggregate type
}

// A TypeOption says how an aggregate type is steered.
type TypeOption struct {
	Type string
	// Sessions says that a draining instance gets new connections of the UEs whose S-TMSI names
	// it. Without Sessions it keeps only its open connections, and its UEs connect to other
	// instances next time. That requires instances that share their UEs through a store.
	Sessions bool
	Spread   bool           // all first messages go by the table, also those of UEs whose S-TMSI names an instance of the type
	SCTP     bool           // the transport to the instances is SCTP instead of frames over TCP
	Gate     *overload.Gate // admits new transactions; nil: admit all
}

// A Pool is the MME that eNodeBs see.
type Pool struct {
	Name     string // 1 to 150 characters
	PLMN     identity.PLMN
	Group    uint16 // MME group
	Codes    []byte // MME codes of the MMEs in the group; empty: all 256
	Capacity uint8  // Relative MME Capacity, in relation to other pools
}

// A Policy is the prepared form of a director's rules. It is immutable.
type Policy struct {
	// Set the exported fields before the Policy is used.
	Quota   *overload.Quota // limits the new transactions of each source; nil: no limit
	ENodeBs []netip.Prefix  // networks of eNodeBs; empty: any
	Pool    Pool

	rules   [kinds][len(causes)]rule
	options [table.MaxTypes]TypeOption
	types   []table.Type // types with S1AP
	sctp    []table.Type // types with SCTP to the instances
}

type rule struct {
	at    int // index in the rules argument of NewPolicy
	ty    table.Type
	given bool // false: no rule matches
}

// NewPolicy prepares rules for the types of a table. options has an entry for each type with
// S1AP.
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

// fill sets the rule for all combinations that it matches and no earlier rule matches.
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

// classify returns the first rule that matches a kind and a reason.
func (p *Policy) classify(k kind, why reason) (rule, bool) {
	r := p.rules[k][why]
	return r, r.given
}

// admits reports whether eNodeBs may connect from an address.
func (p *Policy) admits(a netip.Addr) bool {
	return len(p.ENodeBs) == 0 || source.In(a, p.ENodeBs)
}

// find returns the instance with a number; nil: there is none. The number is the high octet of
// its MME UE S1AP IDs, and the MME code of its GUTIs. It is unique across all types.
func (p *Policy) find(t *table.Table, number uint8) *table.Target {
	for _, ty := range p.types {
		if target := t.ByID(ty, uint16(number)); target != nil {
			return target
		}
	}
	return nil
}

// MaxID is the highest ID of an instance: the number is one octet.
const MaxID = 255

// numberOf returns the number of the instance that assigned an MME UE S1AP ID. 0: the director
// itself.
func numberOf(mme uint32) uint8 { return uint8(mme >> 24) }
