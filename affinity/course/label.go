package course

import (
	"fmt"
	"net/netip"
	"strings"

	"vitrine/affinity/correlate"
	"vitrine/affinity/message"
)

// labels names functions in results. There are many functions that only begin or end
// transactions, such as UEs. They are named by their sort, and numbered within a
// transaction. The others keep their names, and so do all functions with a name other than
// an address.
type labels struct {
	names  Names
	ends   map[int32]int64 // by function, the transactions that it begins and the messages that end there
	passed map[int32]int64 // by function, the messages that show that it is not outside
	what   map[int32]string
	ids    map[string]int32
	list   []string
	used   map[int32]int32 // labels of functions that keep their names
	users  map[int32]int32 // those functions, by label
}

func newLabels(n Names) labels {
	return labels{names: n, ends: map[int32]int64{}, passed: map[int32]int64{}, what: map[int32]string{}, ids: map[string]int32{}, used: map[int32]int32{}, users: map[int32]int32{}}
}

// learn notes what functions do in a transaction.
func (l *labels) learn(e *correlate.Event) {
	l.addEnd(e.Initiator(), e.Steps[0].Protocol)
	for i := range e.Steps {
		s := &e.Steps[i]
		downlink, forwards := l.isDownlink(s), l.forwards(e, i)
		if downlink || forwards && numeric(l.names.Function(s.To)) { // one with a name may be an application server
			l.addEnd(s.To, s.Protocol)
		}
		if downlink || forwards || s.Cause >= 0 && e.Steps[s.Cause].From != s.To || s.From != e.Initiator() && isCore(s) {
			l.passed[s.From]++
		}
		if s.Protocol == message.SIP && l.names.Name(s.Name) == "REGISTER" { // no phone receives it
			l.passed[s.To]++
		}
	}
}

// addEnd counts a transaction that a function begins, or a message that may end there.
func (l *labels) addEnd(function int32, p message.Protocol) {
	if len(l.ends) == 1<<20 {
		return
	}
	l.ends[function]++
	if _, known := l.what[function]; !known {
		l.what[function] = sort(p)
	}
}

// isDownlink reports whether a message is one that an MME or AMF sends to an eNodeB or gNodeB (TS
// 36.413, TS 38.413). That may be all that a small cell, the target of a handover, takes part in.
func (l *labels) isDownlink(s *correlate.Step) bool {
	if s.Protocol != message.S1AP && s.Protocol != message.NGAP {
		return false
	}
	name, _, _ := strings.Cut(l.names.Name(s.Name), ":")
	switch name {
	case "Paging", "Handover Request", "Initial Context Setup Request", "UE Context Release Command", "Downlink NAS Transport",
		"HandoverRequest", "InitialContextSetupRequest", "UEContextReleaseCommand", "DownlinkNASTransport":
		return true
	}
	return false
}

// forwards reports whether the sender of a SIP request passes on one that it has received and
// not answered. A called phone receives such requests and passes on none.
func (l *labels) forwards(e *correlate.Event, at int) bool {
	s := &e.Steps[at]
	if s.Protocol != message.SIP || s.Kind != message.Request || s.From == e.Initiator() {
		return false
	}
	switch l.names.Name(s.Name) {
	case "INVITE", "MESSAGE", "BYE":
	default:
		return false
	}
	for i := at - 1; i >= 0; i-- {
		r := &e.Steps[i]
		switch {
		case r.To == s.From && r.Name == s.Name:
			return true
		case r.From == s.From && r.Request >= 0 && e.Steps[r.Request].Name == s.Name && !interim(r, l.names.Name(r.Name)):
			return false
		}
	}
	return false
}

// isCore reports whether only a core node can have sent a message: it is an answer in a
// protocol between core nodes. So a PCRF, which begins some transactions and answers in
// others, is not outside.
func isCore(s *correlate.Step) bool {
	switch s.Protocol {
	case message.Diameter, message.GTPv2, message.PFCP:
		return s.Kind == message.Answer
	}
	return false
}

func sort(p message.Protocol) string {
	switch p {
	case message.SIP:
		return "UE"
	case message.S1AP:
		return "eNodeB"
	case message.NGAP:
		return "gNodeB"
	}
	return "client"
}

// outside reports whether transactions only begin or end at a function. It allows for
// messages that were assigned to a wrong transaction: up to one in 50 transactions.
func (l *labels) outside(function int32) bool {
	return l.ends[function] > 0 && l.passed[function]*50 <= l.ends[function]
}

// of returns the label of a function. nth returns the number, from 0, of the next function
// of a sort in the transaction. named reports whether a function of the transaction has a
// name.
func (l *labels) of(function int32, nth func(string) int, named func(string) bool) int32 {
	if at, ok := l.used[function]; ok && (!l.outside(function) || !numeric(l.list[at])) {
		return at
	}
	name := l.names.Function(function)
	if !l.outside(function) || !numeric(name) {
		at := l.intern(name)
		l.used[function], l.users[at] = at, function
		return at
	}
	for what := l.what[function]; ; {
		name = what
		if n := nth(what); n > 0 {
			name = fmt.Sprintf("%s-%d", what, n+1)
		}
		if !named(name) {
			return l.intern(name)
		}
	}
}

func (l *labels) intern(name string) int32 {
	at, ok := l.ids[name]
	if !ok {
		at = int32(len(l.list))
		l.ids[name] = at
		l.list = append(l.list, name)
	}
	return at
}

// isOutside reports whether the function with a label is outside.
func (l *labels) isOutside(label int32) bool {
	kind, number, _ := strings.Cut(l.list[label], "-")
	if strings.Trim(number, "0123456789") == "" && (kind == "UE" || kind == "eNodeB" || kind == "gNodeB" || kind == "client") {
		return true
	}
	function, ok := l.users[label]
	return !ok || l.outside(function)
}

// numeric reports whether a name is an address.
func numeric(name string) bool {
	if _, err := netip.ParseAddr(name); err == nil {
		return true
	}
	_, err := netip.ParseAddrPort(name)
	return err == nil
}
