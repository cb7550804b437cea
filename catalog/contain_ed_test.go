package catalog

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"vitrine/affinity/aggregate"
	"vitrine/affinity/flow"
	"vitrine/director"
	"vitrine/flex/config"
)

// TestContainedFilesAreValid checks the files of the packages. Every type of the orchestrator must
// be a type of the director and drain in the same way. Package flex/e2e runs the packages.
func TestContainedFilesAreValid(t *testing.T) {
	for _, dir := range []string{"contain-ed-ims", "contain-ed-epc", "contain-ed-kamailio"} {
		c, err := config.Load(dir+"/flex.yaml", known())
		if err != nil {
			t.Fatal(err)
		}
		d, err := director.Load(dir + "/director.yaml")
		if err != nil {
			t.Fatal(err)
		}
		for _, ty := range c.Types {
			of := d.Type(ty.Name)
			if of == nil || cmp.Or(of.Drain, config.DrainTransactions) != cmp.Or(ty.Drain, config.DrainTransactions) {
				t.Errorf("%s, type %s: the director has %+v", dir, ty.Name, of)
			}
		}
	}
}

// TestContainedIMSHasAnalysedAggregates checks that the types of contain-ed-ims have the members that
// the analysis of the reference IMS finds, as in section 3.2 of Contain-ed. INVITE has a Ralf.
func TestContainedIMSHasAnalysedAggregates(t *testing.T) {
	c, err := config.Load("contain-ed-ims/flex.yaml", known())
	if err != nil {
		t.Fatal(err)
	}
	flows, err := flow.Find("ims-reference")
	if err != nil {
		t.Fatal(err)
	}
	analysed := map[string]string{}
	for _, kind := range aggregate.Types(flows) {
		found, err := aggregate.Decide(kind, aggregate.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		analysed[kind.Name] = sorted(found.Members)
	}
	for name, transaction := range map[string]string{"registration": "REGISTER", "subscription": "SUBSCRIBE", "session": "INVITE"} {
		of := c.Type(name)
		if of == nil {
			t.Errorf("no type %s", name)
			continue
		}
		if got := sorted(of.Members); got != analysed[transaction] {
			t.Errorf("type %s: got members %q, want those of %s: %q", name, got, transaction, analysed[transaction])
		}
	}
}

// sorted returns names in lower case and in order.
func sorted(names []string) string {
	return strings.ToLower(strings.Join(slices.Sorted(slices.Values(names)), " "))
}

// TestContainedScriptGivesUp runs the script with an orchestrator whose instances do not become
// active, and with a director that does not steer to them. The script must say why it fails.
func TestContainedScriptGivesUp(t *testing.T) {
	const program = `#!/bin/sh
case "$1 $2" in
"flex run")
	echo the port is taken
	echo the service has ended >events
	mkdir flex.yaml.flex
	mv events flex.yaml.flex/events.jsonl
	exec sleep 600 ;;
"flex status")
	until [ -e flex.yaml.flex/events.jsonl ]; do sleep 0.01; done
	echo "session-1 $STATE 127.0.0.1" ;;
"director status") echo '{"pending": true}' ;;
esac
`
	vitrine := filepath.Join(t.TempDir(), "vitrine")
	if err := os.WriteFile(vitrine, []byte(program), 0o700); err != nil {
		t.Fatal(err)
	}
	for state, want := range map[string]string{"starting": "not active", "active": "not steered"} {
		c := exec.CommandContext(t.Context(), "sh", "contain-ed.sh", t.TempDir(), "1", "sip", "127.0.0.1:1")
		c.Env = append(os.Environ(), "VITRINE="+vitrine, "STATE="+state, "TRIES=2")
		out, err := c.CombinedOutput()
		for _, text := range []string{want, "the port is taken", "the service has ended"} {
			if !strings.Contains(string(out), text) {
				t.Errorf("instances are %s: missing %q in %s", state, text, out)
			}
		}
		if c.ProcessState.ExitCode() != 1 {
			t.Errorf("instances are %s: got %v, want exit status 1", state, err)
		}
	}
}
