package sip

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"vitrine"
	"vitrine/load"
	"vitrine/load/loadtest"
	"vitrine/reference/ims/homestead"
	"vitrine/wire/sip"
)

// A bench is an engine and the function that it drives. Both run in the test's goroutine. The test
// moves the clock. A datagram over loopback has arrived when the send returns.
type bench struct {
	*engine
	t    testing.TB
	peer *socket
	msg  sip.Message
	all  []*socket // of the engine
}

func newBench(t testing.TB, trial load.Trial) *bench {
	t.Helper()
	peer, err := newSocket(netip.MustParseAddrPort("127.0.0.1:0"), netip.AddrPort{})
	if err != nil {
		t.Fatal(err)
	}
	peer.announce(peer.local.Addr())
	trial.Targets = []string{peer.local.String()}
	if trial.Params == nil {
		trial.Params = map[string]string{}
	}
	trial.Params["port"] = "0"
	p, err := Decode(trial.Params)
	if err != nil {
		t.Fatal(err)
	}
	e, err := newEngine(trial, p)
	if err != nil {
		t.Fatal(err)
	}
	e.clock = func() time.Duration { return e.now }
	t.Cleanup(func() {
		if err := e.close(); err != nil {
			t.Error(err)
		}
		if err := peer.close(); err != nil {
			t.Error(err)
		}
	})
	return &bench{engine: e, t: t, peer: peer, all: e.sockets()}
}

// at moves the clock and handles everything that is due.
func (b *bench) at(now time.Duration) {
	b.now = now
	b.begin()
	b.alarms()
	for _, s := range b.all {
		s.flush(b.sentFunc)
	}
}

// requests reads the engine's requests, passes each to answer, and returns their number. After
// that, the engine handles the answers.
func (b *bench) requests(answer func(m *sip.Message, source netip.AddrPort)) int {
	n := b.peer.receive()
	for i := range n {
		if _, err := b.msg.Parse(b.peer.datagram(i)); err != nil {
			b.t.Fatalf("the engine sent a message that cannot be parsed: %v", err)
		}
		if answer != nil {
			answer(&b.msg, b.peer.source(i))
		}
	}
	b.peer.flush(func(_ owner, err error) {
		if err != nil {
			b.t.Fatal(err)
		}
	})
	for _, s := range b.all {
		b.receive(s)
	}
	for _, s := range b.all {
		s.flush(b.sentFunc)
	}
	return n
}

// reply answers the request with a status and additional header lines.
func (b *bench) reply(m *sip.Message, source netip.AddrPort, status int, more string) {
	out := sip.AppendResponse(b.peer.next(), m, status, "x", tagOfPeer, source)
	b.peer.push(sip.AppendEnd(append(out, more...), nil), source, owner{})
}

var tagOfPeer = []byte("p")

const challengeLine = "WWW-Authenticate: Digest realm=\"ims.test\",nonce=\"84a4cc6f3082121f32b42a2187831a9e\",qop=\"auth\"\r\n"

// challengeFirst answers as a registrar with challenges does.
func (b *bench) challengeFirst(m *sip.Message, source netip.AddrPort) {
	if m.Authorization == nil {
		b.reply(m, source, 401, challengeLine)
		return
	}
	b.reply(m, source, 200, "")
}

