package e2e

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"vitrine/flex"
	"vitrine/flex/unit"
	"vitrine/internal/hosttest"
)

// TestLoadIsFollowedWithoutLoss lets the load rise and fall, and kills the orchestrator
// meanwhile. Another instance starts for the burst and stops after it, a second orchestrator
// is refused, the next one takes over what runs, and no call is lost.
func TestLoadIsFollowedWithoutLoss(t *testing.T) {
	s := newSystem(t)
	first := s.run()
	s.awaitOnly("registration-1")
	base := s.call("base", 2, 30, 1)

	burst := s.call("burst", 12, 8, 10_000)
	hosttest.Until(t, limit, "a second instance for the burst", func() bool { return len(s.names("active")) == 2 })
	burst.allSucceed(t)
	hosttest.Until(t, limit, "one instance after the burst", func() bool { return len(s.status().Instances) == 1 })
	left := s.names("active")
	if s.count(flex.EventDrained) != 1 || s.count(flex.EventLost) != 0 || s.count("drain") != 1 || len(left) != 1 {
		t.Errorf("the instance was not drained once: %v", s.events())
	}

	if out, status := s.verb("run"); status != 3 || !strings.Contains(out, fmt.Sprintf("pid %d", first.cmd.Process.Pid)) {
		t.Errorf("a second orchestrator ends with status %d: %s", status, out)
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
		t.Errorf("status without an orchestrator: %d: %s", status, out)
	}
	second := s.run()
	s.awaitOnly(left...)
	after := s.status().Instances[0].Members
	for i := range before {
		if after[i].PID != before[i].PID || after[i].PID == 0 {
			t.Errorf("%s had pid %d, and has pid %d", before[i].Name, before[i].PID, after[i].PID)
		}
	}
	base.allSucceed(t)
	if n := s.count("start"); n != starts {
		t.Errorf("%d instances were started again", n-starts)
	}

	second.end(syscall.SIGTERM)
	for _, m := range after {
		if err := syscall.Kill(m.PID, 0); err == nil {
			t.Errorf("%s, pid %d, runs after the end", m.Name, m.PID)
		}
	}
	if out, status := s.verb("status"); status != 1 || !strings.Contains(out, "no instance of it runs") {
		t.Errorf("status after the end: %d: %s", status, out)
	}
}

// TestDeathsAreReplaced kills a member, the director and the process that holds everything.
// An instance that lost a member is replaced as a whole, with the reason. Without the
// director, the instances stay as they are. A drained instance makes room for another.
func TestDeathsAreReplaced(t *testing.T) {
	s := newSystem(t)
	s.run()
	s.awaitOnly("registration-1")

	members := s.status().Instances[0].Members
	i := slices.IndexFunc(members, func(m unit.Member) bool { return m.Component == "sprout" })
	kill(t, members[i].PID)
	s.awaitOnly("registration-2")
	for _, m := range members {
		if syscall.Kill(m.PID, 0) == nil {
			t.Errorf("%s outlived the instance", m.Name)
		}
	}
	if out, _ := s.verb("explain", "registration-1"); !strings.Contains(out, "registration-1-sprout-1 ended (signal: killed)") {
		t.Errorf("explain does not say why: %s", out)
	}
	s.call("after", 4, 3, 1).allSucceed(t)

	kill(t, s.directorPID())
	hosttest.Until(t, limit, "the director is away", func() bool { return s.count(flex.EventAway) > 0 && s.awayNow("director") })
	hosttest.Until(t, limit, "the director is back", func() bool { return !s.awayNow("director") })
	s.awaitOnly("registration-2")
	s.call("back", 4, 3, 1000).allSucceed(t)

	if out, status := s.verb("drain", "registration-2"); status != 0 {
		t.Errorf("drain: %d: %s", status, out)
	}
	s.awaitOnly("registration-3")
}
