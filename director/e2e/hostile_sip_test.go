package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vitrine/director/directortest"
	"vitrine/internal/hosttest"
)

// budgetSIP is the memory bound of a director for SIP by its configuration, in bytes.
func budgetSIP() int64 {
	const (
		workers = 3 // two for UDP, one for TCP
		entries = 524288
		tables  = (workers+1)*entries*8 + 65536*26 // keys, transactions, sources
		queues  = 64 << 20                         // bound on all send queues
		// A connection has two goroutines, a read buffer of 8 KiB and a queue of 256 pointers.
		connection = 24 << 10
		collected  = 2 // the heap grows to twice the live heap between two collections
	)
	if hosttest.Raced {
		return 8 * (tables + queues + int64(crowdSize)*connection)
	}
	return tables + collected*(queues+int64(crowdSize)*connection)
}

// sourceOption makes the kernel send a datagram from an address of this host (ip(7),
// IP_PKTINFO).
func sourceOption(a netip.Addr) []byte {
	return unix.PktInfo4(&unix.Inet4Pktinfo{Spec_dst: a.As4()})
}

// TestHostileSIP attacks a director's SIP listeners while it serves calls at half of the site's
// capacity. All calls must succeed, and memory must stay within its bound.
func TestHostileSIP(t *testing.T) {
	hosttest.OpenFiles(t, uint64(crowdSize)+1000)
	h := newHostile(t)
	v := h.newVictims(t)
	// The request of a phone without load, as the instance gets it: with the director's MACs.
	if status, text := h.ask(h.at(firstPhone, 0), h.address, request("PUBLISH", "quiet", "Event: presence\r\n")); status != 200 {
		t.Fatalf("before the attacks: got answer %s", text)
	}
	genuine := string(*h.gated.last.Load())
	for _, a := range []attack{
		h.strangersAnswer(v), h.genuineViasRedirected(v, genuine), h.repliesThatSteer(genuine),
		h.requestsForTCP(v), h.garbage(), h.tagsOfNoDialog(), h.flood(),
		h.silentCrowd(), h.slowCrowd(), h.largeHeads(), h.pipelinedGarbage(), h.deafClients(),
	} {
		h.withstand(t, a)
		v.check(t)
	}
}

// victims are hosts that the director must not send to.
type victims struct {
	udp, tcp  string // addresses
	innocent  net.Conn
	messages  atomic.Int64
	dialed    atomic.Int64
	unasked   atomic.Int64 // bytes to the innocent client
	multicast string
}

// newVictims starts a UDP and a TCP server that the director has no reason to contact, and a
// client with an open TCP connection to the director.
func (h *hostile) newVictims(t *testing.T) *victims {
	t.Helper()
	v := &victims{multicast: "239.255.77.1:5060"}
	v.udp = directortest.Answer(t, h.at(victimHost, sipPort), func([]byte) []byte {
		v.messages.Add(1)
		return nil
	})
	l, err := net.Listen("tcp", h.at(victimHost, sipPort))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	v.tcp = l.Addr().String()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			v.dialed.Add(1)
			_ = c.Close()
		}
	}()
	v.connect(t, h)
	return v
}

// connect opens the connection of the innocent client, and waits for the answer to one request.
func (v *victims) connect(t *testing.T, h *hostile) {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(h.host(innocentHost))}}
	var err error
	if v.innocent, err = d.DialContext(t.Context(), "tcp", h.address); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = v.innocent.Close() })
	hello := strings.Replace(string(request("PUBLISH", "innocent", "Event: presence\r\n")), "/UDP", "/TCP", 1)
	if _, err := v.innocent.Write([]byte(hello)); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 65536)
	if err := v.innocent.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if n, err := v.innocent.Read(answer); err != nil || !strings.HasPrefix(string(answer[:n]), "SIP/2.0 200 ") {
		t.Fatalf("the legitimate client got %q, error %v", answer[:n], err)
	}
	if err := v.innocent.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			n, err := v.innocent.Read(answer)
			v.unasked.Add(int64(n))
			if err != nil {
				return
			}
		}
	}()
}

// check fails the test if a victim received anything from the director.
func (v *victims) check(t *testing.T) {
	t.Helper()
	if n := v.messages.Swap(0); n > 0 {
		t.Errorf("the director sent %d messages to an address that sent no request", n)
	}
	if n := v.dialed.Swap(0); n > 0 {
		t.Errorf("the director opened %d TCP connections to an address that sent no request", n)
	}
	if n := v.unasked.Swap(0); n > 0 {
		t.Errorf("the director sent %d unexpected bytes on another client's connection", n)
	}
}

