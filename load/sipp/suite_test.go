package sipp

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vitrine"
	"vitrine/internal/hosttest"
	"vitrine/load"
	"vitrine/load/loadtest"
	"vitrine/load/param"
	"vitrine/load/sip"
)

func TestMain(m *testing.M) {
	loadtest.Main(Run)
	os.Exit(m.Run())
}

// TestSIPp runs the real SIPp; CI must not skip it.
func TestSIPp(t *testing.T) {
	_, err := Version(t.Context())
	hosttest.Need(t, err)
	loadtest.Run(t, loadtest.Subject{
		Program:   []string{os.Args[0], "generate"},
		Protocol:  loadtest.SIP(),
		Params:    map[string]string{"port": "0"},
		Scenarios: []string{sip.RegDereg, sip.RegSubscribe, sip.RegInvite},
		Scratch:   true,
		Steady:    true,
	})
}

// TestTargetsTakeTurns runs a program that ends at once in place of SIPp. Paced calls must not begin
// before the job's turn. With pauses SIPp begins at once, because they contain the turn.
func TestTargetsTakeTurns(t *testing.T) {
	program, err := exec.LookPath("true")
	if err != nil {
		t.Skip(err)
	}
	j := job{turn: 2, folder: t.TempDir()}
	begun := time.Now()
	if err := j.run(t.Context(), program, load.Trial{Rate: 20, Duration: 1, Targets: make([]string, 3)}, Params{}, time.Minute); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took < 100*time.Millisecond {
		t.Errorf("turn 2 at 20 calls/s ended after %v, want at least 100ms", took)
	}
	j.pauses = []time.Duration{100 * time.Millisecond}
	if lag := j.lag(20); lag != 0 {
		t.Errorf("with pauses, SIPp starts %v late", lag)
	}
}

