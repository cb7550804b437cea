package s1ap

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"strconv"
	"testing"
	"time"

	"vitrine/internal/hosttest"
	"vitrine/load"
	"vitrine/reference/epc/hss"
	"vitrine/reference/epc/pcrf"
	"vitrine/reference/epc/pgw"
	"vitrine/reference/epc/sgw"
)

// patience limits every wait of the tests.
const patience = 30 * time.Second

// An epc is the reference EPC: all its components, with their real protocols.
type epc struct {
	t      testing.TB
	prefix string
}

// newEPC returns an EPC without components. number selects its addresses.
func newEPC(t testing.TB, number int) *epc {
	return &epc{t: t, prefix: fmt.Sprintf("127.%d.%d.", 100+os.Getpid()%100, number)}
}

func (e *epc) at(host, port int) string {
	return net.JoinHostPort(e.prefix+strconv.Itoa(host), strconv.Itoa(port))
}

// start runs a component until the test ends or stop is called.
func (e *epc) start(name string, run hosttest.Program, args ...string) (stop func()) {
	e.t.Helper()
	return hosttest.Start(e.t, patience, name, run, args...)
}

// startEPC starts the reference EPC with MMEs 1 to mmes.
func startEPC(t testing.TB, number, mmes int) *epc {
	t.Helper()
	e := newEPC(t, number)
	e.start("hss", hss.Run, "--listen", e.at(41, 3868), "--metrics", e.at(41, 9090))
	e.start("pcrf", pcrf.Run, "--listen", e.at(31, 3868))
	e.start("pgw", pgw.Run, "--listen", e.at(21, 2123), "--pcrf", e.at(31, 3868), "--metrics", e.at(21, 9090))
	e.start("sgw", sgw.Run, "--listen", e.at(11, 2123), "--metrics", e.at(11, 9090))
	for n := 1; n <= mmes; n++ {
		e.mme(e.member(n, "--ciphering", "eea2", "--workers", "2")...)
		e.connected(n)
	}
	return e
}

// member returns the flags of MME n of a group.
func (e *epc) member(n int, more ...string) []string {
	return append([]string{
		"--s1", e.at(n, 36412), "--listen", e.at(n, 2123), "--metrics", e.at(n, 9090),
		"--instance", strconv.Itoa(n), "--diameter-host", fmt.Sprintf("mme%d.epc.test", n),
	}, more...)
}

// metric returns the value of a counter of a host, summed over the series that have
// all the labels.
func (e *epc) metric(host int, name string, labels ...string) int {
	e.t.Helper()
	text, err := hosttest.Scrape(e.at(host, 9090))
	if err != nil {
		e.t.Fatal(err)
	}
	return int(hosttest.Metric(e.t, text, name, labels...))
}

// succeeded returns how many procedures of an MME have succeeded.
func (e *epc) succeeded(host int, procedure string) int {
	e.t.Helper()
	return e.metric(host, "mme_procedures_total", `procedure="`+procedure+`"`, `outcome="success"`)
}

// try plays a trial, against MME 1 if it has no targets, and returns its report.
func (e *epc) try(trial load.Trial) (load.Report, error) {
	e.t.Helper()
	trial.Seed = 1
	if len(trial.Targets) == 0 {
		trial.Targets = []string{e.at(1, 36412)}
	}
	var stdout, stderr bytes.Buffer
	if err := Run(e.t.Context(), trial, &stdout, &stderr); err != nil {
		return load.Report{}, err
	}
	e.t.Log(stderr.String())
	return load.ParseReport(&stdout)
}

// run is like try, but an error ends the test. Calls may fail.
func (e *epc) run(trial load.Trial) load.Report {
	e.t.Helper()
	report, err := e.try(trial)
	if err != nil {
		e.t.Fatal(err)
	}
	return report
}

// play plays a trial against the MMEs and returns its report. All calls must succeed.
func (e *epc) play(rate, duration, warmup float64, mmes int, params map[string]string) load.Report {
	e.t.Helper()
	trial := load.Trial{Rate: rate, Duration: duration, Warmup: warmup, Params: params}
	for n := 1; n <= mmes; n++ {
		trial.Targets = append(trial.Targets, e.at(n, 36412))
	}
	report := e.run(trial)
	if report.Error != "" || report.Offered == 0 || report.Succeeded != report.Offered {
		e.t.Fatalf("%d of %d succeeded: %v, %s", report.Succeeded, report.Offered, report.Failed, report.Error)
	}
	return report
}

