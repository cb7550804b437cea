package http

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/internal/mmsg"
	"vitrine/internal/tcpfd"
	"vitrine/load"
	"vitrine/load/loadtest"
)

// A bench is an engine and the server that it drives. Both run in the test's goroutine. The test
// moves the clock.
type bench struct {
	*engine
	t      testing.TB
	listen int
	wait   [1]unix.PollFd
	buffer []byte
}

func newBench(t testing.TB, trial load.Trial) *bench {
	t.Helper()
	listen, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.Bind(listen, mmsg.Sockaddr(netip.MustParseAddrPort("127.0.0.1:0")))
	}
	if err == nil {
		err = unix.Listen(listen, 16)
	}
	if err != nil {
		t.Fatal(err)
	}
	local, err := mmsg.Local(listen)
	if err != nil {
		t.Fatal(err)
	}
	trial.Targets = []string{local.String()}
	p, err := Decode(trial.Params)
	if err != nil {
		t.Fatal(err)
	}
	e, err := newEngine(trial, p)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{engine: e, t: t, listen: listen, buffer: make([]byte, 4096)}
	e.clock = func() time.Duration { return e.now }
	t.Cleanup(func() {
		if err := errors.Join(e.close(), unix.Close(listen)); err != nil {
			t.Error(err)
		}
	})
	return b
}

// at moves the clock and handles the calls and alarms that are due.
func (b *bench) at(now time.Duration) {
	b.now = now
	b.begin()
	b.alarms()
}

// await waits until the descriptor is readable.
func (b *bench) await(fd int) {
	b.t.Helper()
	b.wait[0] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
	for {
		const patience = 30_000 // ms, on a busy host
		switch n, err := unix.Poll(b.wait[:], patience); {
		case errors.Is(err, unix.EINTR):
		case n != 1:
			b.t.Fatalf("no data or connection arrived: %v", err)
		default:
			return
		}
	}
}

// awaitEvents waits for epoll events and has the engine handle them.
func (b *bench) awaitEvents() {
	b.t.Helper()
	b.await(b.poll)
	b.handleReady()
}

// accept accepts a connection.
func (b *bench) accept() int {
	b.t.Helper()
	b.await(b.listen)
	fd, _, err := unix.Accept4(b.listen, unix.SOCK_CLOEXEC)
	if err != nil {
		b.t.Fatal(err)
	}
	return fd
}

// request reads one request from the connection. The result is valid until the
// next call.
func (b *bench) request(fd int) []byte {
	b.t.Helper()
	for n := 0; ; {
		b.await(fd)
		got, errno := tcpfd.Receive(fd, b.buffer[n:])
		if errno != 0 || got == 0 {
			b.t.Fatalf("read a request: got %d bytes, error %v", got, errno)
		}
		n += got
		if n >= 4 && string(b.buffer[n-4:n]) == "\r\n\r\n" {
			return b.buffer[:n]
		}
	}
}

func (b *bench) answer(fd int, text []byte) {
	b.t.Helper()
	if n, errno := tcpfd.Send(fd, text); errno != 0 || n != len(text) {
		b.t.Fatalf("write an answer: sent %d of %d bytes, error %v", n, len(text), errno)
	}
}

