package course

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"vitrine/affinity/correlate"
	"vitrine/affinity/flow"
	"vitrine/affinity/message"
)

// said is a message of a test. answers is the index of its request, from 1; 0 for a
// request. If the name ends with again, it is a retransmission of that message.
type said struct {
	from, to, name string
	answers        int
}

const again = " again"

// feed passes the transactions to a Collector.
func feed(transactions ...[]said) Result {
	var c *Collector
	correlator := correlate.New(correlate.Options{}, func(e *correlate.Event) { c.Add(e) })
	c = New(correlator, 0)
	say(correlator, transactions...)
	return c.Result(func(name string) bool { return name == "Database" })
}

// say passes the transactions to a Correlator, with 1 ms between messages.
func say(correlator *correlate.Correlator, transactions ...[]said) {
	at, id := int64(0), uint64(0)
	for n, t := range transactions {
		base := id
		at += int64(10 * time.Second)
		for _, s := range t {
			id++
			at += int64(time.Millisecond)
			m := message.Message{ID: id, Time: at, From: s.from, To: s.to, Protocol: message.SIP, Name: s.name, Bytes: 10,
				Identifiers: []message.Identifier{{Kind: message.CallID, Hash: uint64(n) + 1, Text: fmt.Append(nil, n)}}}
			if strings.HasSuffix(s.name, "GET") || strings.HasSuffix(s.name, "POST") {
				m.Protocol = message.HTTP
			}
			if strings.HasSuffix(s.name, "CCR") || strings.HasSuffix(s.name, "RAR") {
				m.Protocol = message.Diameter
			}
			if s.answers > 0 {
				m.Kind, m.Answers = message.Answer, base+uint64(s.answers)
			}
			if strings.HasSuffix(s.name, again) {
				m.Kind = message.Repeat
			}
			correlator.Add(&m)
		}
	}
	correlator.Close()
}

// subscribe is a subscription through a proxy. If crossed is true, the notification
// overtakes the answer.
func subscribe(crossed bool) []said {
	t := []said{
		{"UE", "Proxy", "SUBSCRIBE", 0}, {"Proxy", "Server", "SUBSCRIBE", 0}, {"Server", "Proxy", "200 SUBSCRIBE", 2},
		{"Proxy", "UE", "200 SUBSCRIBE", 1}, {"Server", "Proxy", "NOTIFY", 0}, {"Proxy", "UE", "NOTIFY", 0},
		{"UE", "Proxy", "200 NOTIFY", 6}, {"Proxy", "Server", "200 NOTIFY", 5},
	}
	if crossed {
		t[3], t[4] = t[4], t[3]
		t[7].answers = 4
	}
	return t
}