func (b *bench) report() load.Report {
	b.t.Helper()
	r, err := b.record.Report(time.Unix(0, 0))
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

func TestCallsDoNotAllocate(t *testing.T) {
	b := newBench(t, load.Trial{Rate: 1000, Duration: 100})
	n := 0
	play := func() {
		b.at(time.Duration(n) * time.Millisecond)
		n++
		for range 3 {
			if got := b.requests(b.challengeFirst); got != 1 {
				t.Fatalf("got %d requests, want 1", got)
			}
		}
	}
	play()
	if allocs := testing.AllocsPerRun(2000, play); allocs != 0 {
		t.Errorf("%v allocations a call", allocs)
	}
	if r := b.report(); r.Succeeded != int64(n) || b.window != 0 {
		t.Errorf("%d of %d calls succeeded: %v", r.Succeeded, n, r.Failed)
	}
}

func TestRetransmission(t *testing.T) {
	// RFC 3261 section 17.1.2.2: with T1 500 ms and T2 4 s, a request other than
	// INVITE is sent eleven times in 32 s.
	want := []time.Duration{0, 500, 1500, 3500, 7500, 11500, 15500, 19500, 23500, 27500, 31500}
	for _, c := range []struct {
		retransmit  string
		provisional bool // a 100 answers the first request
		want        []time.Duration
	}{
		{"true", false, want},
		{"false", false, want[:1]},
		// After a provisional answer, the interval of timer E is T2 from its next firing on.
		{"true", true, []time.Duration{0, 500, 4500, 8500, 12500, 16500, 20500, 24500, 28500}},
	} {
		b := newBench(t, load.Trial{Rate: 1, Duration: 1, Params: map[string]string{"retransmit": c.retransmit, "timeout": "32s"}})
		var sent []time.Duration
		for now := time.Duration(0); now <= 33*time.Second; now += 50 * time.Millisecond {
			b.at(now)
			answer := func(m *sip.Message, source netip.AddrPort) {
				if c.provisional && now == 0 {
					b.reply(m, source, 100, "")
				}
			}
			for range b.requests(answer) {
				sent = append(sent, now/time.Millisecond)
			}
		}
		if !slices.Equal(sent, c.want) {
			t.Errorf("retransmit %s, provisional %v: sent at %v ms, want at %v ms", c.retransmit, c.provisional, sent, c.want)
		}
		if r := b.report(); r.Failed["timeout"] != 1 || r.Offered != 1 {
			t.Errorf("retransmit %s: offered %d, failed %v", c.retransmit, r.Offered, r.Failed)
		}
	}
}

// TestRetransmissionEnds checks that retransmissions end after 64 T1, even if the call waits
// longer (RFC 3261 section 17.1: timers B and F).
func TestRetransmissionEnds(t *testing.T) {
	for method, want := range map[string]int{"REGISTER": 11, "INVITE": 7} {
		b := newBench(t, load.Trial{Rate: 1, Duration: 1, Params: map[string]string{
			"scenario": "reg-invite", "digest": "false", "retransmit": "true", "timeout": "100s",
		}})
		sent := 0
		for now := time.Duration(0); now <= 99*time.Second; now += 50 * time.Millisecond {
			b.at(now)
			b.requests(func(m *sip.Message, source netip.AddrPort) {
				switch string(m.Method) {
				case method:
					sent++
				case "REGISTER":
					b.reply(m, source, 200, "")
				}
			})
		}
		if sent != want {
			t.Errorf("%s was sent %d times, want %d", method, sent, want)
		}
	}
}

// TestAnswers plays registrars that answer requests by a script.
func TestAnswers(t *testing.T) {
	stale := strings.Replace(challengeLine, "84a4", "0000", 1)
	for _, c := range []struct {
		name   string
		script []string // the answers in order: a status, or the lines of a 401
		cause  string   // empty for success
	}{
		{"as asked", []string{challengeLine, "200", "200"}, ""},
		{"a fresh nonce for deregistration", []string{challengeLine, "200", stale, "200"}, ""},
		{"a stale nonce", []string{challengeLine, strings.Replace(stale, "qop", "stale=true,qop", 1), "200", "200"}, ""},
		{"a wrong password", []string{challengeLine, challengeLine}, "401"},
		{"a nonce that is always stale", []string{challengeLine, strings.Replace(stale, "qop", "stale=true,qop", 1), strings.Replace(stale, "qop", "stale=true,qop", 1)}, "401"},
		{"SHA-256 first", []string{strings.Replace(stale, "qop", "algorithm=SHA-256,qop", 1) + challengeLine, "200", "200"}, ""},
		{"another scheme", []string{"WWW-Authenticate: Basic realm=\"x\"\r\n"}, "401"},
		{"no challenge at all", []string{"200"}, "unchallenged"},
		{"proxy authentication", []string{"407", "200", "200"}, ""},
		{"redirection", []string{"302"}, "302"},
		{"refusal", []string{challengeLine, "503"}, "503"},
		{"refusal of the last", []string{challengeLine, "200", "603"}, "603"},
		{"provisional and accepted", []string{challengeLine, "202", "299"}, ""},
	} {
		b := newBench(t, load.Trial{Rate: 1, Duration: 1})
		b.at(0)
		for i, script := range c.script {
			n := b.requests(func(m *sip.Message, source netip.AddrPort) {
				switch {
				case script == "407":
					b.reply(m, source, 407, strings.Replace(challengeLine, "WWW-", "Proxy-", 1))
				case len(script) == 3:
					status := int(script[0]-'0')*100 + int(script[1]-'0')*10 + int(script[2]-'0')
					b.reply(m, source, 100, "")
					b.reply(m, source, status, "")
				default:
					b.reply(m, source, 401, script)
				}
			})
			if n != 1 {
				t.Errorf("%s: got %d requests at step %d, want 1", c.name, n, i+1)
			}
		}
		if n := b.requests(nil); n != 0 {
			t.Errorf("%s: got %d more requests at the end, want 0", c.name, n)
		}
		r := b.report()
		if c.cause == "" && r.Succeeded != 1 || c.cause != "" && r.Failed[c.cause] != 1 {
			t.Errorf("%s: succeeded %d, failed %v; want %q", c.name, r.Succeeded, r.Failed, c.cause)
		}
		if b.window != 0 || b.users.Len() != b.pairs {
			t.Errorf("%s: %d calls are open, %d of %d subscribers free", c.name, b.window, b.users.Len(), b.pairs)
		}
	}
}

func TestLateAnswersAreStray(t *testing.T) {
	b := newBench(t, load.Trial{Rate: 1, Duration: 1, Params: map[string]string{"timeout": "1s"}})
	b.at(0)
	// Each request is answered twice. The second answer arrives after the next
	// request was sent.
	b.requests(func(m *sip.Message, source netip.AddrPort) {
		b.reply(m, source, 401, challengeLine)
		b.reply(m, source, 401, challengeLine)
	})
	if b.stray != 1 {
		t.Errorf("counted %d stray messages, want 1", b.stray)
	}
	b.at(time.Second) // the call times out
	b.requests(b.challengeFirst)
	if r := b.report(); r.Failed["timeout"] != 1 || r.Succeeded != 0 || b.stray != 2 {
		t.Errorf("failed %v, succeeded %d, %d stray", r.Failed, r.Succeeded, b.stray)
	}
	// Garbage must not change anything.
	source := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		junk := make([]byte, source.IntN(200))
		for i := range junk {
			junk[i] = byte(source.Uint32())
		}
		b.peer.push(append(b.peer.next(), junk...), b.targets[0].local, owner{})
		if b.peer.full() {
			b.requests(nil)
		}
	}
	b.requests(nil)
	if b.malformed == 0 {
		t.Error("malformed messages were not counted")
	}
}