// flowName returns an address as the director writes it into the Via parameter vf.
func flowName(address string) string {
	a := netip.MustParseAddrPort(address)
	return fmt.Sprintf("%x%04x", a.Addr().As4(), a.Port())
}

// destinations returns forged pairs: a second Via with the destination of a response, and the
// matching parameters of the director's Via.
func (v *victims) destinations() [][2]string {
	const branch = ";branch=z9hG4bKvictim"
	innocent := v.innocent.LocalAddr().String()
	return [][2]string{
		{"SIP/2.0/UDP " + v.udp + branch, ""},
		{"SIP/2.0/UDP " + v.multicast + branch, ""},
		{"SIP/2.0/UDP 192.0.2.1" + branch + ";maddr=239.255.77.1", ""},
		{"SIP/2.0/UDP 192.0.2.1" + branch + ";rport=5060;received=" + netip.MustParseAddrPort(v.udp).Addr().String(), ""},
		{"SIP/2.0/TCP " + v.tcp + branch, ""},
		{"SIP/2.0/TCP " + v.tcp + branch, ";vf=" + flowName(v.tcp)},
		{"SIP/2.0/TCP " + innocent + branch, ";vf=" + flowName(innocent)},
		{"SIP/2.0/UDP " + v.udp + branch, ";vf=" + flowName(innocent)},
	}
}

const unverified = `reason="unverified"`

// strangersAnswer sends responses with forged parameters in the director's Via.
func (h *hostile) strangersAnswer(v *victims) attack {
	all, random := v.destinations(), rand.New(rand.NewPCG(1, 1))
	return attack{
		name: "responses of strangers", times: 1, counter: drops, labels: []string{unverified}, all: true,
		run: flood(h.address, anywhere, func(n int) []byte {
			to := all[n%len(all)]
			return fmt.Appendf(nil, "SIP/2.0 200 OK\r\nVia: SIP/2.0/UDP %s;branch=z9hG4bK-vd%02x01%04x%016x%016x%s;vm=0001%016x%016x\r\nVia: %s\r\n"+
				"From: <sip:a@proof.test>;tag=1\r\nTo: <sip:b@proof.test>;tag=2\r\nCall-ID: forged-%d\r\nCSeq: 1 INVITE\r\nContent-Length: 0\r\n\r\n",
				h.address, n%2<<7, 1+n%3, random.Uint64(), random.Uint64(), to[1], random.Uint64(), random.Uint64(), to[0], n)
		}),
	}
}

var topVia = regexp.MustCompile(`(?m)^(Via: SIP/2\.0/UDP [^;]+)(.*?)(;vm=[0-9a-f]+)?\r\nVia: [^\r]*\r\n`)

// genuineViasRedirected sends responses with a genuine Via of the director, but with another
// destination in the second Via.
func (h *hostile) genuineViasRedirected(v *victims, genuine string) attack {
	var all [][]byte
	for _, to := range v.destinations() {
		text := topVia.ReplaceAllString(genuine, "${1}${2}"+to[1]+"${3}\r\nVia: "+to[0]+"\r\n")
		all = append(all, directortest.Response([]byte(text), 200))
	}
	return attack{
		name: "genuine entries for others", times: 1, counter: drops, labels: []string{unverified}, all: true,
		run: flood(h.address, anywhere, func(n int) []byte { return all[n%len(all)] }),
	}
}

// repliesThatSteer sends responses that would close the gate or hold back requests for an
// instance if the director trusted a stranger. Half of them have a genuine signature of the
// director, and half are for transactions that the director did not begin.
func (h *hostile) repliesThatSteer(genuine string) attack {
	const feedback = `;oc=100;oc-algo="loss";oc-validity=10000;oc-seq=9999999999.0`
	text := strings.Replace(genuine, `;oc;oc-algo="loss"`, feedback, 1)
	replies := [][]byte{directortest.Response([]byte(text), 503), directortest.Response([]byte(text), 500)}
	branch, random := regexp.MustCompile(`-vd([0-9a-f]{8})[0-9a-f]{32}`), rand.New(rand.NewPCG(3, 3))
	busy := func() float64 {
		return h.metric("vitrine_director_transactions_ended_total", `type="`+gatedType+`"`) - h.metric("vitrine_director_transactions_ended_total", `type="`+gatedType+`"`, `outcome="succeeded"`)
	}
	before := busy()
	return attack{
		name: "responses that would steer the gate", times: 1, counter: drops, labels: []string{unverified},
		run: flood(h.address, anywhere, func(n int) []byte {
			reply := replies[n%2]
			if n%4 < 2 {
				reply = branch.ReplaceAll(reply, fmt.Appendf(nil, "-vd${1}%016x%016x", random.Uint64(), random.Uint64()))
			}
			return reply
		}),
		check: func(t *testing.T) {
			if !strings.Contains(text, feedback) {
				t.Errorf("the director did not ask for overload feedback: %s", genuine)
			}
			if n := busy() - before; n > 0 {
				t.Errorf("%.0f transactions ended by a forged response", n)
			}
			if rate := h.metric("vitrine_director_gate_rate", `type="`+gatedType+`"`); rate != gateRate {
				t.Errorf("rate of the gate: got %g requests/s, want %d as before", rate, gateRate)
			}
			if status, text := h.ask(h.at(firstPhone, 0), h.address, request("PUBLISH", "steered", "Event: presence\r\n")); status != 200 {
				t.Errorf("request of a phone after the attack: got answer %s", text)
			}
		},
	}
}