// TestTidyShortensErrorLogs checks that the start of a long error log remains. Some trials have no failures,
// and thus no log.
func TestTidyShortensErrorLogs(t *testing.T) {
	for size, want := range map[int64]int64{-1: -1, 0: 0, 7: 7, maxErrors: maxErrors, maxErrors + 7: maxErrors} {
		jobs := []job{{folder: t.TempDir()}}
		log := filepath.Join(jobs[0].folder, errorLog)
		if size >= 0 {
			if err := os.WriteFile(log, make([]byte, size), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := tidy(jobs); err != nil {
			t.Fatal(err)
		}
		got := int64(-1)
		if info, err := os.Stat(log); err == nil {
			got = info.Size()
		}
		if got != want {
			t.Errorf("an error log of %d bytes: %d remain, want %d", size, got, want)
		}
	}
}

// TestLongCallsHaveTime checks that SIPp's own limit covers calls that a scenario makes long.
func TestLongCallsHaveTime(t *testing.T) {
	_, p, err := Decode(map[string]string{"timeout": "2s", "call_time": "4m"})
	if err != nil {
		t.Fatal(err)
	}
	trial := load.Trial{Rate: 1, Duration: 30, Warmup: 5}
	if got, least := limit(trial, p, 0), 35*time.Second+4*time.Minute+2*time.Second; got < least {
		t.Errorf("SIPp may run for %v, but the last call may end after %v", got, least)
	}
}

// TestTargetsWithoutCalls plans trials with fewer calls than targets, or with none. A job without
// calls would have no longest pause, and its SIPp nothing to do.
func TestTargetsWithoutCalls(t *testing.T) {
	trial := load.Trial{Rate: 1, Duration: 1, Targets: []string{"127.0.0.1:5061", "127.0.0.1:5062", "127.0.0.1:5063"}}
	for calls := range 6 {
		dues := make([]time.Duration, calls) // all at the start of the window
		jobs, err := plan(trial, sip.Defaults(), len(dues), t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if want := min(calls, 3); len(jobs) != want {
			t.Errorf("%d calls: got %d jobs, want %d", calls, len(jobs), want)
		}
		assignPauses(jobs, dues, trial.Rate)
		sum := 0
		for i := range jobs {
			sum += int(jobs[i].calls)
			if open := jobs[i].maxOpenCalls(trial.Rate); jobs[i].calls == 0 || open <= jobs[i].pool {
				t.Errorf("%d calls: job %d has %d, and may have %d open with a pool of %d", calls, i, jobs[i].calls, open, jobs[i].pool)
			}
		}
		if sum != calls {
			t.Errorf("got jobs for %d calls, want %d", sum, calls)
		}
	}
}

// TestPoolIsEnoughForEachTarget checks that no target has a smaller share of the pool than its calls
// need: 1101 at 100 calls/s of up to 11 s. Targets must not share subscribers.
func TestPoolIsEnoughForEachTarget(t *testing.T) {
	for _, c := range []struct {
		scenario       string
		users, targets int
		want           int // calls that a target may have open; 0: there are too few subscribers
	}{
		{sip.RegDereg, 0, 1, 1101},
		{sip.RegDereg, 0, 2, 551},
		{sip.RegDereg, 0, 3, 367},
		{sip.RegDereg, 1101, 1, 1101},
		{sip.RegDereg, 1101, 2, 0},
		{sip.RegDereg, 1102, 2, 551},
		{sip.RegDereg, 5000, 2, 2500},
		{sip.RegInvite, 0, 2, 551},
		{sip.RegInvite, 2203, 2, 0},
		{sip.RegInvite, 2204, 2, 551},
	} {
		p := sip.Defaults()
		p.Scenario, p.Users, p.CallTime = c.scenario, c.users, param.Duration(time.Second)
		trial := load.Trial{Rate: 100, Duration: 1}
		for i := range c.targets {
			trial.Targets = append(trial.Targets, fmt.Sprintf("127.0.0.1:%d", 5061+i))
		}
		jobs, err := plan(trial, p, 100, t.TempDir())
		if c.want > 0 && err != nil || c.want == 0 && (!vitrine.IsBadInput(err) || !strings.Contains(err.Error(), "targets with equal shares")) {
			t.Errorf("%+v: got error %v", c, err)
		}
		parties := 1
		if c.scenario == sip.RegInvite {
			parties = 2
		}
		for i := range jobs {
			if first := p.FirstUser + i*parties*c.want; jobs[i].pool != c.want || jobs[i].firstUser != first {
				t.Errorf("%+v: target %d may have %d calls open, from subscriber %d, want %d from %d", c, i, jobs[i].pool, jobs[i].firstUser, c.want, first)
			}
		}
	}
}

// TestPausesKeepTheGaps checks that the pauses move SIPp's even calls to the schedule. The first
// call of a warm-up does not pause if no call is early. Without a warm-up, the first call pauses
// until it is due.
func TestPausesKeepTheGaps(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		dues  []time.Duration
		later time.Duration
		want  string // pauses
	}{
		{[]time.Duration{-2 * s, 0, 3 * s}, 0, "[0s 1s 3s]"},
		{[]time.Duration{-2 * s, -2 * s, -1 * s}, s, "[1s 0s 0s]"},
		{[]time.Duration{4 * s, 6 * s}, 0, "[4s 5s]"},
	} {
		jobs := []job{{calls: int64(len(c.dues))}}
		if later := assignPauses(jobs, c.dues, 1); later != c.later || fmt.Sprint(jobs[0].pauses) != c.want {
			t.Errorf("%v: got pauses %v, %v later, want %s, %v later", c.dues, jobs[0].pauses, later, c.want, c.later)
		}
	}
}

func TestDecodeRefusesMessages(t *testing.T) {
	if _, _, err := Decode(map[string]string{"messages": "x"}); !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), "messages") {
		t.Errorf("got %v", err)
	}
}

