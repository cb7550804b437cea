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
	switching                 // the gateway: the eNodeB's end of the bearer, in a path switch
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

// defaultBearer is the identity of a UE's default bearer: the lowest EPS bearer identity
// (TS 24.007 clause 11.2.3.1.5).
const defaultBearer = 5

// A ue is a UE context. Contexts are reused; each use has another serial.
type ue struct {
	worker *worker
	serial uint32
	gone   bool // detached; waits for a call, or for the end of its connection
	busy   bool // a call to the HSS, the gateway or the store has no answer yet

	imsi     identity.Digits
	stmsi    identity.STMSI // valid if hasTMSI
	oldTMSI  identity.STMSI // valid if hasOld: until the UE confirms the new one
	hasTMSI  bool
	hasOld   bool
	holding  bool // this context is its IMSI's context
	attached bool // the UE has attached and not detached

	// The S1 connection.
	enb          *enodeb // nil: idle
	mmeID, enbID uint32
	prev, next   *ue // list of the UEs of the same eNodeB
	tai          identity.TAI
	ecgi         identity.ECGI
	target       *enodeb // target eNodeB of a handover; nil: none
	targetID     uint32  // eNB UE S1AP ID at the target
	radio        []byte  // UE radio capability

	// Security.
	protection *aka.Protection // nil: no security context
	cipher     aka.Algorithm
	secured    bool       // secure exchange is established on this connection (TS 24.301 clause 4.4.2.3)
	vector     aka.Vector // of the present challenge
	kasme      [32]byte
	ksi        uint8
	up, down   uint32 // next NAS COUNT of each direction
	keyCount   uint32 // NAS COUNT that the eNodeB's key was derived from
	nextHop    [32]byte
	chain      uint8 // next hop chaining counter
	resynced   bool  // a resynchronisation was already made in this attach
	capability [13]byte
	capLength  uint8
	gea        uint8 // GPRS encryption algorithms of its MS network capability: GEA1 is bit 7, GEA7 is bit 1

	// The PDN connection.
	combined     bool // the UE asked for services of the CS domain, too
	pti          uint8
	pdn          uint8 // requested PDN type
	transfer     bool  // APN and options follow in an ESM Information Response
	apn          [100]byte
	apnLength    uint8
	subscription Subscription
	subscribed   bool // subscription is valid
	session      Session
	hasSession   bool
	tunnel       s1ap.Tunnel // the eNodeB's end of the default bearer
	newTunnel    s1ap.Tunnel // at the target of a handover
	newDedicated []DedicatedBearer
	foreign      uint16          // bits of the E-RABs that a path switch has brought but the UE does not have
	change       *change         // to its dedicated bearers, waiting or in progress
	asked        ResourceRequest // the UE's last request for bearer resources

	// The record in the store, if there is a store.
	stored           bool      // the store has a record that this context wrote or read
	tag              string    // version of the record
	due              time.Time // when the record's timer is due
	keptUp, keptDown uint32    // NAS COUNTs in the record
	leaving          bool      // the UE is detached, and its record must be removed
	moved            bool      // another MME wrote the record
	verified         bool      // the parked message's integrity was verified
	parked           parked
	summons          bool        // page the UE once its context is read, or once it is idle
	summoner         truth.Event // event that asked to page the UE while it became idle

	// The present procedure.
	phase     phase
	kind      procedure
	event     truth.Event // the MME's event that the procedure belongs to
	running   bool        // kind is counted and has not ended
	counted   bool        // the attach counts in the overload window
	began     time.Time
	tries     uint8        // retransmissions left
	gotSetup  bool         // accepting, activating, deactivating: the eNodeB has answered
	gotAccept bool         // accepting, activating, deactivating: the UE has answered
	deferred  bool         // a release to idle waits for the answer to a call
	awaiting  truth.Event  // event of the deferred release
	cause     s1ap.Cause   // for the next release
	last      []byte       // the NAS message to retransmit
	lastAs    nas.Security // security header of last

	// The timer.
	silent time.Duration // when an idle UE that stays silent is detached
	wake   time.Duration
	slot   int // position in the heap, from 1; 0: the timer does not run
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

// bury removes a detached context step by step: the session, the subscriber's location,
// and finally the context, when its connection has ended.
func (w *worker) bury(u *ue) {
	switch {
	case u.busy:
		return
	case u.stored: // first, because if the record has changed, another MME has the session and the location
		u.stored, u.leaving = false, true
		j := w.job(u, callLeave)
		j.kept = w.snapshot(u, 0)
		j.kept.Due, j.kept.Leaving = time.Now().Add(leaveWithin).UnixMilli(), true
		w.submit(j)
		return
	case u.hasSession:
		u.hasSession = false
		w.call(u, callDelete)
		return
	case u.subscribed:
		u.subscribed = false
		if w.mme.holds(u.imsi) { // the IMSI has attached again, and the location is the new context's
			w.bury(u)
			return
		}
		w.call(u, callPurge)
		return
	case u.leaving: // last, so that the record's timer can finish the detach if this MME fails
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

// newID returns an unused MME UE S1AP ID. The top byte is the instance. The rest, modulo
// the number of workers, is this worker's number.
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

// newTMSI gives the context a new M-TMSI, which is this worker's number modulo the
// number of workers. The old M-TMSI stays valid until confirmTMSI.
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
		if _, used := w.byTMSI[s]; !used && tmsi != 0 { // the M-TMSI is also a TEID, and no TEID is 0
			u.stmsi, u.hasTMSI = s, true
			w.byTMSI[s] = u
			return
		}
	}
}

// confirmTMSI drops the old M-TMSI, because the UE has the new one.
func (w *worker) confirmTMSI(u *ue) {
	if u.hasOld {
		delete(w.byTMSI, u.oldTMSI)
		u.hasOld = false
	}
}

// forget removes the context from the indexes by identity.
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

// link adds the context to its eNodeB's list.
func (w *worker) link(u *ue, e *enodeb, enbID uint32) {
	u.enb, u.enbID = e, enbID
	of := &e.perWork[w.number]
	u.prev, u.next = nil, of.head
	if of.head != nil {
		of.head.prev = u
	}
	of.head = u
}

// unlink removes the context from its eNodeB's list.
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

// rest ends the UE's procedure. An idle UE gets a timer for its implicit detach (TS
// 24.301 clause 5.3.5). With a store, the context of an idle UE is evicted, because the
// store has it.
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
