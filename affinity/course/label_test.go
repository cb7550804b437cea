package course

import (
	"testing"

	"vitrine/affinity/correlate"
	"vitrine/affinity/message"
)

// listed has the names of functions.
type listed []string

func (l listed) Function(of int32) string { return l[of] }
func (l listed) Name(int32) string        { return "REGISTER" }

// transactions decodes a script with one byte for each message: the sender in bits 4 to 6,
// the receiver in bits 0 to 2, and bit 7 set in the last message of a transaction.
func transactions(script []byte) (all []*correlate.Event) {
	protocols := []message.Protocol{message.SIP, message.S1AP, message.NGAP, message.Diameter}
	e := &correlate.Event{}
	for _, b := range script {
		s := correlate.Step{From: int32(b >> 4 & 7), To: int32(b & 7), Request: -1, Cause: -1, Protocol: protocols[len(all)%len(protocols)]}
		if s.From != s.To {
			for i := range e.Steps {
				if e.Steps[i].To == s.From {
					s.Cause = int32(i)
				}
			}
			e.Steps = append(e.Steps, s)
		}
		if b&0x80 != 0 && len(e.Steps) > 0 {
			all, e = append(all, e), &correlate.Event{}
		}
	}
	if len(e.Steps) > 0 {
		all = append(all, e)
	}
	return all
}

// TestOutsideInLongCaptures checks that a function that passes messages on is not outside, however
// many messages it passed on.
func TestOutsideInLongCaptures(t *testing.T) {
	l := newLabels(listed{"192.0.2.1"})
	l.ends[0], l.passed[0] = 1, 50_000_000 // 50 times as many do not fit 32 bits
	if l.outside(0) {
		t.Errorf("a function that began %d transactions and passed on %d messages is outside", l.ends[0], l.passed[0])
	}
}

// written has the names of functions and of messages.
type written struct {
	listed
	messages []string
}

func (w written) Name(of int32) string { return w.messages[of] }

// TestCalledPhonesAreOutside checks that a phone that only receives calls is outside, but no proxy, no application
// server on its way, and no server whose further messages are not in the capture.
func TestCalledPhonesAreOutside(t *testing.T) {
	const (
		caller, proxy, server, application, callee = 0, 1, 2, 3, 4
		invite, ok, register                       = 0, 1, 2
	)
	n := written{listed{"10.45.0.2", "198.51.100.1", "198.51.100.2", "198.51.100.3", "10.45.0.17"}, []string{"INVITE", "200 INVITE", "REGISTER"}}
	call := &correlate.Event{}
	for i, way := range [][2]int32{{caller, proxy}, {proxy, server}, {server, application}, {application, server}, {server, proxy}, {proxy, callee}} {
		call.Steps = append(call.Steps, correlate.Step{From: way[0], To: way[1], Name: invite, Protocol: message.SIP, Request: -1, Cause: int32(i) - 1})
	}
	call.Steps = append(call.Steps, correlate.Step{From: callee, To: proxy, Name: ok, Protocol: message.SIP, Kind: message.Answer, Request: 5, Cause: 5})
	l := newLabels(n)
	l.learn(call)
	for function, name := range n.listed {
		if got, want := l.outside(int32(function)), function == caller || function == callee; got != want {
			t.Errorf("%s is outside: got %t, want %t", name, got, want)
		}
	}
	var v view
	v.set(call, &l, n)
	if label := v.local[callee]; l.list[label] != "UE-2" || !l.isOutside(label) {
		t.Errorf("the callee is %s, outside %t, want UE-2, outside", l.list[label], l.isOutside(label))
	}
	l.learn(&correlate.Event{Steps: []correlate.Step{{From: proxy, To: callee, Name: register, Protocol: message.SIP, Request: -1, Cause: -1}}})
	if l.outside(callee) {
		t.Error("a function that receives a REGISTER is outside")
	}
	n.listed[callee] = "Announcements"
	l = newLabels(n)
	l.learn(call)
	if l.outside(callee) {
		t.Error("an application server with a name is outside")
	}
}

// TestTheTargetOfAHandoverIsOutside: it begins no transaction, and the MME passes on messages.
func TestTheTargetOfAHandoverIsOutside(t *testing.T) {
	const source, mme, target = 0, 1, 2
	n := written{listed{"192.0.2.1", "MME", "192.0.2.2"}, []string{"Handover Required", "Handover Request", "Handover Request Acknowledge", "Handover Command"}}
	l := newLabels(n)
	l.learn(&correlate.Event{Steps: []correlate.Step{
		{From: source, To: mme, Name: 0, Protocol: message.S1AP, Request: -1, Cause: -1},
		{From: mme, To: target, Name: 1, Protocol: message.S1AP, Request: -1, Cause: 0},
		{From: target, To: mme, Name: 2, Protocol: message.S1AP, Kind: message.Answer, Request: 1, Cause: 1},
		{From: mme, To: source, Name: 3, Protocol: message.S1AP, Kind: message.Answer, Request: 0, Cause: 2},
	}})
	for function, name := range n.listed {
		if got, want := l.outside(int32(function)), function != mme; got != want {
			t.Errorf("%s is outside: got %t, want %t", name, got, want)
		}
	}
}

// FuzzLabels checks that all functions of a transaction have different labels. A function
// with a given name keeps it. An outside function without one has its sort in place of its
// address.
func FuzzLabels(f *testing.F) {
	f.Add("Bono", "Sprout", []byte{0x04, 0x45, 0x54, 0xc0, 0x14, 0x45, 0x54, 0xc1}) // two registrations
	f.Add("Bono", "UE", []byte{0x04, 0x45, 0x54, 0xc0, 0x04, 0x41, 0x14, 0xc0})     // a call; one of the UEs has a name
	f.Add("UE-2", "eNodeB", []byte{0x06, 0x16, 0x26, 0xe0, 0x06, 0x61, 0x14, 0xc5})
	f.Add("client", "10.0.0.1", []byte{0x45, 0x54, 0x05, 0x50, 0x15, 0x51, 0x01, 0x9a})
	f.Fuzz(func(t *testing.T, first, second string, script []byte) {
		names := listed{"192.0.2.1", "192.0.2.2:5060", "2001:db8::1", "[2001:db8::2]:5060", first, second, "127.0.0.1:8805", "Homestead"}
		distinct := map[string]bool{}
		for _, name := range names {
			distinct[name] = true
		}
		if len(distinct) < len(names) || len(script) > 200 {
			return
		}
		l := newLabels(names)
		all := transactions(script)
		for _, e := range all {
			l.learn(e)
		}
		var v view
		for _, e := range all {
			v.set(e, &l, names)
			of := map[int32]int32{} // functions by label
			for function, label := range v.local {
				text, name := l.list[label], names[function]
				if other, taken := of[label]; taken {
					t.Fatalf("label %s stands for %s and %s", text, name, names[other])
				}
				of[label] = function
				switch outside := l.outside(function) && numeric(name); {
				case !outside && text != name:
					t.Errorf("%s has the name %s", name, text)
				case outside && (numeric(text) || !l.isOutside(label)):
					t.Errorf("%s, at which transactions only begin or end, has the name %s", name, text)
				}
			}
		}
	})
}