// TestScenariosAgainstTheReferenceEPC plays each scenario with two MMEs and compares the
// counts with the EPC's counts.
func TestScenariosAgainstTheReferenceEPC(t *testing.T) {
	const mmes = 2
	e := startEPC(t, 1, mmes)
	sum := func(procedure string) (n int) {
		for host := 1; host <= mmes; host++ {
			n += e.succeeded(host, procedure)
			for _, outcome := range []string{"network-failure", "timeout", "radio-failure", "unknown-identity", "authentication"} {
				if bad := e.metric(host, "mme_procedures_total", `outcome="`+outcome+`"`); bad > 0 {
					t.Errorf("MME %d: %d procedures ended with %s", host, bad, outcome)
				}
			}
		}
		return n
	}
	report := e.play(50, 2, 0, mmes, map[string]string{"scenario": Attach, "enodebs": "2"})
	hosttest.Until(t, patience, "all attaches are counted", func() bool { return sum("attach") == int(report.Offered) })
	if got := e.metric(11, "sgw_ues"); got != int(report.Offered) {
		t.Errorf("the S-GW has %d UEs, want %d", got, report.Offered)
	}

	detached := e.play(50, 1, 0, mmes, map[string]string{"scenario": AttachDetach, "subscribers": "001010000010001"})
	hosttest.Until(t, patience, "all detaches are counted", func() bool { return sum("detach") == int(detached.Offered) })
	hosttest.Until(t, patience, "the sessions of those are gone", func() bool { return e.metric(11, "sgw_ues") == int(report.Offered) })

	services := e.play(50, 2, 4, mmes, map[string]string{"scenario": ServiceRequest, "subscribers": "001010000020001", "timeout": "2s"})
	hosttest.Until(t, patience, "the services are counted", func() bool { return sum("service-request") >= int(services.Offered)/2 })

	e.play(50, 2, 4, mmes, map[string]string{"scenario": Mix, "subscribers": "001010000030001", "timeout": "2s", "enodebs": "3", "arrivals": "poisson"})
	if sum("tracking-area-update") == 0 {
		t.Error("the mix made no tracking area update")
	}
}

// TestBearersAndHandovers plays a mix with dedicated bearers and handovers, with two MMEs
// and three eNodeBs, and compares the counts with the EPC's counts.
func TestBearersAndHandovers(t *testing.T) {
	const mmes = 2
	e := startEPC(t, 6, mmes)
	e.play(40, 3, 3, mmes, map[string]string{
		"scenario": Mix, "timeout": "5s", "enodebs": "3", "mix": "service-request=1,dedicated-bearer=3,x2-handover=3,s1-handover=3",
	})
	sum := func(procedure, outcome string) (n int) {
		for host := 1; host <= mmes; host++ {
			n += e.metric(host, "mme_procedures_total", `procedure="`+procedure+`"`, `outcome="`+outcome+`"`)
		}
		return n
	}
	for _, procedure := range []string{"dedicated-bearer", "bearer-deactivation", "path-switch", "handover"} {
		if sum(procedure, "success") == 0 {
			t.Errorf("no successful %s", procedure)
		}
		for _, bad := range []string{"refused", "network-failure", "timeout", "radio-failure", "no-resources", "interrupted"} {
			if n := sum(procedure, bad); n > 0 {
				t.Errorf("%d of %s ended with %s", n, procedure, bad)
			}
		}
	}
	made := sum("dedicated-bearer", "success")
	if n := e.metric(21, "pgw_procedures_total", `procedure="create-bearer"`, `cause="16"`); n != made {
		t.Errorf("the P-GW made %d dedicated bearers, the MMEs count %d", n, made)
	}
	hosttest.Until(t, patience, "all dedicated bearers are removed", func() bool {
		return e.metric(21, "pgw_procedures_total", `procedure="delete-bearer"`, `cause="16"`) == made
	})
}
