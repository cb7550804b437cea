package course

import (
	"fmt"
	"net/netip"
	"strings"

	"vitrine/affinity/correlate"
	"vitrine/affinity/message"
)

// labels names functions in results. There are many functions that only begin transactions,
// such as UEs. They are named by their sort, and numbered within a transaction. The others
// keep their names, and so do all functions with a name other than an address.
type labels struct {
	names  Names
	begun  map[int32]int64 // transactions by the function that begins them
	passed map[int32]int64 // by function, the messages that show that it is not outside
	what   map[int32]string
	ids    map[string]int32
	list   []string
	used   map[int32]int32 // labels of functions that keep their names
	users  map[int32]int32 // those functions, by label
}

func newLabels(n Names) labels {
	return labels{names: n, begun: map[int32]int64{}, passed: map[int32]int64{}, what: map[int32]string{}, ids: map[string]int32{}, used: map[int32]int32{}, users: map[int32]int32{}}
}

// learn notes what functions do in a transaction.
func (l *labels) learn(e *correlate.Event) {
	if len(l.begun) < 1<<20 {
		l.begun[e.Initiator()]++
		if _, known := l.what[e.Initiator()]; !known {
			l.what[e.Initiator()] = sort(e.Steps[0].Protocol)
		}
	}
	for i := range e.Steps {
		s := &e.Steps[i]
		if s.Cause >= 0 && e.Steps[s.Cause].From != s.To || s.From != e.Initiator() && isCore(s) {
			l.passed[s.From]++
		}
	}
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

// outside reports whether a function only begins transactions. It allows for messages that
// were assigned to a wrong transaction: up to one in 50 transactions.
func (l *labels) outside(function int32) bool {
	return l.begun[function] > 0 && l.passed[function]*50 <= l.begun[function]
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
