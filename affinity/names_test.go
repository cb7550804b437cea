package affinity

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vitrine"
	"vitrine/affinity/aggregate"
	"vitrine/affinity/flow"
	"vitrine/document"
)

func names(t *testing.T, text string) (*Names, error) {
	t.Helper()
	file, err := document.Parse("names.yaml", []byte(text), "a names")
	if err != nil {
		return nil, err
	}
	return parseNames(file)
}

func analyse(t *testing.T, group, text string) (*Analysis, error) {
	t.Helper()
	flows, err := flow.Find(group)
	if err != nil {
		t.Fatal(err)
	}
	n, err := names(t, text)
	if err != nil {
		return nil, err
	}
	return Analyse(flows, Options{Names: n, Delay: 10 * time.Millisecond})
}

func TestNamesMergeFunctionsAndGiveRoles(t *testing.T) {
	a, err := analyse(t, "ims/register", `
functions:
  - {name: Bono, also: [P-CSCF]}
  - {name: Sprout, also: [I-CSCF, S-CSCF]}
  - {name: Homestead, also: [HSS], role: database}
`)
	if err != nil {
		t.Fatal(err)
	}
	x := a.Types[0]
	if got := strings.Join(x.Members, " "); got != "Bono Sprout" || strings.Join(x.Outside, " ") != "Homestead" {
		t.Errorf("got members %s, outside %s", got, x.Outside)
	}
	// The four messages between I-CSCF and S-CSCF are inside Sprout.
	if n := len(x.Flows[0].Messages); n != 16 || x.Messages != (aggregate.Change{Before: 16, After: 12}) {
		t.Errorf("got %d messages, %+v", n, x.Messages)
	}
	if want := x.Path.Saved() * 10; x.Saved != want || want != 40 {
		t.Errorf("got %g ms saved, want %g", x.Saved, want)
	}
}

func TestAggregatesFitTheHost(t *testing.T) {
	a, err := analyse(t, "epc/attach", `
host: {vcpus: 6, memory: 8GiB}
functions:
  - {name: MME, vcpus: 2, memory: 2GiB}
  - {name: HSS, vcpus: 2, memory: 6GiB}
  - {name: S-GW, vcpus: 2, memory: 1GiB}
  - {name: P-GW, vcpus: 2, memory: 1GiB}
  - {name: PCRF, vcpus: 1, memory: 1GiB}
`)
	if err != nil {
		t.Fatal(err)
	}
	x := a.Types[0]
	if got := strings.Join(x.Members, " "); got != "MME S-GW P-GW" || x.Needs.VCPUs != 6 || a.Host.VCPUs != 6 {
		t.Errorf("got members %s, needs %+v, host %+v", got, x.Needs, a.Host)
	}
	if got := strings.Join(x.Outside, " "); got != "HSS PCRF" {
		t.Errorf("got functions outside the aggregate %s", got)
	}
}

const profile = `{"profile": 1, "function": "mme", "unit": "calls/s", "thresholds": [0.9], "confidence": 0.95,
 "settings": [{"substrate": "process", "options": "", "components": [], "sizes": [
  {"sizing": "me1s", "vcpus": 3, "memory_bytes": 1073741824, "source": "measured", "capacity": 350, "capacity_low": 330,
   "capacity_high": 370, "capacity_censored": "none", "bottleneck": ""}]}], "provenance": {"tool": "", "specs": {}, "outcomes": ""}}`

func TestACapacityProfileSaysWhatAFunctionNeeds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "profile.json")
	if err := os.WriteFile(path, []byte(profile), 0o644); err != nil {
		t.Fatal(err)
	}
	n, err := names(t, "functions: [{name: MME, profile: "+path+", rate: 300}]")
	if err != nil {
		t.Fatal(err)
	}
	limits, err := n.Limits()
	if err != nil || limits.Needs["MME"] != (aggregate.Resources{VCPUs: 3, Memory: 1 << 30}) {
		t.Errorf("%+v, %v", limits, err)
	}
	n, err = names(t, "functions: [{name: MME, profile: "+path+", rate: 340}]")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.Limits(); err == nil || !strings.Contains(err.Error(), "no size in it carries 340 calls/s for sure") {
		t.Errorf("%v", err)
	}
}

