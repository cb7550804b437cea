package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"vitrine/flex"
	"vitrine/flex/unit"
	"vitrine/internal/hosttest"
	"vitrine/internal/runstate"
)

// A swell is a load that rises and falls: constant base calls, and a burst in addition.
type swell struct {
	base, burst       float64 // calls/s
	baseFor, burstFor float64 // seconds
	rate              int     // declared capacity of an instance, in transactions/s
}

// CI uses shortSwell. The proof (docs/proofs.md) uses longSwell. Its burst is 0.83 of what two
// instances carry. At 0.9, the default headroom, noise would ask for a third.
var (
	shortSwell = swell{base: 2, burst: 12, baseFor: 30, burstFor: 8, rate: 20}
	longSwell  = swell{base: 12, burst: 60, baseFor: 150, burstFor: 120, rate: 130}
)

// follow offers a swell. A second instance must start for the burst and stop after it. follow
// returns the base calls, which still run, and the transactions of the burst. round counts from 1.
func (s *system) follow(round int, w swell) (base *calls, transactions int64) {
	s.t.Helper()
	before := s.count(flex.EventDrained)
	base = s.call(fmt.Sprintf("base-%d", round), w.base, w.baseFor, 1)
	burst := s.call(fmt.Sprintf("burst-%d", round), w.burst, w.burstFor, 10_000)
	hosttest.Until(s.t, limit, "a second instance for the burst", func() bool { return len(s.names("active")) == 2 })
	transactions = burst.allSucceed(s.t, w.burstFor)
	hosttest.Until(s.t, limit, "one instance after the burst", func() bool { return len(s.status().Instances) == 1 })
	if s.count(flex.EventDrained) != before+1 || s.count(flex.EventDrain) != before+1 || s.count(flex.EventLost) != 0 || len(s.names("active")) != 1 {
		s.t.Errorf("round %d: want exactly one drain: %v", round, s.events())
	}
	return base, transactions
}

// TestLoadIsFollowedWithoutLoss runs a load that rises and falls, and kills the orchestrator
// meanwhile. A second instance must start for the burst and stop after it. A second orchestrator
// and a second holder must be refused while the first ones run. After the death of the first
// orchestrator, the second one must take over the instances. No call may fail. As a proof
// (docs/proofs.md), the load rises and falls until there are enough transactions.
func TestLoadIsFollowedWithoutLoss(t *testing.T) {
	t.Parallel()
	want, full := hosttest.ProofLength(t)
	w := shortSwell
	if full {
		w = longSwell
	}
	s := newSystem(t, w.rate)
	first := s.run()
	s.awaitOnly("registration-1")
	base, done := s.follow(1, w)
	for round := 2; done < want; round++ {
		done += base.allSucceed(t, w.baseFor)
		t.Logf("%d transactions succeeded, none was lost", done)
		var more int64
		base, more = s.follow(round, w)
		done += more
	}
	left := s.names("active")

	if out, status := s.verb("run"); status != 3 || !strings.Contains(out, fmt.Sprintf("pid %d", first.cmd.Process.Pid)) {
		t.Errorf("a second orchestrator ended with status %d, want 3: %s", status, out)
	}
	if out, status := s.verb("hold"); status != 1 || !strings.Contains(out, fmt.Sprintf("pid %d", s.holder().PID)) {
		t.Errorf("a second holder ended with status %d, want 1: %s", status, out)
	}
	if out, _ := s.verb("explain", "registration"); !strings.Contains(out, "start") || !strings.Contains(out, "drained") {
		t.Errorf("explain: %s", out)
	}

	before, starts := s.status().Instances[0].Members, s.count("start")
	first.end(syscall.SIGKILL)
	if out, err := exec.Command(s.vitrine, "clean").CombinedOutput(); err != nil {
		t.Errorf("clean: %v: %s", err, out)
	}
	if out, status := s.verb("status"); status != 0 || !strings.Contains(out, "no orchestrator") || !strings.Contains(out, left[0]) {
		t.Errorf("status without an orchestrator: got %d: %s", status, out)
	}
	s.refuseTakeover()
	second := s.run()
	s.awaitOnly(left...)
	hosttest.Until(s.t, limit, "the members are known again", func() bool { return len(s.status().Instances[0].Members) == len(before) })
	after := s.status().Instances[0].Members
	for i := range before {
		if after[i].PID != before[i].PID || after[i].PID == 0 {
			t.Errorf("%s had pid %d, now has pid %d", before[i].Name, before[i].PID, after[i].PID)
		}
	}
	base.allSucceed(t, w.baseFor)
	if n := s.count("start"); n != starts {
		t.Errorf("%d instances were started again, want 0", n-starts)
	}

	second.end(syscall.SIGTERM)
	for _, m := range after {
		if err := syscall.Kill(m.PID, 0); err == nil {
			t.Errorf("%s, pid %d, is still running after the orchestrator stopped", m.Name, m.PID)
		}
	}
	if out, status := s.verb("status"); status != 1 || !strings.Contains(out, "no instance of it runs") {
		t.Errorf("status after the orchestrator stopped: got %d: %s", status, out)
	}
}