// requestsForTCP sends requests over UDP that ask for TCP in every header where SIP allows it.
func (h *hostile) requestsForTCP(v *victims) attack {
	return attack{
		name: "datagrams that ask for TCP connections", times: 1, counter: "vitrine_director_failures_total", labels: []string{`cause="unruled"`},
		run: flood(h.address, anywhere, func(n int) []byte {
			return fmt.Appendf(nil, "MESSAGE sip:x@%[1]s;transport=tcp SIP/2.0\r\nVia: SIP/2.0/TCP %[1]s;branch=z9hG4bKtcp%[2]d\r\nMax-Forwards: 70\r\n"+
				"Route: <sip:o.0001.%[3]s.session.0001%032[2]d@%[4]s;lr>, <sip:%[1]s;transport=tcp;lr>\r\nFrom: <sip:a@proof.test>;tag=1\r\n"+
				"To: <sip:b@proof.test>\r\nContact: <sip:x@%[1]s;transport=tcp>\r\nCall-ID: tcp-%[2]d\r\nCSeq: 1 MESSAGE\r\nContent-Length: 0\r\n\r\n",
				v.tcp, n, flowName(v.innocent.LocalAddr().String()), h.address)
		}),
	}
}

// garbage sends malformed and oversized datagrams.
func (h *hostile) garbage() attack {
	all := vandals(rand.New(rand.NewPCG(1, 2)))
	var names []string
	for name := range all {
		if name != "largest datagrams" && name != "many headers" && name != "nothing" { // the large ones parse: they would flood the instance
			names = append(names, name)
		}
	}
	return attack{
		name: "garbage", times: 1, counter: "vitrine_director_failures_total", labels: []string{`cause="malformed"`},
		run: flood(h.address, anywhere, func(n int) []byte { return all[names[n%len(names)]](n) }),
	}
}

// tagsOfNoDialog sends requests with the tags of no existing dialog. The gate does not apply to
// requests within a dialog, so they try to bypass it.
func (h *hostile) tagsOfNoDialog() attack {
	var began time.Time
	var before int64
	return attack{
		name: "To tags and Routes of no dialog", times: 1, counter: "vitrine_director_failures_total", labels: []string{`type="` + gatedType + `"`, `cause="overloaded"`},
		run: func(ctx context.Context, rate float64) (int, error) {
			began, before = time.Now(), h.gated.requests.Load()
			return flood(h.address, anywhere, func(n int) []byte {
				route := fmt.Sprintf("Route: <sip:i.0001..%s.0001%032x@%s;lr>\r\n", gatedType, n, h.address)
				if n%2 == 0 {
					route = ""
				}
				return []byte(strings.Replace(string(request("PUBLISH", fmt.Sprintf("tag-%d", n), route+"Event: presence\r\n")), "To: <sip:user@proof.test>", "To: <sip:user@proof.test>;tag=forged", 1))
			})(ctx, rate)
		},
		check: func(t *testing.T) {
			passed := h.gated.requests.Load() - before
			if most := gateRate * (2 + time.Since(began).Seconds()); float64(passed) > most {
				t.Errorf("%d requests passed the gate, want at most %.0f", passed, most)
			}
		},
	}
}

// flood sends requests from one source faster than its quota allows, to the instance of the
// load.
func (h *hostile) flood() attack {
	one := netip.MustParseAddr(h.host(strangerHost))
	return attack{
		name: "a flood from one source", times: 2, counter: drops, labels: []string{`protocol="sip"`, `reason="over_quota"`},
		run: flood(h.address, func(int) netip.Addr { return one }, func(n int) []byte { return request("REGISTER", fmt.Sprintf("flood-%d", n), "") }),
	}
}
