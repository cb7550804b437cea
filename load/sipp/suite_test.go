package sipp

import (
	"fmt"
	"os"
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
	if _, _, err := decode(map[string]string{"messages": "x"}); !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), "messages") {
		t.Errorf("got %v", err)
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
