package sipudp

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emiago/sipgo/sip"
	"golang.org/x/sys/unix"

	"vitrine/internal/hosttest"
	wiresip "vitrine/wire/sip"
)

// A wire is a socket and the datagrams it has received.
type wire struct {
	*Socket
	mu   sync.Mutex
	got  []string
	when []Arrival
}

func newWire(t *testing.T) *wire {
	t.Helper()
	socket, err := Listen(netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{Socket: socket}
	return w
}

func (w *wire) serve(t *testing.T) *wire {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := w.Serve(func(data []byte, a Arrival) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.got, w.when = append(w.got, string(data)), append(w.when, a)
		}, nil); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { w.Close(); <-done })
	return w
}

// await waits until n datagrams have arrived.
func (w *wire) await(t *testing.T, n int) (got []string) {
	t.Helper()
	hosttest.Until(t, 20*time.Second, fmt.Sprintf("%d datagrams arrive", n), func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		got = append([]string(nil), w.got...)
		return len(got) >= n
	})
	return got
}

// A rig is the transaction table of a proxy between an upstream and a downstream.
type rig struct {
	up, down, self *wire
	table          *Transactions
	late           []*Transaction
}

func newRig(t *testing.T) *rig {
	r := &rig{up: newWire(t).serve(t), down: newWire(t).serve(t), self: newWire(t).serve(t)}
	r.table = NewTransactions(5*time.Second, func(tx *Transaction) { r.late = append(r.late, tx) })
	return r
}

func (r *rig) receive(t *testing.T, text string) (*Transaction, bool) {
	t.Helper()
	return r.table.Receive(parse(t, text).(*sip.Request), Peer{Socket: r.self.Socket, To: r.up.Local()}, time.Now())
}

func (r *rig) forward(t *testing.T, tx *Transaction) {
	t.Helper()
	if err := r.table.Forward(tx, tx.Request.Clone(), Peer{Socket: r.self.Socket, To: r.down.Local()}, "owner"); err != nil {
		t.Fatal(err)
	}
}

// as returns register with another method.
func as(method string) string { return strings.ReplaceAll(register, "REGISTER", method) }

// invite forwards an INVITE. It returns the transaction and what the next hop received.
func (r *rig) invite(t *testing.T) (tx *Transaction, sent string) {
	t.Helper()
	tx, _ = r.receive(t, as("INVITE"))
	r.forward(t, tx)
	return tx, r.down.await(t, 1)[0]
}

// cancel cancels the INVITE, as its client.
func (r *rig) cancel(t *testing.T) {
	t.Helper()
	req := parse(t, as("CANCEL")).(*sip.Request)
	if _, err := r.table.ReceiveCancel(req, Peer{Socket: r.self.Socket, To: r.up.Local()}); err != nil {
		t.Fatal(err)
	}
}

func answerTo(t *testing.T, request string, status int) *sip.Response {
	t.Helper()
	return sip.NewResponseFromRequest(parse(t, request).(*sip.Request), status, "", nil)
}

