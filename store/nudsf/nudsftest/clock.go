package nudsftest

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"vitrine/store"
	"vitrine/store/nudsf/wire"
)

// A clock is the host's clock plus an offset that the test sets.
type clock struct{ ahead atomic.Int64 } // nanoseconds

func (c *clock) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

func (c *clock) jump(by time.Duration) { c.ahead.Add(int64(by)) }

// jump moves the server's clock forward and makes a service check for due records at once.
func (s *server) jump(by time.Duration, service string) {
	s.clock.jump(by)
	s.look(service)
}

// look makes a service check for due records at once, and not some seconds later.
func (s *server) look(service string) {
	s.function.Agenda.Planned(spaceOf(service), time.Time{})
}

// spaceOf returns the space of the test's storage in a service.
func spaceOf(service string) string { return service + "/Realm01/Storage01" }

// noted waits until the outbox is empty, so the answers to all notifications are recorded. If the
// clock moves before that, a notification may be sent again. Call noted after the notifications
// have arrived.
func (s *server) noted() {
	s.t.Helper()
	eventually(s.t, "the answers are noted", func() bool {
		for _, service := range []string{"nudsf-dr", "nudsf-timer"} {
			q := store.Query{Space: spaceOf(service), Prefix: "o/"}
			for _, err := range s.function.Agenda.Engine.Scan(s.t.Context(), q) {
				if err != nil {
					s.t.Log(err)
				}
				return false
			}
		}
		return true
	})
}

// testClockJumps moves the clock forward, and back by hours and by a little. Due records fire once,
// others do not fire, and a waiting notification does not wait for the clock.
func testClockJumps(t *testing.T, open func() store.Engine) {
	r, failing := receive(t), receive(t)
	s := running(t, open, nil)
	clock, jump, noted := s.clock.now, s.clock.jump, s.noted
	timer := func(id string, in time.Duration, to *receiver) {
		t.Helper()
		s.putJSON(s.timers(id), wire.Timer{Expires: clock().Add(in), CallbackReference: to.base + "/" + id}).want(t, 201)
	}
	timer("day", 24*time.Hour, r)
	timer("hour", time.Hour, r)
	ttl := clock().Add(time.Hour)
	s.put("record", wire.Record{Meta: wire.Meta{TTL: &ttl, CallbackReference: r.base + "/record"}}).want(t, 201)

	jump(2 * time.Hour)
	r.wait(t, "/hour", 1)
	r.wait(t, "/record", 1)
	noted()

	failing.answer(http.StatusServiceUnavailable)
	timer("failing", time.Hour, failing)
	s.jump(2*time.Hour, "nudsf-timer")
	failing.wait(t, "/failing", 1)
	jump(-100 * time.Hour)
	failing.answer(http.StatusNoContent)
	noted()
	timer("soon", time.Hour, r)
	s.jump(2*time.Hour, "nudsf-timer")
	r.wait(t, "/soon", 1)
	noted()
	if n := len(r.at("/day")); n != 0 {
		t.Errorf("a timer fired %d times, 118 hours before its time", n)
	}

	failing.answer(http.StatusServiceUnavailable)
	timer("little", time.Hour, failing)
	s.jump(2*time.Hour, "nudsf-timer")
	failing.wait(t, "/little", 1)
	jump(-30 * time.Second)
	tries := len(failing.at("/little"))
	s.look("nudsf-timer")
	failing.wait(t, "/little", tries+2) // one try may have been under way
	failing.answer(http.StatusNoContent)
	noted()

	jump(120 * time.Hour)
	r.wait(t, "/day", 1)
	noted()
	jump(-50 * time.Hour)
	timer("last", time.Hour, r)
	s.jump(2*time.Hour, "nudsf-timer")
	r.wait(t, "/last", 1)
	for _, path := range []string{"/hour", "/record", "/soon", "/day", "/last"} {
		if n := len(r.at(path)); n != 1 {
			t.Errorf("%s was notified %d times", path, n)
		}
	}
	if got := s.timersFound(""); got != nil {
		t.Errorf("timers %v are left", got)
	}
}
