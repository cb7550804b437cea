package s1ap

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"vitrine"
	"vitrine/internal/hosttest"
	"vitrine/internal/sctp"
	"vitrine/load"
	"vitrine/load/loadtest"
	"vitrine/reference/epc/hss"
	"vitrine/reference/epc/mme"
	"vitrine/reference/epc/pgw"
)

func TestDecodeRefusesWrongParameters(t *testing.T) {
	loadtest.Refuses(t, Decode, map[string][]string{
		"scenario": {"", "detach"}, "arrivals": {"bursty"}, "timeout": {"0s", "2h", "soon"}, "tick": {"0s"}, "stay": {"-1s", "2h"},
		"enodebs": {"0", "1025", "x"}, "first_enodeb": {"-1", "1048576"}, "users": {"-1", "1048577"}, "tac": {"65536"}, "transport": {"", "udp"},
		"subscribers": {"", "00101", "00101000000000x", "0010100000000011"}, "network": {"", "0010", "0010x", "0010100", "26201"},
		"mix": {"", "attach", "attach=-1", "attach=1001", "attach=0", "attach=1,attach=2", "paging=1", "attach=1,", "attach=1"},
	})
}

// TestKernelWithoutSCTPIsNamed requests SCTP. The kernel may lack SCTP.
func TestKernelWithoutSCTPIsNamed(t *testing.T) {
	trial := load.Trial{Rate: 1, Duration: 1, Targets: []string{"127.0.0.1:1"}, Params: map[string]string{"transport": "sctp"}}
	err := Run(t.Context(), trial, io.Discard, io.Discard)
	if sctp.Possible() != nil && (!vitrine.IsUnsupported(err) || !strings.Contains(err.Error(), "modprobe sctp")) {
		t.Errorf("the kernel does not support SCTP, but got %v", err)
	}
	if sctp.Possible() == nil && err != nil {
		t.Errorf("the kernel supports SCTP, but got %v", err)
	}
}

func TestIMSIsAreConsecutive(t *testing.T) {
	p, err := Decode(map[string]string{"subscribers": "001010000000098"})
	if err != nil {
		t.Fatal(err)
	}
	for n, want := range map[int]string{0: "001010000000098", 1: "001010000000099", 2: "001010000000100", 1 << 19: "001010000524386"} {
		if d := p.imsi(n); d.String() != want {
			t.Errorf("subscriber %d: got IMSI %v, want %s", n, d, want)
		}
	}
}

// TestPoolHasAUserForEachOpenCall checks the number of subscribers.
func TestPoolHasAUserForEachOpenCall(t *testing.T) {
	trial := load.Trial{Rate: 10, Duration: 20, Warmup: 10, Targets: []string{"127.0.0.1:1"}}
	for _, c := range []struct {
		params map[string]string
		want   int // 0: refused
	}{
		{map[string]string{"scenario": AttachDetach}, 101},
		{map[string]string{"scenario": ServiceRequest, "timeout": "1s"}, 11},
		{map[string]string{"scenario": ServiceRequest, "timeout": "1s", "stay": "2s"}, 31},
		{map[string]string{"scenario": AttachDetach, "users": "500"}, 500},
		{map[string]string{"scenario": AttachDetach, "users": "100"}, 0},
		{map[string]string{"scenario": Attach}, 275}, // 200 in the window, 75 in the warm-up
		{map[string]string{"scenario": Attach, "users": "50"}, 50},
	} {
		p, err := Decode(c.params)
		if err != nil {
			t.Fatal(err)
		}
		got, err := p.pool(trial)
		if (err != nil) != (c.want == 0) || got != c.want {
			t.Errorf("%v: got %d users, error %v, want %d", c.params, got, err, c.want)
		}
	}
}