func TestRetransmissionsAreAbsorbed(t *testing.T) {
	r := newRig(t)
	tx, fresh := r.receive(t, register)
	if !fresh {
		t.Fatal("the first request counts as a retransmission")
	}
	if forwarded, reply := r.table.Sent(tx); forwarded != nil || reply != nil {
		t.Errorf("sent %q and %q before anything was sent", forwarded, reply)
	}
	r.forward(t, tx)
	if _, fresh := r.receive(t, register); fresh {
		t.Error("a retransmission counts as a new request")
	}
	sent := r.down.await(t, 1)[0]
	if n := strings.Count(sent, "Via:"); n != 2 {
		t.Errorf("forwarded %d Vias, want 2", n)
	}
	res := answerTo(t, sent, 200)
	got, pass, first := r.table.Answered(res)
	if got != tx || !pass || !first || tx.Owner != "owner" {
		t.Fatalf("got transaction %p, pass %t, first %t", got, pass, first)
	}
	if err := r.table.Respond(tx, res); err != nil {
		t.Fatal(err)
	}
	if back := r.up.await(t, 1)[0]; strings.Count(back, "Via:") != 1 || !strings.Contains(back, "z9hG4bKabc") {
		t.Errorf("response to the client: got %q", back)
	}
	r.receive(t, register)
	back := r.up.await(t, 2)
	if forwarded, reply := r.table.Sent(tx); string(forwarded) != sent || string(reply) != back[0] {
		t.Errorf("sent %q and %q, want what the next hop and the client received", forwarded, reply)
	}
	if back[0] != back[1] {
		t.Errorf("the retransmitted answer differs: %q", back)
	}
	if _, pass, first := r.table.Answered(answerTo(t, sent, 200)); pass || first {
		t.Error("a repeated answer was forwarded twice")
	}
	if tx, _, _ := r.table.Answered(answerTo(t, strings.Replace(sent, "branch=z9hG4bK", "branch=z9hG4bKx", 1), 200)); tx != nil {
		t.Error("an answer without a transaction was accepted")
	}
}

// TestTimers calls expire with chosen times instead of waiting.
func TestTimers(t *testing.T) {
	r := newRig(t)
	began := time.Now()
	tx, _ := r.receive(t, register)
	r.forward(t, tx)
	sent := time.Now() // the timers count from a time between began and sent
	r.down.await(t, 1)
	for i, after := range []time.Duration{510 * time.Millisecond, 1520 * time.Millisecond, 3530 * time.Millisecond} { // T1, 2 T1, 4 T1
		r.table.expire(began.Add(after - 100*time.Millisecond))
		if n := len(r.down.await(t, i+1)); n != i+1 {
			t.Fatalf("sent %d times before %s", n, after)
		}
		r.table.expire(sent.Add(after))
		r.down.await(t, i+2)
	}
	if len(r.late) != 0 {
		t.Fatal("the transaction timed out too early")
	}
	r.table.expire(sent.Add(5100 * time.Millisecond))
	if len(r.late) != 1 || r.late[0] != tx {
		t.Fatalf("got timed-out transactions %v", r.late)
	}
	if err := r.table.Respond(tx, Reply(tx.Request, 408, "Request Timeout")); err != nil {
		t.Fatal(err)
	}
	r.up.await(t, 1)
	if _, fresh := r.receive(t, register); fresh {
		t.Error("a retransmission counts as a new request")
	}
	r.up.await(t, 2)
	r.table.expire(sent.Add(time.Minute))
	if held := r.table.Held(); held != 0 {
		t.Errorf("at the end %d transactions are held", held)
	}
	if _, fresh := r.receive(t, register); !fresh {
		t.Error("a request was absorbed by a transaction that had ended")
	}
}

