package compare

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"vitrine"
	"vitrine/affinity"
	"vitrine/affinity/aggregate"
	"vitrine/affinity/correlate"
	"vitrine/affinity/course"
	"vitrine/affinity/flow"
	"vitrine/affinity/graph"
	"vitrine/affinity/message"
)

// A traffic configures the transactions of a test: requests through a proxy to a server,
// which asks a store. Times vary by chance, and with a load that changes slowly.
type traffic struct {
	seed         uint64
	transactions int
	store        time.Duration // more in the store
	audit        float64       // share of transactions in which the server asks an auditor, too
	other        float64       // share of transactions of another type
	skip         int           // leave out the first ones, and
	only         int           // those after so many; 0: none
}

func (f traffic) analyse(t *testing.T) Side {
	t.Helper()
	random := rand.New(rand.NewPCG(f.seed, 7))
	var courses *course.Collector
	correlator := correlate.New(correlate.Options{}, func(e *correlate.Event) { courses.Add(e) })
	courses = course.New(correlator, 0)
	at, id, load := int64(0), uint64(0), 0.0
	for n := range f.transactions {
		load = 0.95*load + 0.05*random.NormFloat64()*3
		kind := "REGISTER"
		if random.Float64() < f.other {
			kind = "SUBSCRIBE"
		}
		took := func(median time.Duration) int64 {
			return int64(float64(median) * math.Exp(0.5*random.NormFloat64()+load))
		}
		at += int64(10 * time.Second)
		now := at
		send := func(from, to, name string, after int64, answers uint64) uint64 {
			id++
			now += after
			m := message.Message{ID: id, Time: now, From: from, To: to, Protocol: message.SIP, Name: name, Answers: answers,
				Identifiers: []message.Identifier{{Kind: message.CallID, Hash: uint64(n) + 1, Text: fmt.Append(nil, n)}}}
			if answers > 0 {
				m.Kind = message.Answer
			}
			if n >= f.skip && (f.only == 0 || n < f.skip+f.only) {
				correlator.Add(&m)
			}
			return id
		}
		first := send("UE", "Proxy", kind, 0, 0)
		second := send("Proxy", "Server", kind, took(time.Millisecond), 0)
		get := send("Server", "Store", "GET", took(time.Millisecond), 0)
		send("Store", "Server", "200 GET", took(2*time.Millisecond)+int64(f.store), get)
		if f.audit > 0 && random.Float64() < f.audit {
			ask := send("Server", "Auditor", "POST", took(time.Millisecond), 0)
			send("Auditor", "Server", "200 POST", took(time.Millisecond), ask)
		}
		send("Server", "Proxy", "200 "+kind, took(time.Millisecond), second)
		send("Proxy", "UE", "200 "+kind, took(time.Millisecond), first)
	}
	correlator.Close()
	found := courses.Result(func(name string) bool { return name == "Store" })
	a, err := affinity.Analyse(found.Flows, affinity.Options{Captured: &affinity.Captured{Read: &message.Summary{}, Measured: found.Measured, Flows: found.Flows}})
	if err != nil {
		t.Fatal(err)
	}
	return Side{fmt.Sprint("seed ", f.seed), a}
}