// TestSIPpRetransmits plays the scenarios against a function that loses the first copy of each
// request. In reg-invite the callee's 200 is also sent again, because the ACK is lost. No SUBSCRIBE is
// retransmitted, so that a NOTIFY may overtake its 200.
func TestSIPpRetransmits(t *testing.T) {
	_, err := Version(t.Context())
	hosttest.Need(t, err)
	for scenario, lose := range map[string]bool{sip.RegDereg: true, sip.RegInvite: true, sip.RegSubscribe: false} {
		t.Run(scenario, func(t *testing.T) {
			t.Parallel()
			function, err := loadtest.NewResponder(t.Context(), "127.0.0.1", loadtest.Behaviour{Lose: lose})
			if err != nil {
				t.Fatal(err)
			}
			trial := load.Trial{
				Rate: 20, Duration: 1, Targets: []string{function.Addr()}, Scratch: t.TempDir(),
				Params: map[string]string{"scenario": scenario, "port": "0", "retransmit": "true"},
			}
			var stdout bytes.Buffer
			if err := Run(t.Context(), trial, &stdout, io.Discard); err != nil {
				t.Fatal(err)
			}
			report, err := load.ParseReport(&stdout)
			if err != nil || report.Error != "" {
				t.Fatal(report.Error, err)
			}
			if report.Offered == 0 || report.Succeeded != report.Offered {
				t.Errorf("%d of %d calls succeeded, failed %v", report.Succeeded, report.Offered, report.Failed)
			}
			if left, err := filepath.Glob(filepath.Join(trial.Scratch, "sipp-1", "*.csv")); len(left) != 1 || filepath.Base(left[0]) != statLog || err != nil {
				t.Errorf("after a sound trial the folder has %v, error %v; want only %s", left, err, statLog)
			}
			// The last request of each call must have been answered, too.
			if seen := function.Seen(); seen.Finished < int(report.Succeeded) {
				t.Errorf("%d calls succeeded, but the function finished %d", report.Succeeded, seen.Finished)
			}
		})
	}
}

// TestDecodeRefusesLongRetransmissions checks that no timeout is longer than SIPp retransmits.
func TestDecodeRefusesLongRetransmissions(t *testing.T) {
	for _, c := range []struct {
		retransmit, timeout string
		refused             bool
	}{{"true", "30s", false}, {"true", "30001ms", true}, {"false", "1m", false}} {
		_, _, err := Decode(map[string]string{"retransmit": c.retransmit, "timeout": c.timeout})
		if c.refused != (err != nil) || c.refused && (!vitrine.IsBadInput(err) || !strings.Contains(err.Error(), "timeout")) {
			t.Errorf("%+v: got %v", c, err)
		}
	}
}

// A message is a line of SIPp's short message log.
type message struct {
	at    time.Duration
	way   string // S or R
	call  int    // number from 1
	cseq  string
	first string // first line
}

