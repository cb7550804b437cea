package mme

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"vitrine/internal/truth"
	"vitrine/reference/epc/aka"
	"vitrine/reference/epc/diameter"
	"vitrine/wire/identity"
	"vitrine/wire/s1ap"
)

// ErrUnknown is the error of Subscribers for an IMSI that the HSS does not have
// (TS 29.272: DIAMETER_ERROR_USER_UNKNOWN).
var ErrUnknown = errors.New("mme: the HSS does not know the subscriber")

// Subscribers is the HSS as the MME sees it (S6a, TS 29.272). Its methods are
// called concurrently, wait for the answer, and return when ctx ends. An error
// other than ErrUnknown means that the HSS cannot be used.
type Subscribers interface {
	// Vector returns a vector for a challenge in the serving network. failed is nil, or
	// the last challenge and the UE's AUTS if the UE reported a synch failure.
	Vector(ctx context.Context, imsi identity.Digits, serving identity.PLMN, failed *Resynchronisation) (aka.Vector, error)
	// UpdateLocation tells the HSS that this MME serves the subscriber, and returns the
	// subscription.
	UpdateLocation(ctx context.Context, imsi identity.Digits, serving identity.PLMN) (Subscription, error)
	// Purge tells the HSS that this MME has removed the subscriber's context.
	Purge(ctx context.Context, imsi identity.Digits) error
}

// A Resynchronisation is a challenge and the AUTS that answered it (TS 33.102
// clause 6.3.5).
type Resynchronisation = diameter.Resync

// A Subscription is the HSS's data about a subscriber's default bearer. Rates are in
// bit/s.
type Subscription struct {
	APN            string // of the default PDN connection, such as "internet"
	QCI            uint8
	Priority       uint8  // allocation and retention priority, 1 (highest) to 15
	Up, Down       uint64 // UE-AMBR
	APNUp, APNDown uint64 // APN-AMBR
}

// A Gateway is the S-GW as the MME sees it (S11, TS 29.274), and the P-GW behind
// it. Its methods are called concurrently, wait for the answer, and return when ctx
// ends. The methods after CreateSession take the session that it returned.
type Gateway interface {
	// CreateSession makes a PDN connection with a default bearer.
	CreateSession(ctx context.Context, request SessionRequest) (Session, error)
	// ModifyBearer directs downlink packets of the session's bearers to an eNodeB.
	// Without an eNodeB, it only tells the gateway that the session belongs to this MME
	// now.
	ModifyBearer(ctx context.Context, s Session, enodeb s1ap.Tunnel) error
	// ReleaseAccessBearers removes the eNodeB's ends of the bearers, because the UE is
	// idle.
	ReleaseAccessBearers(ctx context.Context, s Session) error
	// DeleteSession removes the PDN connection.
	DeleteSession(ctx context.Context, s Session) error
	// RequestBearer asks for the resources of a dedicated bearer, or for its release. If
	// the gateway grants the request, it calls CreateBearer or DeleteBearer.
	RequestBearer(ctx context.Context, s Session, r ResourceRequest) error
}

// A SessionRequest asks for a PDN connection.
type SessionRequest struct {
	IMSI         identity.Digits
	TAI          identity.TAI
	ECGI         identity.ECGI
	Bearer       uint8 // identity of the default bearer
	Subscription Subscription
	TEID         uint32 // for S11, of this MME; 0: the gateway chooses it
}

// A Session is a PDN connection.
type Session struct {
	Peer    netip.AddrPort // S-GW's address for S11
	Control uint32         // S-GW's TEID for S11
	Own     uint32         // this MME's TEID for S11
	Uplink  s1ap.Tunnel    // S-GW's end of the default bearer's S1-U tunnel
	Address netip.Addr     // the UE's IPv4 address
	Bearer  uint8          // identity of the default bearer

	Dedicated []DedicatedBearer `json:",omitempty"` // replaced as a whole, because calls may read it
}

// A call is a request to the HSS, the gateway or the store.
type call uint8

const (
	callVector call = iota
	callLocation
	callPurge
	callCreate
	callModify
	callRelease
	callDelete
	callLoad   // the store: read a context
	callClaim  // the store: write a context at the start of a connection
	callKeep   // the store: write a context
	callCommit // the store: write the context of an attach
	callLeave  // the store: mark the context of a detached UE
	callDrop   // the store: remove a context
	callResource
	calls
)

// A job is one call for one UE: first the request, then the answer. Only the UE's worker
// uses the field ue.
type job struct {
	what   call
	worker *worker
	ue     *ue
	event  truth.Event

	request SessionRequest // its IMSI serves all calls to the HSS
	failed  Resynchronisation
	resync  bool // failed is valid
	session Session
	enodeb  s1ap.Tunnel
	asked   ResourceRequest

	// For calls to the store.
	stmsi identity.STMSI
	kept  *kept
	tag   string
	due   time.Time
	moved bool

	vector       aka.Vector
	subscription Subscription
	err          error
}

// perform makes the calls of jobs until ctx ends.
func (m *MME) perform(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case j := <-m.jobs:
			m.make(ctx, j)
			j.worker.results <- j // never blocks: the channel has room for all jobs
		}
	}
}

