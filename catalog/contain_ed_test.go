package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"vitrine/affinity/aggregate"
	"vitrine/affinity/flow"
	"vitrine/director"
	"vitrine/director/client"
	"vitrine/flex/config"
	"vitrine/internal/hosttest"
	"vitrine/reference/epc/enb"
	"vitrine/reference/epc/ue"
	"vitrine/wire/identity"
	"vitrine/wire/nas"
	"vitrine/wire/s1ap"
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

// TestContainedRulesSteerByTransaction asks the director of each package where first messages go. The types
// are those of Contain-ed, table 1.
func TestContainedRulesSteerByTransaction(t *testing.T) {
	home, _ := identity.MakePLMN("001", "01")
	subscriber, _ := identity.MakeDigits("001010000000001")
	phone, name := ue.New(subscriber, home), &identity.STMSI{Code: 1, TMSI: 5}
	cell := enb.Cell{ID: s1ap.ENB{PLMN: home, ID: 1}, Name: "enb-1", TAI: identity.TAI{PLMN: home, TAC: 1}}
	service := nas.AppendServiceRequest(nil, 1, 2)
	for dir, messages := range map[string][]struct {
		name, want string
		message    []byte
	}{
		"contain-ed-ims": {
			{"REGISTER", "registration", request("REGISTER")},
			{"SUBSCRIBE", "subscription", request("SUBSCRIBE")},
			{"INVITE", "session", request("INVITE")},
		},
		"contain-ed-kamailio": {
			{"REGISTER", "registration", request("REGISTER")},
			{"INVITE", "session", request("INVITE")},
		},
		"contain-ed-epc": {
			{"attach", "attach-detach", cell.AppendInitial(nil, 1, phone.AppendAttach(nil), nil)},
			{"attach for a call", "attach-detach", cell.AppendCall(nil, 2, phone.AppendAttach(nil), nil)},
			{"detach", "attach-detach", cell.AppendInitial(nil, 3, phone.AppendDetach(nil, false), name)},
			{"service request", "handover-sr", cell.AppendInitial(nil, 4, service, name)},
			{"tracking area update", "handover-sr", cell.AppendInitial(nil, 5, phone.AppendUpdate(nil, false), name)},
			{"service request for a call", "bearer-crt", cell.AppendCall(nil, 6, service, name)},
		},
	} {
		c := packagedDirector(t, dir)
		for _, m := range messages {
			if e, err := c.Explain(t.Context(), client.Question{Message: m.message}); err != nil || e.Type != m.want {
				t.Errorf("%s, %s: got type %q, %v, want %q: %q", dir, m.name, e.Type, err, m.want, e.Steps)
			}
		}
	}
}

// request returns a SIP request outside any dialog.
func request(method string) []byte {
	return fmt.Appendf(nil, "%s sip:bob@ims.test SIP/2.0\r\nVia: SIP/2.0/UDP 127.0.0.1:9;branch=z9hG4bK1\r\nMax-Forwards: 70\r\n"+
		"From: <sip:alice@ims.test>;tag=1\r\nTo: <sip:bob@ims.test>\r\nCall-ID: 1\r\nCSeq: 1 %s\r\nContent-Length: 0\r\n\r\n", method, method)
}

// packagedDirector starts a package's director without instances, on free ports and without its state file.
func packagedDirector(t *testing.T, dir string) *client.Client {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "director.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	own := strings.NewReplacer(":5060", ":0", ":36412", ":0", ":8090", ":0", "state: flex.yaml.flex/director.state\n", "")
	file := filepath.Join(t.TempDir(), "director.yaml")
	if err := os.WriteFile(file, []byte(own.Replace(string(text))), 0o600); err != nil {
		t.Fatal(err)
	}
	clock, err := director.HostClock()
	if err != nil {
		t.Fatal(err)
	}
	d, err := director.New(t.Context(), director.Options{Path: file, Clock: clock, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	const limit = 20 * time.Second
	hosttest.Run(t, limit, "the director of "+dir, func(ctx context.Context) error { return errors.Join(d.Run(ctx), d.Close()) })
	c, err := client.New(client.Access{URL: d.Control()})
	if err != nil {
		t.Fatal(err)
	}
	return c
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