func TestNamesSayWhatIsWrongAndWhere(t *testing.T) {
	for text, want := range map[string]string{
		"functions: [{name: A, also: [B]}, {name: B}]":                           "names.yaml:1:35: B is a name of A already: give each name once",
		"functions: [{name: A, role: db}]":                                       `functions[0].role is "db": allowed: function, front-end`,
		"functions: [{name: A, profile: p.json}]":                                "a profile without rate: add the rate to carry",
		"functions: [{name: A, rate: 5}]":                                        "a rate without profile",
		"functions: [{name: A, rate: 5, vcpus: 1, profile: p}]":                  "a profile, and vcpus or memory: give one of them",
		"functions: [{name: A, rate: 5, profile: nowhere.json}]":                 "nowhere.json: no such file or directory: name a capacity profile",
		"{host: {vcpus: 4}, functions: [{name: MME, memory: 1}]}":                "MME has no vcpus, and the host has: add it",
		"{host: {vcpus: 4}}":                                                     "it is not known what MME needs",
		"functions: [{name: X, also: [UE, eNodeB, MME, HSS, S-GW, P-GW, PCRF]}]": "it gives all functions of epc/attach one name",
		"function: []": "function is not a field of the file: did you mean functions?",
	} {
		_, err := analyse(t, "epc/attach", text)
		if !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want %q", text, err, want)
		}
	}
}

// TestAddressesHaveManySpellings: a capture has the shortest spelling of an address, an inventory has any.
func TestAddressesHaveManySpellings(t *testing.T) {
	n, err := names(t, `
functions:
  - {name: MME, also: [10.0.0.1, "2001:DB8:0::1", "[2001:DB8::0:1]:36412"]}
  - {name: HSS, also: ["::ffff:10.0.0.2", "[::ffff:10.0.0.3]:3868"]}
`)
	if err != nil {
		t.Fatal(err)
	}
	for read, want := range map[string]string{"10.0.0.1": "MME", "2001:db8::1": "MME", "[2001:db8::1]:36412": "MME", "10.0.0.2": "HSS", "10.0.0.3:3868": "HSS", "2001:db8::2": ""} {
		if got := n.Called(read); got != want {
			t.Errorf("%s is called %q, want %q", read, got, want)
		}
	}
	_, err = names(t, `functions: [{name: MME, also: ["2001:db8::1"]}, {name: HSS, also: ["2001:DB8:0::1"]}]`)
	if want := "2001:DB8:0::1 is a name of MME already: give each name once"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("two functions with one address: got error %v, want %q", err, want)
	}
}

// TestNamesThatMatchNothingAreTold misspells a name: the role that goes with it has no effect.
func TestNamesThatMatchNothingAreTold(t *testing.T) {
	a, err := analyse(t, "epc/attach", `
functions:
  - {name: Edge, also: [S-GW, P-GW]}
  - {name: Homestead, also: [HSSS], role: database}
`)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(a.Unmatched, " "); got != "Homestead" {
		t.Errorf("names that match nothing: got %q, want Homestead", got)
	}
	if got := strings.Join(a.Types[0].Members, " "); !strings.Contains(got, "HSS") {
		t.Errorf("got members %s, want HSS among them", got)
	}
}

// TestHostIsIgnoredIfAsked analyses with a host, but without what the functions need.
func TestHostIsIgnoredIfAsked(t *testing.T) {
	flows, err := flow.Find("epc/attach")
	if err != nil {
		t.Fatal(err)
	}
	n, err := names(t, "{host: {vcpus: 4}}")
	if err != nil {
		t.Fatal(err)
	}
	if a, err := Analyse(flows, Options{Names: n, AnyHost: true}); err != nil || a.Host != nil || len(a.Types[0].Members) == 0 {
		t.Errorf("got %+v, %v", a, err)
	}
}

