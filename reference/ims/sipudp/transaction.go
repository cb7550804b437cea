package sipudp

import (
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/emiago/sipgo/sip"

	"vitrine/internal/truth"
	wiresip "vitrine/wire/sip"
)

// Times of RFC 3261 section 17. linger is how long an answered transaction stays
// to absorb retransmissions. It is longer than t2, the largest interval between
// retransmissions, so at least one falls into it. (The RFC's 64*T1 would need six
// times the memory.)
const (
	t1     = 500 * time.Millisecond
	t2     = 4 * time.Second
	timerC = 181 * time.Second // more than three minutes (section 16.6, step 11)
	linger = 5 * time.Second
	// grain is the shortest time that Run sleeps before a timer.
	grain = 50 * time.Millisecond
)

// A Transaction is one request on its way through this node: the server
// transaction that received it, if any, and the client transaction that forwarded
// it, if any. Transactions guards its fields. Callers may read Request, Arrived and
// Event, which do not change, and Owner, which Forward sets.
type Transaction struct {
	Request *sip.Request // as received, or as sent if this node began the transaction
	Arrived time.Time
	Event   truth.Event // of this node
	Owner   any         // set by the caller of Forward
	// Counted belongs to the caller, which sets it while it counts the
	// transaction as in flight.
	Counted atomic.Bool

	key, branch string
	upstream    Peer // zero if this node began the transaction
	downstream  Peer
	out         *sip.Request // as forwarded
	forwarded   []byte
	reply       []byte // last answer sent upstream
	final       int    // status of the final answer; 0 before it
	provisional bool
	cancelled   bool      // by the client
	unacked     bool      // reply is a failure of an INVITE, and its ACK has not arrived
	began       time.Time // when the request was forwarded, or received if it was not; reset by an INVITE's answers 101 to 199
	finished    time.Time
	interval    time.Duration
	due         time.Time
	index       int // index in the heap
}

// invite reports whether the request is an INVITE. A transaction that was shed is none.
func (tx *Transaction) invite() bool { return tx.Request != nil && tx.Request.Method == sip.INVITE }

// Transactions holds the transactions of one node. Its methods may be called
// concurrently.
type Transactions struct {
	timeout   time.Duration // for a forwarded request without an answer
	onTimeout func(*Transaction)

	// Messages numbers the transactions' events. It is set before the first
	// transaction.
	Messages *truth.Log

	mu     sync.Mutex
	server map[string]*Transaction // by serverKey
	client map[string]*Transaction // by branch
	timers timers
	next   time.Time // when Run checks again; zero if it waits for wake
	wake   chan struct{}
}

// NewTransactions returns an empty table. Run calls onTimeout for each forwarded
// request that had no answer within timeout. onTimeout must answer the request.
func NewTransactions(timeout time.Duration, onTimeout func(*Transaction)) *Transactions {
	return &Transactions{
		timeout: timeout, onTimeout: onTimeout,
		server: map[string]*Transaction{}, client: map[string]*Transaction{},
		wake: make(chan struct{}, 1),
	}
}

// serverKey identifies a server transaction (RFC 3261 section 17.2.3). ACK and
// CANCEL have the key of their INVITE.
func serverKey(req *sip.Request) string {
	via := req.Via()
	branch, _ := via.Params.Get("branch")
	method := req.Method
	if method == sip.ACK || method == sip.CANCEL {
		method = sip.INVITE
	}
	return branch + " " + via.SentBy() + " " + string(method)
}

// Receive enters a request other than ACK or CANCEL. It returns false for a
// retransmission, after it has repeated the last answer.
func (t *Transactions) Receive(req *sip.Request, upstream Peer, arrived time.Time) (*Transaction, bool) {
	key := serverKey(req)
	now := time.Now()
	t.mu.Lock()
	if tx := t.server[key]; tx != nil {
		reply, peer := tx.reply, tx.upstream
		t.mu.Unlock()
		if reply != nil {
			_ = peer.Send(reply, tx.Event) // if it is lost, the client retransmits again
		}
		return tx, false
	}
	tx := &Transaction{Request: req, Arrived: arrived, Event: t.Messages.Begin(), key: key, upstream: upstream, began: now}
	t.server[key] = tx
	t.schedule(tx, now.Add(t.timeout))
	t.mu.Unlock()
	return tx, true
}

// Holds reports whether there is a transaction for a request with this top Via,
// so that a further request is a retransmission.
func (t *Transactions) Holds(via *wiresip.ViaHop, method string) bool {
	var port string
	if via.Port > 0 {
		port = ":" + strconv.Itoa(int(via.Port))
	}
	host := strings.Trim(string(via.Host), "[]") // as SentBy gives it
	key := string(via.Branch) + " " + host + port + " " + method
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.server[key] != nil
}