// writeLogs writes the logs of a SIPp to a folder. All its calls succeeded.
func writeLogs(t *testing.T, folder string, calls int, messages ...message) {
	t.Helper()
	var log strings.Builder
	for _, m := range messages {
		fmt.Fprintf(&log, "2026-01-02\t03:04:05.000000\t%.6f\t%s\t%d-7@127.0.0.1\tCSeq:%s\t%s\n", m.at.Seconds(), m.way, m.call, m.cseq, m.first)
	}
	totals := fmt.Sprintf("OutgoingCall(C);FailedCall(C)\n%d;0\n", calls)
	for name, text := range map[string]string{shortLog: log.String(), statLog: totals} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCopiesOfAResponseDoNotCount reads the log of two calls. The first call uses one CSeq twice,
// and later gets copies of two final responses. The second has only provisional responses.
func TestCopiesOfAResponseDoNotCount(t *testing.T) {
	const ms = time.Millisecond
	folder := t.TempDir()
	writeLogs(t, folder, 2,
		message{1000 * ms, "S", 1, "1 REGISTER", "REGISTER sip:ims.test SIP/2.0"},
		message{1010 * ms, "R", 1, "1 REGISTER", "SIP/2.0 401 Unauthorized"},
		message{1011 * ms, "R", 1, "1 REGISTER", "SIP/2.0 401 Unauthorized"},
		message{1020 * ms, "S", 1, "1 REGISTER", "REGISTER sip:ims.test SIP/2.0"},
		message{1030 * ms, "R", 1, "1 REGISTER", "SIP/2.0 200 OK"},
		message{1040 * ms, "S", 1, "2 INVITE", "INVITE sip:a@ims.test SIP/2.0"},
		message{1045 * ms, "S", 2, "1 INVITE", "INVITE sip:a@ims.test SIP/2.0"},
		message{1050 * ms, "R", 1, "2 INVITE", "SIP/2.0 200 OK"},
		message{1060 * ms, "S", 1, "3 BYE", "BYE sip:a@ims.test SIP/2.0"},
		message{1070 * ms, "R", 1, "3 BYE", "SIP/2.0 200 OK"},
		message{1500 * ms, "R", 1, "2 INVITE", "SIP/2.0 200 OK"},
		message{1600 * ms, "R", 1, "3 BYE", "SIP/2.0 200 OK"},
		message{1700 * ms, "R", 2, "1 INVITE", "SIP/2.0 100 Trying"},
		message{1800 * ms, "R", 2, "1 INVITE", "SIP/2.0 180 Ringing"},
	)
	calls := make([]call, 2)
	if err := readMessages(filepath.Join(folder, shortLog), calls); err != nil {
		t.Fatal(err)
	}
	if calls[0] != (call{sent: 1000 * ms, answered: 1070 * ms}) || calls[1] != (call{sent: 1045 * ms, answered: 1800 * ms}) {
		t.Errorf("got %+v", calls)
	}
	writeLogs(t, folder, 2,
		message{1000 * ms, "S", 1, "1 REGISTER", "REGISTER sip:ims.test SIP/2.0"},
		message{1010 * ms, "R", 1, "1 REGISTER", "SIP/2.0 401 Unauthorized"},
		message{1020 * ms, "S", 1, "1 REGISTER", "REGISTER sip:ims.test SIP/2.0"},
		message{1030 * ms, "R", 1, "1 REGISTER", "SIP/2.0 200 OK"},
	)
	calls = make([]call, 2)
	if err := readMessages(filepath.Join(folder, shortLog), calls); err != nil || calls[0].answered != 1030*ms {
		t.Errorf("one CSeq for two requests: got %+v, error %v", calls[0], err)
	}
}

// TestReportNamesLateCallsAndLostMessages reports three calls. SIPp skipped calls before the third
// call, so that it began 300 ms late.
func TestReportNamesLateCallsAndLostMessages(t *testing.T) {
	const ms = time.Millisecond
	jobs := []job{{calls: 3, folder: t.TempDir()}}
	var messages []message
	for i, sent := range []time.Duration{5000 * ms, 5100 * ms, 5500 * ms} {
		messages = append(messages,
			message{sent, "S", i + 1, "1 OPTIONS", "OPTIONS sip:ims.test SIP/2.0"},
			message{sent + 10*ms, "R", i + 1, "1 OPTIONS", "SIP/2.0 200 OK"})
	}
	writeLogs(t, jobs[0].folder, 3, messages...)
	trial, dues := load.Trial{Rate: 10, Duration: 1}, []time.Duration{0, 100 * ms, 200 * ms}
	r, err := report(trial, dues, jobs)
	if err != nil || r.Late != 0.3 || r.Succeeded != 3 || r.Error != "" {
		t.Errorf("got error %v, report %+v", err, r)
	}
	jobs[0].lost.Store(2)
	if r, err = report(trial, dues, jobs); err != nil || !strings.HasPrefix(r.Error, "2 messages were lost") {
		t.Errorf("lost messages: got error %v, report %+v", err, r)
	}
}

// TestDropsOfSocketsAreCounted checks that datagrams beyond the receive buffer of this process's
// socket are counted, and that the last reading counts.
func TestDropsOfSocketsAreCounted(t *testing.T) {
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if n, err := socketDrops(os.Getpid()); n != 0 || err != nil {
		t.Fatal(n, err)
	}
	if err := conn.SetReadBuffer(1); err != nil {
		t.Fatal(err)
	}
	const sent = 1000
	for range sent {
		if _, err := conn.WriteTo(make([]byte, 100), conn.LocalAddr()); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := socketDrops(os.Getpid()); n == 0 || n >= sent || err != nil {
		t.Error(n, err)
	}
	ended := make(chan struct{})
	close(ended)
	if n := lastDrops(os.Getpid(), ended); n == 0 {
		t.Error("the last reading does not count")
	}
}

// TestTotalsOfAnInterruptedSIPp reads statistics without a line of counts.
func TestTotalsOfAnInterruptedSIPp(t *testing.T) {
	file := filepath.Join(t.TempDir(), statLog)
	for text, want := range map[string]string{
		"":                                   "0 lines",
		"OutgoingCall(C);FailedCall(C)":      "1 lines",
		"OutgoingCall(C);FailedCall(C)\n7;x": `FailedCall(C) is "x"`,
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := Totals(file); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "%!") {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
}