func compare(t *testing.T, a, b Side) *Comparison {
	t.Helper()
	c, err := Compare(a, b)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestWhereNothingChangedNothingIsReported compares the same traffic, and halves of it,
// many times. At most the share Doubt of the comparisons may report a change.
func TestWhereNothingChangedNothingIsReported(t *testing.T) {
	const rounds = 60
	wrong := 0
	for seed := range uint64(rounds) {
		whole := traffic{seed: 2 * seed, transactions: 600, other: 0.3}
		if seed%2 == 0 {
			first, second := whole, whole
			first.only, second.skip = 300, 300
			wrong += min(1, compare(t, first.analyse(t), second.analyse(t)).Changes)
			continue
		}
		another := whole
		another.seed++
		wrong += min(1, compare(t, whole.analyse(t), another.analyse(t)).Changes)
	}
	if t.Logf("%d of %d comparisons", wrong, rounds); wrong > rounds*Doubt {
		t.Errorf("%d of %d comparisons report a false change", wrong, rounds)
	}
}

// TestASlowerStoreIsTheOnlyChange adds 5 ms in one place. The comparison must report them
// there, with an interval that contains them, and in the duration.
func TestASlowerStoreIsTheOnlyChange(t *testing.T) {
	a, b := traffic{seed: 1, transactions: 2000}, traffic{seed: 2, transactions: 2000, store: 5 * time.Millisecond}
	c := compare(t, a.analyse(t), b.analyse(t))
	x := c.Types[0]
	if len(c.Types) != 1 || x.Duration == nil || x.Path != nil || x.Share != nil || x.Aggregate != nil || len(x.Messages) > 0 {
		t.Errorf("%+v", x)
	}
	if d := x.Duration; d != nil && (d.Least > 5 || d.Most < 5) {
		t.Errorf("total duration: got %+v", d)
	}
	for _, time := range x.Times {
		of := fmt.Sprint(time.Of, " ", time.From, " ", time.Name)
		if !slices.Contains([]string{"processing Store 200 GET", "answered in Server GET", "answered in Proxy REGISTER", "answered in UE REGISTER"}, of) ||
			time.Least > 5 || time.Most < 5 {
			t.Errorf("%+v", time)
		}
	}
	if back := compare(t, b.analyse(t), a.analyse(t)); back.Types[0].Duration == nil || back.Types[0].Duration.Most > 0 {
		t.Errorf("comparison in the other direction: got %+v", back.Types[0])
	}
}

func TestANewFunctionMakesThePathLonger(t *testing.T) {
	a, b := traffic{seed: 1, transactions: 100}, traffic{seed: 2, transactions: 100, audit: 1}
	x := compare(t, a.analyse(t), b.analyse(t)).Types[0]
	if x.Path == nil || x.Path.Length != [2]int{6, 8} || len(x.Path.New) != 2 || len(x.Path.Gone) != 0 {
		t.Errorf("path: got %+v", x.Path)
	}
	if len(x.Messages) != 2 || x.Messages[0].What != New || x.Messages[0].Rate.Least <= 0.5 || x.Messages[0].Rate.Most < 1 {
		t.Errorf("messages: got %+v", x.Messages)
	}
	if x.Aggregate == nil || !slices.Contains(x.Aggregate.B, "Auditor") || slices.Contains(x.Aggregate.A, "Auditor") {
		t.Errorf("aggregate: got %+v", x.Aggregate)
	}
	before, after := a.analyse(t), b.analyse(t)
	before.Types[0].Measured.Beyond = 100 // messages that may be the new ones
	if x := compare(t, before, after).Types[0]; len(x.Messages) != 0 {
		t.Errorf("messages that A may have had: got %+v", x.Messages)
	}
	back := compare(t, b.analyse(t), a.analyse(t)).Types[0]
	if len(back.Messages) != 2 || back.Messages[0].What != Vanished || back.Path == nil || len(back.Path.Gone) != 2 {
		t.Errorf("comparison in the other direction: got %+v", back)
	}
}

// TestWhichCourseIsTheMostFrequentMayBeChance: about half of the transactions go through an
// auditor. A few more in one of two captures are no change.
func TestWhichCourseIsTheMostFrequentMayBeChance(t *testing.T) {
	a, b := traffic{seed: 1, transactions: 60, audit: 0.4}.analyse(t), traffic{seed: 2, transactions: 60, audit: 0.6}.analyse(t)
	if x, y := a.Types[0].Flows[0], b.Types[0].Flows[0]; len(x.Messages) == len(y.Messages) {
		t.Fatalf("the most frequent courses are equal: %d and %d", x.Count, y.Count)
	}
	if x := compare(t, a, b).Types[0]; x.changes() > 0 {
		t.Errorf("%+v", x)
	}
}

// TestWhoTakesPartRarelyMayBeSeenByChance: an auditor in two of a hundred transactions does
// not change the aggregate.
func TestWhoTakesPartRarelyMayBeSeenByChance(t *testing.T) {
	a, b := traffic{seed: 1, transactions: 100}.analyse(t), traffic{seed: 2, transactions: 100, audit: 0.03}.analyse(t)
	if !slices.Contains(b.Types[0].Members, "Auditor") {
		t.Fatalf("the auditor is not a member: %v", b.Types[0].Members)
	}
	if x := compare(t, a, b).Types[0]; x.changes() > 0 {
		t.Errorf("%+v", x)
	}
}

// TestWhatIsNotListedMayTakePart: an auditor takes part in 1% of the transactions of A. The course with
// the auditor is not listed in B.
func TestWhatIsNotListedMayTakePart(t *testing.T) {
	const count = 100_000
	side := func(functions []string, flows ...affinity.Flow) Side {
		of := affinity.Type{Outcome: aggregate.Outcome{Type: "REGISTER", Members: functions}, Flows: flows,
			Pairs: []graph.Pair{{A: "Proxy", B: "Server"}}, Measured: &course.Measured{Type: "REGISTER", Transactions: count}}
		return Side{"side", &affinity.Analysis{Types: []affinity.Type{of}}}
	}
	plain, audited := []string{"Proxy", "Server"}, []string{"Proxy", "Server", "Auditor"}
	listed := func(count int, functions []string) affinity.Flow {
		f := affinity.Flow{Count: count, Functions: functions}
		for i := range functions[1:] {
			f.Messages = append(f.Messages, affinity.Step{Message: flow.Message{From: functions[i], To: functions[i+1], Name: "ask"}, Critical: true})
		}
		return f
	}
	a := side(audited, listed(count-1000, plain), listed(1000, audited))
	if x := compare(t, a, side(plain, listed(count-990, plain))).Types[0]; x.changes() > 0 {
		t.Errorf("990 transactions in courses that are not listed: got %+v", x)
	}
	if x := compare(t, a, side(plain, listed(count-500, plain))).Types[0]; x.Aggregate == nil {
		t.Error("500 transactions in courses that are not listed: the aggregate did not change")
	}
	if x := compare(t, a, side(plain, listed(count, plain))).Types[0]; x.Aggregate == nil {
		t.Error("all courses are listed: the aggregate did not change")
	}
	b := side(audited, listed(count-1000, audited), listed(500, plain))
	if x := compare(t, a, b).Types[0]; x.Path == nil {
		t.Error("another path: not found")
	}
}

func TestSharesOfTypesChange(t *testing.T) {
	a, b := traffic{seed: 1, transactions: 400, other: 0.2}, traffic{seed: 2, transactions: 400, other: 0.5}
	c := compare(t, a.analyse(t), b.analyse(t))
	for _, x := range c.Types {
		if x.Share == nil || math.Abs(math.Abs(x.Share.B-x.Share.A)-0.3) > 0.1 || x.Share.Least*x.Share.Most <= 0 {
			t.Errorf("%s: %+v", x.Type, x.Share)
		}
	}
	a.other = 0
	for _, x := range compare(t, a.analyse(t), b.analyse(t)).Types {
		if x.Share == nil || x.Type == "SUBSCRIBE" && x.Count[0] != 0 {
			t.Errorf("%s: %+v", x.Type, x)
		}
	}
}

func TestOfFewTransactionsNothingIsSaid(t *testing.T) {
	a, b := traffic{seed: 1, transactions: 30}, traffic{seed: 2, transactions: 30, store: time.Second}
	if x := compare(t, a.analyse(t), b.analyse(t)).Types[0]; x.changes() > 0 || x.TooFew == 0 {
		t.Errorf("%+v", x)
	}
}

func TestCallFlowsAreComparedByTheirMessages(t *testing.T) {
	read := func() []*flow.Transaction {
		flows, err := flow.Find("epc/attach")
		if err != nil {
			t.Fatal(err)
		}
		return flows
	}
	side := func(flows []*flow.Transaction) Side {
		a, err := affinity.Analyse(flows, affinity.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return Side{"flows", a}
	}
	before, after := read(), read()
	after[0].Messages = append(slices.Clone(after[0].Messages[:1]), after[0].Messages[2:]...)
	x := compare(t, side(before), side(after)).Types[0]
	if !x.Structural || len(x.Messages) != 1 || x.Messages[0].What != Vanished || x.Messages[0].Rate != nil {
		t.Errorf("%+v", x)
	}
	if c := compare(t, side(before), side(read())); c.Changes > 0 || c.Intervals > 0 {
		t.Errorf("%+v", c)
	}
}

func TestWhatCannotBeComparedIsAnError(t *testing.T) {
	a, b := traffic{seed: 1, transactions: 5}.analyse(t), traffic{seed: 1, transactions: 5}.analyse(t)
	b.Captured.Pseudonyms = "p-1"
	if _, err := Compare(a, b); !vitrine.IsBadInput(err) {
		t.Errorf("different pseudonyms: got %v", err)
	}
	b.Captured.Pseudonyms = ""
	for i := range b.Types[0].Pairs {
		p := &b.Types[0].Pairs[i]
		p.A, p.B = "other "+p.A, "other "+p.B
	}
	if _, err := Compare(a, b); !vitrine.IsBadInput(err) {
		t.Errorf("different functions: got %v", err)
	}
}

// TestIntervalsAreThoseOfTheBooks compares intervals with published examples and tables.
func TestIntervalsAreThoseOfTheBooks(t *testing.T) {
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 0.01 {
			t.Errorf("%s: got %.4f, want %.4f", what, got, want)
		}
	}
	// Newcombe 1998, table II, case a: 56/70 - 48/80, method 10.
	i := sure(0.05).shares(48, 80, 56, 70)
	near("least", i.Least, 0.0524)
	near("most", i.Most, 0.3339)
	// A Poisson count of 10 has the exact interval 4.795 to 18.39 (Garwood 1936).
	i = sure(0.05).rates(0, 1_000_000_000, 10, 1)
	near("least of a rate", i.Least, 4.795)
	if math.Abs(i.Most-18.39) > 0.02 {
		t.Errorf("upper bound of the rate: got %g, want 18.39", i.Most)
	}
	// Errors of 3 and 4 with 16 batches each: t(0.975; 27.8) is 2.049.
	i = sure(0.05).medians(&flow.Times{P50: 0, Error: 3, Batches: 16}, &flow.Times{P50: 0, Error: 4, Batches: 16})
	near("half of an interval", i.Most, 5*2.049+0.001)
}

func FuzzCompare(f *testing.F) {
	f.Add([]byte(`{"affinity":1,"types":[{"type":"A","measured":{"transactions":50,"hops":[{"from":"a","to":"b","name":"c","count":3,"way":{"p50_ms":1,"p50_error_ms":0.1,"batches":9}}]}}]}`),
		[]byte(`{"affinity":1,"types":[{"type":"A","pairs":[{"a":"x","b":"y"}],"measured":{"transactions":-1}}]}`))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		x, err := affinity.Parse(a)
		if err != nil {
			return
		}
		y, err := affinity.Parse(b)
		if err != nil {
			y = x
		}
		c, err := Compare(Side{"a", x}, Side{"b", y})
		if err != nil {
			return
		}
		if x == y && c.Changes > 0 {
			t.Errorf("an analysis compared with itself has changes: %+v", c)
		}
	})
}
