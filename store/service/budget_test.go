package service

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"vitrine/internal/hosttest"
)

// TestBudgetLeavesRoomForOthers checks that sources that take all that they get leave a part for
// the next source. In the end, nothing must be held.
func TestBudgetLeavesRoomForOthers(t *testing.T) {
	const most = 64 << 20
	b := newBudget(most)
	source := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}) }
	held := make([]int64, 10)
	const piece = 64 << 10
	for i := range held {
		for b.take(source(i), piece) {
			held[i] += piece
		}
		if held[i] == 0 {
			t.Errorf("source %d gets nothing from the budget", i)
		}
	}
	if want := int64(most - most/reserve); held[0] != want {
		t.Errorf("the first source holds %d of %d, want %d", held[0], most, want)
	}
	if !b.take(source(99), 1000) {
		t.Error("the budget has nothing left for a new source")
	}
	b.free(source(99), 1000)
	for i, n := range held {
		b.free(source(i), n)
	}
	if b.taken() != 0 || len(b.by) != 0 {
		t.Errorf("at rest the budget counts %d for %d sources, want 0", b.taken(), len(b.by))
	}
}

// TestAnswersShareABudget checks that requests for large answers are refused while others are being
// answered, and accepted afterwards.
func TestAnswersShareABudget(t *testing.T) {
	release, inside := make(chan struct{}), make(chan struct{}, 10)
	slow := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { inside <- struct{}{}; <-release })
	answer := func(r *http.Request) int64 { return int64(len(r.URL.RawQuery)) }
	s, url := running(t, Config{Answers: 10, Routes: []Route{{Path: "/kv", Handler: slow, Operation: named, Answer: answer}}}, io.Discard)
	done := make(chan int, 1)
	go func() { done <- get(t, url+"/kv?12345678").StatusCode }()
	<-inside
	if got := get(t, url+"/kv?123"); got.StatusCode != http.StatusServiceUnavailable || got.Header.Get("Retry-After") == "" {
		t.Errorf("request above the budget: got status %d, want 503 with Retry-After", got.StatusCode)
	}
	close(release)
	if status := <-done; status != http.StatusOK {
		t.Errorf("request within the budget: got status %d, want 200", status)
	}
	if got := get(t, url+"/kv?123"); got.StatusCode != http.StatusOK {
		t.Errorf("request within the budget again: got status %d, want 200", got.StatusCode)
	}
	if n := value(s.refused.WithLabelValues("answers")); n != 1 || s.answers.taken() != 0 {
		t.Errorf("got %v refusals, %d bytes held at rest, want 1 and 0", n, s.answers.taken())
	}
}

// TestOneSourceLeavesRequestsToOthers checks that a source whose requests do not end leaves
// requests and bytes of bodies to another source.
func TestOneSourceLeavesRequestsToOthers(t *testing.T) {
	slow := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	s, url := running(t, Config{InFlight: 10, Bodies: 1000, Routes: []Route{{Path: "/kv", Handler: slow, Operation: named}}}, io.Discard)
	for range 20 {
		fmt.Fprintf(dialFrom(t, "127.0.0.2", url), "PUT /kv HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nx")
	}
	refused := func() float64 {
		return value(s.refused.WithLabelValues("requests")) + value(s.refused.WithLabelValues("bodies"))
	}
	hosttest.Until(t, time.Minute, "all have come", func() bool { return refused()+float64(s.requests.taken()) == 20 })
	if n := s.requests.taken(); n < 5 || n > 8 {
		t.Errorf("one source uses %d of 10 requests, want 5 to 8", n)
	}
	got, err := http.Post(url+"/kv", "", strings.NewReader("small"))
	if err != nil {
		t.Fatal(err)
	}
	got.Body.Close()
	if got.StatusCode != http.StatusOK {
		t.Errorf("request from another source: got status %d, want 200", got.StatusCode)
	}
}

// TestOneSourceLeavesWatchesToOthers checks that a source with as many watches as it gets leaves some to
// another source.
func TestOneSourceLeavesWatchesToOthers(t *testing.T) {
	watch := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery != "short" {
			<-r.Context().Done()
		}
	})
	unnamed := func(*http.Request) string { return "" }
	s, url := running(t, Config{Watches: 10, Routes: []Route{{Path: "/kv", Handler: watch, Operation: unnamed}}}, io.Discard)
	begin := func(path string) net.Conn {
		c := dialFrom(t, "127.0.0.2", url)
		fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path)
		return c
	}
	for range 20 {
		begin("/kv")
	}
	hosttest.Until(t, time.Minute, "all have come", func() bool {
		return value(s.refused.WithLabelValues("watches"))+float64(s.watches.taken()) == 20
	})
	if n := s.watches.taken(); n < 5 || n > 8 {
		t.Errorf("one source has %d of 10 watches, want 5 to 8", n)
	}
	got, err := http.ReadResponse(bufio.NewReader(begin("/kv?short")), nil)
	if err != nil {
		t.Fatal(err)
	}
	got.Body.Close()
	if got.StatusCode != http.StatusTooManyRequests || got.Header.Get("Retry-After") == "" {
		t.Errorf("one more watch of that source: got status %d, want 429 with Retry-After", got.StatusCode)
	}
	if got := get(t, url+"/kv?short"); got.StatusCode != http.StatusOK {
		t.Errorf("watch of another source: got status %d, want 200", got.StatusCode)
	}
}

