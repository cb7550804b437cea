package nudsftest

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"vitrine/store"
	"vitrine/store/nudsf/udsf"
	"vitrine/store/nudsf/wire"
)

// testClockJumps sets the clock forward and back by hours: what is due fires once,
// what is not does not, and a notification that waits does not wait for the clock.
func testClockJumps(t *testing.T, open func() store.Engine) {
	var set atomic.Int64 // nanoseconds that the clock is ahead
	clock := func() time.Time { return time.Now().Add(time.Duration(set.Load())) }
	jump := func(by time.Duration) { set.Add(int64(by)) }
	r, failing := receive(t), receive(t)
	engine := open()
	s := start(t, engine, func(c *udsf.Config) { c.Clock = clock })
	t.Cleanup(func() {
		s.stop()
		_ = engine.Close()
	})
	timer := func(id string, in time.Duration, to *receiver) {
		t.Helper()
		s.putJSON(s.timers(id), wire.Timer{Expires: clock().Add(in), CallbackReference: to.base + "/" + id}).want(t, 201)
	}
	timer("day", 24*time.Hour, r)
	timer("hour", time.Hour, r)
	// One whose answer was not noted as the clock is set forward may be sent again.
	noted := func(n uint64) {
		t.Helper()
		eventually(t, "the answers are noted", func() bool { return s.function.Counters().Due.Delivered == n })
	}
	ttl := clock().Add(time.Hour)
	s.put("record", wire.Record{Meta: wire.Meta{TTL: &ttl, CallbackReference: r.base + "/record"}}).want(t, 201)

	jump(2 * time.Hour)
	r.wait(t, "/hour", 1)
	r.wait(t, "/record", 1)
	noted(2)

	failing.answer(http.StatusServiceUnavailable)
	timer("failing", time.Hour, failing)
	jump(2 * time.Hour)
	failing.wait(t, "/failing", 1)
	jump(-100 * time.Hour)
	failing.answer(http.StatusNoContent)
	noted(3)
	timer("soon", time.Hour, r)
	jump(2 * time.Hour)
	r.wait(t, "/soon", 1)
	noted(4)
	if n := len(r.at("/day")); n != 0 {
		t.Errorf("a timer fired %d times, 118 hours before its time", n)
	}

	jump(120 * time.Hour)
	noted(5)
	jump(-50 * time.Hour)
	timer("last", time.Hour, r)
	jump(2 * time.Hour)
	r.wait(t, "/last", 1)
	for _, path := range []string{"/hour", "/record", "/soon", "/day", "/last"} {
		if n := len(r.at(path)); n != 1 {
			t.Errorf("%s was told %d times", path, n)
		}
	}
	if got := s.timersFound(""); got != nil {
		t.Errorf("timers %v are left", got)
	}
}
