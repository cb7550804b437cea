package graph

import (
	"math"
	"strings"
	"testing"

	"vitrine/affinity/flow"
)

func find(t *testing.T, names ...string) []*flow.Transaction {
	t.Helper()
	var all []*flow.Transaction
	for _, name := range names {
		flows, err := flow.Find(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, flows...)
	}
	return all
}

func parse(t *testing.T, text string) *flow.Transaction {
	t.Helper()
	f, err := flow.Parse("x.flow", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// share returns the share of a function's messages that reach another.
func share(t *testing.T, reaches []Reach, of, to string) float64 {
	t.Helper()
	for _, r := range reaches {
		if r.Function != of {
			continue
		}
		for _, s := range r.To {
			if s.Function == to {
				return s.Share
			}
		}
		return 0
	}
	t.Fatalf("found no reach of %s", of)
	return 0
}

// Contain-ed, section 2, says 41% and 18% for a mix of events that it does not print.
// docs/affinity.md has these figures.
func TestSharesOfTheMME(t *testing.T) {
	attach := Reaches(find(t, "epc/attach"))
	for to, want := range map[string]float64{"S-GW": 0.4, "P-GW": 0.2, "PCRF": 0.2, "HSS": 0.2, "eNodeB": 0.4, "UE": 0.4} {
		if got := share(t, attach, "MME", to); math.Abs(got-want) > 1e-9 {
			t.Errorf("attach: %.3f of the MME's messages reach %s, want %.3f", got, to, want)
		}
	}
	all := Reaches(find(t, "epc"))
	t.Logf("all EPC flows: S-GW %.3f, P-GW %.3f", share(t, all, "MME", "S-GW"), share(t, all, "MME", "P-GW"))
}

func TestReachStopsWhereTheAnswerComesBack(t *testing.T) {
	// B asks C, and then D. Only the first is passed on to E.
	r := Reaches([]*flow.Transaction{parse(t, `outside: A
A -> B: 1
B -> C: 2
C -> E: 3
E -> C: 4
C -> B: 5
B -> D: 6
D -> B: 7
B -> A: 8`)})
	for to, want := range map[string]float64{"A": 2. / 6, "C": 2. / 6, "E": 2. / 6, "D": 2. / 6} {
		if got := share(t, r, "B", to); math.Abs(got-want) > 1e-9 {
			t.Errorf("B reaches %s with %.3f, want %.3f", to, got, want)
		}
	}
	// B asked D once it had C's answer. Nothing that D sends makes anybody ask C.
	if got := share(t, r, "D", "C"); got != 0.5 {
		t.Errorf("D reaches C with %.3f, want 0.5 for the one message that waited for C", got)
	}
	for _, x := range r {
		if x.Function == "A" {
			t.Error("A, which is outside the operator's sites, has a reach")
		}
	}
}

func TestPairsAreMeansOverTheFlowsOfAType(t *testing.T) {
	often := parse(t, "count: 3\nA -> B: x [100]\nB -> A: y [60]")
	rare := parse(t, "A -> B: x [100]\nB -> C: z [40]\nC -> B: z [40]\nB -> A: y [60]")
	got := Pairs([]*flow.Transaction{often, rare})
	want := []Pair{{"A", "B", 2, 160}, {"B", "C", 0.5, 20}}
	if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("got %+v, want %+v", got, want)
	}
	rare.Messages[1].Bytes = 0
	if got := Pairs([]*flow.Transaction{often, rare}); got[0].Bytes != 0 {
		t.Errorf("got %g bytes, want 0 because one size is unknown", got[0].Bytes)
	}
}

func TestDOTQuotesNames(t *testing.T) {
	got := DOT("T", []Pair{{`a"b`, "c", 2.5, 0}}, []string{"c"})
	for _, want := range []string{`graph "T" {`, `"a\"b" -- "c" [label="2.5", weight=2.5];`, `subgraph "cluster_T" {`} {
		if !strings.Contains(got, want) {
			t.Errorf("%s\ndoes not contain %s", got, want)
		}
	}
}