// TestChecksHaveTheirOwnLimit checks that a source with as many checks as it gets is refused further ones, but no
// other request, and that another source is not refused.
func TestChecksHaveTheirOwnLimit(t *testing.T) {
	ok := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	s, url := running(t, Config{Routes: []Route{{Path: "/health", Handler: ok, Open: true}, {Path: "/kv", Handler: ok, Operation: named}}}, io.Discard)
	here := netip.MustParseAddr("127.0.0.1")
	s.checks.take(here, mostChecks*3/4) // what one source gets
	if got := get(t, url+"/health"); got.StatusCode != http.StatusServiceUnavailable || got.Header.Get("Retry-After") == "" {
		t.Errorf("check above the limit: got status %d, want 503 with Retry-After", got.StatusCode)
	}
	if n := value(s.refused.WithLabelValues("checks")); n != 1 {
		t.Errorf("counted %v refused checks, want 1", n)
	}
	if got := get(t, url+"/kv"); got.StatusCode != http.StatusOK {
		t.Errorf("another request of that source: got status %d, want 200", got.StatusCode)
	}
	c := dialFrom(t, "127.0.0.2", url)
	fmt.Fprint(c, "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
	got, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	got.Body.Close()
	if got.StatusCode != http.StatusOK {
		t.Errorf("check of another source: got status %d, want 200", got.StatusCode)
	}
	s.checks.free(here, 1)
	if got := get(t, url+"/health"); got.StatusCode != http.StatusOK {
		t.Errorf("check below the limit again: got status %d, want 200", got.StatusCode)
	}
}

// TestLongBodiesAreRefusedAtOnce checks that a body above the size limit takes nothing from the
// budget.
func TestLongBodiesAreRefusedAtOnce(t *testing.T) {
	handler := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the handler was called") })
	s, url := running(t, Config{Routes: []Route{{Path: "/kv", Handler: handler, Operation: named}}}, io.Discard)
	c := dialFrom(t, "127.0.0.1", url)
	fmt.Fprintf(c, "PUT /kv HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n", maxBody+1)
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "HTTP/1.1 413 ") {
		t.Errorf("%q, %v", line, err)
	}
	if n := value(s.refused.WithLabelValues("size")); n != 1 {
		t.Errorf("counted %v refused requests, want 1", n)
	}
}

// TestWatchesHaveNoBody checks that a watch with a body is refused, also if the body never ends.
func TestWatchesHaveNoBody(t *testing.T) {
	ok := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	unnamed := func(*http.Request) string { return "" }
	_, url := running(t, Config{Routes: []Route{{Path: "/kv", Handler: ok, Operation: unnamed}}}, io.Discard)
	endless, end := io.Pipe()
	defer end.Close()
	for _, c := range []struct {
		http2 bool
		body  io.Reader
		want  int
	}{
		{false, nil, http.StatusOK}, {true, nil, http.StatusOK},
		{false, strings.NewReader("x"), http.StatusBadRequest}, {true, endless, http.StatusBadRequest},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/kv", c.body)
		if err != nil {
			t.Fatal(err)
		}
		protocols := new(http.Protocols)
		protocols.SetHTTP1(!c.http2)
		protocols.SetUnencryptedHTTP2(c.http2)
		transport := &http.Transport{Protocols: protocols}
		got, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		got.Body.Close()
		transport.CloseIdleConnections()
		if got.StatusCode != c.want {
			t.Errorf("%s with a body %t: got status %d, want %d", got.Proto, c.body != nil, got.StatusCode, c.want)
		}
	}
}

// TestConnectionsWithoutRequestAreCounted checks that connections that end before their first
// request is complete are counted, and others are not.
func TestConnectionsWithoutRequestAreCounted(t *testing.T) {
	ok := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	s, url := running(t, Config{Routes: []Route{{Path: "/kv", Handler: ok}}}, io.Discard)
	for _, text := range []string{
		"GET /kv HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", // a whole request
		"GET /kv HTTP/1.1\r\nX: " + strings.Repeat("x", 64<<10),
		"nonsense\r\n\r\n",
	} {
		c := dialFrom(t, "127.0.0.1", url)
		_, _ = c.Write([]byte(text)) // the service may end the connection
		_, _ = io.Copy(io.Discard, c)
		c.Close()
	}
	hosttest.Until(t, time.Minute, "both are counted", func() bool { return value(s.refused.WithLabelValues("head")) >= 2 })
	if n := value(s.refused.WithLabelValues("head")); n != 2 {
		t.Errorf("%v connections were closed without a request, want 2", n)
	}
}