func (b *bench) hangUp(fd int) {
	b.t.Helper()
	if err := unix.Close(fd); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) report() load.Report {
	b.t.Helper()
	r, err := b.record.Report(time.Unix(1, 0))
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

var ok = []byte("HTTP/1.1 200 OK\r\nServer: x\r\nContent-Length: 5\r\n\r\nhello")

func TestCallsDoNotAllocate(t *testing.T) {
	b := newBench(t, load.Trial{Rate: 1000, Duration: 100, Params: map[string]string{"arrivals": load.Poisson, "timeout": "10ms"}})
	fd, calls := -1, 0
	play := func() {
		due, _ := b.agenda.Next()
		for b.at(due); b.open > 0; calls++ {
			if fd < 0 {
				fd = b.accept()
				b.awaitEvents() // the connection is established
			}
			b.request(fd)
			b.answer(fd, ok)
			b.awaitEvents()
		}
	}
	for range 100 {
		play()
	}
	if allocs := testing.AllocsPerRun(2000, play); allocs != 0 {
		t.Errorf("%v allocations a call", allocs)
	}
	if r := b.report(); r.Succeeded != int64(calls) || calls < 2000 || len(b.conns) != 1 || b.window != 0 {
		t.Errorf("%d of %d calls succeeded over %d connections: %v", r.Succeeded, calls, len(b.conns), r.Failed)
	}
	b.hangUp(fd)
}

// TestAnswers plays servers that answer or do not answer, and checks the result
// of the call and the state of the connection.
func TestAnswers(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\n"
	for _, c := range []struct {
		name, text string
		hangUp     bool   // close the connection after the text
		cause      string // empty for success
		kept       bool   // the connection stays open
	}{
		{"success", string(ok), false, "", true},
		{"no content", "HTTP/1.1 204 No Content\r\n\r\n", false, "", true},
		{"not there", "HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno", false, "404", true},
		{"503 and close", "HTTP/1.1 503 Busy\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", false, "503", false},
		{"redirection", "HTTP/1.1 301 Moved\r\nContent-Length: 0\r\nLocation: /x\r\n\r\n", false, "301", true},
		{"chunks", head + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", false, "", true},
		{"a body until the connection ends", head + "\r\nabc", true, "", false},
		{"more than requested", string(ok) + "more", false, "", false},
		{"another protocol", "SSH-2.0-OpenSSH\r\n", false, "malformed", false},
		{"truncated in the head", head, true, "reset", false},
		{"truncated in the body", head + "Content-Length: 5\r\n\r\nhel", true, "reset", false},
		{"truncated in a chunk", head + "Transfer-Encoding: chunked\r\n\r\n3\r\na", true, "reset", false},
		{"no response", "", true, "reset", false},
	} {
		b := newBench(t, load.Trial{Rate: 1, Duration: 1, Params: map[string]string{"path": "/a?b=c", "host": "h.test"}})
		b.at(0)
		fd := b.accept()
		b.awaitEvents()
		if got, want := string(b.request(fd)), "GET /a?b=c HTTP/1.1\r\nHost: h.test\r\n"; !strings.HasPrefix(got, want) {
			t.Errorf("%s: got request %q", c.name, got)
		}
		b.answer(fd, []byte(c.text))
		if c.hangUp {
			b.hangUp(fd)
		}
		for b.open > 0 {
			b.awaitEvents()
		}
		r := b.report()
		if c.cause == "" && r.Succeeded != 1 || c.cause != "" && r.Failed[c.cause] != 1 {
			t.Errorf("%s: succeeded %d, failed %v; want %q", c.name, r.Succeeded, r.Failed, c.cause)
		}
		if kept := len(b.targets[0].idle) == 1; kept != c.kept || b.targets[0].open != len(b.targets[0].idle) {
			t.Errorf("%s: kept the connection: %v, want %v; %d open", c.name, kept, c.kept, b.targets[0].open)
		}
		if !c.hangUp {
			b.hangUp(fd)
		}
	}
}

// TestWaitingIsLate checks that a call that waits for a connection is sent when
// one is free, and that the wait is part of its latency.
func TestWaitingIsLate(t *testing.T) {
	b := newBench(t, load.Trial{Rate: 10, Duration: 0.3, Params: map[string]string{"connections": "1"}})
	b.at(0)
	fd := b.accept()
	b.awaitEvents()
	b.request(fd)
	b.at(100 * time.Millisecond)
	b.at(200 * time.Millisecond)
	if b.targets[0].open != 1 || b.targets[0].waiting.Len() != 2 {
		t.Fatalf("got %d connections, %d calls waiting", b.targets[0].open, b.targets[0].waiting.Len())
	}
	for range 3 {
		b.now += 100 * time.Millisecond
		b.answer(fd, ok)
		b.awaitEvents()
		if b.open > 0 {
			b.request(fd)
		}
	}
	r := b.report()
	h, err := r.Histogram()
	if err != nil {
		t.Fatal(err)
	}
	if r.Succeeded != 3 || r.Offered != 3 || b.waited != 2 {
		t.Errorf("offered %d, succeeded %d, waited %d", r.Offered, r.Succeeded, b.waited)
	}
	// The calls are due at 0, 100 and 200 ms. Their answers come at 300, 400 and 500 ms.
	if got := time.Duration(h.Min()).Round(time.Millisecond); got != 300*time.Millisecond {
		t.Errorf("the shortest latency is %v, want 300ms", got)
	}
	if r.InFlight[0] != 1 || r.InFlight[1] != 2 || r.InFlight[2] != 3 {
		t.Errorf("calls in flight: got %v, want 1, 2, 3 because a waiting call is in flight", r.InFlight)
	}
	b.hangUp(fd)
}

// TestTimeouts checks that calls time out on connections and while they wait for one. A later
// answer must not count.
func TestTimeouts(t *testing.T) {
	b := newBench(t, load.Trial{Rate: 10, Duration: 0.2, Params: map[string]string{"connections": "1", "timeout": "1s"}})
	b.at(0)
	fd := b.accept()
	b.awaitEvents()
	b.request(fd)
	b.at(100 * time.Millisecond)
	b.at(999 * time.Millisecond)
	if b.open != 2 {
		t.Fatalf("got %d open calls before the timeout, want 2", b.open)
	}
	b.at(time.Second) // the first call times out, and the second gets a new connection
	if r := b.report(); r.Failed["timeout"] != 1 || b.targets[0].open != 1 || b.targets[0].waiting.Len() != 0 {
		t.Fatalf("failed %v, %d connections left", r.Failed, b.targets[0].open)
	}
	b.hangUp(fd)
	fd = b.accept()
	b.request(fd)
	b.answer(fd, ok)
	b.now = 1100*time.Millisecond + 1 // the answer is a nanosecond too late
	b.awaitEvents()
	b.at(2 * time.Second)
	if r := b.report(); r.Failed["timeout"] != 2 || r.Succeeded != 0 || b.open != 0 || b.window != 0 {
		t.Errorf("failed %v, succeeded %d, %d open", r.Failed, r.Succeeded, b.open)
	}
	b.hangUp(fd)
}

// TestLongBodiesLeaveTimeForOtherWork answers with more bytes than the engine reads in one turn. The call
// must time out between two turns, or succeed if the timeout does not pass.
func TestLongBodiesLeaveTimeForOtherWork(t *testing.T) {
	for cause, now := range map[string]time.Duration{"": 0, "timeout": time.Second} {
		b := newBench(t, load.Trial{Rate: 1, Duration: 1, Params: map[string]string{"timeout": "1s"}})
		b.engine.buffer = b.engine.buffer[:8]
		b.at(0)
		fd := b.accept()
		b.awaitEvents()
		b.request(fd)
		const length = 3 * 8 * maxReads
		b.answer(fd, fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", length, make([]byte, length)))
		b.awaitEvents()
		if b.open != 1 {
			t.Errorf("read a body of %d reads in one turn", length/8)
		}
		for b.at(now); b.open > 0; {
			b.awaitEvents()
		}
		if r := b.report(); r.Succeeded+r.Failed[cause] != 1 || (r.Succeeded == 1) != (cause == "") {
			t.Errorf("succeeded %d, failed %v; want cause %q", r.Succeeded, r.Failed, cause)
		}
		b.hangUp(fd)
	}
}

// TestWaitingTimesOut checks that a waiting call times out while another call has
// the only connection.
func TestWaitingTimesOut(t *testing.T) {
	b := newBench(t, load.Trial{Rate: 10, Duration: 0.2, Params: map[string]string{"connections": "1", "timeout": "1s"}})
	b.at(0)
	b.at(100 * time.Millisecond)
	b.targets[0].waiting.Front().deadline = 500 * time.Millisecond
	b.at(600 * time.Millisecond)
	if r := b.report(); r.Failed["timeout"] != 1 || b.open != 1 {
		t.Errorf("failed %v, %d open", r.Failed, b.open)
	}
}

// TestServerEndsWhileCallsWait ends a server while a call waits for the only connection, and lets each new
// connection fail at once. The waiting call must fail for the same reason as the call on the connection.
func TestServerEndsWhileCallsWait(t *testing.T) {
	b := newBench(t, load.Trial{Rate: 10, Duration: 0.3, Params: map[string]string{"connections": "1"}})
	b.at(0)
	fd := b.accept()
	b.awaitEvents()
	b.request(fd)
	b.at(100 * time.Millisecond)
	b.at(200 * time.Millisecond)
	b.answer(fd, ok)
	b.awaitEvents() // sends the second call
	b.request(fd)
	b.targets[0].addr = netip.MustParseAddrPort("255.255.255.255:1") // TCP cannot connect to a broadcast address
	b.hangUp(fd)
	b.awaitEvents()
	if r := b.report(); r.Succeeded != 1 || r.Failed["connect"] != 2 || b.resent != 1 {
		t.Errorf("succeeded %d, failed %v, resent %d; want 1, connect:2, 1", r.Succeeded, r.Failed, b.resent)
	}
}

// TestClosedConnections checks three cases. A connection that ended while it was free is not used.
// If a reused connection ends as a request is sent on it, no call fails. If a new connection does
// so, its call fails.
func TestClosedConnections(t *testing.T) {
	b := newBench(t, load.Trial{Rate: 10, Duration: 1})
	serve := func(fd int) {
		b.request(fd)
		b.answer(fd, ok)
		for b.open > 0 {
			b.awaitEvents()
		}
	}
	b.at(0)
	fd := b.accept()
	serve(fd)
	b.hangUp(fd)
	b.awaitEvents()
	if len(b.targets[0].idle) != 0 || b.targets[0].open != 0 {
		t.Fatalf("got %d connections after one ended, want 0", b.targets[0].open)
	}
	b.at(100 * time.Millisecond)
	fd = b.accept()
	serve(fd)
	b.hangUp(fd)                 // the engine does not notice yet
	b.at(200 * time.Millisecond) // the engine sends, then notices
	b.awaitEvents()
	fd = b.accept()
	serve(fd)
	if r := b.report(); r.Succeeded != 3 || b.resent != 1 {
		t.Fatalf("succeeded %d, resent %d, failed %v", r.Succeeded, b.resent, r.Failed)
	}
	b.hangUp(fd)
	b.at(300 * time.Millisecond)
	b.awaitEvents()
	fd = b.accept() // connection of the repeated request
	b.hangUp(fd)
	for b.open > 0 {
		b.awaitEvents()
	}
	if r := b.report(); r.Succeeded != 3 || r.Failed["reset"] != 1 || b.resent != 2 {
		t.Errorf("succeeded %d, resent %d, failed %v", r.Succeeded, b.resent, r.Failed)
	}
}

func TestDecodeRefuses(t *testing.T) {
	loadtest.Refuses(t, Decode, map[string][]string{
		"path": {"", "x", "/a b", "/a\r\nX: y", "/#a", "/\u00e4", "/" + strings.Repeat("a", 4096)}, "host": {"", "a b", "a/b", "a\r\nb"},
		"timeout": {"10", "0s", "2h", "-1s"}, "connections": {"-1", "many", "1.5"}, "tick": {"0s"}, "arrivals": {"", "bursty"}, "nonsense": {"1"},
	})
}

func TestLimit(t *testing.T) {
	for _, c := range []struct {
		params string
		rate   float64
		target int
		want   int
	}{
		{"timeout=1s", 100, 1, 151}, // 100 plus 5 standard deviations
		{"timeout=1s", 100, 2, 76},
		{"timeout=10ms", 0.1, 1, 2},
		{"connections=7", 1e6, 1, 7},
		{"connections=7", 1e6, 2, 3},
		{"connections=2", 1e6, 2, 1},
		{"connections=1", 1e6, 2, 0}, // less than one for each target
		{"connections=1000000", 1, 1, 0},
	} {
		given := map[string]string{}
		name, value, _ := strings.Cut(c.params, "=")
		given[name] = value
		p, err := Decode(given)
		if err != nil {
			t.Fatal(err)
		}
		got, err := p.limit(load.Trial{Rate: c.rate, Targets: make([]string, c.target)})
		if got != c.want || (c.want == 0) != vitrine.IsBadInput(err) {
			t.Errorf("%s at %v to %d targets: %d, %v; want %d", c.params, c.rate, c.target, got, err, c.want)
		}
	}
}
