package correlate

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"vitrine/affinity/message"
)

// A line is a message of a script. A script has the messages of one network event.
type line struct {
	after    time.Duration // since the line before
	from, to string
	protocol message.Protocol
	name     string
	answers  int // index of the request, from 1; 0: it is a request
	notice   bool
	ids      []message.Identifier
}

func id(kind message.IdentifierKind, text string) message.Identifier {
	h := uint64(14695981039346656037)
	for _, c := range []byte(fmt.Sprint(kind) + text) {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return message.Identifier{Kind: kind, Hash: h, Text: []byte(text), Lasting: kind >= message.IMSI || kind == message.IMPU || kind == message.IMPI || kind == message.SessionID}
}

const (
	sip  = message.SIP
	http = message.HTTP
	ms   = time.Millisecond
)

// register is a registration of the reference IMS.
func register(user string) []line {
	call, impu, impi := id(message.CallID, "reg-"+user), id(message.IMPU, user+"@ims.test"), id(message.IMPI, user+"@ims.test")
	both := []message.Identifier{call, impu, impi}
	return []line{
		{0, "UE", "Bono", sip, "REGISTER", 0, false, both},
		{ms, "Bono", "Sprout", sip, "REGISTER", 0, false, both},
		{ms, "Sprout", "Homestead", http, "GET /impi/{}/av", 0, false, []message.Identifier{impi}},
		{ms, "Homestead", "Sprout", http, "200 GET /impi/{}/av", 3, false, nil},
		{ms, "Sprout", "Bono", sip, "401 REGISTER", 2, false, both},
		{ms, "Bono", "UE", sip, "401 REGISTER", 1, false, both},
		{5 * ms, "UE", "Bono", sip, "REGISTER", 0, false, both},
		{ms, "Bono", "Sprout", sip, "REGISTER", 0, false, both},
		{ms, "Sprout", "Homestead", http, "PUT /impu/{}/reg-data", 0, false, []message.Identifier{impu}},
		{ms, "Homestead", "Sprout", http, "200 PUT /impu/{}/reg-data", 9, false, nil},
		{ms, "Sprout", "Bono", sip, "200 REGISTER", 8, false, both},
		{ms, "Bono", "UE", sip, "200 REGISTER", 7, false, both},
		{ms, "Sprout", "Ralf", http, "POST /call-id/{}", 0, false, []message.Identifier{call}},
		{ms, "Ralf", "Sprout", http, "200 POST /call-id/{}", 13, false, nil},
	}
}

func subscribe(user string) []line {
	ids := []message.Identifier{id(message.CallID, "sub-"+user), id(message.IMPU, user+"@ims.test")}
	return []line{
		{0, "UE", "Bono", sip, "SUBSCRIBE", 0, false, ids},
		{ms, "Bono", "Sprout", sip, "SUBSCRIBE", 0, false, ids},
		{ms, "Sprout", "Bono", sip, "200 SUBSCRIBE", 2, false, ids},
		{ms, "Bono", "UE", sip, "200 SUBSCRIBE", 1, false, ids},
		{ms, "Sprout", "Bono", sip, "NOTIFY", 0, false, ids},
		{ms, "Bono", "UE", sip, "NOTIFY", 0, false, ids},
		{ms, "UE", "Bono", sip, "200 NOTIFY", 6, false, ids},
		{ms, "Bono", "Sprout", sip, "200 NOTIFY", 5, false, ids},
	}
}

// call is a call that lasts 5 s, between two users of the IMS.
func call(a, b string) []line {
	ids := []message.Identifier{id(message.CallID, "call-"+a), id(message.IMPU, a+"@ims.test"), id(message.IMPU, b+"@ims.test")}
	return []line{
		{0, "UE", "Bono", sip, "INVITE", 0, false, ids},
		{ms, "Bono", "UE", sip, "100 INVITE", 1, false, ids},
		{ms, "Bono", "Sprout", sip, "INVITE", 0, false, ids},
		{ms, "Sprout", "Homestead", http, "PUT /impu/{}/reg-data", 0, false, ids[1:2]},
		{ms, "Homestead", "Sprout", http, "200 PUT /impu/{}/reg-data", 4, false, nil},
		{ms, "Sprout", "Bono", sip, "INVITE", 0, false, ids},
		{ms, "Bono", "UE2", sip, "INVITE", 0, false, ids},
		{90 * ms, "UE2", "Bono", sip, "200 INVITE", 7, false, ids},
		{ms, "Bono", "Sprout", sip, "200 INVITE", 6, false, ids},
		{ms, "Sprout", "Bono", sip, "200 INVITE", 3, false, ids},
		{ms, "Bono", "UE", sip, "200 INVITE", 1, false, ids},
		{ms, "UE", "Bono", sip, "ACK", 0, true, ids},
		{ms, "Bono", "Sprout", sip, "ACK", 0, true, ids},
		{ms, "Sprout", "Ralf", http, "POST /call-id/{}", 0, false, ids[:1]},
		{ms, "Ralf", "Sprout", http, "200 POST /call-id/{}", 14, false, nil},
		{5 * time.Second, "UE", "Bono", sip, "BYE", 0, false, ids},
		{ms, "Bono", "UE2", sip, "BYE", 0, false, ids},
		{ms, "UE2", "Bono", sip, "200 BYE", 17, false, ids},
		{ms, "Bono", "UE", sip, "200 BYE", 16, false, ids},
	}
}

// attach is an attach in which no identifier is on all messages, and a detach that names
// the user by an identifier from the attach.
func attach(user string) []line {
	imsi, guti := id(message.IMSI, user), id(message.GUTI, "guti-"+user)
	enb, mme := id(message.ENBUEID, "enb-"+user), id(message.MMEUEID, "mme-"+user)
	tunnel, gateway := id(message.TEID, "sgw-"+user), id(message.TEID, "pgw-"+user)
	gx := id(message.SessionID, "gx-"+user)
	s := func(ids ...message.Identifier) []message.Identifier { return ids }
	return []line{
		{0, "eNB", "MME", message.S1AP, "Initial UE Message: Attach Request", 0, true, s(enb, imsi)},
		{ms, "MME", "HSS", message.Diameter, "Update-Location-Request", 0, false, s(imsi)},
		{ms, "HSS", "MME", message.Diameter, "Update-Location-Answer", 2, false, nil},
		{ms, "MME", "S-GW", message.GTPv2, "Create Session Request", 0, false, s(imsi)},
		{ms, "S-GW", "P-GW", message.GTPv2, "Create Session Request", 0, false, s(imsi)},
		{ms, "P-GW", "PCRF", message.Diameter, "Credit-Control-Request (initial)", 0, false, s(gx, imsi)},
		{ms, "PCRF", "P-GW", message.Diameter, "Credit-Control-Answer (initial)", 6, false, s(gx)},
		{ms, "P-GW", "S-GW", message.GTPv2, "Create Session Response", 5, false, s(gateway)},
		{ms, "S-GW", "MME", message.GTPv2, "Create Session Response", 4, false, s(tunnel)},
		{ms, "MME", "eNB", message.S1AP, "Initial Context Setup Request: Attach Accept", 0, false, s(enb, mme, guti)},
		{ms, "eNB", "MME", message.S1AP, "Initial Context Setup Response", 10, false, s(enb, mme)},
		{ms, "eNB", "MME", message.S1AP, "Uplink NAS Transport: Attach Complete", 0, true, s(enb, mme)},
		{ms, "MME", "S-GW", message.GTPv2, "Modify Bearer Request", 0, false, s(tunnel)},
		{ms, "S-GW", "MME", message.GTPv2, "Modify Bearer Response", 13, false, nil},
	}
}

func detach(user string) []line {
	guti, enb, mme := id(message.GUTI, "guti-"+user), id(message.ENBUEID, "enb2-"+user), id(message.MMEUEID, "mme2-"+user)
	tunnel, gateway := id(message.TEID, "sgw-"+user), id(message.TEID, "pgw-"+user)
	gx := id(message.SessionID, "gx-"+user)
	s := func(ids ...message.Identifier) []message.Identifier { return ids }
	return []line{
		{0, "eNB", "MME", message.S1AP, "Initial UE Message: Detach Request", 0, true, s(enb, guti)},
		{ms, "MME", "S-GW", message.GTPv2, "Delete Session Request", 0, false, s(tunnel)},
		{ms, "S-GW", "P-GW", message.GTPv2, "Delete Session Request", 0, false, s(gateway)},
		{ms, "P-GW", "PCRF", message.Diameter, "Credit-Control-Request (termination)", 0, false, s(gx)},
		{ms, "PCRF", "P-GW", message.Diameter, "Credit-Control-Answer (termination)", 4, false, s(gx)},
		{ms, "P-GW", "S-GW", message.GTPv2, "Delete Session Response", 3, false, nil},
		{ms, "S-GW", "MME", message.GTPv2, "Delete Session Response", 2, false, nil},
		{ms, "MME", "eNB", message.S1AP, "Downlink NAS Transport: Detach Accept", 0, true, s(enb, mme)},
		{ms, "MME", "eNB", message.S1AP, "UE Context Release Command", 0, false, s(enb, mme)},
		{ms, "eNB", "MME", message.S1AP, "UE Context Release Complete", 9, false, s(enb, mme)},
	}
}

// A traffic is messages of many events, in the order of time.
type traffic struct {
	messages []spoken
}

type spoken struct {
	message.Message
	event int // the true one
}

// add adds an event that begins at a time. It returns when it ends.
func (t *traffic) add(at time.Duration, event int, script []line) time.Duration {
	base := uint64(event) * 1000
	for i, l := range script {
		at += l.after
		m := message.Message{ID: base + uint64(i) + 1, Time: int64(at), From: l.from, To: l.to, Protocol: l.protocol, Name: l.name, Bytes: 100, Identifiers: l.ids}
		switch {
		case l.answers > 0:
			m.Kind, m.Answers = message.Answer, base+uint64(l.answers)
		case l.notice:
			m.Kind = message.Notice
		}
		t.messages = append(t.messages, spoken{m, event})
	}
	return at
}

func (t *traffic) sort() {
	slices.SortStableFunc(t.messages, func(a, b spoken) int { return int(a.Time - b.Time) })
}

// score returns B-cubed precision and recall of what the Correlator finds in the
// traffic (Bagga and Baldwin, 1998).
func (t *traffic) score(c *Correlator) (precision, recall float64) {
	type pair struct {
		found uint64
		event int
	}
	found, truth, both := map[uint64]float64{}, map[int]float64{}, map[pair]float64{}
	for i := range t.messages {
		m := &t.messages[i]
		l := c.Add(&m.Message)
		if l.Event == 0 { // by itself
			l.Event = 1<<40 + uint64(i)
		}
		found[l.Event]++
		truth[m.event]++
		both[pair{l.Event, m.event}]++
	}
	c.Close()
	for p, n := range both {
		precision += n * n / found[p.found]
		recall += n * n / truth[p.event]
	}
	n := float64(len(t.messages))
	return precision / n, recall / n
}

func mixed(rate, users int, seed uint64) *traffic {
	r := rand.New(rand.NewPCG(seed, 1))
	t := &traffic{}
	event := 0
	next := func() int { event++; return event }
	for u := range users {
		at := time.Duration(float64(u) / float64(rate) * 1e9)
		at += time.Duration(r.IntN(int(20 * ms)))
		a, b := fmt.Sprintf("a%d", u), fmt.Sprintf("b%d", u)
		end := t.add(at, next(), register(a))
		end = t.add(end-2*ms+time.Duration(r.IntN(int(ms))), next(), subscribe(a))
		t.add(end+time.Duration(r.IntN(int(30*ms))), next(), call(a, b))
		end = t.add(at, next(), attach("00101"+a))
		t.add(end+time.Duration(1+r.IntN(int(40*ms))), next(), detach("00101"+a))
	}
	t.sort()
	return t
}

func TestInterleavedUsersAreToldApart(t *testing.T) {
	for _, rate := range []int{1, 300, 3000} {
		traffic := mixed(rate, 300, 1)
		types := map[string]int{}
		c := New(Options{}, func(e *Event) { types[e.Type()]++ })
		precision, recall := traffic.score(c)
		if precision < 0.999 || recall < 0.999 {
			t.Errorf("%d users/s: precision %.4f, recall %.4f; %v", rate, precision, recall, types)
		}
		for _, of := range []string{"REGISTER", "SUBSCRIBE", "INVITE", "ATTACH", "DETACH"} {
			if types[of] != 300 {
				t.Errorf("%d users/s: %d of %s, want 300: %v", rate, types[of], of, types)
			}
		}
		if c.memory != 0 || len(c.messages) != 0 {
			t.Errorf("%d users/s: %d bytes and %d messages are still held", rate, c.memory, len(c.messages))
		}
	}
}

// TestOneCallIDIsNotOneTransaction: a client may use the same Call-ID for all its requests.
func TestOneCallIDIsNotOneTransaction(t *testing.T) {
	traffic := &traffic{}
	at := time.Duration(0)
	for u := range 20 {
		user := fmt.Sprint(u)
		again := register(user)[6:12] // with credentials at once
		again[3].answers, again[4].answers, again[5].answers = 3, 2, 1
		for k, script := range [][]line{register(user), subscribe(user), again} {
			for i := range script {
				ids := slices.Clone(script[i].ids)
				for n := range ids {
					if ids[n].Kind == message.CallID {
						ids[n] = id(message.CallID, user)
					}
				}
				script[i].ids = ids
			}
			at = traffic.add(at+5*ms, 10*u+k, script)
		}
	}
	types := map[string]int{}
	precision, recall := traffic.score(New(Options{}, func(e *Event) { types[e.Type()]++ }))
	if precision < 0.999 || recall < 0.999 || types["REGISTER"] != 40 || types["SUBSCRIBE"] != 20 {
		t.Errorf("precision %.4f, recall %.4f, %v", precision, recall, types)
	}
}

// deregister is a registration with credentials at once, of the same Call-ID.
func deregister(user string) []line {
	t := register(user)[6:]
	for i := range t {
		t[i].answers = max(0, t[i].answers-6)
	}
	return t
}

// TestLateRecordsBelongToWhatCausedThem: the record of a registration is sent while the user
// signs out with the same Call-ID, before or while the server waits for an answer.
func TestLateRecordsBelongToWhatCausedThem(t *testing.T) {
	for _, after := range []time.Duration{26500 * time.Microsecond, 50 * ms, 200 * ms} {
		traffic := &traffic{}
		for u := range 60 {
			first, second := register(fmt.Sprint(u)), deregister(fmt.Sprint(u))
			at := time.Duration(u) * 10 * time.Second
			begins := at + 3*time.Second // of the second
			if u >= 40 {
				begins = at + 35*ms
				first[12].after, second[3].after = after, 300*ms // Homestead takes so long for the second
			}
			traffic.add(at, 2*u+1, first)
			traffic.add(begins, 2*u+2, second)
		}
		traffic.sort()
		if precision, recall := traffic.score(New(Options{}, func(*Event) {})); precision < 0.999 || recall < 0.999 {
			t.Errorf("%v late: got precision %.4f, recall %.4f", after, precision, recall)
		}
	}
}

// TestRecordsOfWhatIsOverBelongToNothing: the record of a registration is sent when the
// registration is over and its user makes a call.
func TestRecordsOfWhatIsOverBelongToNothing(t *testing.T) {
	traffic := &traffic{}
	script := register("a")
	script[12].after, script[12].ids = 4*time.Second, script[0].ids
	traffic.add(0, 1, script)
	traffic.add(3*time.Second, 2, call("a", "b"))
	traffic.sort()
	c := New(Options{}, func(e *Event) {
		if e.Reason == Late && len(e.Steps) != 2 {
			t.Errorf("the transaction of the record has %d messages, want 2", len(e.Steps))
		}
	})
	for i := range traffic.messages {
		m := &traffic.messages[i]
		if l := c.Add(&m.Message); m.ID == 1013 && l.Reason != Late {
			t.Errorf("the late record is in a %s because of %s", l.Type, l.Reason)
		}
	}
	c.Close()
	kept := c.held()
	c.Add(&message.Message{ID: 9000, Time: int64(time.Hour), From: "A", To: "B", Protocol: http, Name: "GET /"})
	c.Close()
	if c.held() >= kept {
		t.Error("ended dialogs are kept for an hour")
	}
}

func TestLostMessagesSplitFewTransactions(t *testing.T) {
	traffic := mixed(300, 300, 2)
	r := rand.New(rand.NewPCG(3, 3))
	gone := map[uint64]bool{}
	kept := traffic.messages[:0]
	for _, m := range traffic.messages {
		if r.IntN(100) == 0 {
			gone[m.ID] = true
			continue
		}
		if gone[m.Answers] {
			m.Answers = 0
		}
		kept = append(kept, m)
	}
	traffic.messages = kept
	precision, recall := traffic.score(New(Options{}, func(*Event) {}))
	if precision < 0.97 || recall < 0.97 {
		t.Errorf("precision %.4f, recall %.4f", precision, recall)
	}
}

func TestRetransmissionsAreOneMessage(t *testing.T) {
	traffic := &traffic{}
	traffic.add(0, 1, register("u"))
	again := traffic.messages[1]
	again.ID, again.Kind, again.Answers, again.Time = 900, message.Repeat, again.ID, again.Time+int64(500*time.Microsecond)
	traffic.messages = append(traffic.messages, again)
	traffic.sort()
	events := 0
	c := New(Options{}, func(e *Event) {
		events++
		if len(e.Steps) != 14 || e.Repeats != 1 || e.Steps[1].Repeats != 1 {
			t.Errorf("got %d messages, %d repeats", len(e.Steps), e.Repeats)
		}
	})
	traffic.score(c)
	if events != 1 || c.Counts().Repeats != 1 {
		t.Errorf("got %d transactions, counts %+v", events, c.Counts())
	}
}

// TestALostTransmissionWasOnItsWay has captures at both ends of a link. That at Sprout lacks the first
// transmission of two messages: one was lost, the other one made Sprout send something.
func TestALostTransmissionWasOnItsWay(t *testing.T) {
	const lost, received = 1, 7 // from Bono to Sprout
	traffic := &traffic{}
	traffic.add(0, 1, register("u"))
	for at, after := range map[int]time.Duration{lost: 500 * time.Microsecond, received: 1500 * time.Microsecond} {
		again := traffic.messages[at]
		again.ID, again.Kind, again.Answers = again.ID+900, message.Repeat, again.ID
		again.Time += int64(after)
		again.Arrived = again.Time + int64(200*time.Microsecond)
		traffic.messages = append(traffic.messages, again)
	}
	traffic.sort()
	traffic.score(New(Options{}, func(e *Event) {
		if e.Repeats != 2 {
			t.Errorf("got %d retransmissions, want 2", e.Repeats)
		}
		if s := e.Steps[lost]; time.Duration(s.Arrived-s.Time) != 700*time.Microsecond {
			t.Errorf("the lost message arrived at %d, want 700 us after %d", s.Arrived, s.Time)
		}
		if s := e.Steps[received]; s.Arrived != 0 {
			t.Errorf("the received message arrived at %d, want no time", s.Arrived)
		}
	}))
}

func TestPollsBelongToNoTransaction(t *testing.T) {
	traffic := &traffic{}
	for i := range 400 {
		traffic.add(time.Duration(i)*7*ms, 2*i+1, register(fmt.Sprint("u", i)))
		traffic.add(time.Duration(i)*5*ms, 2*i+2, []line{
			{0, "Sprout", "Store", http, "GET /kv", 0, false, nil},
			{ms, "Store", "Sprout", http, "200 GET /kv", 1, false, nil},
		})
	}
	traffic.sort()
	precision, recall := traffic.score(New(Options{}, func(*Event) {}))
	if precision < 0.99 || recall < 0.99 {
		t.Errorf("precision %.4f, recall %.4f", precision, recall)
	}
}

// TestKeepAlivesBelongToNoTransaction: a function asks whether paths are alive while it
// works for a user, and names what it names at other times.
func TestKeepAlivesBelongToNoTransaction(t *testing.T) {
	traffic := &traffic{}
	event, asked := 0, 0
	next := func() int { event++; return event }
	for user := range 40 {
		at := time.Duration(user) * time.Second
		traffic.add(at, next(), attach(fmt.Sprint("00101", user)))
		for _, alive := range []struct {
			protocol        message.Protocol
			request, answer string
		}{
			{message.GTPv2, "Echo Request", "Echo Response"}, {message.PFCP, "Heartbeat Request", "Heartbeat Response"},
			{message.Diameter, "Device-Watchdog-Request", "Device-Watchdog-Answer"},
		} {
			ids := []message.Identifier{id(message.SEID, "node")}
			traffic.add(at+4500*time.Microsecond, next(), []line{
				{0, "S-GW", "P-GW", alive.protocol, alive.request, 0, false, ids},
				{ms, "P-GW", "S-GW", alive.protocol, alive.answer, 1, false, ids},
			})
			asked++
		}
	}
	traffic.sort()
	alive := 0
	precision, recall := traffic.score(New(Options{}, func(e *Event) {
		if e.Reason == KeepAlive && len(e.Steps) == 2 && !e.Users {
			alive++
		}
	}))
	if precision < 0.999 || recall < 0.999 || alive != asked {
		t.Errorf("precision %.4f, recall %.4f; %d of %d keep-alives", precision, recall, alive, asked)
	}
}

// TestIdentifiersOfDifferentKindsAreLearned: a service request, and the messages that
// modify bearers for it, have no identifier in common. Their link is learned while
// transactions do not overlap.
func TestIdentifiersOfDifferentKindsAreLearned(t *testing.T) {
	service := func(u int) []line {
		guti, tunnel := id(message.GUTI, fmt.Sprint("g", u)), id(message.TEID, fmt.Sprint("t", u))
		return []line{
			{0, "AMF", "MME", http, "GET /service", 0, false, []message.Identifier{guti}},
			{ms, "MME", "S-GW", message.GTPv2, "Modify Bearer Request", 0, false, []message.Identifier{tunnel}},
			{ms, "S-GW", "MME", message.GTPv2, "Modify Bearer Response", 2, false, nil},
			{ms, "MME", "AMF", http, "200 GET /service", 1, false, nil},
		}
	}
	traffic := &traffic{}
	at, event := time.Duration(0), 0
	for range 3 { // one after the other
		for u := range 20 {
			event++
			at = traffic.add(at+10*ms, event, service(u))
		}
	}
	alone := event
	for range 20 { // all at once
		at += 10 * time.Second
		for u := range 20 {
			event++
			traffic.add(at, event, service(u))
		}
	}
	traffic.sort()
	c := New(Options{}, func(*Event) {})
	home := map[int]uint64{}
	wrong := 0
	for i := range traffic.messages {
		m := &traffic.messages[i]
		l := c.Add(&m.Message)
		switch {
		case m.Name == "GET /service":
			home[m.event] = l.Event
		case l.Event != home[m.event] && m.event > alone:
			wrong++
		case m.event > alone && m.Name == "Modify Bearer Request" && l.Reason != Learned:
			t.Fatalf("event %d: got %v", m.event, l)
		}
	}
	if wrong > 0 {
		t.Errorf("%d messages are in a wrong transaction", wrong)
	}
}

// TestMemoryIsBounded: events that never end are evicted, the oldest first, and counted.
func TestMemoryIsBounded(t *testing.T) {
	const limit = 1 << 20
	open, ended := 0, 0
	c := New(Options{MaxMemory: limit}, func(e *Event) {
		ended++
		if e.GivenUp {
			open++
		}
	})
	for u := range 20000 {
		ids := []message.Identifier{id(message.IMSI, fmt.Sprint(u))}
		c.Add(&message.Message{ID: uint64(u) + 1, Time: int64(u) * int64(10*time.Microsecond), From: "A", To: "B", Protocol: message.GTPv2, Name: "Create Session Request", Identifiers: ids})
		if c.held() > limit {
			t.Fatalf("got %d bytes of memory after %d messages", c.held(), u)
		}
	}
	c.Close()
	if c.Counts().GivenUp == 0 || c.Counts().GivenUp != uint64(open) || ended != 20000 {
		t.Errorf("gave up %d transactions; %d of %d ended that way", c.Counts().GivenUp, open, ended)
	}
}

// TestWhatIsKeptForReuseIsBounded ends a burst of transactions. Only some of them and of their
// identifiers may be kept, because those do not count towards Options.MaxMemory.
func TestWhatIsKeptForReuseIsBounded(t *testing.T) {
	c := New(Options{}, func(*Event) {})
	for n := range uint64(2 * maxUnused) {
		ids := []message.Identifier{id(message.EndToEnd, fmt.Sprint(n))}
		c.Add(&message.Message{ID: n + 1, From: "A", To: "B", Protocol: message.Diameter, Name: "Update-Location-Request", Identifiers: ids})
	}
	c.Close()
	events, identifiers := len(c.free), len(c.ids.free)
	if events != maxSpare || identifiers != maxUnused || c.held() != 0 {
		t.Errorf("%d transactions and %d identifiers are kept, want %d and %d; %d bytes are in use", events, identifiers, maxSpare, maxUnused, c.held())
	}
}

// TestMemoryOfSteadyLoadIsFlat: the same users come back, and each time a new session with
// the HSS asks about them.
func TestMemoryOfSteadyLoadIsFlat(t *testing.T) {
	c := New(Options{}, func(*Event) {})
	event := 0
	load := func(events int) (memory int) {
		for range events {
			event++
			user, cx := id(message.IMPU, fmt.Sprint("u", event%50)), id(message.SessionID, fmt.Sprint("cx", event))
			cx.Lasting = false
			traffic := &traffic{}
			traffic.add(time.Duration(event)*100*ms, event, []line{
				{0, "UE", "Server", sip, "MESSAGE", 0, false, []message.Identifier{id(message.CallID, fmt.Sprint(event)), user}},
				{ms, "Server", "HSS", message.Diameter, "Location-Info-Request", 0, false, []message.Identifier{cx, user}},
				{ms, "HSS", "Server", message.Diameter, "Location-Info-Answer", 2, false, []message.Identifier{cx}},
				{ms, "Server", "UE", sip, "200 MESSAGE", 1, false, []message.Identifier{user}},
			})
			for i := range traffic.messages {
				c.Add(&traffic.messages[i].Message)
			}
		}
		return c.held()
	}
	before := load(1000)
	if after := load(20_000); after > before {
		t.Errorf("got %d bytes after 1,000 transactions, %d after 21,000", before, after)
	}
	if n := c.Counts(); n.Transactions != 21_000 || n.GivenUp != 0 {
		t.Errorf("%+v", n)
	}
}

// TestSteadyStateDoesNotAllocate: after the first users, messages of other users reuse the
// memory of transactions that ended.
func TestSteadyStateDoesNotAllocate(t *testing.T) {
	traffic := &traffic{}
	for u := range 1200 {
		at := time.Duration(u) * 3 * ms
		traffic.add(at, 2*u+1, register(fmt.Sprint(u)))
		traffic.add(at, 2*u+2, attach(fmt.Sprint(u)))
	}
	traffic.sort()
	c := New(Options{MaxMemory: 1 << 20, Linger: 100 * ms}, func(*Event) {})
	at := 0
	feed := func(n int) {
		for range n {
			c.Add(&traffic.messages[at].Message)
			at++
		}
	}
	half := len(traffic.messages) / 2
	feed(half)
	allocations := testing.AllocsPerRun(1, func() { feed(half / 2) }) / float64(half/2)
	if allocations > 0.05 {
		t.Errorf("got %.3f allocations per message", allocations)
	}
}

func TestExplanationSaysWhy(t *testing.T) {
	traffic := &traffic{}
	traffic.add(0, 1, register("u"))
	c := New(Options{Explain: 1003}, func(*Event) {})
	traffic.score(c)
	x := c.Explanation()
	if x == nil || x.Type != "REGISTER" || x.Because != Contained.String() || len(x.Course) != 14 || len(x.Candidates) != 1 ||
		x.Candidates[0].Shares != "a user" || !slices.Contains(x.Identifiers, "IMPI u@ims.test") {
		t.Errorf("%+v", x)
	}
}

// connection has the messages of a UE in the n-th connection that it begins. Each
// connection has its own identifiers; the tunnel stays the same.
func connection(user string, n int) (service, release []line) {
	of := fmt.Sprint(user, "-", n)
	guti, tunnel := id(message.GUTI, "guti-"+user), id(message.TEID, "sgw-"+user)
	enb, mme := id(message.ENBUEID, "enb-"+of), id(message.MMEUEID, "mme-"+of)
	s := func(ids ...message.Identifier) []message.Identifier { return ids }
	service = []line{
		{0, "eNB", "MME", message.S1AP, "Initial UE Message: Service Request", 0, true, s(enb, guti)},
		{ms, "MME", "eNB", message.S1AP, "Initial Context Setup Request", 0, false, s(enb, mme)},
		{ms, "eNB", "MME", message.S1AP, "Initial Context Setup Response", 2, false, s(enb, mme)},
		{ms, "MME", "S-GW", message.GTPv2, "Modify Bearer Request", 0, false, s(tunnel)},
		{ms, "S-GW", "MME", message.GTPv2, "Modify Bearer Response", 4, false, nil},
	}
	release = []line{
		{0, "eNB", "MME", message.S1AP, "UE Context Release Request", 0, true, s(enb, mme)},
		{ms, "MME", "S-GW", message.GTPv2, "Release Access Bearers Request", 0, false, s(tunnel)},
		{ms, "S-GW", "MME", message.GTPv2, "Release Access Bearers Response", 2, false, nil},
		{ms, "MME", "eNB", message.S1AP, "UE Context Release Command", 0, false, s(enb, mme)},
		{ms, "eNB", "MME", message.S1AP, "UE Context Release Complete", 4, false, s(enb, mme)},
	}
	return service, release
}

// TestProceduresOfOneUEAreToldApart: a UE begins more transactions than maxOpen before the
// first of them ends.
func TestProceduresOfOneUEAreToldApart(t *testing.T) {
	traffic := &traffic{}
	event := 0
	for u := range 20 {
		user := fmt.Sprint("00101", u)
		at := time.Duration(u) * 3 * ms
		add := func(script []line) {
			event++
			at = traffic.add(at, event, script) + 40*ms
		}
		add(attach(user))
		for n := range maxOpen {
			service, release := connection(user, n)
			add(service)
			add(release)
		}
		add(detach(user))
	}
	traffic.sort()
	types := map[string]int{}
	precision, recall := traffic.score(New(Options{}, func(e *Event) { types[e.Type()]++ }))
	if precision < 0.999 || recall < 0.999 || types["S1-RELEASE"] != 20*maxOpen || types["SR"] != 20*maxOpen || types["DETACH"] != 20 {
		t.Errorf("precision %.4f, recall %.4f, %v", precision, recall, types)
	}
}

// TestDetachesByTheNetworkBelongToTheirCause: the UDM or the HSS asks for a detach, and an MME detaches a
// UE of its own accord.
func TestDetachesByTheNetworkBelongToTheirCause(t *testing.T) {
	s := func(ids ...message.Identifier) []message.Identifier { return ids }
	supi, amf := id(message.IMSI, "1"), id(message.AMFUEID, "1")
	imsi, mme, other := id(message.IMSI, "2"), id(message.MMEUEID, "2"), id(message.MMEUEID, "3")
	for name, scripts := range map[string][2][]line{
		"UDM": {
			{{0, "gNB", "AMF", message.NGAP, "InitialUEMessage: Registration request", 0, true, s(supi, amf)}},
			{
				{0, "UDM", "AMF", message.HTTP2, "POST /namf-callback/v1/{}/dereg-notify", 0, false, s(supi)},
				{ms, "AMF", "gNB", message.NGAP, "DownlinkNASTransport: Deregistration request (UE terminated)", 0, true, s(amf)},
				{ms, "gNB", "AMF", message.NGAP, "UplinkNASTransport: Deregistration accept (UE terminated)", 0, true, s(amf)},
				{ms, "AMF", "UDM", message.HTTP2, "204 POST /namf-callback/v1/{}/dereg-notify", 1, false, nil},
			},
		},
		"HSS": {
			{{0, "eNB", "MME", message.S1AP, "Initial UE Message: Attach Request", 0, true, s(imsi, mme)}},
			{
				{0, "HSS", "MME", message.Diameter, "Cancel-Location-Request", 0, false, s(imsi)},
				{ms, "MME", "eNB", message.S1AP, "Downlink NAS Transport: Detach Request", 0, true, s(mme)},
				{ms, "eNB", "MME", message.S1AP, "Uplink NAS Transport: Detach Accept", 0, true, s(mme)},
				{ms, "MME", "HSS", message.Diameter, "Cancel-Location-Answer", 1, false, nil},
			},
		},
		"MME": {
			{
				{0, "eNB", "MME", message.S1AP, "Initial UE Message: Tracking Area Update Request", 0, true, s(other)},
				{ms, "MME", "eNB", message.S1AP, "Downlink NAS Transport: Tracking Area Update Accept", 0, true, s(other)},
			},
			{
				{0, "MME", "eNB", message.S1AP, "Downlink NAS Transport: Detach Request", 0, true, s(other)},
				{ms, "eNB", "MME", message.S1AP, "Uplink NAS Transport: Detach Accept", 0, true, s(other)},
			},
		},
	} {
		traffic := &traffic{}
		traffic.add(0, 1, scripts[0])
		traffic.add(500*ms, 2, scripts[1])
		if precision, recall := traffic.score(New(Options{}, func(*Event) {})); precision < 0.999 || recall < 0.999 {
			t.Errorf("%s: precision %.4f, recall %.4f", name, precision, recall)
		}
	}
}

// TestServiceRequestsHaveOneType: each kind of service request begins the same type of transaction (TS 24.301
// clause 5.6.1).
func TestServiceRequestsHaveOneType(t *testing.T) {
	for _, request := range []string{"Service Request", "Extended Service Request", "Control Plane Service Request"} {
		if n := newName(message.S1AP, "Initial UE Message: "+request); n.kind != "SR" || !n.radio {
			t.Errorf("%s: got type %s, sent of its own accord %t, want SR and true", request, n.kind, n.radio)
		}
	}
}

// TestLostAnswerDoesNotHoldAUser: the UE begins a new transaction although an answer of the
// eNodeB is missing, and a call ends in its dialog although an answer of its user is
// missing.
func TestLostAnswerDoesNotHoldAUser(t *testing.T) {
	traffic := &traffic{}
	service, release := connection("u", 1)
	again, _ := connection("u", 2)
	traffic.add(0, 1, attach("u"))
	traffic.add(50*ms, 2, service)
	traffic.add(100*ms, 3, release[:4])
	traffic.add(150*ms, 4, again)
	traffic.add(0, 5, call("a", "b")[:18])
	busy := register("b")[:10] // its answers are lost
	for i := range busy {
		if busy[i].from == "UE" {
			busy[i].from = "UE3"
		}
		if busy[i].to == "UE" {
			busy[i].to = "UE3"
		}
	}
	traffic.add(3*time.Second, 6, busy)
	traffic.sort()
	precision, recall := traffic.score(New(Options{}, func(*Event) {}))
	if precision < 0.999 || recall < 0.999 {
		t.Errorf("precision %.4f, recall %.4f", precision, recall)
	}
}

// TestTransactionsEndAfterAClockWasSetBack: transactions end as with a steady clock.
func TestTransactionsEndAfterAClockWasSetBack(t *testing.T) {
	for name, clock := range map[string]func(user int) time.Duration{
		"once":                func(user int) time.Duration { return -time.Duration(user/5) * time.Hour },
		"again, by centuries": func(user int) time.Duration { return time.Duration(user%2) << 62 },
	} {
		ended := 0
		c := New(Options{}, func(*Event) { ended++ })
		traffic := &traffic{}
		for user := range 10 {
			traffic.add(time.Hour+time.Duration(user)*10*time.Second+clock(user), user+1, register(fmt.Sprint(user)))
		}
		for i := range traffic.messages {
			m := &traffic.messages[i].Message
			m.SetBack = i > 0 && m.Time < traffic.messages[i-1].Time
			c.Add(m)
		}
		if ended != 9 {
			t.Errorf("%s: %d of the first 9 registrations ended before the last one, want 9", name, ended)
		}
	}
}