// TestDefaultsOfTheEPCSuffice compares the most subscribers of a trial with the defaults of the
// reference functions.
func TestDefaultsOfTheEPCSuffice(t *testing.T) {
	want := fmt.Sprintf("(default %d)", maxUsers)
	for name, run := range map[string]hosttest.Program{"hss": hss.Run, "mme": mme.Run, "pgw": pgw.Run} {
		var help bytes.Buffer
		if err := run(t.Context(), []string{"--help"}, &help, io.Discard); err != nil || !strings.Contains(help.String(), want) {
			t.Errorf("%s --help: error %v, no flag has %q:\n%s", name, err, want, &help)
		}
	}
}

// TestFailuresHaveTheirCause provokes each rejection.
func TestFailuresHaveTheirCause(t *testing.T) {
	t.Parallel()
	e := startEPC(t, 2, 0)
	e.start("hss", hss.Run, "--listen", e.at(42, 3868), "--subscribers", "20", "--wrong-key-every", "2")
	stop := e.mme("--hss", e.at(42, 3868))
	e.connected(1)
	trial := load.Trial{Rate: 20, Duration: 2, Params: map[string]string{"scenario": Attach}}
	report := e.run(trial)
	// A generator on a busy host does not offer all of the 40 calls.
	if wrong, unknown := report.Failed["untrusted"], report.Failed["emm-8"]; report.Succeeded == 0 || report.Succeeded > 10 ||
		wrong == 0 || wrong > 10 || report.Succeeded+wrong+unknown != report.Offered {
		t.Errorf("%d succeeded, failed %v; want 10, 10 with wrong keys, 20 unknown", report.Succeeded, report.Failed)
	}
	stop()
	stop = e.mme("--hss", e.at(99, 3868)) // nothing listens there
	report = e.run(trial)
	if report.Failed["emm-17"] != report.Offered || report.Offered == 0 {
		t.Errorf("without an HSS: got failures %v", report.Failed)
	}
	stop()
	stop = e.mme("--contexts", "5")
	e.connected(1)
	report = e.run(trial)
	if report.Succeeded != 5 || report.Failed["emm-22"] != report.Offered-5 {
		t.Errorf("above 5 contexts: %d succeeded, failures %v", report.Succeeded, report.Failed)
	}
	trial.Params = map[string]string{"network": "99970", "subscribers": "999700000000001"}
	if report = e.run(trial); !strings.Contains(report.Error, "refuses the eNodeBs") {
		t.Errorf("eNodeBs of another network: got %q", report.Error)
	}
	stop()
	if report = e.run(load.Trial{Rate: 20, Duration: 1}); report.Failed["connect"] != report.Offered || report.Offered == 0 {
		t.Errorf("without an MME: got failures %v", report.Failed)
	}
}

// TestAddressesRunOut attaches more UEs than the P-GW has addresses. The UEs must get the cause
// from the P-GW (TS 29.274: all dynamic addresses are occupied; TS 24.301: insufficient
// resources), and each node must count it.
func TestAddressesRunOut(t *testing.T) {
	const addresses = 6 // of a prefix of 29 bits, without the first and the last
	e := startEPC(t, 7, 0)
	e.start("pgw", pgw.Run, "--listen", e.at(22, 2123), "--metrics", e.at(22, 9090), "--pool", "10.45.0.0/29")
	e.mme("--pgw", e.at(22, 2123))
	e.connected(1)
	report := e.run(load.Trial{Rate: 20, Duration: 1, Params: map[string]string{"scenario": Attach}})
	refused := report.Failed["emm-19"]
	if report.Succeeded != addresses || refused == 0 || refused+addresses != report.Offered {
		t.Errorf("%d of %d succeeded, failed %v; want %d", report.Succeeded, report.Offered, report.Failed, addresses)
	}
	if n := e.metric(1, "mme_procedures_total", `procedure="attach"`, `outcome="no-resources"`); n != int(refused) {
		t.Errorf("the MME counts %d refused attaches, the generator %d", n, refused)
	}
	for host, name := range map[int]string{11: "sgw_procedures_total", 22: "pgw_procedures_total"} {
		if n := e.metric(host, name, `procedure="create-session"`, `cause="84"`); n != int(refused) {
			t.Errorf("%s counts %d refused sessions, the generator %d", name, n, refused)
		}
	}
	if n := e.metric(22, "pgw_sessions"); n != addresses {
		t.Errorf("got %d sessions", n)
	}
}

