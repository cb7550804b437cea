package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"vitrine/affinity"
	"vitrine/affinity/correlate"
	"vitrine/affinity/flow"
	"vitrine/affinity/message"
	"vitrine/affinity/state"
)

// proveCourses compares the critical paths, aggregate members and stored state of an
// analysis with the truth. The file of names only names functions.
func proveCourses(t *testing.T, name, file string, messages []observed, of circumstances) {
	t.Helper()
	captured, err := affinity.ReadCaptures(t.Context(), []string{file}, message.Options{Name: of.name}, correlate.Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("critical paths", func(t *testing.T) { comparePaths(t, ladders(t, name), truths(t, file, messages, of), captured) })
	t.Run("aggregates", func(t *testing.T) { compareMembers(t, name, captured) })
	t.Run("state", func(t *testing.T) { compareState(t, captured.State, of.Keys) })
}

// ladders returns call flows that were written from the code of the functions: the messages
// that they send, and what each waits for.
func ladders(t *testing.T, name string) (all []*flow.Transaction) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", name, "*"+flow.Extension))
	if err != nil || len(files) == 0 {
		t.Fatalf("found no ladders of %s: %v", name, err)
	}
	for _, file := range files {
		l, err := flow.Read(file)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, l)
	}
	return all
}

// truths returns the transactions of the logs. Their messages are in the order of the
// capture, with the names that the analysis reads from the wire.
func truths(t *testing.T, file string, messages []observed, of circumstances) map[string]*flow.Transaction {
	t.Helper()
	a := analyse(t, file)
	a.match(messages, sameClock)
	all := map[string]*flow.Transaction{}
	unnamed := map[string]map[string]string{} // by class and address
	for i := range a.messages {
		f := &a.messages[i]
		if f.truth == nil || f.truth.class == "" || f.truth.again {
			continue
		}
		class := f.truth.class
		if all[class] == nil {
			all[class], unnamed[class] = &flow.Transaction{Type: f.truth.kind}, map[string]string{}
		}
		called := func(function string) string {
			if name := of.name(function); name != "" {
				return name
			}
			known := unnamed[class]
			if known[function] == "" {
				known[function] = outsider(f.Protocol, len(known))
			}
			return known[function]
		}
		all[class].Messages = append(all[class].Messages, flow.Message{From: called(f.From), To: called(f.To), Name: f.Name})
	}
	return all
}

// outsider returns the label in results of the n-th outside function in a transaction, from
// 0.
func outsider(p message.Protocol, n int) string {
	what := "UE"
	if p == message.S1AP {
		what = "eNodeB"
	}
	if n > 0 {
		what += fmt.Sprintf("-%d", n+1)
	}
	return what
}

// comparePaths checks that each ladder has the messages of transactions of the truth, and
// that the analysis finds its critical path. Transactions with other messages, such as a
// refused handover, need no ladder unless they are the most frequent of their kind.
func comparePaths(t *testing.T, ladders []*flow.Transaction, truths map[string]*flow.Transaction, captured *affinity.Captured) {
	t.Helper()
	found := map[string]map[string]int{} // transactions of the analysis, by messages and critical path
	for _, f := range captured.Flows {
		key := f.Type + "\n" + messagesOf(f)
		if found[key] == nil {
			found[key] = map[string]int{}
		}
		found[key][pathOf(f)] += f.Count
	}
	paths, covered := map[string][]string{}, map[string]bool{} // of types; messages of transactions
	for _, l := range ladders {
		want, path := messagesOf(l), pathOf(l)
		paths[l.Type], covered[want] = append(paths[l.Type], path), true
		same, inOrder := 0, 0
		for _, of := range truths {
			if messagesOf(of) == want {
				same++
				inOrder += follows(of, l)
			}
		}
		if same == 0 || inOrder < same*9/10 { // a busy host may capture two packets in the other order
			t.Errorf("%s: %d transactions of the ground truth have these messages, %d of them this critical path", l.Source, same, inOrder)
		}
		if got, n := most(found[l.Type+"\n"+want]); got != path {
			t.Errorf("%s: the critical path of %d transactions is\n%s\nthe ground truth has\n%s", l.Source, n, got, path)
		} else {
			t.Logf("%s: %d transactions in the ground truth, %d in the analysis have this critical path", l.Source, same, n)
		}
	}
	for kind, variants := range variantsOf(truths) {
		if messages, n := most(variants); !covered[messages] {
			t.Errorf("%d transactions of %s have no ladder:\n%s", n, kind, messages)
		}
	}
	for kind, known := range paths { // what tables and pages show
		m := captured.Measured[kind]
		if m == nil {
			t.Errorf("found no transaction of %s", kind)
			continue
		}
		var lines []string
		for _, s := range m.Path {
			lines = append(lines, lineOf(flow.Message{From: s.Function, To: s.To, Name: s.Out}))
		}
		if path := strings.Join(lines, "\n"); !slices.Contains(known, path) {
			t.Errorf("the critical path of %s is not in the ground truth:\n%s", kind, path)
		}
	}
}

// variantsOf counts the transactions of each kind by their messages.
func variantsOf(truths map[string]*flow.Transaction) map[string]map[string]int {
	variants := map[string]map[string]int{}
	for _, of := range truths {
		if variants[of.Type] == nil {
			variants[of.Type] = map[string]int{}
		}
		variants[of.Type][messagesOf(of)]++
	}
	return variants
}

