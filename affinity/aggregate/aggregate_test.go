package aggregate

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"vitrine"
	"vitrine/affinity/flow"
)

func shipped(t *testing.T, group string) []Type {
	t.Helper()
	flows, err := flow.Find(group)
	if err != nil {
		t.Fatal(err)
	}
	return Types(flows)
}

func parse(t *testing.T, text string) Type {
	t.Helper()
	f, err := flow.Parse("x.flow", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return Type{f.Type, []*flow.Transaction{f}}
}

func decide(t *testing.T, types []Type, limits Limits) []Outcome {
	t.Helper()
	var outcomes []Outcome
	for _, x := range types {
		o, err := Decide(x, limits)
		if err != nil {
			t.Fatal(err)
		}
		outcomes = append(outcomes, o)
	}
	return outcomes
}

// compare checks the members of each type, in any order.
func compare(t *testing.T, outcomes []Outcome, want map[string]string) {
	t.Helper()
	got := map[string]string{}
	for _, o := range outcomes {
		got[o.Type] = sorted(o.Members)
	}
	for name, members := range want {
		if got[name] != sorted(strings.Fields(members)) {
			t.Errorf("%s: got %s, want %s", name, got[name], members)
		}
	}
	if len(got) != len(want) {
		t.Errorf("got types %v, want %v", got, want)
	}
}

func sorted(names []string) string { return strings.Join(slices.Sorted(slices.Values(names)), " ") }

// Contain-ed, table 1. TAU is not in the table.
func TestTable1(t *testing.T) {
	epc := decide(t, shipped(t, "epc"), Limits{})
	compare(t, epc, map[string]string{
		"ATTACH": "MME HSS S-GW P-GW PCRF", "DETACH": "MME HSS S-GW P-GW PCRF", "HANDOVER": "MME S-GW",
		"BEARER-CRT": "MME S-GW P-GW PCRF", "SR": "MME S-GW", "TAU": "MME S-GW HSS",
	})
	var names []string
	for _, a := range Merge(epc, false) {
		names = append(names, a.Name)
	}
	if want := "ATTACH-DETACH BEARER-CRT HANDOVER-SR TAU"; sorted(names) != want {
		t.Errorf("got aggregates %s, want %s", names, want)
	}
	compare(t, decide(t, shipped(t, "ims"), Limits{}), map[string]string{
		"REGISTER": "P-CSCF I-CSCF S-CSCF HSS", "INVITE": "P-CSCF I-CSCF S-CSCF AS OCS", "SUBSCRIBE": "P-CSCF I-CSCF S-CSCF",
	})
}

// Contain-ed, section 3.2.
func TestSection32(t *testing.T) {
	outcomes := decide(t, shipped(t, "ims-reference"), Limits{})
	compare(t, outcomes, map[string]string{"REGISTER": "Bono Sprout", "SUBSCRIBE": "Bono Sprout", "INVITE": "Bono Sprout Ralf"})
	if apart := Merge(outcomes, true); len(apart) != 3 {
		t.Errorf("got aggregates %+v, want one for each type", apart)
	}
	if merged := Merge(outcomes, false); len(merged) != 2 || merged[0].Name != "REGISTER-SUBSCRIBE" {
		t.Errorf("got aggregates %+v", merged)
	}
}

// Messages that are added to a built-in flow change its aggregate.
func TestTheAggregateFollowsTheFlow(t *testing.T) {
	for _, x := range []struct{ flow, add, want string }{
		{"epc/service-request", "", "MME S-GW"},
		{"epc/service-request", "MME -> HSS: Authentication Information Request\nHSS -> MME: Answer", "HSS MME S-GW"},
		{"epc/service-request", "S-GW -> P-GW: Modify Bearer Request\nP-GW -> S-GW: Answer", "MME P-GW S-GW"},
		{"epc/service-request", "MME ~> CDF: Accounting-Request", "MME S-GW"},
		{"ims-reference/register", "Sprout -> Ralf: ACR\nRalf -> Sprout: ACA", "Bono Ralf Sprout"},
	} {
		flows, err := flow.Find(x.flow)
		if err != nil {
			t.Fatal(err)
		}
		o := decide(t, []Type{parse(t, flows[0].Text+"\n"+x.add)}, Limits{})[0]
		if got := sorted(o.Members); got != x.want {
			t.Errorf("%s with %q: got %s, want %s", x.flow, x.add, got, x.want)
		}
	}
}

func TestFewestOnTheCriticalPathThenFewestMessages(t *testing.T) {
	// B and C exchange most, beside the path; D is on it.
	text := "outside: A\nA -> B: 1\nB -> C: 2\nB -> D: 3\nC -> B: 4\nB -> C: 5\nC -> B: 6\nD -> E: 7\nE -> D: 8\nD -> E: 9\nE -> D: 10\nD -> E: 11\nE -> D: 12\nD -> B: 13\nB -> A: 14\n"
	host := func(vcpus float64) Limits {
		one := Resources{VCPUs: 1}
		return Limits{Resources{VCPUs: vcpus}, map[string]Resources{"B": one, "C": one, "D": one, "E": one}}
	}
	for vcpus, want := range map[float64]string{1: "B", 2: "D E", 3: "B D E", 4: "B C D E"} {
		o := decide(t, []Type{parse(t, text)}, host(vcpus))[0]
		if got := sorted(o.Members); got != want {
			t.Errorf("with %g CPUs: got %s, want %s", vcpus, got, want)
		}
		if o.Needs == nil || o.Needs.VCPUs != float64(len(o.Members)) || o.Search != Exact || o.Gap != nil {
			t.Errorf("with %g CPUs: got %+v", vcpus, o)
		}
	}
	o := decide(t, []Type{parse(t, text)}, Limits{})[0]
	if o.Path != (Change{10, 2}) || o.Messages != (Change{14, 2}) {
		t.Errorf("got path %+v, messages %+v", o.Path, o.Messages)
	}
	if o := decide(t, []Type{parse(t, text)}, host(0.5))[0]; len(o.Members) != 0 {
		t.Errorf("got members %s, want none because none fits", o.Members)
	}
	_, err := Decide(parse(t, text), Limits{Host: Resources{Memory: 1}, Needs: map[string]Resources{"B": {Memory: 1}}})
	if !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), "it is not known what D needs") && !strings.Contains(err.Error(), "it is not known what C needs") {
		t.Errorf("unknown need: got error %v", err)
	}
}