// TestIMSIsAttachTwice lets each of a few UEs attach again and again by IMSI, as two devices with
// one IMSI do. The last device must have the session, and the other contexts must be removed.
func TestIMSIsAttachTwice(t *testing.T) {
	const users = 5
	e := startEPC(t, 8, 1)
	report := e.run(load.Trial{Rate: 10, Duration: 2, Params: map[string]string{"scenario": Attach, "users": "5"}})
	if report.Succeeded <= users || report.Succeeded != report.Offered {
		t.Fatalf("%d of %d succeeded, failed %v", report.Succeeded, report.Offered, report.Failed)
	}
	hosttest.Until(t, patience, "the older contexts are removed", func() bool {
		return e.metric(1, "mme_attached_again_total") == int(report.Succeeded)-users && e.metric(1, "mme_contexts") == users
	})
	if n := e.metric(21, "pgw_sessions"); n != users {
		t.Errorf("got %d sessions for %d subscribers", n, users)
	}
}

// TestENodeBsConnectAgain ends the MME in the middle of a trial and starts another MME.
func TestENodeBsConnectAgain(t *testing.T) {
	t.Parallel()
	e := startEPC(t, 3, 0)
	stop := e.mme()
	e.connected(1)
	restarted := make(chan struct{})
	go func() {
		defer close(restarted)
		hosttest.Until(t, patience, "UEs have attached", func() bool { return e.succeeded(1, "attach") > 20 })
		stop()
		e.mme()
	}()
	report := e.run(load.Trial{Rate: 20, Duration: 8, Params: map[string]string{"scenario": AttachDetach}})
	<-restarted
	last := report.Seconds.Succeeded[len(report.Seconds.Succeeded)-1]
	if report.Failed["connect"] == 0 || last == 0 {
		t.Errorf("successes per second: %v, failures %v", report.Seconds.Succeeded, report.Failed)
	}
	for cause := range report.Failed {
		if cause != "connect" && cause != "reset" && cause != "emm-17" { // #17: no HSS yet
			t.Errorf("got failures %v", report.Failed)
		}
	}
}

// TestStaysAreNotPartOfTheLatency lets UEs stay connected for much longer than their procedures
// take.
func TestStaysAreNotPartOfTheLatency(t *testing.T) {
	t.Parallel()
	const stay = 4 * time.Second
	e := startEPC(t, 5, 1)
	for _, scenario := range []string{AttachDetach, Mix} {
		begun := time.Now()
		report := e.run(load.Trial{Rate: 10, Duration: 1, Params: map[string]string{"scenario": scenario, "stay": stay.String()}})
		if report.Offered == 0 || report.Succeeded != report.Offered {
			t.Errorf("%s: %d of %d succeeded, failed %v", scenario, report.Succeeded, report.Offered, report.Failed)
		}
		if took := time.Since(begun); took < stay {
			t.Errorf("%s: the trial took only %v", scenario, took)
		}
		if report.Answered < stay.Seconds() {
			t.Errorf("%s: the last call ended after %v s", scenario, report.Answered)
		}
		// No call ends in the window. A late generator may send calls after the last sample.
		if last := report.InFlight[len(report.InFlight)-1]; !slices.IsSorted(report.InFlight) || last < report.Offered/2 {
			t.Errorf("%s: calls in flight %v of %d", scenario, report.InFlight, report.Offered)
		}
		latency, err := report.Histogram()
		if err != nil {
			t.Fatal(err)
		}
		if p50 := time.Duration(latency.ValueAtQuantile(50)); p50 <= 0 || p50 >= stay {
			t.Errorf("%s: got a median latency of %v", scenario, p50)
		}
	}
}