// TestClockIsReadForEachBatch lets more answers wait than one batch holds, while the clock advances
// with each reading. Later answers must not have the time of the first ones.
func TestClockIsReadForEachBatch(t *testing.T) {
	b := newBench(t, load.Trial{Rate: 100, Duration: 2})
	b.at(time.Second)
	calls := b.agenda.Begun()
	if calls <= batch || calls > 2*batch {
		t.Fatalf("%d calls begun, want two batches of at most %d", calls, batch)
	}
	for answered := 0; answered < calls; {
		n := b.peer.receive()
		if n == 0 {
			t.Fatalf("the peer got %d requests, want %d", answered, calls)
		}
		for i := range n {
			if _, err := b.msg.Parse(b.peer.datagram(i)); err != nil {
				t.Fatal(err)
			}
			b.reply(&b.msg, b.peer.source(i), 503, "")
		}
		b.peer.flush(func(_ owner, err error) {
			if err != nil {
				t.Fatal(err)
			}
		})
		answered += n
	}
	readings := 0
	b.clock = func() time.Duration {
		readings++
		return time.Second + time.Duration(readings)*time.Millisecond
	}
	for _, s := range b.all {
		b.receive(s)
	}
	if r := b.report(); readings != 2 || r.Answered != 1.002 || r.Failed["503"] != int64(calls) {
		t.Errorf("the clock was read %d times, the last answer was at %v s, failed %v; want 2 readings and 1.002 s", readings, r.Answered, r.Failed)
	}
}