func TestMessagesThatCrossAreOneCourse(t *testing.T) {
	r := feed(subscribe(false), subscribe(true), subscribe(true))
	if len(r.Flows) != 1 || r.Flows[0].Count != 3 {
		t.Fatalf("got %d courses, want 1", len(r.Flows))
	}
	got := ""
	for _, m := range r.Flows[0].Messages {
		if m.Async {
			t.Errorf("%s is asynchronous, want synchronous", m.Name)
		}
		got += fmt.Sprintf("%s>%s %s, ", m.From, m.To, m.Name)
	}
	want := "UE>Proxy SUBSCRIBE, Proxy>Server SUBSCRIBE, Server>Proxy 200 SUBSCRIBE, Server>Proxy NOTIFY, " +
		"Proxy>UE 200 SUBSCRIBE, Proxy>UE NOTIFY, UE>Proxy 200 NOTIFY, Proxy>Server 200 NOTIFY, "
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// record is a request for which the server sends a charging record: after it has answered,
// or before, but without waiting for the record.
func record(before bool) []said {
	t := []said{
		{"UE", "Server", "MESSAGE", 0}, {"Server", "Database", "GET", 0}, {"Database", "Server", "200 GET", 2},
		{"Server", "UE", "200 MESSAGE", 1}, {"Server", "Ledger", "POST", 0}, {"Ledger", "Server", "200 POST", 5},
	}
	if before {
		t[3], t[4] = t[4], t[3]
		t[5].answers = 4
	}
	return t
}

func TestNobodyWaitsForARecord(t *testing.T) {
	for _, before := range []bool{false, true} {
		r := feed(record(before))
		async := ""
		for _, m := range r.Flows[0].Messages {
			if m.Async {
				async += m.Name + ", "
			}
		}
		if async != "POST, 200 POST, " {
			t.Errorf("sent before the answer %t: got asynchronous %s", before, async)
		}
		if roles := r.Flows[0].Roles; roles["Database"] != "database" || roles["UE"] != "outside" || len(roles) != 2 {
			t.Errorf("%v", roles)
		}
	}
}

// TestNobodyWaitsForWhatFollowsFromRecords: one of two charging records is passed on.
func TestNobodyWaitsForWhatFollowsFromRecords(t *testing.T) {
	r := feed([]said{
		{"UE", "Server", "MESSAGE", 0}, {"Server", "UE", "200 MESSAGE", 1},
		{"Server", "Ledger", "POST", 0}, {"Ledger", "Archive", "POST", 0}, {"Archive", "Ledger", "200 POST", 4}, {"Ledger", "Server", "200 POST", 3},
		{"Server", "Log", "POST", 0}, {"Log", "Server", "200 POST", 7},
	})
	if len(r.Flows) != 1 || len(r.Flows[0].Messages) != 8 {
		t.Fatalf("%+v", r.Flows)
	}
	for _, m := range r.Flows[0].Messages {
		if want := strings.HasSuffix(m.Name, "POST"); m.Async != want {
			t.Errorf("%s from %s to %s: asynchronous %t, want %t", m.Name, m.From, m.To, m.Async, want)
		}
	}
}

func TestSessionsAreWaitedFor(t *testing.T) {
	call := []said{
		{"UE", "Server", "INVITE", 0}, {"Server", "UE", "200 INVITE", 1}, {"Server", "Ledger", "POST", 0}, {"Ledger", "Server", "200 POST", 3},
		{"UE", "Server", "BYE", 0}, {"Server", "UE", "200 BYE", 5}, {"Server", "Ledger", "POST", 0}, {"Ledger", "Server", "200 POST", 7},
	}
	r := feed(call)
	if len(r.Flows) != 1 {
		t.Fatalf("%+v", r.Flows)
	}
	for i, m := range r.Flows[0].Messages {
		if last := i >= 6; m.Async != last { // nothing waits for the record of the end
			t.Errorf("message %d, %s: asynchronous %t", i+1, m.Name, m.Async)
		}
	}
}

// path returns the critical path of a type, as names of messages.
func path(r Result, kind string) string {
	var names []string
	for _, s := range r.Measured[kind].Path {
		names = append(names, s.Out)
	}
	return strings.Join(names, ", ")
}

// TestNothingWaitsForALateRecord: the server sends the charging record of a request while
// it serves the user's next request, so the record is assigned to that one.
func TestNothingWaitsForALateRecord(t *testing.T) {
	late := []said{
		{"UE", "Server", "MESSAGE", 0}, {"Server", "Ledger", "POST", 0}, {"Ledger", "Server", "200 POST", 2},
		{"Server", "Database", "GET", 0}, {"Database", "Server", "200 GET", 4}, {"Server", "UE", "200 MESSAGE", 1},
	}
	r := feed(late, record(false), record(true), late, record(false), record(false))
	for _, f := range r.Flows {
		for i, on := range f.Critical() {
			if m := f.Messages[i]; on && (m.To == "Ledger" || m.From == "Ledger") {
				t.Errorf("%s is on the critical path of %d transactions, want none", m.Name, f.Count)
			}
		}
	}
}

// call is a call through a proxy and a server, in which both users are at one place. If ahead
// is true, the 180 is back at the caller before the proxy passes on the 200.
func call(ahead bool) []said {
	t := []said{
		{"UE", "Proxy", "INVITE", 0}, {"Proxy", "Server", "INVITE", 0}, {"Server", "Proxy", "INVITE", 0}, {"Proxy", "UE", "INVITE", 0},
		{"UE", "Proxy", "180 INVITE", 4}, {"UE", "Proxy", "200 INVITE", 4}, {"Proxy", "Server", "180 INVITE", 3}, {"Proxy", "Server", "200 INVITE", 3},
		{"Server", "Proxy", "180 INVITE", 2}, {"Server", "Proxy", "200 INVITE", 2}, {"Proxy", "UE", "180 INVITE", 1}, {"Proxy", "UE", "200 INVITE", 1},
		{"UE", "Proxy", "BYE", 0}, {"Proxy", "UE", "200 BYE", 13},
	}
	if ahead {
		t[5], t[6], t[7], t[8], t[9], t[10] = t[6], t[8], t[10], t[5], t[7], t[9]
	}
	return t
}

// TestAnswersWaitOnlyForWhatTheyPassOn: a proxy that passes on the 200 of a call does not
// wait for the 180, which it passes on twice.
func TestAnswersWaitOnlyForWhatTheyPassOn(t *testing.T) {
	for _, ahead := range []bool{false, true} {
		r := feed(call(ahead), call(!ahead), call(!ahead))
		want := "INVITE, INVITE, INVITE, INVITE, 200 INVITE, 200 INVITE, 200 INVITE, 200 INVITE, BYE, 200 BYE"
		if got := path(r, "INVITE"); got != want {
			t.Errorf("ahead %t: the critical path is\n%s, want\n%s", ahead, got, want)
		}
		if len(r.Flows) != 1 {
			t.Errorf("ahead %t: got %d courses, want 1", ahead, len(r.Flows))
		}
	}
}

// TestRequestsOfADialogFollowEachOther: both users change a call. None of their requests is
// one that the other passes on, though they have the same names.
func TestRequestsOfADialogFollowEachOther(t *testing.T) {
	dialog := []said{
		{"UE", "Server", "INVITE", 0}, {"Server", "UE", "200 INVITE", 1}, {"Server", "UE", "INVITE", 0}, {"UE", "Server", "200 INVITE", 3},
		{"UE", "Server", "INVITE", 0}, {"Server", "UE", "200 INVITE", 5}, {"UE", "Server", "BYE", 0}, {"Server", "UE", "200 BYE", 7},
	}
	r := feed(dialog)
	if len(r.Flows) != 1 {
		t.Fatalf("got %d courses, want 1", len(r.Flows))
	}
	for i, m := range r.Flows[0].Messages {
		if said := dialog[i]; m.From != said.from || m.Name != said.name {
			t.Errorf("message %d is %s from %s, want %s from %s", i+1, m.Name, m.From, said.name, said.from)
		}
	}
	for _, f := range r.Measured["INVITE"].Functions {
		if f.Passes > 0 {
			t.Errorf("%s passes %g messages, want 0", f.Name, f.Passes)
		}
	}
}

// TestWhoServesOthersIsNotOutside: the PCRF begins its own transactions, and answers in
// transactions of UEs.
func TestWhoServesOthersIsNotOutside(t *testing.T) {
	attach := []said{{"UE", "MME", "MESSAGE", 0}, {"MME", "PCRF", "CCR", 0}, {"PCRF", "MME", "200 CCR", 2}, {"MME", "UE", "200 MESSAGE", 1}}
	bearer := []said{{"PCRF", "MME", "RAR", 0}, {"MME", "PCRF", "200 RAR", 1}}
	for _, f := range feed(attach, bearer, bearer, bearer).Flows {
		if role := f.Role("PCRF"); role != flow.Function {
			t.Errorf("role of the PCRF in %s: got %s", f.Type, role)
		}
	}
}

// TestNobodyWaitsForWhatComesLater: the server asks two functions at once, and both answer.
func TestNobodyWaitsForWhatComesLater(t *testing.T) {
	for _, crossed := range []bool{false, true} {
		both := []said{
			{"UE", "Server", "MESSAGE", 0}, {"Server", "Radio", "POST", 0}, {"Server", "Database", "GET", 0},
			{"Radio", "Server", "200 POST", 2}, {"Database", "Server", "200 GET", 3}, {"Server", "UE", "200 MESSAGE", 1},
		}
		want := "MESSAGE, GET, 200 GET, 200 MESSAGE"
		if crossed {
			both[3], both[4] = both[4], both[3]
			want = "MESSAGE, POST, 200 POST, 200 MESSAGE"
		}
		if got := path(feed(both), "MESSAGE"); got != want {
			t.Errorf("crossed %t: the critical path is %s, want %s", crossed, got, want)
		}
	}
}

// TestRequestsAtOnceWaitForNoneOfThem: a server that asks two functions at once is sometimes
// so slow that one answers before the server asks the other.
func TestRequestsAtOnceWaitForNoneOfThem(t *testing.T) {
	quick := []said{
		{"UE", "Server", "MESSAGE", 0}, {"Server", "Radio", "POST", 0}, {"Server", "Database", "GET", 0},
		{"Radio", "Server", "200 POST", 2}, {"Database", "Server", "200 GET", 3}, {"Server", "UE", "200 MESSAGE", 1},
	}
	slow := []said{
		{"UE", "Server", "MESSAGE", 0}, {"Server", "Radio", "POST", 0}, {"Radio", "Server", "200 POST", 2},
		{"Server", "Database", "GET", 0}, {"Database", "Server", "200 GET", 4}, {"Server", "UE", "200 MESSAGE", 1},
	}
	r := feed(slow, slow, quick, slow)
	if got := path(r, "MESSAGE"); got != "MESSAGE, GET, 200 GET, 200 MESSAGE" || len(r.Flows) != 1 {
		t.Errorf("got %d courses; the critical path is %s", len(r.Flows), got)
	}
	r = feed(slow, slow)
	if got := path(r, "MESSAGE"); got != "MESSAGE, POST, 200 POST, GET, 200 GET, 200 MESSAGE" {
		t.Errorf("without the quick transaction, the critical path is %s", got)
	}
}

func TestRareCoursesAreSummedUp(t *testing.T) {
	var all [][]said
	for range 300 {
		all = append(all, subscribe(false))
	}
	for n := range 100 {
		t := subscribe(false)
		t[2].name, t[3].name = fmt.Sprint(404+n, " SUBSCRIBE"), fmt.Sprint(404+n, " SUBSCRIBE")
		all = append(all, t[:4])
	}
	r := feed(all...)
	m := r.Measured["SUBSCRIBE"]
	if len(r.Flows) != 1 || r.Flows[0].Count != 300 || m.Transactions != 400 || m.Rare.Transactions != 100 || m.Rare.Courses != 100 {
		t.Errorf("got %d courses of %d transactions, rare %+v", len(r.Flows), m.Transactions, m.Rare)
	}
}

// refused is a subscription that the server refuses, in one of many courses.
func refused(n int) []said {
	t := subscribe(false)[:4]
	status := fmt.Sprint(410+n, " SUBSCRIBE")
	t[2].name, t[3].name = status, status
	return t
}

// TestANewCourseReplacesTheRarest: the most frequent course is new after more courses than
// are kept.
func TestANewCourseReplacesTheRarest(t *testing.T) {
	const courses = maxCourses + 6
	var all [][]said
	for n := range courses {
		all = append(all, refused(n), refused(n))
	}
	for range 1000 {
		all = append(all, subscribe(false))
	}
	r := feed(all...)
	if len(r.Flows) != 1 || r.Flows[0].Count != 1000 || len(r.Flows[0].Messages) != 8 {
		t.Errorf("got %d courses, the first %+v", len(r.Flows), r.Flows[0])
	}
	if rare := r.Measured["SUBSCRIBE"].Rare; rare != (Rare{Courses: courses, Transactions: 2 * courses}) {
		t.Errorf("got rare courses %+v", rare)
	}
}

// TestTheCoursesOfARunAreThoseOfTheNext: of more courses than are kept, all equally rare,
// the last ones stay in each run.
func TestTheCoursesOfARunAreThoseOfTheNext(t *testing.T) {
	const forgotten = 16
	var all [][]said
	for n := range maxCourses + forgotten {
		all = append(all, refused(n))
	}
	first, second := feed(all...), feed(all...)
	if !reflect.DeepEqual(first, second) {
		t.Errorf("got %+v, then %+v", first, second)
	}
	if got, want := first.Flows[0].Messages[2].Name, refused(forgotten)[2].name; got != want {
		t.Errorf("the first course has %s, want %s", got, want)
	}
}

// TestRetransmissionsThatArePassedOnAreNotAbsorbed: a request is repeated, and the proxy
// passes on all repetitions or none.
func TestRetransmissionsThatArePassedOnAreNotAbsorbed(t *testing.T) {
	for _, passes := range []bool{true, false} {
		request := []said{{"UE", "Proxy", "MESSAGE", 0}, {"Proxy", "Server", "MESSAGE", 0}}
		want := map[string]float64{"UE": 0, "Proxy": 2, "Server": 0}
		for range 2 {
			request = append(request, said{"UE", "Proxy", "MESSAGE" + again, 1})
			if passes {
				request = append(request, said{"Proxy", "Server", "MESSAGE" + again, 2})
				want["Proxy"], want["Server"] = 0, 2
			}
		}
		r := feed(append(request, said{"Server", "Proxy", "200 MESSAGE", 2}, said{"Proxy", "UE", "200 MESSAGE", 1}))
		for _, f := range r.Measured["MESSAGE"].Functions {
			if f.Absorbs != want[f.Name] {
				t.Errorf("passes on %t: %s absorbs %g, want %g", passes, f.Name, f.Absorbs, want[f.Name])
			}
		}
		if n := len(r.Measured["MESSAGE"].Functions); n != len(want) {
			t.Errorf("got %d functions, want %d", n, len(want))
		}
	}
}

// TestARequestIsAnsweredByItsFinalAnswer: a call rings after 10 ms, and is accepted after 1
// s. A capture at the UE has that answer 5 ms later than the capture at the server.
func TestARequestIsAnsweredByItsFinalAnswer(t *testing.T) {
	var c *Collector
	correlator := correlate.New(correlate.Options{}, func(e *correlate.Event) { c.Add(e) })
	c = New(correlator, 0)
	for n := range 10 {
		begin, invite := int64(n)*int64(10*time.Second), uint64(3*n+1)
		for i, m := range []message.Message{
			{From: "UE", To: "Server", Name: "INVITE"},
			{From: "Server", To: "UE", Name: "180 INVITE", Kind: message.Answer, Answers: invite, Time: int64(10 * time.Millisecond)},
			{From: "Server", To: "UE", Name: "200 INVITE", Kind: message.Answer, Answers: invite, Time: int64(time.Second), Arrived: begin + int64(1005*time.Millisecond)},
		} {
			m.ID, m.Time, m.Protocol = invite+uint64(i), begin+m.Time, message.SIP
			m.Identifiers = []message.Identifier{{Kind: message.CallID, Hash: invite, Text: fmt.Append(nil, n)}}
			correlator.Add(&m)
		}
	}
	correlator.Close()
	hops := c.Result(func(string) bool { return false }).Measured["INVITE"].Hops
	at := slices.IndexFunc(hops, func(h Hop) bool { return h.Name == "INVITE" })
	if at < 0 || hops[at].Count != 10 || hops[at].Answer == nil || hops[at].Answer.P50 != 1005 {
		t.Errorf("got %+v", hops)
	}
}

// TestWhatWasGivenUpMayBeAnsweredYet: each transaction is closed at its request, for lack of memory.
func TestWhatWasGivenUpMayBeAnsweredYet(t *testing.T) {
	var c *Collector
	correlator := correlate.New(correlate.Options{MaxMemory: 1}, func(e *correlate.Event) { c.Add(e) })
	c = New(correlator, 0)
	say(correlator, []said{{"UE", "Server", "MESSAGE", 0}, {"Server", "UE", "200 MESSAGE", 1}})
	m := c.Result(func(string) bool { return false }).Measured["MESSAGE"]
	if m == nil || m.GivenUp != 1 || m.Unanswered != 0 {
		t.Fatalf("got %+v", m)
	}
	if want := (Message{"UE", "Server", "MESSAGE"}); m.Begins != want || m.Ends != (Message{}) {
		t.Errorf("begins with %+v, want %+v; ends with %+v, want nothing", m.Begins, want, m.Ends)
	}
}

func TestTheMeansOfThePathAddUp(t *testing.T) {
	m := feed(subscribe(false), subscribe(false)).Measured["SUBSCRIBE"]
	sum, share := 0.0, 0.0
	for _, s := range m.Path {
		sum += s.Mean + s.Way
		share += s.Share
	}
	if m.Duration.P50 != 7 || math.Abs(sum-7) > 0.01 || math.Abs(share-1) > 0.001 {
		t.Errorf("got duration %g ms, path of %g ms in %+v", m.Duration.P50, sum, m.Path)
	}
}

func TestQuantilesAreWithinHalfAPercent(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var s sketch
	var all []int64
	for range 20000 {
		ns := int64(math.Exp(r.Float64()*12) * 1000)
		s.add(ns)
		all = append(all, ns)
	}
	slices.Sort(all)
	for _, share := range []float64{0.5, 0.95, 0.999} {
		want := float64(all[int(share*20000)]) / 1e6
		if got := s.quantile(share); math.Abs(got/want-1) > 0.006 {
			t.Errorf("quantile %g: got %g ms, want %g ms", share, got, want)
		}
	}
}

// TestQuantilesOfManyEqualTimes checks that a bucket counts more times than 32 bits hold.
func TestQuantilesOfManyEqualTimes(t *testing.T) {
	const ns = 5_000_000
	var s sketch
	s.add(ns)
	for k, n := range s.buckets {
		if n > 0 {
			s.buckets[k], s.count = math.MaxUint32, math.MaxUint32
		}
	}
	s.add(ns)
	if got := s.quantile(0.5); got != 5 {
		t.Errorf("the median of equal times is %g ms, want 5 ms", got)
	}
}

// BenchmarkLongCall views a call that has as many messages as a transaction may keep.
func BenchmarkLongCall(b *testing.B) {
	call := []said{{"UE", "Server", "INVITE", 0}, {"Server", "UE", "200 INVITE", 1}}
	for len(call)+4 <= correlate.MaxSteps {
		n := len(call)
		call = append(call, said{"UE", "Server", "INFO", 0}, said{"Server", "UE", "200 INFO", n + 1},
			said{"Server", "Ledger", "POST", 0}, said{"Ledger", "Server", "200 POST", n + 3})
	}
	var v view
	var correlator *correlate.Correlator
	correlator = correlate.New(correlate.Options{}, func(e *correlate.Event) {
		l := newLabels(correlator)
		l.learn(e)
		for b.Loop() {
			v.set(e, &l, correlator)
		}
		b.ReportMetric(float64(b.Elapsed())/float64(b.N)/float64(len(e.Steps)), "ns/message")
	})
	say(correlator, call)
}
