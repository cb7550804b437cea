package nudsftest

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"vitrine/store"
	"vitrine/store/nudsf"
	"vitrine/store/nudsf/wire"
)

// testRestart stops the function and its engine with records planned. They must fall due after the
// next start.
func testRestart(t *testing.T, open func() store.Engine) {
	r := receive(t)
	engine := open()
	s := start(t, engine, nil)
	clock := s.clock
	soon, later := clock.now().Add(time.Hour), clock.now().Add(2*time.Hour)
	record := sample()
	record.Meta.TTL, record.Meta.CallbackReference = &soon, r.base+"/expired"
	s.put("e", record).want(t, 201)
	s.putJSON(s.timers("due"), wire.Timer{Expires: soon, CallbackReference: r.base + "/due"}).want(t, 201)
	s.putJSON(s.timers("later"), wire.Timer{Expires: later, CallbackReference: r.base + "/later"}).want(t, 201)
	s.putJSON(s.subscription("s"), wire.Subscription{ClientID: client(), CallbackReference: r.base + "/changes"}).want(t, 201)
	s.stop()
	if err := engine.Close(); err != nil {
		t.Fatal(err)
	}
	clock.jump(time.Hour)
	if n := len(r.at("/due")); n != 0 {
		t.Fatalf("fired %d times before the restart", n)
	}
	s = running(t, open, func(c *nudsf.Config) { c.Clock = clock.now })
	r.wait(t, "/due", 1)
	r.wait(t, "/expired", 1)
	s.noted()
	clock.jump(time.Hour)
	s.look("nudsf-timer")
	r.wait(t, "/later", 1)
	s.put("new", sample()).want(t, 201)
	r.wait(t, "/changes", 1)
	for _, path := range []string{"/due", "/expired", "/later"} {
		if n := len(r.at(path)); n != 1 {
			t.Errorf("%s was notified %d times", path, n)
		}
	}
}

// testCallbackAfterCrash ends the function during a callback. The callback must be sent again: at
// least once.
func testCallbackAfterCrash(t *testing.T, open func() store.Engine) {
	r := receive(t)
	r.gate = make(chan struct{})
	engine := open()
	short := func(c *nudsf.Config) { c.Due.Lease = 500 * time.Millisecond } // over a shared engine, another service takes over after the lease
	s := start(t, engine, short)
	clock := s.clock
	s.putJSON(s.timers("t"), wire.Timer{Expires: clock.now().Add(time.Hour), CallbackReference: r.base + "/t"}).want(t, 201)
	s.jump(time.Hour, "nudsf-timer")
	r.wait(t, "/t", 1) // it has arrived, and no answer went back
	s.stop()
	if err := engine.Close(); err != nil {
		t.Fatal(err)
	}
	close(r.gate)
	s = running(t, open, func(c *nudsf.Config) { short(c); c.Clock = clock.now })
	r.wait(t, "/t", 2)
	eventually(t, "the delivery is noted", func() bool { return s.function.Counters().Due.Delivered >= 1 })
}

// testDeadReceiver has receivers that do not answer, refuse, and come back. Other receivers must
// not wait for them.
func testDeadReceiver(t *testing.T, open func() store.Engine) {
	dead := receive(t)
	dead.gate = make(chan struct{})
	defer close(dead.gate)
	failing := receive(t)
	failing.answer(http.StatusServiceUnavailable)
	refusing := receive(t)
	refusing.answer(http.StatusNotFound)
	alive := receive(t)

	s := running(t, open, func(c *nudsf.Config) { c.Callbacks.Queue, c.Callbacks.Lanes = 16, 2 })
	for name, r := range map[string]*receiver{"dead": dead, "failing": failing, "refusing": refusing, "alive": alive} {
		s.putJSON(s.subscription(name), wire.Subscription{ClientID: client(), CallbackReference: r.base + "/changes"}).want(t, 201)
		s.putJSON(s.timers(name), wire.Timer{Expires: s.clock.now().Add(time.Hour), CallbackReference: r.base + "/timer"}).want(t, 201)
	}
	s.jump(time.Hour, "nudsf-timer")
	const changes = 60
	for i := range changes {
		s.put(fmt.Sprint("r", i), wire.Record{}).want(t, 201)
		alive.wait(t, "/changes", i+1)
	}
	alive.wait(t, "/timer", 1)
	counters := s.function.Counters()
	// The queue of the dead receiver takes no more than 16 changes, and up to as many again if the
	// host is so slow that tries end meanwhile.
	if counters.Records.Dropped < changes-2*16 || counters.Callbacks.Waiting > 4*16 {
		t.Errorf("a queue of 16 took %d changes: %+v", changes, counters)
	}
	eventually(t, "the refusal is final", func() bool { return s.function.Counters().Due.Refused == 1 })
	if n := len(refusing.at("/timer")); n != 1 {
		t.Errorf("the refused notification was sent %d times", n)
	}
	failing.wait(t, "/timer", 2)
	failing.answer(http.StatusNoContent)
	eventually(t, "the timer reaches the receiver that came back", func() bool { return s.function.Counters().Due.Delivered == 2 })
}