// ReceiveAck returns false and the transaction's event for an ACK whose transaction
// ends here (RFC 3261 section 17.1.1.3). Any other ACK is forwarded without a
// transaction, with its own event.
func (t *Transactions) ReceiveAck(req *sip.Request) (forward bool, of truth.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if tx := t.server[serverKey(req)]; tx != nil {
		tx.unacked = false
		return false, tx.Event
	}
	return true, t.Messages.Begin()
}

// ReceiveCancel answers a CANCEL, and cancels its INVITE downstream if the INVITE
// is here. If the INVITE has not been forwarded yet, Forward returns ErrCancelled. If
// the next hop has not answered yet, the CANCEL waits for the first answer.
// ReceiveCancel returns the event.
func (t *Transactions) ReceiveCancel(cancel *sip.Request, upstream Peer) (truth.Event, error) {
	var err error
	t.mu.Lock()
	invite := t.server[serverKey(cancel)]
	if invite != nil {
		invite.cancelled = true
		err = t.cancel(invite, time.Now())
	}
	t.mu.Unlock()
	if invite == nil {
		of := t.Messages.Begin()
		_ = upstream.Send(Bytes(Reply(cancel, sip.StatusCallTransactionDoesNotExists, "No Such Transaction")), of)
		return of, nil
	}
	_ = upstream.Send(Bytes(Reply(cancel, sip.StatusOK, "OK")), invite.Event) // if it is lost, the client retransmits
	return invite.Event, err
}

// Begin returns a transaction for a request that this node itself sends, with an
// event.
func Begin(req *sip.Request, of truth.Event) *Transaction {
	return &Transaction{Request: req, Event: of}
}

// ErrCancelled is the error for an INVITE that the client cancelled before it was
// forwarded. The caller answers it 487 (RFC 3261 section 9.2).
var ErrCancelled = errors.New("the client has cancelled the request")

// Forward sends out on the transaction, with this node's Via on top, and
// retransmits it until there is an answer. It sends nothing and returns ErrCancelled
// if the client has cancelled the transaction. Any other error means that the first
// send failed. No timeout follows an error. The caller must not use out afterwards,
// unless the send failed.
func (t *Transactions) Forward(tx *Transaction, out *sip.Request, downstream Peer, owner any) error {
	branch := sip.RFC3261BranchMagicCookie + NewToken()
	pushVia(out, downstream.Socket.sentBy(), branch)
	data := Bytes(out)
	now := time.Now()
	t.mu.Lock()
	if tx.cancelled {
		t.mu.Unlock()
		return ErrCancelled
	}
	tx.Owner, tx.branch, tx.downstream, tx.forwarded = owner, branch, downstream, data
	if tx.invite() {
		tx.out = out
	}
	tx.began, tx.interval = now, t1
	t.client[branch] = tx
	t.schedule(tx, now.Add(min(t1, t.timeout)))
	t.mu.Unlock()
	err := downstream.Send(data, tx.Event)
	if err != nil {
		t.mu.Lock()
		delete(t.client, branch)
		tx.branch, tx.forwarded, tx.out = "", nil, nil
		t.mu.Unlock()
		out.RemoveHeader("Via") // the caller may try another hop
	}
	return err
}

// ForwardAck forwards an ACK, which has no answer.
func ForwardAck(out *sip.Request, downstream Peer, of truth.Event) error {
	pushVia(out, downstream.Socket.sentBy(), sip.RFC3261BranchMagicCookie+NewToken())
	return downstream.Send(Bytes(out), of)
}

// cancel sends a CANCEL to the next hop for an INVITE that has a provisional and no
// final answer, unless one is on its way (RFC 3261 sections 9.1 and 16.10). A CANCEL
// before the provisional answer could overtake the INVITE, and then cancel nothing. The
// caller holds the lock.
func (t *Transactions) cancel(tx *Transaction, now time.Time) error {
	key := tx.branch + " CANCEL" // the CANCEL has the INVITE's branch, so it needs a different key
	if tx.out == nil || !tx.provisional || tx.final != 0 || t.client[key] != nil {
		return nil
	}
	out := hopByHop(tx.out, sip.CANCEL, tx.out.To())
	own := &Transaction{
		Request: out, Event: tx.Event, Owner: tx.Owner,
		branch: key, downstream: tx.downstream, forwarded: Bytes(out), began: now, interval: t1,
	}
	t.client[key] = own
	t.schedule(own, now.Add(t1))
	return own.downstream.Send(own.forwarded, own.Event)
}

// hopByHop returns an ACK or CANCEL for the forwarded INVITE.
func hopByHop(invite *sip.Request, method sip.RequestMethod, to *sip.ToHeader) *sip.Request {
	req := sip.NewRequest(method, *invite.Recipient.Clone())
	req.AppendHeader(invite.Via().Clone())
	sip.CopyHeaders("Route", invite, req)
	hops := sip.MaxForwardsHeader(70)
	req.AppendHeader(&hops)
	req.AppendHeader(sip.HeaderClone(invite.From()))
	req.AppendHeader(sip.HeaderClone(to))
	req.AppendHeader(sip.HeaderClone(invite.CallID()))
	req.AppendHeader(&sip.CSeqHeader{SeqNo: invite.CSeq().SeqNo, MethodName: method})
	req.SetBody(nil)
	return req
}