// TestDeathsAreReplaced kills a member and then the director. An instance that lost a member must
// be replaced as a whole, with a reason. A director that is a service must refuse a hand-over. While
// the director does not run, the instances must stay as they are. A drained instance must be replaced
// by another. When all are killed, a start that is refused must keep the store's records.
func TestDeathsAreReplaced(t *testing.T) {
	t.Parallel()
	s := newSystem(t, shortSwell.rate)
	first := s.run()
	s.awaitOnly("registration-1")

	members := s.status().Instances[0].Members
	i := slices.IndexFunc(members, func(m unit.Member) bool { return m.Component == "sprout" })
	kill(t, members[i].PID)
	s.awaitOnly("registration-2")
	for _, m := range members {
		if syscall.Kill(m.PID, 0) == nil {
			t.Errorf("%s is still running after its instance stopped", m.Name)
		}
	}
	if out, _ := s.verb("explain", "registration-1"); !strings.Contains(out, "registration-1-sprout-1 ended (signal: killed)") {
		t.Errorf("explain does not name the reason: %s", out)
	}
	s.call("after", 4, 3, 1).allSucceed(t, 3)

	pid := s.directorPID()
	if err := syscall.Kill(pid, syscall.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	hosttest.Until(t, limit, "the director refuses to hand over", func() bool {
		log, err := os.ReadFile(filepath.Join(s.file+".flex", "logs", "service-director", "log"))
		return err == nil && strings.Contains(string(log), "vitrine flex starts the director again")
	})
	if now := s.directorPID(); now != pid {
		t.Errorf("the director had pid %d, now has pid %d", pid, now)
	}
	kill(t, pid)
	hosttest.Until(t, limit, "the director is away", func() bool { return s.count(flex.EventAway) > 0 && s.awayNow("director") })
	hosttest.Until(t, limit, "the director is back", func() bool { return !s.awayNow("director") })
	s.awaitOnly("registration-2")
	s.call("back", 4, 3, 1000).allSucceed(t, 3)

	if out, status := s.verb("drain", "registration-2"); status != 0 {
		t.Errorf("drain: %d: %s", status, out)
	}
	s.awaitOnly("registration-3")

	holder := s.holder()
	first.end(syscall.SIGKILL)
	kill(t, holder.PID)
	hosttest.Until(t, limit, "the holder has ended", func() bool { return !runstate.Alive(holder.Root, holder.Run) })
	s.refuseTakeover()
	if _, err := os.Stat(filepath.Join(s.file+".flex", "services", "service-store", "records")); err != nil {
		t.Errorf("the store's records after a refused start: %v", err)
	}
}