// TestStopEndsATrialAtOnce stops a trial that would take an hour.
func TestStopEndsATrialAtOnce(t *testing.T) {
	e := startEPC(t, 4, 1)
	p, err := Decode(nil)
	if err != nil {
		t.Fatal(err)
	}
	engine, err := newEngine(load.Trial{Rate: 50, Duration: 3600, Targets: []string{e.at(1, 36412)}}, p)
	if err != nil {
		t.Fatal(err)
	}
	engine.prepare()
	time.AfterFunc(200*time.Millisecond, func() { engine.stopped.Store(true) })
	begun := time.Now()
	engine.run(begun)
	if err := engine.close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(begun); took > patience {
		t.Errorf("the trial took %v, longer than allowed", took)
	}
}

// connected waits until an MME has a connection to the HSS.
func (e *epc) connected(host int) {
	e.t.Helper()
	hosttest.Until(e.t, patience, "the MME has a connection to the HSS", func() bool { return e.metric(host, "s6a_connected") == 1 })
}

// mme starts an MME. Later arguments replace earlier ones.
func (e *epc) mme(args ...string) (stop func()) {
	e.t.Helper()
	return e.start("mme", mme.Run, append([]string{
		"--s1", e.at(1, 36412), "--listen", e.at(1, 2123), "--metrics", e.at(1, 9090),
		"--hss", e.at(41, 3868), "--sgw", e.at(11, 2123), "--pgw", e.at(21, 2123),
		"--overload", "off", // on a busy host attaches may be slow
	}, args...)...)
}

// TestMixWithoutDetach draws from mixes when all UEs are attached. No other procedure may stand in for
// an attach without a sign.
func TestMixWithoutDetach(t *testing.T) {
	for mix, refused := range map[string]bool{
		"attach=1,tracking-area-update=1":          true,
		"attach=1,tracking-area-update=1,detach=1": false,
	} {
		p, err := Decode(map[string]string{"scenario": Mix, "mix": mix})
		if err != nil {
			t.Fatal(err)
		}
		e, err := newEngine(load.Trial{Rate: 10, Duration: 1, Targets: []string{"127.0.0.1:1"}}, p)
		if err != nil {
			t.Fatal(err)
		}
		for e.detached.Len() > 0 {
			e.attached.Push(e.detached.Pop())
		}
		for range 50 { // of 101 UEs
			u, kind := e.choose(false)
			if u == nil {
				break
			}
			if kind != update && kind != detach {
				t.Errorf("%s: drew %v", mix, kind)
			}
		}
		if refused != strings.Contains(e.refused, "no UE is left to attach") {
			t.Errorf("%s: got error %q", mix, e.refused)
		}
		e.stopped.Store(true) // close must not wait for MMEs
		if err := e.close(); err != nil {
			t.Error(err)
		}
	}
}

// TestHandoversNeedTwoENodeBs checks that a mix with handovers is refused with one eNodeB.
func TestHandoversNeedTwoENodeBs(t *testing.T) {
	given := map[string]string{"scenario": Mix, "mix": "x2-handover=1,attach=2"}
	if _, err := Decode(given); err == nil || !strings.Contains(err.Error(), "enodebs") {
		t.Errorf("one eNodeB: got error %v", err)
	}
	given["enodebs"] = "2"
	p, err := Decode(given)
	if err != nil {
		t.Fatal(err)
	}
	drawn := map[procedure]int{}
	for n := range p.weights.total() {
		drawn[p.weights.draw(n)]++
	}
	if len(drawn) != 2 || drawn[handoverX2] != 1 || drawn[attachIdle] != 2 {
		t.Errorf("got scenarios %v", drawn)
	}
}