// make makes the call of a job.
func (m *MME) make(ctx context.Context, j *job) {
	ctx, cancel := context.WithTimeout(truth.With(ctx, j.event), m.config.CallTime)
	defer cancel()
	begun := time.Now()
	hss, gateway, serving := m.config.Subscribers, m.config.Gateway, m.config.GUMMEI.PLMN
	switch j.what {
	case callVector:
		var failed *Resynchronisation
		if j.resync {
			failed = &j.failed
		}
		j.vector, j.err = hss.Vector(ctx, j.request.IMSI, serving, failed)
	case callLocation:
		j.subscription, j.err = hss.UpdateLocation(ctx, j.request.IMSI, serving)
	case callPurge:
		j.err = hss.Purge(ctx, j.request.IMSI)
	case callCreate:
		j.session, j.err = gateway.CreateSession(ctx, j.request)
	case callModify:
		j.err = gateway.ModifyBearer(ctx, j.session, j.enodeb)
	case callRelease:
		j.err = gateway.ReleaseAccessBearers(ctx, j.session)
	case callDelete:
		j.err = gateway.DeleteSession(ctx, j.session)
	case callLoad:
		j.err = m.load(ctx, j)
	case callClaim:
		j.err = m.acquire(ctx, j)
	case callKeep, callLeave:
		j.err = m.write(ctx, j, j.due, false)
	case callCommit:
		j.err = m.commit(ctx, j)
	case callDrop:
		j.err = m.drop(ctx, j)
	case callResource:
		j.err = gateway.RequestBearer(ctx, j.session, j.asked)
	}
	m.counts.called(j.what, time.Since(begun), j.err)
}

// call starts a call for a UE that has none. answered gets the answer.
func (w *worker) call(u *ue, what call) { w.submit(w.job(u, what)) }

// job returns a job for submit.
func (w *worker) job(u *ue, what call) *job {
	j := w.newJob()
	j.what, j.worker, j.ue, j.event = what, w, u, u.event
	j.request = SessionRequest{IMSI: u.imsi, TAI: u.tai, ECGI: u.ecgi, Bearer: defaultBearer, Subscription: u.subscription}
	if w.mme.config.Store != nil {
		j.request.TEID = u.stmsi.TMSI
	}
	j.session, j.enodeb, j.asked = u.session, u.tunnel, u.asked
	j.stmsi, j.tag, j.due, j.moved = u.stmsi, u.tag, u.due, u.moved
	u.busy = true
	return j
}

// submit hands a job to the calling goroutines, or queues it. Jobs are never dropped, so
// every admitted procedure is completed. A UE has at most one job, so the queue is no
// longer than the number of contexts.
func (w *worker) submit(j *job) {
	if w.calls == cap(w.results) {
		w.waiting.Push(j)
		return
	}
	w.calls++
	w.mme.jobs <- j // never blocks: the channel has room for the jobs of all workers
}

func (w *worker) newJob() *job {
	if len(w.idleJobs) == 0 {
		return new(job)
	}
	j := w.idleJobs[len(w.idleJobs)-1]
	w.idleJobs = w.idleJobs[:len(w.idleJobs)-1]
	return j
}

// answered handles the answer to a call, and then what waited for that answer.
func (w *worker) answered(j *job) {
	w.calls--
	if w.waiting.Len() > 0 {
		w.submit(w.waiting.Pop())
	}
	u := j.ue
	u.busy, w.event = false, j.event
	if u.gone {
		w.missed(u, j)
		w.bury(u)
	} else {
		w.proceed(u, j)
	}
	*j = job{}
	w.idleJobs = append(w.idleJobs, j)
	if !u.gone && !u.busy && u.deferred {
		w.resume(u)
	}
	if u.parked.enodeb != nil && u.phase != fetching && (u.gone || !u.busy) {
		w.replay(u)
	}
	if !u.gone && !u.busy { // a change may have arrived during the call
		w.pursue(u)
	}
}

// missed stores the answer to a call whose context was removed during the call.
func (w *worker) missed(u *ue, j *job) {
	switch {
	case j.what == callLeave && j.err != nil: // another MME has the UE, or the write may have failed: then the record's timer removes everything
		u.hasSession, u.subscribed, u.leaving = false, false, false
	case j.err != nil:
	case j.what == callCreate:
		u.session, u.hasSession = j.session, true
	case j.what == callCommit:
		u.keep(j.kept, j.tag)
	case j.what == callKeep || j.what == callClaim || j.what == callLeave:
		u.tag, u.due = j.tag, j.kept.due()
	}
}

// proceed takes the next step of a UE's procedure after the answer of a call.
func (w *worker) proceed(u *ue, j *job) {
	switch j.what {
	case callVector:
		w.challenge(u, &j.vector, j.err)
	case callLocation:
		w.located(u, &j.subscription, j.err)
	case callCreate:
		w.created(u, &j.session, j.err)
	case callModify:
		w.modified(u, j.err)
	case callRelease:
		w.idled(u) // even if the S-GW did not answer, the UE becomes idle
	case callDelete:
		w.create(u) // continues the attach that replaced the session
	case callLoad:
		w.loaded(u, j)
	case callClaim, callKeep:
		w.saved(u, j)
	case callCommit:
		w.committed(u, j)
	case callResource:
		w.resourced(u, j.err)
	case callPurge, callLeave, callDrop: // only removed contexts make these calls; see missed
	}
}
