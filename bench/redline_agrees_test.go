package main

import (
	"errors"
	"io"
	"testing"
	"time"

	"vitrine/director/client"
)

// TestAgreementHasItsBounds checks which row misses its aim. It must be the right row alone, for
// each of these faults: the ratio is too high or too low, a call is lost, the objective is broken
// for longer than a step, redline notices a fault too late.
func TestAgreementHasItsBounds(t *testing.T) {
	good := agreeRound{redline: capacityFound{95, 90, 100}, characterize: capacityFound{100, 96, 104}, calls: 1000, broken: 2}
	if ratio, low, high := good.ratio(); ratio != 0.95 || low != 90.0/104 || high != 100.0/96 {
		t.Errorf("%g (%g to %g)", ratio, low, high)
	}
	high, low, lossy, long := good, good, good, good
	high.redline.rate, low.redline.rate, lossy.lost, long.broken = 120, 80, 1, 6
	for name, c := range map[string]struct {
		round  agreeRound
		took   float64
		misses string
	}{
		"good":  {good, 3, ""},
		"high":  {high, 3, "redline/agrees/at-most"},
		"low":   {low, 3, "redline/agrees"},
		"lossy": {lossy, 3, "redline/agrees/lost"},
		"long":  {long, 3, "redline/agrees/broken"},
		"late":  {good, 5, "redline/agrees/fault"},
	} {
		rows, err := agreeRows([]agreeRound{good, c.round, c.round})
		if err != nil || len(rows) != 4 {
			t.Fatalf("%s: %d rows, %v", name, len(rows), err)
		}
		for _, r := range append(rows, faultRow(c.took)) {
			if want := r.Name != c.misses; *r.Holds != want {
				t.Errorf("%s: %s is %.3g, aim %s: %t", name, r.Name, *r.Ratio, r.Aim, *r.Holds)
			}
		}
	}
}

// TestAFailedRoundLeavesTheOthers lets a round fail, the first one or a later one. The rows of the rounds
// before it must remain.
func TestAFailedRoundLeavesTheOthers(t *testing.T) {
	good := agreeRound{redline: capacityFound{95, 90, 100}, characterize: capacityFound{100, 96, 104}, calls: 1000, broken: 2}
	for fails, want := range []int{0, 4, 4} {
		n := 0
		rounds, failed := agreeRounds(func() bool { return true }, func(bool) (agreeRound, error) {
			if n++; n > fails {
				return agreeRound{}, io.ErrUnexpectedEOF
			}
			return good, nil
		}, io.Discard)
		rows, err := agreeRows(rounds)
		if !errors.Is(failed, io.ErrUnexpectedEOF) || err != nil || len(rounds) != fails || len(rows) != want {
			t.Errorf("after %d rounds: %v, %d rounds, %d rows, %v, want %d rows", fails, failed, len(rounds), len(rows), err, want)
		}
	}
}

// TestNoNewWorkNeedsTheTableInForce checks when an instance counts as without new work.
func TestNoNewWorkNeedsTheTableInForce(t *testing.T) {
	for name, c := range map[string]struct {
		leased  *float64
		pending bool
		want    bool
	}{
		"weight 0 in force":     {new(0.0), false, true},
		"weight 0, not yet":     {new(0.0), true, false},
		"a weight in force":     {new(50.0), false, false},
		"the lease has ended":   {nil, false, false},
		"the lease will be new": {nil, true, false},
	} {
		if got := getsNoNewWork(client.Instance{Leased: c.leased}, client.Status{Pending: c.pending}); got != c.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
}

func TestAgreementTimeIsChecked(t *testing.T) {
	env := func(text string) func(string) string { return func(string) string { return text } }
	for text, want := range map[string]time.Duration{"": noLimit, "5m": 5 * time.Minute, "0s": 0} {
		if d, err := readTime(env(text), "FOR", 0, noLimit); d != want || err != nil {
			t.Errorf("%q: %s, %v", text, d, err)
		}
	}
	for _, text := range []string{"5", "-1m", "x"} {
		if _, err := readTime(env(text), "FOR", 0, noLimit); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}