func TestSharedDatabasesStayOutsideAndFrontEndsJoin(t *testing.T) {
	o := decide(t, []Type{parse(t, "outside: UE\ndatabase: UDR\nfront-end: HSS\nUE -> MME: 1\nMME -> HSS: 2\nHSS -> UDR: 3\nUDR -> HSS: 4\nHSS -> MME: 5\nMME -> UE: 6")}, Limits{})[0]
	if sorted(o.Members) != "HSS MME" || sorted(o.Outside) != "UDR" {
		t.Errorf("got members %s, outside %s", o.Members, o.Outside)
	}
}

func TestFlowsThatDisagreeAboutARoleAreRefused(t *testing.T) {
	a, b := parse(t, "database: B\nA -> B: x").Flows[0], parse(t, "A -> B: x\nB -> A: y").Flows[0]
	if err := Conflict([]*flow.Transaction{a, b}); !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), "B is function here, and database in x.flow") {
		t.Errorf("%v", err)
	}
	if err := Conflict([]*flow.Transaction{parse(t, "front-end: B\nA -> B: x").Flows[0], b}); err != nil {
		t.Errorf("a front end must be allowed as a function: %v", err)
	}
}

// random returns a random flow between n functions, and their needs.
func random(r *rand.Rand, n, messages int) (Type, Limits) {
	f := &flow.Transaction{Type: "RANDOM", Source: "random", Count: 1, Roles: map[string]flow.Role{"f0": flow.Outside}}
	at := 0
	for range messages {
		from, to := at, r.IntN(n)
		if r.IntN(4) == 0 {
			from = r.IntN(n)
		}
		if from == to {
			to = (to + 1) % n
		}
		m := flow.Message{From: fmt.Sprintf("f%d", from), To: fmt.Sprintf("f%d", to), Name: "m", Async: r.IntN(8) == 0}
		if !m.Async {
			at = to
		}
		f.Messages = append(f.Messages, m)
	}
	limits := Limits{Host: Resources{VCPUs: float64(n) / 2}, Needs: map[string]Resources{}}
	for i := range n {
		limits.Needs[fmt.Sprintf("f%d", i)] = Resources{VCPUs: float64(1+r.IntN(8)) / 4}
	}
	return Type{"RANDOM", []*flow.Transaction{f}}, limits
}

