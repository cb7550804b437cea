package correlate

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"vitrine/affinity/message"
)

// TestACallMayRingForMinutes: the callee answers after two minutes, or the caller gives up then.
func TestACallMayRingForMinutes(t *testing.T) {
	ids := []message.Identifier{id(message.CallID, "call"), id(message.IMPU, "a@ims.test"), id(message.IMPU, "b@ims.test")}
	rings := []line{
		{0, "UE", "Bono", sip, "INVITE", 0, false, ids},
		{ms, "Bono", "UE2", sip, "INVITE", 0, false, ids},
		{ms, "UE2", "Bono", sip, "180 INVITE", 2, false, ids},
		{ms, "Bono", "UE", sip, "180 INVITE", 1, false, ids},
	}
	for name, rest := range map[string][]line{
		"answered": {
			{2 * time.Minute, "UE2", "Bono", sip, "200 INVITE", 2, false, ids},
			{ms, "Bono", "UE", sip, "200 INVITE", 1, false, ids},
			{ms, "UE", "Bono", sip, "ACK", 0, true, ids},
			{ms, "Bono", "UE2", sip, "ACK", 0, true, ids},
			{5 * time.Minute, "UE", "Bono", sip, "BYE", 0, false, ids},
			{ms, "Bono", "UE2", sip, "BYE", 0, false, ids},
			{ms, "UE2", "Bono", sip, "200 BYE", 10, false, ids},
			{ms, "Bono", "UE", sip, "200 BYE", 9, false, ids},
		},
		"given up": {
			{2 * time.Minute, "UE", "Bono", sip, "CANCEL", 0, false, ids},
			{ms, "Bono", "UE", sip, "200 CANCEL", 5, false, ids},
			{ms, "Bono", "UE2", sip, "CANCEL", 0, false, ids},
			{ms, "UE2", "Bono", sip, "200 CANCEL", 7, false, ids},
			{ms, "UE2", "Bono", sip, "487 INVITE", 2, false, ids},
			{ms, "Bono", "UE", sip, "487 INVITE", 1, false, ids},
		},
	} {
		traffic := &traffic{}
		traffic.add(0, 1, slices.Concat(rings, rest))
		calls := 0
		c := New(Options{}, func(e *Event) {
			calls++
			if e.Type() != "INVITE" || len(e.Steps) != len(rings)+len(rest) || e.Unanswered != 0 {
				t.Errorf("%s: got %s of %d messages, %d requests without answer", name, e.Type(), len(e.Steps), e.Unanswered)
			}
		})
		traffic.score(c)
		if calls != 1 || c.Counts().Orphans != 0 {
			t.Errorf("%s: got %d transactions, want 1; %+v", name, calls, c.Counts())
		}
	}
}

// TestCallsThatRangAreForgotten: the last message of a call that rings is not in the capture.
func TestCallsThatRangAreForgotten(t *testing.T) {
	ids := []message.Identifier{id(message.CallID, "call")}
	traffic := &traffic{}
	at := traffic.add(0, 1, []line{
		{0, "UE", "Bono", sip, "INVITE", 0, false, ids},
		{ms, "Bono", "UE", sip, "180 INVITE", 1, false, ids},
	})
	traffic.add(at+201*time.Second, 2, []line{{0, "A", "B", http, "GET /", 0, false, nil}})
	ended := 0
	c := New(Options{}, func(*Event) { ended++ })
	for i := range traffic.messages {
		c.Add(&traffic.messages[i].Message)
	}
	if ended != 1 {
		t.Errorf("%d transactions ended after 201 s of silence, want 1", ended)
	}
}

// TestRegistrationsAtApplicationServersBelongToTheUsers: after a registration the S-CSCF sends an
// application server a REGISTER of its own (TS 24.229 clause 5.4.1.7). Later the user registers again.
func TestRegistrationsAtApplicationServersBelongToTheUsers(t *testing.T) {
	traffic := &traffic{}
	for u := range 20 {
		user := fmt.Sprint(u)
		ids := []message.Identifier{id(message.CallID, "as-"+user), id(message.IMPU, user+"@ims.test")}
		tells := func(script []line) []line {
			return append(script, line{ms, "Sprout", "AS", sip, "REGISTER", 0, false, ids},
				line{ms, "AS", "Sprout", sip, "200 REGISTER", len(script) + 1, false, ids})
		}
		again := deregister(user)
		for i := range again {
			for k := range again[i].ids {
				if again[i].ids[k].Kind == message.CallID {
					again[i].ids = slices.Clone(again[i].ids)
					again[i].ids[k] = id(message.CallID, "again-"+user)
				}
			}
		}
		at := time.Duration(u) * 100 * ms
		traffic.add(at, 2*u+1, tells(register(user)))
		traffic.add(at+300*ms, 2*u+2, tells(again))
	}
	traffic.sort()
	types := map[string]int{}
	precision, recall := traffic.score(New(Options{}, func(e *Event) { types[e.Type()]++ }))
	if precision < 0.999 || recall < 0.999 || types["REGISTER"] != 40 {
		t.Errorf("precision %.4f, recall %.4f, %v", precision, recall, types)
	}
}

