package mme

import (
	"time"

	"vitrine/internal/truth"
	"vitrine/reference/epc/aka"
	"vitrine/wire/identity"
	"vitrine/wire/nas"
	"vitrine/wire/s1ap"
)

// A phase says what a UE's procedure waits for.
type phase uint8

const (
	registered   phase = iota // nothing: the UE is idle or connected
	identifying               // Identity Response
	vectoring                 // the HSS: a vector
	challenged                // Authentication Response
	securing                  // Security Mode Complete
	informing                 // ESM Information Response
	locating                  // the HSS: the subscription
	replacing                 // the gateway: the session of an earlier attach is deleted
	creating                  // the gateway: a session
	keeping                   // the store: the context of an attach
	accepting                 // Initial Context Setup Response and Attach Complete
	serving                   // Initial Context Setup Response
	modifying                 // the gateway: the eNodeB's end of the bearer
	switching                 // the same, for a path switch
	preparing                 // Handover Request Acknowledge
	executing                 // Handover Notify
	idling                    // the gateway: access bearers are released
	releasing                 // UE Context Release Complete
	fetching                  // the store: the UE's context, for a message that waits
	requesting                // the gateway: bearer resources
	activating                // E-RAB Setup Response, and the UE's answer
	deactivating              // E-RAB Release Response, and the UE's answer
)

// attaching reports whether the UE has not attached yet.
func (p phase) attaching() bool { return p >= identifying && p <= accepting }

// deferred is what has to wait for the answer of a call.
type deferred uint8

const (
	nothing      deferred = iota
	deferRelease          // a UE Context Release Request
)

// defaultBearer is the identity of the only bearer of a UE: the lowest of TS
// 24.007 clause 11.2.3.1.5.
const defaultBearer = 5

// A ue is a UE context. Contexts are used again, with another serial.
type ue struct {
	worker *worker
	serial uint32
	gone   bool // detached: it waits for a call or for its connection to end
	busy   bool // a call to the HSS or the gateway has no answer yet

	imsi     identity.Digits
	stmsi    identity.STMSI // if hasTMSI
	oldTMSI  identity.STMSI // until the UE has confirmed the new one, if hasOld
	hasTMSI  bool
	hasOld   bool
	holding  bool // the context is the one of its IMSI
	attached bool // the UE has attached and not detached

	// The S1 connection.
	enb          *enodeb // nil: idle
	mmeID, enbID uint32
	prev, next   *ue // the others of the same eNodeB
	tai          identity.TAI
	ecgi         identity.ECGI
	target       *enodeb // of a handover
	targetID     uint32  // eNB UE S1AP ID there
	radio        []byte  // UE radio capability

	// Security.
	protection *aka.Protection // nil: no security context
	cipher     aka.Algorithm
	secured    bool       // secure exchange on this connection (TS 24.301 clause 4.4.2.3)
	vector     aka.Vector // of the present challenge
	kasme      [32]byte
	ksi        uint8
	up, down   uint32 // next NAS COUNT of each direction
	keyCount   uint32 // NAS COUNT that the eNodeB's key was derived from
	nextHop    [32]byte
	chain      uint8 // next hop chaining counter
	resynced   bool  // the UE's sequence number was asked for already
	capability [13]byte
	capLength  uint8

	// The PDN connection.
	pti          uint8
	pdn          uint8 // requested PDN type
	transfer     bool  // APN and options follow after the security mode
	apn          [100]byte
	apnLength    uint8
	subscription Subscription
	subscribed   bool // subscription is valid
	session      Session
	hasSession   bool
	tunnel       s1ap.Tunnel // the eNodeB's end of the default bearer
	newTunnel    s1ap.Tunnel // of the target of a handover
	newDedicated []DedicatedBearer
	change       *change         // of its dedicated bearers, which waits or is being made
	asked        ResourceRequest // of the UE

	// The record in the store, if there is a store.
	stored           bool      // the store has a record that this context wrote or read
	tag              string    // of the record's version
	due              time.Time // when the record's timer is due
	keptUp, keptDown uint32    // counts of the record
	leaving          bool      // the UE is detached, and its record is to be removed
	moved            bool      // another MME wrote the record
	verified         bool      // the message that waits is the UE's
	parked           parked
	summons          bool        // the UE is paged once its context is read, or once it is idle
	summoner         truth.Event // the event that asked to page a UE that is becoming idle

	// The present procedure.
	phase     phase
	kind      procedure
	event     truth.Event // of the MME, which the procedure belongs to
	running   bool        // kind is counted and has not ended
	counted   bool        // it is in the overload window
	began     time.Time
	tries     uint8 // retransmissions left
	gotSetup  bool  // accepting, activating, deactivating: the answer of the eNodeB
	gotAccept bool  // the same: Attach Complete, or the answer of the UE
	deferred  deferred
	awaiting  truth.Event  // the event of what is deferred
	cause     s1ap.Cause   // of the release to come
	last      []byte       // the NAS message to retransmit
	lastAs    nas.Security // and its security

	// timers
	silent time.Duration // when a UE that stays idle is detached
	wake   time.Duration
	slot   int // in the heap, from 1; 0: the timer does not run
}

// newUE returns a context, or nil if there are too many.
func (w *worker) newUE() *ue {
	if w.live >= max(w.mme.config.Contexts/len(w.mme.workers), 1) {
		return nil
	}
	w.live++
	w.mme.counts.contexts.Inc()
	if len(w.idle) == 0 {
		return &ue{worker: w, event: w.event}
	}
	u := w.idle[len(w.idle)-1]
	w.idle = w.idle[:len(w.idle)-1]
	u.event = w.event
	return u
}

