package flow

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"vitrine"
)

func parse(t *testing.T, text string) *Transaction {
	t.Helper()
	parsed, err := Parse("x.flow", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func TestParseReadsEverythingThatAFileMayHave(t *testing.T) {
	got := parse(t, `
# A comment.
title: Example#1 of everything # comment
type: EXAMPLE
clause: RFC 3261 section 24.2
count: 12
outside: UE, Far-End   # the rest of the line is a comment
database: UDR
front-end: HSS

UE -> P-CSCF: REGISTER: with a colon [700 B]
P-CSCF->HSS:UAR [120]
HSS -> UDR: read
UDR -> HSS: row
HSS -> P-CSCF: UAA
P-CSCF ~> Far-End: a copy
P-CSCF -> UE: 200 OK
`)
	if got.Title != "Example#1 of everything" || got.Type != "EXAMPLE" || got.Clauses != "RFC 3261 section 24.2" || got.Count != 12 {
		t.Errorf("headers: got %+v", got)
	}
	if want := []string{"UE", "P-CSCF", "HSS", "UDR", "Far-End"}; !slices.Equal(got.Functions(), want) {
		t.Errorf("got functions %s, want %s", got.Functions(), want)
	}
	for name, want := range map[string]Role{"UE": Outside, "Far-End": Outside, "UDR": Database, "HSS": FrontEnd, "P-CSCF": Function} {
		if got.Role(name) != want {
			t.Errorf("role of %s: got %s, want %s", name, got.Role(name), want)
		}
	}
	first, second, copied := got.Messages[0], got.Messages[1], got.Messages[5]
	if first != (Message{From: "UE", To: "P-CSCF", Name: "REGISTER: with a colon", Bytes: 700}) {
		t.Errorf("first message: got %+v", first)
	}
	if second != (Message{From: "P-CSCF", To: "HSS", Name: "UAR", Bytes: 120}) || !copied.Async || second.Async {
		t.Errorf("got messages %+v, %+v", second, copied)
	}
	if sum, known := got.Bytes(); sum != 820 || known {
		t.Errorf("got %d bytes, all sizes known: %v", sum, known)
	}
}

func TestATypeIsNamedAfterItsFileByDefault(t *testing.T) {
	got, err := Parse("some/service-request.flow", []byte("A -> B: x"))
	if err != nil || got.Type != "SERVICE-REQUEST" {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestErrorsNameThePlaceAndTheRemedy(t *testing.T) {
	for text, want := range map[string]string{
		"":                                   "x.flow: no message: want a line for each message",
		"\nA B: x":                           `x.flow:2:1: "A B" begins no line: allowed: title,`,
		"A -> B: x\n  hello":                 `x.flow:2:3: "hello" is no message: want "FROM -> TO: NAME"`,
		"A -> A: x":                          "x.flow:1:1: A sends a message to itself: want two functions",
		"A -> : x":                           "x.flow:1:1: the name of a function is empty: want at most 40 letters",
		"A! -> B: x":                         `x.flow:1:1: "A!" is no name of a function`,
		"A -> B":                             "x.flow:1:1: the message's name is empty: want a few words after the colon",
		"A -> B: x [9 kB]":                   `x.flow:1:1: "[9 kB]" is no size: want the message's bytes`,
		"A -> B: x [0]":                      "is no size",
		"A -> B: x [99999999999]":            "is no size",
		"A ~> B: x":                          "x.flow: every message is asynchronous",
		"titel: x\nA -> B: x":                "x.flow:1:1: titel begins no line: did you mean title? allowed: title, type,",
		"type: A\ntype: B\nA -> B: x":        "x.flow:2:1: type again: it is already given on line 1",
		"count: 0\nA -> B: x":                `x.flow:1:1: count is "0": want how often this happens`,
		"outside: UE\nA -> B: x":             "x.flow:1:1: UE takes part in no message: allowed: A, B",
		"outside: A, A\nA -> B: x":           "x.flow:1:1: A again: it has its role from line 1",
		"outside: A\ndatabase: A\nA -> B: x": "x.flow:2:1: A again: it has its role from line 1",
		"type: two words\nA -> B: x":         `x.flow:1:1: "two words" is no name of a type`,
		"A -> B: \x07":                       `x.flow:1:1: the message's name is "\a": want characters that can be printed`,
		"\xff":                               "x.flow: not UTF-8 text",
		strings.Repeat("A -> B: x\n", maxMessages+1): "x.flow:2001:1: more than 2000 messages",
	} {
		_, err := Parse("x.flow", []byte(text))
		if !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: got error %v, want %q", text, err, want)
		}
	}
}

func TestAllErrorsOfAFileAreReported(t *testing.T) {
	_, err := Parse("x.flow", []byte("a\nb\nA -> B: x\nc\n"))
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) || len(joined.Unwrap()) != 3 {
		t.Errorf("got %v, want 3 errors", err)
	}
}

func TestShippedFlowsSayWhatTheyFollow(t *testing.T) {
	if len(Shipped()) < 13 || !slices.Equal(Groups(), []string{"epc", "ims", "ims-reference"}) {
		t.Errorf("got flows %s, groups %s", Shipped(), Groups())
	}
	for _, name := range Shipped() {
		flows, err := Find(name)
		if err != nil {
			t.Error(err)
			continue
		}
		f := flows[0]
		if len(flows) != 1 || f.Title == "" || f.Type == "" || !strings.Contains(f.Clauses, "TS ") {
			t.Errorf("%s: %q, %q, %q", name, f.Title, f.Type, f.Clauses)
		}
	}
	if _, err := Find("epc/atach"); err == nil || !strings.Contains(err.Error(), "did you mean epc/attach?") {
		t.Errorf("unknown flow: got error %v", err)
	}
}

// An attach has 18 messages, and the MME sends or receives 10 of them (Contain-ed,
// section 2).
func TestAttachHasTheCountsOfThePaper(t *testing.T) {
	flows, err := Find("epc/attach")
	if err != nil {
		t.Fatal(err)
	}
	atMME := 0
	for _, m := range flows[0].Messages {
		if m.From == "MME" || m.To == "MME" {
			atMME++
		}
	}
	if len(flows[0].Messages) != 18 || atMME != 10 {
		t.Errorf("got %d messages, %d at the MME, want 18 and 10", len(flows[0].Messages), atMME)
	}
}

// onPath returns the messages on the critical path, by their names.
func onPath(f *Transaction) string {
	var names []string
	for i, on := range f.Critical() {
		if on {
			names = append(names, f.Messages[i].Name)
		}
	}
	return strings.Join(names, " ")
}

func TestTheCriticalPathIsTheLongestChainUpToTheEnd(t *testing.T) {
	for name, x := range map[string]struct{ text, want string }{
		"one after the other":      {"A -> B: 1\nB -> C: 2\nC -> B: 3\nB -> A: 4", "1 2 3 4"},
		"the longer of two beside": {"A -> B: 1\nB -> C: 2\nB -> D: 3\nC -> B: 4\nD -> E: 5\nE -> D: 6\nD -> B: 7\nB -> A: 8", "1 3 5 6 7 8"},
		"nobody waits":             {"A -> B: 1\nB ~> C: 2\nC ~> D: 3\nD ~> C: 4\nC ~> B: 5\nB -> A: 6", "1 6"},
		"after the end":            {"A -> B: 1\nB -> A: 2\nB ~> C: 3\nC ~> B: 4", "1 2"},
		"a dead end":               {"A -> B: 1\nB -> C: 2\nC -> D: 3\nB -> A: 4", "1 4"},
		"two that begin":           {"A -> B: 1\nC -> D: 2\nD -> B: 3\nB -> A: 4", "2 3 4"},
	} {
		f := parse(t, x.text)
		if got := onPath(f); got != x.want {
			t.Errorf("%s: got %s, want %s", name, got, x.want)
		}
		length := Length(f.Hops(), make([]int, len(f.Functions())), func(Hop) int { return 1 })
		if length != len(strings.Fields(x.want)) {
			t.Errorf("%s: got length %d, want %s", name, length, x.want)
		}
	}
}

func TestRenameMergesFunctions(t *testing.T) {
	f := parse(t, "outside: UE\nfront-end: I-CSCF\nUE -> P-CSCF: a\nP-CSCF -> I-CSCF: b\nI-CSCF -> S-CSCF: c\nS-CSCF -> P-CSCF: d")
	f.Rename(func(name string) string {
		if name == "I-CSCF" || name == "S-CSCF" {
			return "Sprout"
		}
		return name
	})
	if len(f.Messages) != 3 || f.Messages[1].To != "Sprout" || f.Messages[2].From != "Sprout" {
		t.Errorf("got messages %+v", f.Messages)
	}
	if f.Role("UE") != Outside || f.Role("Sprout") != FrontEnd {
		t.Errorf("got roles %v", f.Roles)
	}
}

// FuzzParse checks that Parse refuses text only with BadInputs, and that what it
// accepts keeps the limits and can be analysed.
func FuzzParse(f *testing.F) {
	for _, name := range Shipped() {
		flows, err := Find(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(flows[0].Text))
	}
	for _, text := range []string{"A -> B: x [1 B]", "A->B:x[", "A ~> B: [x]", "count: 9999999999999999999", "outside: ,", "::", "->:", "A -> B -> C: x", "#", "title: \u2028\nA->B:\u00e9"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		parsed, err := Parse("dir/x.flow", text)
		if err != nil {
			if !vitrine.IsBadInput(err) {
				t.Errorf("got error %v, want BadInput", err)
			}
			return
		}
		if len(parsed.Messages) == 0 || len(parsed.Messages) > maxMessages || parsed.Count < 1 || !isName(parsed.Type) {
			t.Errorf("Parse accepted %+v", parsed)
		}
		for _, m := range parsed.Messages {
			if !isName(m.From) || !isName(m.To) || m.From == m.To || m.Name == "" || m.Bytes < 0 || m.Bytes > maxBytes {
				t.Errorf("accepted message %+v", m)
			}
		}
		hops := parsed.Hops()
		length, on := Length(hops, make([]int, len(parsed.Functions())), func(Hop) int { return 1 }), 0
		for _, critical := range parsed.Critical() {
			if critical {
				on++
			}
		}
		if on != length || on == 0 {
			t.Errorf("got %d messages on a critical path of length %d", on, length)
		}
		for i, cause := range Causes(hops) {
			if cause >= i || cause >= 0 && hops[cause].To != hops[i].From {
				t.Errorf("message %d has the impossible cause %d", i, cause)
			}
		}
	})
}