// Answered enters a response. It returns the transaction, or nil if there is
// none. pass reports whether the caller must forward the response with Respond;
// this node's Via is then removed. first reports whether the response is the
// first final one.
func (t *Transactions) Answered(res *sip.Response) (tx *Transaction, pass, first bool) {
	branch, _ := res.Via().Params.Get("branch")
	if res.CSeq().MethodName == sip.CANCEL {
		branch += " CANCEL"
	}
	t.mu.Lock()
	tx = t.client[branch]
	if tx == nil {
		t.mu.Unlock()
		return nil, false, false
	}
	before := tx.final
	out, downstream := tx.out, tx.downstream
	switch {
	case res.StatusCode < 200:
		t.proceed(tx, res.StatusCode)
	case tx.final == 0:
		first = true
		tx.final, tx.finished = res.StatusCode, time.Now()
	}
	t.mu.Unlock()

	if res.StatusCode >= 300 && tx.invite() && out != nil {
		_ = downstream.Send(Bytes(hopByHop(out, sip.ACK, res.To())), tx.Event) // if it is lost, the next hop answers again
	}
	switch {
	case res.StatusCode == sip.StatusTrying:
		return tx, false, false
	case before != 0 && (!tx.invite() || !res.IsSuccess()):
		return tx, false, false // a retransmission of a forwarded answer
	}
	res.RemoveHeader("Via")
	return tx, !tx.Own(), first
}

// proceed records a provisional answer, and sends a CANCEL that waited for it. The
// caller holds the lock.
func (t *Transactions) proceed(tx *Transaction, status int) {
	tx.provisional = true
	if tx.invite() && status > sip.StatusTrying {
		tx.began = time.Now() // resets timer C (RFC 3261 section 16.7, step 2)
	}
	if tx.cancelled {
		_ = t.cancel(tx, time.Now()) // if it is lost, Run retransmits it
	}
}

// Respond sends an answer upstream, and stores it for retransmissions of the
// request.
func (t *Transactions) Respond(tx *Transaction, res *sip.Response) error {
	data := Bytes(res)
	t.mu.Lock()
	if tx.Own() {
		t.mu.Unlock()
		return nil
	}
	tx.reply = data
	if res.StatusCode >= 200 {
		t.finish(tx, res.StatusCode)
	}
	t.mu.Unlock()
	return tx.upstream.Send(data, tx.Event)
}

// finish records a final answer that goes upstream. Run sends a failure of an INVITE again
// until its ACK arrives (RFC 3261 section 17.2.1, timer G): a client that has a
// provisional answer does not repeat its INVITE. The caller holds the lock.
func (t *Transactions) finish(tx *Transaction, status int) {
	if tx.final == 0 {
		tx.final = status
	}
	if tx.finished.IsZero() {
		tx.finished = time.Now()
	}
	if !tx.invite() {
		t.shed(tx)
		return
	}
	tx.unacked = status >= 300
	if tx.unacked && !tx.due.IsZero() { // it is still in the table
		tx.interval = t1
		t.schedule(tx, time.Now().Add(t1))
	}
}

// shed replaces an answered transaction in the table by what absorbs retransmissions:
// the answer. The requests, which are several times as large, live on only while
// the caller holds the transaction. The caller of shed holds the lock.
func (t *Transactions) shed(tx *Transaction) {
	if tx.due.IsZero() {
		return // not in the table any more
	}
	rest := &Transaction{Event: tx.Event, Owner: tx.Owner, key: tx.key, branch: tx.branch, upstream: tx.upstream,
		reply: tx.reply, final: tx.final, finished: tx.finished, due: tx.due, index: tx.index}
	t.timers[rest.index] = rest
	if t.server[tx.key] == tx {
		t.server[tx.key] = rest
	}
	if tx.branch != "" {
		t.client[tx.branch] = rest
	}
	tx.due = time.Time{} // Forward may schedule it again
}

// Key identifies the transaction at every node that receives its request: the branch,
// the sender and the method.
func (tx *Transaction) Key() string { return tx.key }

// Sent returns the request as forwarded and the last answer sent upstream; nil: none yet.
func (t *Transactions) Sent(tx *Transaction) (forwarded, reply []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return tx.forwarded, tx.reply
}

// Own reports whether this node began the transaction, so that no answer goes
// upstream.
func (tx *Transaction) Own() bool { return tx.upstream.Socket == nil }

// InUse returns the sockets on which an answer to a forwarded request, or a repetition of
// it, may still arrive.
func (t *Transactions) InUse() map[*Socket]bool {
	used := map[*Socket]bool{}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, tx := range t.timers {
		if tx.downstream.Socket != nil {
			used[tx.downstream.Socket] = true
		}
	}
	return used
}

// Held returns the number of transactions held.
func (t *Transactions) Held() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.timers)
}