// testFailedOnce has a receiver that fails and comes back. It must get every change.
func testFailedOnce(t *testing.T, open func() store.Engine) {
	r := receive(t)
	r.answer(http.StatusServiceUnavailable)
	s := running(t, open, func(c *nudsf.Config) { c.Callbacks.Backoff, c.Callbacks.Longest = time.Second, time.Second })
	s.putJSON(s.subscription("s"), wire.Subscription{ClientID: client(), CallbackReference: r.base + "/changes"}).want(t, 201)
	s.put("r1", wire.Record{}).want(t, 201)
	eventually(t, "the receiver is known to fail", func() bool { return s.function.Sender.Ready(r.base, true, 0) != nil })
	r.answer(http.StatusNoContent)
	const changes = 10
	for i := 2; i <= changes; i++ {
		s.put(fmt.Sprint("r", i), wire.Record{}).want(t, 201)
	}
	eventually(t, "all changes arrive", func() bool { return s.function.Counters().Callbacks.Sent == changes })
	if counters := s.function.Counters(); counters.Records.Dropped != 0 {
		t.Errorf("got %+v, want no change dropped", counters)
	}
}

// testOnceAmongServices runs several functions over one engine. Exactly one fires each timer.
func testOnceAmongServices(t *testing.T, open func() store.Engine) {
	r := receive(t)
	engine := open()
	t.Cleanup(func() { _ = engine.Close() })
	servers := []*server{start(t, engine, nil)}
	clock := servers[0].clock
	for range 2 {
		servers = append(servers, start(t, engine, func(c *nudsf.Config) { c.Clock = clock.now }))
	}
	const timers = 60
	for i := range timers {
		servers[i%3].putJSON(servers[i%3].timers(fmt.Sprint("t", i)), wire.Timer{Expires: clock.now().Add(time.Hour), CallbackReference: r.base + "/t"}).want(t, 201)
	}
	clock.jump(time.Hour)
	for _, s := range servers { // wake each, so that all try
		s.look("nudsf-timer")
	}
	delivered := func() (n uint64) {
		for _, s := range servers {
			n += s.function.Counters().Due.Delivered
		}
		return n
	}
	eventually(t, "all timers fire", func() bool { return delivered() == timers })
	if n := len(r.at("/t")); n != timers {
		t.Errorf("%d timers fired %d times", timers, n)
	}
}

// testNotAllowed uses an allow-list of hosts.
func testNotAllowed(t *testing.T, open func() store.Engine) {
	s := running(t, open, func(c *nudsf.Config) {
		c.Allow = []string{"nf.example"}
		c.Storages = []string{"Realm01/Storage01"}
	})
	hour := time.Now().Add(time.Hour)
	s.putJSON(s.timers("t"), wire.Timer{Expires: hour, CallbackReference: "http://127.0.0.1:1/x"}).want(t, 400, wire.CauseOptionalIncorrect)
	s.putJSON(s.timers("t"), wire.Timer{Expires: hour, CallbackReference: "http://nf.example/x"}).want(t, 201)
	s.putJSON(s.subscription("s"), wire.Subscription{ClientID: client(), CallbackReference: "http://10.0.0.1/x"}).want(t, 400)
	s.put("r", wire.Record{Meta: wire.Meta{CallbackReference: "http://evil.example/"}}).want(t, 400)
	s.do("GET", s.base+"/nudsf-dr/v1/Realm02/Storage01/records", nil).want(t, 404, wire.CauseRealmNotFound)
	s.do("GET", s.base+"/nudsf-timer/v1/Realm01/Storage02/timers", nil).want(t, 404, wire.CauseStorageNotFound)
}

// testManyTimers has many timers due at the same time.
func testManyTimers(t *testing.T, open func() store.Engine) {
	r := receive(t)
	s := running(t, open, nil)
	at := time.Now().Add(3 * time.Second)
	var started atomic.Uint64 // timers that were created before they were due; a slow host may be late
	var group sync.WaitGroup
	for w := range 8 {
		group.Go(func() {
			for i := w; i < 400; i += 8 {
				if s.putJSON(s.timers(fmt.Sprint("t", i)), wire.Timer{Expires: at, CallbackReference: r.base + "/t"}).Status == 201 {
					started.Add(1)
				}
			}
		})
	}
	group.Wait()
	if started.Load() == 0 {
		t.Fatal("no timer was created in time")
	}
	eventually(t, "all timers fire", func() bool { return s.function.Counters().Due.Delivered == started.Load() })
	if got := s.timersFound(""); got != nil {
		t.Errorf("%d timers are left", len(got))
	}
}
