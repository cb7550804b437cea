package mme

import (
	"context"
	cryptorand "crypto/rand"
	"math/rand/v2"
	"sync"
	"time"

	"vitrine/internal/fifo"
	"vitrine/internal/truth"
	"vitrine/wire/identity"
	"vitrine/wire/nas"
	"vitrine/wire/s1ap"
	"vitrine/wire/s1ap/frame"
)

// backlog is the number of batches that may wait for a worker. A batch has the
// data of one read from an association, at most 64 KiB. While the backlog is
// full, the readers block, which slows the eNodeBs down.
const backlog = 128

// A batch has the messages of one read from an association that are for one
// worker.
type batch struct {
	enodeb  *enodeb
	arrived time.Time
	frames  []byte // whole frames
	lost    bool   // the association has ended
}

// A worker owns UE contexts. Only its own goroutine uses it, except for batches,
// results and orders.
type worker struct {
	mme     *MME
	number  int
	batches chan *batch
	results chan *job

	mu     sync.Mutex
	orders []order
	poke   chan struct{}

	now     time.Duration // time since the MME's start
	arrived time.Time     // of the present message
	event   truth.Event   // of the worker's present work
	kept    truth.Event   // of the present message, if it was parked; otherwise 0
	calls   int           // jobs without a result yet

	lastID    uint32
	byID      map[uint32]*ue // by MME UE S1AP ID; only UEs with a connection
	byTMSI    map[identity.STMSI]*ue
	timers    timers
	idle      []*ue // contexts for reuse
	idleJobs  []*job
	waiting   fifo.Queue[*job] // jobs beyond the limit of concurrent calls
	resumable []*ue            // ready again, with a change to their bearers that waits
	touched   []*enodeb
	random    *rand.ChaCha8
	live      int // contexts in use

	// The present message, and the buffers for answers.
	message []byte // valid while it is handled
	waited  []byte // buffer of a message that was parked
	in      elements
	pdu     nas.PDU
	s1      s1ap.Message
	out     []byte
	body    []byte
	pack    []byte
	esm     []byte
	text    []byte
}

func newWorker(m *MME, number int) *worker {
	var seed [32]byte
	_, _ = cryptorand.Read(seed[:]) // never fails (crypto/rand)
	return &worker{
		mme: m, number: number, batches: make(chan *batch, backlog), results: make(chan *job, m.config.Calls),
		poke: make(chan struct{}, 1), byID: map[uint32]*ue{}, byTMSI: map[identity.STMSI]*ue{}, random: rand.NewChaCha8(seed),
	}
}

// run handles messages, answers to calls, orders and timers until ctx ends.
func (w *worker) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		w.now = time.Since(w.mme.start)
		timer.Reset(w.timers.next(w.now))
		select {
		case <-ctx.Done():
			return
		case b := <-w.batches:
			w.now = time.Since(w.mme.start)
			w.handleBatch(b)
		case j := <-w.results:
			w.now = time.Since(w.mme.start)
			w.answered(j)
		case <-w.poke:
			w.obey()
		case <-timer.C:
			w.now = time.Since(w.mme.start)
		}
		for u := w.timers.due(w.now); u != nil; u = w.timers.due(w.now) {
			w.expired(u)
		}
		for i := 0; i < len(w.resumable); i++ {
			w.pursue(w.resumable[i])
		}
		w.resumable = w.resumable[:0]
		w.flush()
	}
}

// handleBatch handles the messages of a batch.
func (w *worker) handleBatch(b *batch) {
	if b.lost {
		w.disconnected(b.enodeb)
		return
	}
	w.arrived = b.arrived
	for frames := b.frames; ; {
		message, rest, err := frame.Cut(frames)
		if err != nil || message == nil { // the end, because the association passes only whole, valid frames
			break
		}
		w.handle(b.enodeb, message)
		frames = rest
	}
	b.enodeb, b.frames = nil, b.frames[:0]
	w.mme.free.Put(b)
}

// disconnected makes the UEs of an ended association idle.
func (w *worker) disconnected(e *enodeb) {
	e.perWork[w.number].lost = true
	for u := e.perWork[w.number].head; u != nil; u = e.perWork[w.number].head {
		w.lostConnection(u)
	}
}

// send queues a message to an eNodeB.
func (w *worker) send(e *enodeb, stream uint16, message []byte) {
	if err := e.Send(stream, message); err != nil {
		w.mme.counts.unsent.Inc()
		return
	}
	w.mme.counts.sent.Inc()
	w.logSent(e, message)
	if of := &e.perWork[w.number]; !of.touched {
		of.touched = true
		w.touched = append(w.touched, e)
	}
}

// flush sends the queued messages.
func (w *worker) flush() {
	for i, e := range w.touched {
		e.Flush()
		e.perWork[w.number].touched = false
		w.touched[i] = nil
	}
	w.touched = w.touched[:0]
}