// most returns the text with the highest count.
func most(counts map[string]int) (text string, n int) {
	for other, count := range counts {
		if count > n || count == n && other < text {
			text, n = other, count
		}
	}
	return text, n
}

func lineOf(m flow.Message) string { return fmt.Sprintf("%s > %s: %s", m.From, m.To, m.Name) }

// messagesOf returns the messages of a transaction in a canonical order.
func messagesOf(f *flow.Transaction) string {
	var lines []string
	for _, m := range f.Messages {
		lines = append(lines, lineOf(m))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// pathOf returns the messages on the critical path, in their order.
func pathOf(f *flow.Transaction) string {
	var lines []string
	for i, on := range f.Critical() {
		if on {
			lines = append(lines, lineOf(f.Messages[i]))
		}
	}
	return strings.Join(lines, "\n")
}

// follows returns 1 if the messages on a ladder's critical path came in its order in a
// transaction with the same messages, and 0 otherwise.
func follows(of, ladder *flow.Transaction) int {
	places := map[string][]int{} // of each line in the transaction
	for i, m := range of.Messages {
		places[lineOf(m)] = append(places[lineOf(m)], i)
	}
	before := -1
	for i, on := range ladder.Critical() {
		line := lineOf(ladder.Messages[i])
		at := places[line][0]
		places[line] = places[line][1:]
		switch {
		case on && at < before:
			return 0
		case on:
			before = at
		}
	}
	return 1
}

// membersOf returns the expected members of each type's aggregate. They match Table 1 of
// Contain-ed except in three rows, because the reference functions differ from the paper's.
func membersOf(name string) map[string]string {
	if name == "epc" {
		return map[string]string{
			"ATTACH":     "HSS MME P-GW PCRF S-GW",
			"DETACH":     "HSS MME P-GW S-GW", // the P-GW answers before it tells the PCRF
			"HANDOVER":   "MME S-GW",
			"SR":         "MME S-GW",
			"BEARER-CRT": "MME P-GW PCRF S-GW",
			"S1-RELEASE": "MME S-GW", // not in the table
			"TAU":        "MME",      // not in the table: the MME answers alone
		}
	}
	return map[string]string{
		"REGISTER":  "Bono Homestead Sprout",
		"SUBSCRIBE": "Bono Sprout",
		"INVITE":    "Bono Homer Homestead Ralf Sprout", // Homestead and Homer say what the user has; the AS is in Sprout
		"GET-/KV":   "Sprout",                           // not in the table: it looks for timers that are due, and the answer names users
	}
}

// compareMembers compares the aggregates of a capture with Table 1, and with section 3.2
// where databases are shared.
func compareMembers(t *testing.T, name string, captured *affinity.Captured) {
	t.Helper()
	check := func(names *affinity.Names, want map[string]string) {
		t.Helper()
		a, err := affinity.Analyse(captured.Flows, affinity.Options{Names: names, Captured: captured})
		if err != nil {
			t.Fatal(err)
		}
		for i := range a.Types {
			of := &a.Types[i]
			got := strings.Join(slices.Sorted(slices.Values(of.Members)), " ")
			members, known := want[of.Type]
			if got != members || !known {
				t.Errorf("%s: got members %q, want %q", of.Type, got, members)
			}
		}
		if len(a.Types) != len(want) {
			t.Errorf("got %d types, want %d", len(a.Types), len(want))
		}
		for _, g := range a.Aggregates {
			t.Logf("%s: %s", g.Name, strings.Join(g.Members, ", "))
		}
	}
	check(nil, membersOf(name))
	if name != "ims" {
		return
	}
	file := filepath.Join(t.TempDir(), "names.yaml")
	if err := os.WriteFile(file, []byte("functions: [{name: Homestead, role: database}, {name: Homer, role: database}]"), 0o644); err != nil {
		t.Fatal(err)
	}
	names, err := affinity.LoadNames(file)
	if err != nil {
		t.Fatal(err)
	}
	check(names, map[string]string{"REGISTER": "Bono Sprout", "SUBSCRIBE": "Bono Sprout", "INVITE": "Bono Ralf Sprout", "GET-/KV": "Sprout"})
}

// compareState checks that the forms of state in the analysis are those of the keys that
// were in the store, and which of them outlive their transactions: a registration is read
// by the user's next requests, a challenge when the user signs out, and a timer in a list.
func compareState(t *testing.T, s state.State, keys []string) {
	t.Helper()
	want, got := map[string]int{}, map[string]int{}
	for _, key := range keys {
		want[state.FormOf(key)]++
	}
	for _, f := range s.Forms {
		t.Logf("%+v", f)
		got[f.Key]++
		if want[f.Key] == 0 {
			t.Errorf("no key in the store has the form %s", f.Key)
		}
		if isTimer := strings.HasPrefix(f.Key, "due/"); isTimer != (f.Shared == 0) || isTimer != (f.Unread == f.Keys) {
			t.Errorf("%s: %d of %d keys are shared, %d are never read", f.Key, f.Shared, f.Keys, f.Unread)
		}
		if f.Writes < f.Keys || f.Longest == 0 {
			t.Errorf("%s: got %d keys, %d writes, lifetime %g s", f.Key, f.Keys, f.Writes, f.Longest)
		}
	}
	for form := range want {
		if got[form] != 1 {
			t.Errorf("%d keys in the store have the form %s; the analysis lists it %d times, want once", want[form], form, got[form])
		}
	}
}