// TestWithoutSubscribers checks that calls without a free subscriber count as
// scheduled but are not begun.
func TestWithoutSubscribers(t *testing.T) {
	b := newBench(t, load.Trial{Rate: 10, Duration: 1, Params: map[string]string{"timeout": "100ms", "call_time": "1ms"}})
	pool := b.pairs
	b.at(0)
	for b.users.Len() > 0 {
		b.users.Pop()
	}
	b.at(2 * time.Second)
	if r := b.report(); r.Scheduled != 10 || r.Offered != 1 {
		t.Errorf("scheduled %d, offered %d; want 10 and 1 (pool %d)", r.Scheduled, r.Offered, pool)
	}
}

// TestInFlight checks that a call is in flight until it ends, even if it began in
// the warm-up. Each call here lasts 200 ms, until its timeout.
func TestInFlight(t *testing.T) {
	b := newBench(t, load.Trial{Rate: 100, Warmup: 1, Duration: 0.5, Params: map[string]string{"timeout": "200ms"}})
	for now := -time.Second; now <= 700*time.Millisecond; now += 10 * time.Millisecond {
		b.at(now)
	}
	r := b.report()
	if want := []int64{20, 20, 20, 20, 20}; !slices.Equal(r.InFlight, want) {
		t.Errorf("got %v calls in flight, want %v", r.InFlight, want)
	}
	if _, more := b.agenda.Next(); r.Failed["timeout"] != 50 || more || b.window != 0 {
		t.Errorf("failed %v, want 50 timeouts", r.Failed)
	}
}

// TestPoissonArrivals checks that calls follow the seed's schedule.
func TestPoissonArrivals(t *testing.T) {
	trial := load.Trial{Rate: 200, Warmup: 1, Duration: 0.5, Seed: 9, Params: map[string]string{"arrivals": "poisson"}}
	b := newBench(t, trial)
	schedule, want := trial.Schedule(load.Poisson), 0
	next, more := schedule.Next()
	for now := -time.Second; now <= 500*time.Millisecond; now += time.Millisecond {
		for ; more && next <= now; next, more = schedule.Next() {
			want++
		}
		b.at(now)
		if b.agenda.Begun() != want {
			t.Fatalf("%d calls begun at %v, want %d", b.agenda.Begun(), now, want)
		}
	}
}

func TestHold(t *testing.T) {
	b := newBench(t, load.Trial{Rate: 1, Duration: 1, Params: map[string]string{"scenario": RegInvite, "hold": "20s", "timeout": "10s"}})
	b.at(0)
	for range 4 {
		b.requests(b.challengeFirst)
	}
	// The peer answers the INVITE in place of the callee, and forwards the ACK to
	// the callee's registered contact.
	b.requests(func(m *sip.Message, source netip.AddrPort) {
		b.reply(m, source, 200, "Contact: <sip:other@192.0.2.9>\r\nRecord-Route: <sip:a;lr>, <sip:b;lr>\r\n")
	})
	var ack string
	b.requests(func(m *sip.Message, _ netip.AddrPort) {
		ack = string(m.Method) + " " + string(m.URI) + " " + string(m.Header)
	})
	if !strings.HasPrefix(ack, "ACK sip:other@192.0.2.9 ") || !strings.Contains(ack, "Route: <sip:b;lr>\r\nRoute: <sip:a;lr>\r\n") {
		t.Fatalf("got ACK %s", ack)
	}
	callee := b.params.FirstUser + b.pairs
	forwarded := strings.Replace(ack, "ACK sip:other@192.0.2.9 ", "ACK sip:v"+strconv.Itoa(callee)+"@127.0.0.1 SIP/2.0\r\n", 1)
	b.peer.push(append(b.peer.next(), forwarded+"\r\n"...), netip.AddrPortFrom(b.targets[0].local.Addr(), b.back.local.Port()), owner{})
	b.requests(nil)
	b.at(19 * time.Second)
	if n := b.requests(nil); n != 0 {
		t.Errorf("got %d requests during the hold, want 0", n)
	}
	b.at(20 * time.Second)
	if n := b.requests(func(m *sip.Message, source netip.AddrPort) {
		if string(m.Method) != "BYE" {
			t.Errorf("got %s after the hold, want BYE", m.Method)
		}
		b.reply(m, source, 200, "")
	}); n != 1 {
		t.Errorf("got %d requests after the hold, want 1", n)
	}
	if r := b.report(); r.Succeeded != 1 {
		t.Errorf("the call failed: %v", r.Failed)
	}
}