func TestFlowsOfOneTypeMustAgreeAboutRoles(t *testing.T) {
	var flows []*flow.Transaction
	for _, text := range []string{"database: B\nA -> B: x", "A -> B: x\nB -> A: y"} {
		f, err := flow.Parse("x.flow", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		flows = append(flows, f)
	}
	if _, err := Analyse(flows, Options{}); !vitrine.IsBadInput(err) {
		t.Errorf("%v", err)
	}
	n, err := names(t, "functions: [{name: B, role: database}]")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Analyse(flows, Options{Names: n}); err != nil {
		t.Errorf("the names file must take precedence: %v", err)
	}
}

// TestNamesOfALargeNetwork checks that a file may name all functions of a large network, and that a far
// larger file is refused.
func TestNamesOfALargeNetwork(t *testing.T) {
	const functions = 30_000
	var text strings.Builder
	text.WriteString("functions:\n")
	for i := range functions {
		fmt.Fprintf(&text, "  - {name: MME-%d, also: [mme-%d.epc.mnc001.mcc001.3gppnetwork.org]}\n", i, i)
	}
	path := filepath.Join(t.TempDir(), "names.yaml")
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	n, err := LoadNames(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := n.Called("mme-29999.epc.mnc001.mcc001.3gppnetwork.org"); len(n.Functions) != functions || got != "MME-29999" {
		t.Errorf("got %d functions, and the last one has the name %q", len(n.Functions), got)
	}
	if err := os.WriteFile(path, make([]byte, 9<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadNames(path); err == nil || !strings.Contains(err.Error(), "larger than 8 MiB") {
		t.Errorf("a file of 9 MiB: got error %v", err)
	}
}

// FuzzNames checks that a file of names is refused only as a BadInput, and that what is
// accepted gives each function one name, and aggregates that fit the host.
func FuzzNames(f *testing.F) {
	f.Add([]byte("host: {vcpus: 6, memory: 8GiB}\nfunctions:\n  - {name: MME, vcpus: 2, memory: 2GiB}\n  - {name: HSS, vcpus: 2, memory: 6GiB, role: database}\n" +
		"  - {name: S-GW, also: [P-GW, 198.51.100.2], vcpus: 2, memory: 1GiB}\n  - {name: PCRF, vcpus: 1, memory: 1GiB}\n"))
	f.Add([]byte("functions:\n  - {name: Edge, also: [MME, S-GW], role: outside}\n  - {name: Store, also: [HSS], role: database}\n"))
	f.Add([]byte("functions: [{name: X, also: [UE, eNodeB, MME, HSS, S-GW, P-GW, PCRF]}]"))
	f.Add([]byte("host: {vcpus: .nan, memory: -1}\nfunctions: [{name: MME, vcpus: 1e-300}, {name: '', also: ['']}]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := document.Parse("names.yaml", text, "a names")
		var n *Names
		if err == nil {
			n, err = parseNames(file)
		}
		var a *Analysis
		if err == nil {
			for _, x := range n.Functions {
				if x.Profile != "" { // any file of this host
					return
				}
				for _, name := range append([]string{x.Name}, x.Also...) {
					if got := n.Called(name); got != x.Name {
						t.Errorf("name of %q: got %q, want %q", name, got, x.Name)
					}
				}
			}
			var flows []*flow.Transaction
			if flows, err = flow.Find("epc/attach"); err != nil {
				t.Fatal(err)
			}
			a, err = Analyse(flows, Options{Names: n})
		}
		if err != nil {
			if !vitrine.IsBadInput(err) {
				t.Errorf("got error %v, want BadInput", err)
			}
			return
		}
		for _, x := range a.Types {
			for _, name := range x.Flows[0].Functions {
				if called := n.Called(name); called != "" && called != name {
					t.Errorf("%q got another name %q", name, called)
				}
			}
			if a.Host != nil && x.Needs != nil && (a.Host.VCPUs > 0 && x.Needs.VCPUs > a.Host.VCPUs*(1+1e-6) || a.Host.Memory > 0 && x.Needs.Memory > a.Host.Memory) {
				t.Errorf("%v needs %+v, but the host has %+v", x.Members, *x.Needs, *a.Host)
			}
		}
	})
}
