package catalog

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vitrine/affinity"
	"vitrine/affinity/correlate"
	"vitrine/affinity/message"
	"vitrine/internal/hosttest"
	"vitrine/spec"
)

// keep is for developers who want to look at the captures.
var keep = flag.String("keep", "", "folder that keeps NextEPC's run folders and captures; empty: they are removed")

// TestNextEPC runs NextEPC under load and compares trials.csv with the messages
// between its functions. No call may fail. The parts run side by side, because each
// of them mostly waits.
func TestNextEPC(t *testing.T) {
	t.Parallel()
	requirePrograms(t, "nextepc", "nextepc-mmed", "nextepc-sgwd", "nextepc-pgwd", "nextepc-hssd", "nextepc-pcrfd", "cc", "ip", "tcpdump", "tshark")
	program := hosttest.Built(t, hosttest.Product)
	t.Run("attach", func(t *testing.T) {
		t.Parallel()
		const attaches = 100
		c := newNextEPC(t, program, "deployment.yaml", "workload.yaml", 2)
		c.config.Workload.Duration = attaches / 2 * time.Second
		c.run()
		c.allSucceed(attaches)
		mme, pgw := c.messages("mme"), c.messages("pgw")
		for _, m := range []struct {
			what string
			got  int
		}{
			{"Authentication-Information-Requests", mme["diameter 318"]}, {"Update-Location-Requests", mme["diameter 316"]},
			{"Create Session Requests on S11", mme["gtpv2 32"]}, {"Create Session Responses on S11", mme["gtpv2 33"]},
			{"Modify Bearer Requests", mme["gtpv2 34"]}, {"Modify Bearer Responses", mme["gtpv2 35"]},
			{"Create Session Requests on S5", pgw["gtpv2 32"]}, {"Create Session Responses on S5", pgw["gtpv2 33"]},
			{"Credit-Control-Requests", pgw["diameter 272"]},
		} {
			if m.got != attaches {
				t.Errorf("%d %s, want %d", m.got, m.what, attaches)
			}
		}
		c.findWhole(map[string]int{"ATTACH": attaches})
	})
	for name, deployment := range map[string]string{"mix": "deployment.yaml", "reference MME": "deployment-reference-mme.yaml"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newNextEPC(t, program, deployment, "workload-mix.yaml", 1.5)
			c.run()
			c.allSucceed(30)
			// Release Access Bearers, Modify Bearer and Delete Session, with their responses.
			mme := c.messages("mme")
			for _, kind := range []string{"170", "171", "34", "35", "36", "37"} {
				if mme["gtpv2 "+kind] == 0 {
					t.Errorf("no messages of type %s on S11: %v", kind, mme)
				}
			}
			// Each attach creates a session and modifies its bearer, each service request modifies it.
			attaches := mme["gtpv2 32"]
			c.findWhole(map[string]int{"ATTACH": attaches, "DETACH": mme["gtpv2 36"], "SR": mme["gtpv2 34"] - attaches})
		})
	}
}

// newNextEPC returns a campaign of one trial.
func newNextEPC(t *testing.T, program, deployment, workload string, rate float64) *campaign {
	t.Helper()
	c := newCampaign(t, "nextepc", "process", "mm1s", workload)
	d, err := spec.LoadDeployment(filepath.Join("nextepc", deployment), known())
	if err != nil {
		t.Fatal(err)
	}
	c.config.Deployment = d
	if *keep != "" {
		c.dir = filepath.Join(*keep, filepath.Base(t.Name()))
		if err := os.MkdirAll(c.dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	c.capture, c.filter = []string{"mme", "pgw"}, "tcp or udp"
	c.useTestbed()
	c.config.Testbed.Self = program
	w, err := spec.LoadWorkload(filepath.Join("nextepc", workload), known())
	if err != nil {
		t.Fatal(err)
	}
	c.config.Workload.Warmup, c.config.Workload.Duration = w.Warmup, w.Duration
	c.config.Workload.Range, c.config.Workload.Increase = spec.Range{rate, rate}, 1
	return c
}

// allSucceed checks that the given number of calls was offered, and that all of them succeeded.
func (c *campaign) allSucceed(offered int64) {
	c.t.Helper()
	calls := c.trials()
	if calls["offered"] != offered || calls["succeeded"] != offered {
		c.t.Errorf("%d calls offered, %d succeeded, want %d", calls["offered"], calls["succeeded"], offered)
	}
}

// findWhole checks that the affinity analysis finds the given number of transactions of each type
// in the captures, and that each step of their critical paths has a time.
func (c *campaign) findWhole(want map[string]int) {
	c.t.Helper()
	var files []string
	for _, tap := range c.wiring.taps {
		files = append(files, tap.file)
	}
	found, err := affinity.ReadCaptures(c.t.Context(), files, message.Options{}, correlate.Options{}, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	for kind, n := range want {
		m := found.Measured[kind]
		if m == nil || m.Transactions != n {
			c.t.Errorf("%s: %+v, want %d transactions", kind, m, n)
			continue
		}
		for i, s := range m.Path {
			if i > 0 && s.Times == nil {
				c.t.Errorf("%s: step %+v has no time", kind, s)
			}
			c.t.Logf("%s: %s after %.2f ms: %s to %s", kind, s.Function, s.Mean, s.Out, s.To)
		}
	}
}

// messages counts the distinct messages in the captures of a component, by protocol and type.
// Requests and answers of Diameter have the same type, so only the requests count. A
// retransmission does not count.
func (c *campaign) messages(component string) map[string]int {
	c.t.Helper()
	counts := map[string]int{}
	for instance, tap := range c.wiring.taps {
		if !strings.HasPrefix(instance, component+"-") {
			continue
		}
		out, err := exec.Command("tshark", "-n", "-r", tap.file, "-Y", "gtpv2 or diameter.flags.request == 1", "-T", "fields",
			"-e", "ip.src", "-e", "gtpv2.message_type", "-e", "gtpv2.seq", "-e", "diameter.cmd.code", "-e", "diameter.endtoendid").Output()
		var failed *exec.ExitError
		if errors.As(err, &failed) {
			err = fmt.Errorf("read %s: %w: %s", tap.file, err, failed.Stderr)
		}
		if err != nil {
			c.t.Fatal(err)
		}
		for message := range distinct(string(out)) {
			counts[message.name]++
		}
	}
	if len(counts) == 0 {
		c.t.Fatalf("no messages at %s", component)
	}
	c.t.Logf("%s: %v", component, counts)
	return counts
}

// A seen message was captured.
type seen struct{ from, name, number string }

// distinct returns the messages in tshark's fields. A packet may have several Diameter messages;
// tshark separates them by commas.
func distinct(fields string) map[seen]bool {
	all := map[seen]bool{}
	for line := range strings.Lines(fields) {
		f := strings.Split(strings.TrimRight(line, "\n"), "\t")
		for protocol, columns := range map[string][]string{"gtpv2": f[1:3], "diameter": f[3:5]} {
			if columns[0] == "" {
				continue
			}
			numbers := strings.Split(columns[1], ",")
			for i, name := range strings.Split(columns[0], ",") {
				all[seen{f[0], protocol + " " + name, numbers[i]}] = true
			}
		}
	}
	return all
}