// TestFailureOfInviteIsRepeated checks that a failure of an INVITE is sent again until its ACK
// arrives. A client that has got 100 does not repeat the INVITE, so a lost 486 would leave it
// ringing. A 200 is not repeated: the callee does that.
func TestFailureOfInviteIsRepeated(t *testing.T) {
	r := newRig(t)
	answer := func(branch string, status int) {
		t.Helper()
		tx, _ := r.receive(t, strings.Replace(as("INVITE"), "abc", branch, 1))
		if err := r.table.Respond(tx, Reply(tx.Request, status, "Some")); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	answer("abc", 486)
	sent := time.Now() // the timer counts from a time between began and sent
	// T1, 2 T1 and 4 T1 one after another:
	for i, after := range []time.Duration{510 * time.Millisecond, 1520 * time.Millisecond, 3530 * time.Millisecond} {
		r.table.expire(began.Add(after - 100*time.Millisecond))
		if n := len(r.up.await(t, i+1)); n != i+1 {
			t.Fatalf("sent %d times before %s", n, after)
		}
		r.table.expire(sent.Add(after))
		if got := r.up.await(t, i+2); got[i+1] != got[0] {
			t.Errorf("sent %q again as %q", got[0], got[i+1])
		}
	}
	r.table.expire(sent.Add(linger))
	if held := r.table.Held(); held != 0 {
		t.Errorf("at the end %d transactions are held", held)
	}

	answer("def", 486)
	r.table.ReceiveAck(parse(t, strings.Replace(as("ACK"), "abc", "def", 1)).(*sip.Request))
	answer("ghi", 200)
	for after := t1; after < linger; after += t1 {
		r.table.expire(time.Now().Add(after))
	}
	const last = "the last datagram"
	if err := (Peer{Socket: r.self.Socket, To: r.up.Local()}).Send([]byte(last), 0); err != nil {
		t.Fatal(err)
	}
	if got := r.up.await(t, 7); got[6] != last {
		t.Errorf("got %q after the ACK of a 486 and after a 200, want nothing again", got[6])
	}
}

// TestAnsweredTransactionsAreSmall checks what a transaction costs while it absorbs
// retransmissions. Thousands do, and the memory of a small flavor is the limit.
func TestAnsweredTransactionsAreSmall(t *testing.T) {
	const transactions, most = 2000, 2 << 10 // bytes each
	r := newRig(t)
	r.up.Close() // the answers need no reader
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	for i := range transactions {
		tx, _ := r.receive(t, strings.ReplaceAll(register, "abc", strconv.Itoa(i)))
		r.forward(t, tx)
		out, _ := r.table.Sent(tx)
		res := answerTo(t, string(out), 200)
		if _, pass, _ := r.table.Answered(res); !pass {
			t.Fatalf("the answer to request %d was not passed on", i)
		}
		_ = r.table.Respond(tx, res) // the client is gone
	}
	r.down.mu.Lock()
	r.down.got, r.down.when = nil, nil
	r.down.mu.Unlock()
	if each := int64(heap()-before) / transactions; each > most {
		t.Errorf("%d bytes for each answered transaction, want at most %d", each, most)
	}
	if held := r.table.Held(); held != transactions {
		t.Errorf("%d transactions are held, want %d", held, transactions)
	}
}

// TestLateForward forwards a request that waited longer than the timeout, so that the table
// dropped it.
func TestLateForward(t *testing.T) {
	r := newRig(t)
	began := time.Now()
	tx, _ := r.receive(t, register)
	r.table.expire(began.Add(6 * time.Second))
	if held := r.table.Held(); held != 0 {
		t.Fatalf("%d transactions are held after the timeout", held)
	}
	again, fresh := r.receive(t, register)
	if !fresh {
		t.Fatal("a dropped transaction absorbed a request")
	}
	r.forward(t, tx)
	r.forward(t, again)
	r.down.await(t, 2)
	r.table.expire(time.Now().Add(5100 * time.Millisecond))
	if len(r.late) != 2 {
		t.Errorf("%d of 2 requests timed out", len(r.late))
	}
	r.table.expire(time.Now().Add(time.Minute))
	if held := r.table.Held(); held != 0 {
		t.Errorf("%d transactions are held at the end", held)
	}
}

func TestInviteIsAcknowledgedHopByHop(t *testing.T) {
	r := newRig(t)
	_, sent := r.invite(t)
	if _, pass, _ := r.table.Answered(answerTo(t, sent, 100)); pass {
		t.Error("100 was forwarded")
	}
	r.table.expire(time.Now().Add(2 * time.Minute)) // past the timeout, but the next hop has answered 100
	if len(r.late) != 0 {
		t.Error("an INVITE with a provisional answer timed out")
	}
	_, pass, _ := r.table.Answered(answerTo(t, sent, 486))
	if !pass {
		t.Error("486 was not forwarded")
	}
	ack := r.down.await(t, 2)[1]
	branch := func(text string) string { b, _ := parse(t, text).Via().Params.Get("branch"); return b }
	if !strings.HasPrefix(ack, "ACK sip:") || branch(ack) != branch(sent) || strings.Count(ack, "Via:") != 1 {
		t.Errorf("got ACK %q", ack)
	}
	if forward, _ := r.table.ReceiveAck(parse(t, as("ACK")).(*sip.Request)); forward {
		t.Error("the upstream's ACK of a 486 was forwarded")
	}
	other := strings.Replace(as("ACK"), "abc", "def", 1)
	if forward, _ := r.table.ReceiveAck(parse(t, other).(*sip.Request)); !forward {
		t.Error("the ACK of a 2xx was not forwarded")
	}
}

// TestCancelBeforeForward cancels an INVITE that waits to be forwarded.
func TestCancelBeforeForward(t *testing.T) {
	r := newRig(t)
	tx, _ := r.receive(t, as("INVITE"))
	r.cancel(t)
	if answer := r.up.await(t, 1)[0]; !strings.HasPrefix(answer, "SIP/2.0 200 ") {
		t.Errorf("answer to the CANCEL: got %q", answer)
	}
	if err := r.table.Forward(tx, tx.Request.Clone(), Peer{Socket: r.self.Socket, To: r.down.Local()}, nil); !errors.Is(err, ErrCancelled) {
		t.Errorf("got error %v, want ErrCancelled", err)
	}
	other, _ := r.receive(t, strings.Replace(as("INVITE"), "abc", "def", 1))
	r.forward(t, other)
	if sent := r.down.await(t, 1); len(sent) != 1 || !strings.Contains(sent[0], "z9hG4bKdef") {
		t.Errorf("forwarded %q, want only the other INVITE", sent)
	}
}

// TestCancelWaitsForTheNextHop cancels an INVITE before and after the next hop has answered.
// The CANCEL must follow the first answer, once.
func TestCancelWaitsForTheNextHop(t *testing.T) {
	r := newRig(t)
	_, sent := r.invite(t)
	next := func(branch string) { // forwards another INVITE, which arrives after what was sent before
		other, _ := r.receive(t, strings.Replace(as("INVITE"), "abc", branch, 1))
		r.forward(t, other)
	}
	r.cancel(t)
	next("def")
	r.table.Answered(answerTo(t, sent, 100))
	r.table.Answered(answerTo(t, sent, 180))
	r.cancel(t) // a retransmission
	next("ghi")
	got := r.down.await(t, 4)
	for i, want := range []string{"z9hG4bKabc", "z9hG4bKdef", "CANCEL sip:", "z9hG4bKghi"} {
		if !strings.Contains(got[i], want) {
			t.Errorf("datagram %d: got %q, want %s", i, got[i], want)
		}
	}
	for _, answer := range r.up.await(t, 2) {
		if !strings.HasPrefix(answer, "SIP/2.0 200 ") {
			t.Errorf("answer to a CANCEL: got %q", answer)
		}
	}
}

// TestTimerC checks that an INVITE is cancelled at the next hop if it rings for too long, and that a
// 180 restarts the timer.
func TestTimerC(t *testing.T) {
	r := newRig(t)
	tx, sent := r.invite(t)
	tx.began = tx.began.Add(-timerC) // it was forwarded long ago
	r.table.Answered(answerTo(t, sent, 180))
	answered := time.Now()
	r.table.expire(answered.Add(timerC - time.Second))
	if len(r.late) != 0 {
		t.Fatal("an INVITE that still rings timed out")
	}
	r.table.expire(answered.Add(timerC + t2))
	if len(r.late) != 1 || r.late[0] != tx {
		t.Errorf("got timed-out transactions %v, want the INVITE", r.late)
	}
	if got := r.down.await(t, 2)[1]; !strings.HasPrefix(got, "CANCEL sip:") {
		t.Errorf("sent %q, want a CANCEL", got)
	}
}

// TestArrivalIsTheKernels checks that the reported time is that of the arrival,
// not of the read.
func TestArrivalIsTheKernels(t *testing.T) {
	from, to := newWire(t).serve(t), newWire(t)
	if err := (Peer{Socket: from.Socket, To: to.Local()}).Send([]byte("x"), 0); err != nil {
		t.Fatal(err)
	}
	sent := time.Now()
	const wait = 30 * time.Millisecond
	<-time.After(wait) // the datagram waits in the receive queue
	read := time.Now()
	to.serve(t).await(t, 1)
	at := to.when[0]
	if d := read.Sub(at.At); d < wait || at.At.After(sent.Add(wait)) {
		t.Errorf("arrived %s before the read, want at least %s", d, wait)
	}
	if at.From != from.Local() {
		t.Errorf("got source %s, want %s", at.From, from.Local())
	}
	if !strings.Contains(at.At.String(), " m=") {
		t.Errorf("the arrival time %s has no monotonic reading: it follows the host's clock when that is set", at.At)
	}
}

// TestArrivalWhenTheClockIsSet checks the arrival times of datagrams that were in the receive
// queue when the host's clock was set.
func TestArrivalWhenTheClockIsSet(t *testing.T) {
	read := time.Now()
	for _, c := range []struct {
		name         string
		stamp, waits time.Duration // before the read
	}{
		{"not set", 30 * time.Millisecond, 30 * time.Millisecond}, {"set back", -10 * time.Minute, 0}, {"set forward", 10 * time.Minute, longestWait},
	} {
		if got := read.Sub(arrivedAt(read, read.Round(0).Add(-c.stamp))); got != c.waits {
			t.Errorf("%s: the datagram arrived %s before the read, want %s", c.name, got, c.waits)
		}
	}
}

// TestHolds checks that the top Via of a retransmission finds the transaction, over IPv4 and IPv6.
func TestHolds(t *testing.T) {
	for _, host := range []string{"192.0.2.9:5070", "[2001:db8::9]:5070", "[2001:db8::9]"} {
		r := newRig(t)
		text := "SIP/2.0/UDP " + host + ";branch=z9hG4bK-1"
		via, ok := wiresip.ParseViaHop([]byte(text))
		if !ok || r.table.Holds(&via, "REGISTER") {
			t.Errorf("%s: the table is empty, but holds a transaction (Via parsed: %t)", host, ok)
		}
		r.receive(t, strings.Replace(register, "Via: ", "Via: "+text+"\r\nVia: ", 1))
		if !r.table.Holds(&via, "REGISTER") {
			t.Errorf("%s: a retransmission finds no transaction", host)
		}
	}
}

// TestErrorsOfICMP checks after which errors the reader goes on. On loopback only the first
// one happens; see TestRefusalIsNoticed.
func TestErrorsOfICMP(t *testing.T) {
	for errno, want := range map[unix.Errno]bool{
		unix.ECONNREFUSED: true, unix.EHOSTUNREACH: true, unix.ENETUNREACH: true, unix.ENOPROTOOPT: true, unix.EMSGSIZE: true, unix.EACCES: true,
		unix.EBADF: false, unix.ENOTCONN: false, unix.ENOMEM: false,
	} {
		if got := fromICMP(os.NewSyscallError("recvmsg", errno)); got != want {
			t.Errorf("%v: got %t, want %t", errno, got, want)
		}
	}
}

func TestRefusalIsNoticed(t *testing.T) {
	gone := newWire(t)
	socket, err := Dial(netip.MustParseAddr("127.0.0.1"), gone.Local())
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	refused := make(chan struct{}, 1)
	done := make(chan error, 1)
	go func() {
		done <- socket.Serve(func([]byte, Arrival) {}, func() {
			select {
			case refused <- struct{}{}:
			default:
			}
		})
	}()
	if err := (Peer{Socket: socket}).Send([]byte("x"), 0); err != nil {
		t.Fatal(err)
	}
	<-refused
	socket.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