// TestRequestsAnswerCommands: a P-GW answers a command by a request (TS 29.274 clause 7.6). 5 s later it
// sends such a request of its own accord.
func TestRequestsAnswerCommands(t *testing.T) {
	for command, request := range map[string]string{
		"Delete Bearer Command": "Delete Bearer Request", "Modify Bearer Command": "Update Bearer Request",
		"Bearer Resource Command": "Create Bearer Request",
	} {
		ids := []message.Identifier{id(message.IMSI, "1")}
		answer := strings.Replace(request, "Request", "Response", 1)
		traffic := &traffic{}
		traffic.add(0, 1, []line{
			{0, "MME", "S-GW", message.GTPv2, command, 0, false, ids},
			{ms, "S-GW", "P-GW", message.GTPv2, command, 0, false, ids},
			{ms, "P-GW", "S-GW", message.GTPv2, request, 0, false, ids},
			{ms, "S-GW", "MME", message.GTPv2, request, 0, false, ids},
			{ms, "MME", "S-GW", message.GTPv2, answer, 4, false, nil},
			{ms, "S-GW", "P-GW", message.GTPv2, answer, 3, false, nil},
		})
		traffic.add(5*time.Second, 2, []line{
			{0, "P-GW", "S-GW", message.GTPv2, request, 0, false, ids},
			{ms, "S-GW", "MME", message.GTPv2, request, 0, false, ids},
			{ms, "MME", "S-GW", message.GTPv2, answer, 2, false, nil},
			{ms, "S-GW", "P-GW", message.GTPv2, answer, 1, false, nil},
		})
		precision, recall := traffic.score(New(Options{}, func(e *Event) {
			if e.Unanswered != 0 {
				t.Errorf("%s: %d requests without answer, want 0", e.Type(), e.Unanswered)
			}
		}))
		if precision < 0.999 || recall < 0.999 {
			t.Errorf("%s: precision %.4f, recall %.4f", command, precision, recall)
		}
	}
}

// TestPiggybackedBearersBelongToTheAttach: P-GW and S-GW send a Create Bearer Request in one datagram with
// the Create Session Response (TS 23.401 annex F).
func TestPiggybackedBearersBelongToTheAttach(t *testing.T) {
	s := func(ids ...message.Identifier) []message.Identifier { return ids }
	traffic := &traffic{}
	for u := range 20 {
		user := fmt.Sprint("00101", u)
		imsi, enb, mme := id(message.IMSI, user), id(message.ENBUEID, "enb-"+user), id(message.MMEUEID, "mme-"+user)
		s11, s5, sgw, pgw := id(message.TEID, "s11-"+user), id(message.TEID, "s5-"+user), id(message.TEID, "sgw-"+user), id(message.TEID, "pgw-"+user)
		traffic.add(time.Duration(u)*3*ms, u+1, []line{
			{0, "eNB", "MME", message.S1AP, "Initial UE Message: Attach Request", 0, true, s(enb, imsi)},
			{ms, "MME", "S-GW", message.GTPv2, "Create Session Request", 0, false, s(imsi, s11)},
			{ms, "S-GW", "P-GW", message.GTPv2, "Create Session Request", 0, false, s(imsi, s5)},
			{ms, "P-GW", "S-GW", message.GTPv2, "Create Session Response", 3, false, s(s5, pgw)},
			{0, "P-GW", "S-GW", message.GTPv2, "Create Bearer Request", 0, false, s(s5)},
			{ms, "S-GW", "MME", message.GTPv2, "Create Session Response", 2, false, s(s11, sgw)},
			{0, "S-GW", "MME", message.GTPv2, "Create Bearer Request", 0, false, s(s11)},
			{ms, "MME", "eNB", message.S1AP, "Initial Context Setup Request: Attach Accept", 0, false, s(enb, mme)},
			{ms, "eNB", "MME", message.S1AP, "Initial Context Setup Response", 8, false, s(enb, mme)},
			{ms, "MME", "S-GW", message.GTPv2, "Modify Bearer Request", 0, false, s(sgw)},
			{0, "MME", "S-GW", message.GTPv2, "Create Bearer Response", 7, false, s(sgw)},
			{ms, "S-GW", "MME", message.GTPv2, "Modify Bearer Response", 10, false, s(s11)},
			{0, "S-GW", "P-GW", message.GTPv2, "Create Bearer Response", 5, false, s(pgw)},
		})
	}
	traffic.sort()
	types := map[string]int{}
	precision, recall := traffic.score(New(Options{}, func(e *Event) { types[e.Type()]++ }))
	if precision < 0.999 || recall < 0.999 || types["ATTACH"] != 20 || len(types) != 1 {
		t.Errorf("precision %.4f, recall %.4f, %v", precision, recall, types)
	}
}