func problemOf(x Type, limits Limits) *problem {
	s := newShape(x.Flows)
	p := &problem{shape: s, candidates: s.candidates(), limit: limits.Host}
	for _, name := range s.names {
		p.needs = append(p.needs, limits.Needs[name])
	}
	return p
}

// enumerate tries every set.
func (p *problem) enumerate() selection {
	var best selection
	for set := 1; set < 1<<len(p.candidates); set++ {
		in := make([]bool, len(p.names))
		for i, c := range p.candidates {
			in[c] = set>>i&1 == 1
		}
		if s := p.evaluate(in); p.fits(in) && s.better(best) {
			best = s
		}
	}
	return best
}

func TestTheExactSearchFindsTheBestOfAllSets(t *testing.T) {
	for seed := range uint64(150) {
		r := rand.New(rand.NewPCG(seed, 1))
		x, limits := random(r, 3+r.IntN(7), 5+r.IntN(40))
		for _, l := range []Limits{limits, {}} {
			p := problemOf(x, l)
			want, got := p.enumerate(), p.exact()
			if !slices.Equal(got.in, want.in) || got.cost != want.cost {
				t.Fatalf("seed %d, host %+v: %v %+v, want %v %+v", seed, l.Host, got.in, got.cost, want.in, want.cost)
			}
			if s := p.improve(p.shrink()); want.in != nil && (s.in == nil || !p.fits(s.in) || s.cost.less(want.cost)) {
				t.Fatalf("seed %d: the heuristic found %v %+v, the optimum is %+v", seed, s.in, s.cost, want.cost)
			}
		}
	}
}

func TestManyFunctionsAreLeftToTheHeuristicWithItsGap(t *testing.T) {
	x, limits := random(rand.New(rand.NewPCG(7, 7)), 40, 300)
	o := decide(t, []Type{x}, limits)[0]
	if o.Search != Heuristic || o.Gap == nil || o.Gap.Path < 0 || len(o.Members) < 10 || o.Needs.VCPUs > limits.Host.VCPUs {
		t.Errorf("got %+v, gap %+v, needs %+v", o, o.Gap, o.Needs)
	}
	o = decide(t, []Type{x}, Limits{})[0]
	if o.Gap == nil || *o.Gap != (Gap{}) {
		t.Errorf("gap without a limit: got %+v, want none", o.Gap)
	}
	if again := decide(t, []Type{x}, Limits{})[0]; !slices.Equal(again.Members, o.Members) {
		t.Errorf("got members %s, then %s, want the same", o.Members, again.Members)
	}
}

// BenchmarkExact solves the largest exact problem, on a host that fits half of the
// functions.
func BenchmarkExact(b *testing.B) {
	x, limits := random(rand.New(rand.NewPCG(3, 3)), maxExact+1, 120)
	for b.Loop() {
		problemOf(x, limits).exact()
	}
}