func TestDecodeRefuses(t *testing.T) {
	loadtest.Refuses(t, Decode, map[string][]string{
		"scenario": {"", "register"}, "digest": {"maybe"}, "timeout": {"10", "0s", "2h", "-1s"}, "hold": {"-1s"},
		"users": {"-1", "1.5", "many"}, "user_format": {"sub", "%s", "%d%d", "sub%6d", "%x", "a b%d", "%099d"},
		"password_format": {"%d", "%s%s", "a\"b", ""}, "domain": {"", "a b", "x%d"}, "local": {"localhost"},
		"port": {"65536"}, "username": {"nobody"}, "arrivals": {"", "bursty"}, "expires": {"0"}, "tick": {"0s"}, "nonsense": {"1"},
	})
}

func TestPool(t *testing.T) {
	for _, c := range []struct {
		params string
		rate   float64
		want   int
	}{
		{"timeout=10s call_time=1s", 100, 1101},
		{"timeout=10s", 100, 3001}, // three requests, each up to the timeout
		{"timeout=10s digest=false", 100, 2001},
		{"timeout=10s call_time=1s scenario=reg-invite", 100, 2202},
		{"timeout=10s call_time=1s arrivals=poisson", 100, 1267}, // plus 5 standard deviations
		{"timeout=10s call_time=1s users=1101", 100, 1101},
		{"timeout=10s call_time=1s users=5000", 100, 5000},
		{"timeout=10s call_time=1s users=1100", 100, 0},
		{"timeout=1h", 1e6, 0},
	} {
		given := map[string]string{}
		for field := range strings.FieldsSeq(c.params) {
			k, v, _ := strings.Cut(field, "=")
			given[k] = v
		}
		p, err := Decode(given)
		if err != nil {
			t.Fatal(err)
		}
		got, err := p.Pool(c.rate)
		if got != c.want || (c.want == 0) != vitrine.IsBadInput(err) {
			t.Errorf("%s at %v: %d, %v; want %d", c.params, c.rate, got, err, c.want)
		}
	}
}

// TestDefaultOfHomesteadSuffices compares the most subscribers of a trial with Homestead's default.
func TestDefaultOfHomesteadSuffices(t *testing.T) {
	want := fmt.Sprintf("(default %d)", maxUsers)
	var help bytes.Buffer
	if err := homestead.Run(t.Context(), []string{"--help"}, &help, io.Discard); err != nil || !strings.Contains(help.String(), want) {
		t.Errorf("homestead --help: error %v, no flag has %q:\n%s", err, want, &help)
	}
}

func TestUserFormat(t *testing.T) {
	for _, c := range []struct {
		format string
		n      int
		want   string
	}{{"sub%06d", 1, "sub000001"}, {"sub%06d", 1234567, "sub1234567"}, {"%d", 0, "0"}, {"+1%03dx", 10, "+1010x"}} {
		f, err := parseNumbered(c.format)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(f.append(nil, c.n)); got != c.want {
			t.Errorf("%s of %d = %s, want %s", c.format, c.n, got, c.want)
		}
	}
}
