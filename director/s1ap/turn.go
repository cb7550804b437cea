package s1ap

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"vitrine/director/meter"
	"vitrine/director/table"
	"vitrine/wire/nas"
	"vitrine/wire/s1ap"
	"vitrine/wire/s1ap/frame"
)

// A worker steers the messages of its eNodeBs, one at a time. Its lock guards the worker and
// its eNodeBs.
type worker struct {
	mu       sync.Mutex
	steering *table.Steering
	meter    *meter.Worker
	counts   counts
}

type counts struct {
	received, forwarded, answered, absorbed, malformed, unexpected, refused, full, unknown, overQuota, unruled, strayed, resets atomic.Uint64
	_                                                                                                                           [64]byte
}

// A turn is the reusable state of a goroutine that handles messages, so that handling a message
// does not allocate. The goroutine holds the worker's lock between begin and end.
type turn struct {
	server *Server
	worker *worker

	now     time.Duration
	view    *table.View
	policy  *Policy
	touched []*association // associations to flush in end
	evicted []eviction     // connections to end in end

	message  s1ap.Message
	in       elements
	pdu      nas.PDU
	attach   nas.AttachRequest
	detach   nas.DetachRequest
	update   nas.UpdateRequest
	rejected nas.Reject
	out      []byte
	body     []byte
	items    []s1ap.Connection
	numbers  []uint8 // for each of items, the number of its instance
}

// An eviction is the old connection of a UE that has moved to another eNodeB by an X2 handover.
type eviction struct {
	place
	mme uint32
}

func (s *Server) newTurn(w *worker) *turn { return &turn{server: s, worker: w} }

// begin locks the worker, and reads the time, the table and the policy for this turn.
func (t *turn) begin() {
	t.worker.mu.Lock()
	t.now, t.view, t.policy = t.server.config.Now(), t.server.config.Epochs.View(), t.server.policy.Load()
}

// end unlocks the worker. Then it flushes associations, and ends evicted connections, which may
// belong to other workers.
func (t *turn) end() {
	t.worker.mu.Unlock()
	for i, a := range t.touched {
		a.flush()
		t.touched[i] = nil
	}
	t.touched = t.touched[:0]
	for i := range t.evicted {
		t.evict(t.evicted[i])
		t.evicted[i] = eviction{}
	}
	t.evicted = t.evicted[:0]
}

// evict ends the old connection of a UE after an X2 handover.
func (t *turn) evict(v eviction) {
	own := t.worker
	t.worker = v.enodeb.worker
	t.begin()
	if u, ok := v.enodeb.ues[v.enb]; ok && u.mme == v.mme {
		t.remove(v.enodeb, v.enb, u, meter.Succeeded)
	}
	t.worker.mu.Unlock()
	t.worker = own
}

// each calls handle for each frame in frames.
func (t *turn) each(frames []byte, handle func(whole, message []byte)) {
	for {
		message, rest, err := frame.Cut(frames)
		if err != nil || message == nil {
			return
		}
		handle(frames[:len(frames)-len(rest)], message)
		frames = rest
	}
}

func (t *turn) touch(a *association) {
	if !slices.Contains(t.touched, a) {
		t.touched = append(t.touched, a)
	}
}

// pass forwards a frame to an association.
func (t *turn) pass(to *association, whole []byte) {
	if to == nil || !to.forward(whole) {
		t.lose(to, meter.QueueFull)
		return
	}
	t.worker.counts.forwarded.Add(1)
	t.touch(to)
}

// lose counts a message that is lost because its association has ended or its queue is full.
func (t *turn) lose(to *association, cause meter.Cause) {
	if to != nil {
		t.worker.meter.Drop(t.now, meter.NoType, cause, to.peer)
	}
}

// isUnreadable reports whether an association ended because of the length of a message.
func isUnreadable(err error) bool {
	return errors.Is(err, frame.ErrLength) || errors.Is(err, unix.EMSGSIZE) // over TCP, over SCTP
}

// unreadable counts the end of an association because of the length of a message.
func (t *turn) unreadable(a *association, ty table.Type, err error) {
	if isUnreadable(err) {
		t.worker.counts.malformed.Add(1)
		t.worker.meter.Drop(t.now, ty, meter.Malformed, a.peer)
	}
}

// answer completes the message in t.out, which has no length yet, and sends it.
func (t *turn) answer(to *association, stream uint16) {
	t.out = s1ap.End(t.out, 0)
	if to == nil || !to.send(stream, t.out) {
		t.lose(to, meter.QueueFull)
		return
	}
	t.worker.counts.answered.Add(1)
	t.touch(to)
}

// indicate sends an Error Indication (TS 36.413 clause 8.7.2) about the present message, with
// the UE IDs selected by ids. It does not answer an Error Indication with another one.
func (t *turn) indicate(to *association, ids present, cause s1ap.Cause) {
	if t.message.Procedure == s1ap.ErrorIndication {
		return
	}
	t.indicateIDs(to, ids, t.in.mme, t.in.enb, cause)
}

// malformed answers a malformed message with an Error Indication. ty is the type of the instance
// that sent the message, or NoType.
func (t *turn) malformed(to *association, ty table.Type, ids present, cause s1ap.Cause) {
	t.worker.counts.malformed.Add(1)
	t.worker.meter.Fail(ty, meter.Malformed)
	t.indicate(to, ids, cause)
}

func (t *turn) indicateIDs(to *association, ids present, mme, enb uint32, cause s1ap.Cause) {
	b := s1ap.AppendHeader(t.out[:0], s1ap.Initiating, s1ap.ErrorIndication, s1ap.Ignore)
	if ids&hasMME != 0 {
		b = s1ap.AppendMMEUEID(b, s1ap.MMEUEID, s1ap.Ignore, mme)
	}
	if ids&hasENB != 0 {
		b = s1ap.AppendENBUEID(b, s1ap.Ignore, enb)
	}
	t.out = s1ap.AppendCause(b, s1ap.Ignore, cause)
	t.answer(to, frame.Common)
}

// release sends a UE Context Release Command.
func (t *turn) release(to *association, mme, enb uint32, cause s1ap.Cause) {
	b := s1ap.AppendHeader(t.out[:0], s1ap.Initiating, s1ap.UEContextRelease, s1ap.Reject)
	b = s1ap.AppendUEIDs(b, s1ap.Reject, mme, enb)
	t.out = s1ap.AppendCause(b, s1ap.Ignore, cause)
	t.answer(to, frame.UE)
}