// bury removes a context that is gone, step by step: the session, the subscriber's
// location, and then the context, when its connection has ended.
func (w *worker) bury(u *ue) {
	switch {
	case u.busy:
		return
	case u.stored: // first: the rest is another MME's if the record has changed
		u.stored, u.leaving = false, true
		j := w.job(u, callLeave)
		j.kept = w.snapshot(u, 0)
		j.kept.Due, j.kept.Leaving = w.mme.start.Add(w.now).Add(leaveWithin).UnixMilli(), true
		w.submit(j)
		return
	case u.hasSession:
		u.hasSession = false
		w.call(u, callDelete)
		return
	case u.subscribed:
		u.subscribed = false
		if w.mme.holds(u.imsi) { // it has attached again, and the location is the new context's
			w.bury(u)
			return
		}
		w.call(u, callPurge)
		return
	case u.leaving: // last: until then the timer of the record removes the rest if this MME ends
		u.leaving = false
		w.call(u, callDrop)
		return
	case u.enb != nil:
		return
	}
	w.timers.stop(u)
	w.live--
	w.mme.counts.contexts.Dec()
	*u = ue{worker: w, serial: u.serial + 1, last: u.last[:0], radio: u.radio[:0], parked: parked{octets: u.parked.octets[:0]}}
	w.idle = append(w.idle, u)
}

// newID returns an MME UE S1AP ID that is not in use: the instance in the top byte,
// and then a number whose remainder is that of the worker.
func (w *worker) newID() uint32 {
	n := uint32(len(w.mme.workers))
	for {
		w.lastID++
		low := (w.lastID*n + uint32(w.number)) & 0xffffff
		if low%n != uint32(w.number) { // after a wrap, if n is not a power of two
			continue
		}
		id := uint32(w.mme.config.Instance)<<24 | low
		if _, used := w.byID[id]; !used {
			return id
		}
	}
}

// newTMSI gives the context an M-TMSI, whose remainder is that of the worker. The
// old one stays valid until confirmTMSI.
func (w *worker) newTMSI(u *ue) {
	if u.hasOld {
		delete(w.byTMSI, u.oldTMSI)
	}
	u.oldTMSI, u.hasOld = u.stmsi, u.hasTMSI
	n := uint32(len(w.mme.workers))
	for {
		tmsi := uint32(w.random.Uint64())
		tmsi -= tmsi % n
		if tmsi > 0xffffffff-n {
			continue
		}
		tmsi += uint32(w.number)
		s := identity.STMSI{Code: w.mme.config.GUMMEI.Code, TMSI: tmsi}
		if _, used := w.byTMSI[s]; !used && tmsi != 0 { // it is a TEID too, which is not 0
			u.stmsi, u.hasTMSI = s, true
			w.byTMSI[s] = u
			return
		}
	}
}

// confirmTMSI forgets the old M-TMSI: the UE has the new one.
func (w *worker) confirmTMSI(u *ue) {
	if u.hasOld {
		delete(w.byTMSI, u.oldTMSI)
		u.hasOld = false
	}
}

// forget removes the context from the indexes of identities.
func (w *worker) forget(u *ue) {
	w.confirmTMSI(u)
	if u.hasTMSI {
		delete(w.byTMSI, u.stmsi)
		u.hasTMSI = false
	}
	if u.holding {
		w.mme.disclaim(u)
		u.holding = false
	}
}

// connect gives the context a connection through an eNodeB.
func (w *worker) connect(u *ue, e *enodeb, enbID uint32) {
	u.mmeID, u.event = w.newID(), w.event
	w.byID[u.mmeID] = u
	w.link(u, e, enbID)
}

// link puts the context into the list of an eNodeB.
func (w *worker) link(u *ue, e *enodeb, enbID uint32) {
	u.enb, u.enbID = e, enbID
	of := &e.perWork[w.number]
	u.prev, u.next = nil, of.head
	if of.head != nil {
		of.head.prev = u
	}
	of.head = u
}

// unlink removes the context from the list of its eNodeB.
func (w *worker) unlink(u *ue) {
	if u.prev != nil {
		u.prev.next = u.next
	} else {
		u.enb.perWork[w.number].head = u.next
	}
	if u.next != nil {
		u.next.prev = u.prev
	}
	u.enb, u.prev, u.next = nil, nil, nil
}

// disconnect ends the connection of the context, which becomes idle.
func (w *worker) disconnect(u *ue) {
	if u.enb == nil {
		return
	}
	w.unlink(u)
	delete(w.byID, u.mmeID)
	u.mmeID, u.secured = 0, false
	u.target = nil
}

// rest ends what the UE did and waits for it to do something: for a time, if it is
// idle (TS 24.301 clause 5.3.5). With a store, the context of an idle UE is there alone.
func (w *worker) rest(u *ue) {
	u.phase = registered
	waits := u.change != nil && !u.change.begun
	if waits {
		w.resumable = append(w.resumable, u)
	}
	if u.enb != nil {
		u.summons = false
		w.timers.stop(u)
		w.refresh(u)
		return
	}
	if w.mme.config.Store != nil && !waits && !u.summons {
		w.evict(u)
		return
	}
	u.silent = w.now + w.mme.config.Timers.Reachable
	w.timers.set(u, u.silent)
	if u.summons {
		w.event = u.summoner
		w.page(u)
	}
}
