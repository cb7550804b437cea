package s1ap

import (
	"bytes"
	"time"

	"vitrine/director/meter"
	"vitrine/wire/s1ap"
	"vitrine/wire/s1ap/frame"
)

// timeToWait is the value of Time To Wait for a retry after 1 s (TS 36.413 clause 9.2.1.61;
// the values are an enumeration).
const timeToWait = 0

// setupPause is the shortest time between two S1 Setups of an eNodeB. Each S1 Setup reconnects
// to all instances, which is expensive.
const setupPause = time.Second

// noResource is the cause "transport resource unavailable": the director reaches no instance.
var noResource = s1ap.Cause{Group: s1ap.Transport, Value: 0}

// setUp begins the S1 Setup of an eNodeB (TS 36.413 clause 8.7.3). The director repeats the
// request to each instance, and answers when all attempts are over, so that the instance of the
// eNodeB's first message is reachable. An eNodeB that repeats S1 Setup has lost its UEs, also if the
// director refuses it.
func (t *turn) setUp(e *enodeb, data []byte) {
	in := &t.in
	served, sound := t.policy.Pool.serves(in.areas)
	switch {
	case in.has&(hasENodeB|hasAreas) != hasENodeB|hasAreas || !sound || in.count > mostElements:
		t.malformed(e.association, meter.NoType, 0, s1ap.CauseAbstractSyntax)
		return
	case e.state == settingUp:
		t.worker.counts.unexpected.Add(1)
		t.indicate(e.association, 0, s1ap.CauseIncompatible)
		return
	case e.state == up && t.now < e.last+setupPause:
		t.failSetup(e, s1ap.CauseIncompatible, "it is too soon after the last")
		return
	}
	if e.state == up {
		t.clear(e)
		e.until = t.now + t.server.config.First
	}
	switch {
	case !served:
		t.failSetup(e, s1ap.CauseUnknownPLMN, "it is of another network")
		return
	case !t.server.claim(e, in.enodeb):
		t.worker.meter.Drop(t.now, meter.NoType, meter.Stranger, e.peer)
		t.failSetup(e, s1ap.CauseIncompatible, "another address has its identity")
		return
	}
	e.id, e.key, e.setup, e.state = in.enodeb, keyOf(in.enodeb), bytes.Clone(data), settingUp
}

// relinked follows a change of an eNodeB's links. An instance may have reported its overload before
// the S1 Setup Response, so settle comes first.
func (t *turn) relinked(e *enodeb) {
	t.settle(e)
	t.reportOverload(e, nil)
}

// settle answers the eNodeB's S1 Setup when the attempts of all links are over. One link that
// is up suffices for success.
func (t *turn) settle(e *enodeb) {
	if e.state != settingUp {
		return
	}
	reached := false
	for _, l := range e.links {
		if l == nil {
			continue
		}
		if !l.settled {
			return
		}
		reached = reached || l.state == up
	}
	if !reached {
		t.clear(e)
		e.until = t.now + t.server.config.First
		t.failSetup(e, noResource, "no instance accepts it")
		return
	}
	e.state, e.last = up, t.now
	t.server.setups.Add(1)
	pool := &t.policy.Pool
	b := s1ap.AppendHeader(t.out[:0], s1ap.Successful, s1ap.S1Setup, s1ap.Reject)
	b = s1ap.AppendName(b, s1ap.MMEName, s1ap.Ignore, pool.Name)
	b = s1ap.AppendServed(b, s1ap.Reject, pool.PLMN, pool.Group, pool.codes()...)
	start := len(b)
	b = append(s1ap.BeginElement(b, s1ap.RelativeCapacity, s1ap.Ignore), pool.Capacity)
	t.out = s1ap.EndElement(b, start)
	t.answer(e.association, frame.Common)
}

// failSetup answers S1 Setup with a failure, and logs why. With all causes but another network, the eNodeB
// may try again.
func (t *turn) failSetup(e *enodeb, cause s1ap.Cause, why string) {
	t.server.setupFailures.Add(1)
	t.server.config.Log.Warn("setup of an eNodeB refused: "+why, "enodeb", e.peer)
	b := s1ap.AppendHeader(t.out[:0], s1ap.Unsuccessful, s1ap.S1Setup, s1ap.Reject)
	b = s1ap.AppendCause(b, s1ap.Ignore, cause)
	if cause != s1ap.CauseUnknownPLMN {
		b = s1ap.AppendEnum(b, s1ap.TimeToWait, s1ap.Ignore, timeToWait)
	}
	t.out = b
	t.answer(e.association, frame.Common)
}

// codes returns the MME codes that the pool serves.
func (p *Pool) codes() []byte {
	if len(p.Codes) > 0 {
		return p.Codes
	}
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	return all
}

// reconfigure handles an eNB Configuration Update (TS 36.413 clause 8.7.4). The director
// answers it, forwards it to all instances, and merges it into the S1 Setup Request for future
// instances.
func (t *turn) reconfigure(e *enodeb, whole, data []byte) {
	if t.in.count > mostElements {
		t.malformed(e.association, meter.NoType, 0, s1ap.CauseAbstractSyntax)
		return
	}
	if t.in.has&hasAreas != 0 {
		if served, sound := t.policy.Pool.serves(t.in.areas); !sound || !served {
			b := s1ap.AppendHeader(t.out[:0], s1ap.Unsuccessful, s1ap.ENBConfigurationUpdate, s1ap.Reject)
			t.out = s1ap.AppendCause(b, s1ap.Ignore, s1ap.CauseUnknownPLMN)
			t.answer(e.association, frame.Common)
			return
		}
	}
	e.setup = merge(e.setup, data)
	t.broadcast(e, whole)
	t.out = s1ap.AppendHeader(t.out[:0], s1ap.Successful, s1ap.ENBConfigurationUpdate, s1ap.Reject)
	t.answer(e.association, frame.Common)
}

// merge returns an S1 Setup Request with its elements replaced by those of an eNB Configuration
// Update. If the result would exceed longestSetup or mostElements, merge returns setup unchanged.
func merge(setup, update []byte) []byte {
	var old, fresh s1ap.Message
	if old.Parse(setup) != nil || fresh.Parse(update) != nil || len(setup)+len(update) > longestSetup {
		return setup
	}
	b, count := s1ap.AppendHeader(nil, s1ap.Initiating, s1ap.S1Setup, s1ap.Reject), 0
	for it := old.Elements(); it.Next(); count++ {
		if v, ok := fresh.Find(it.ID); ok && it.ID != s1ap.GlobalENBID {
			b = s1ap.AppendElement(b, it.ID, it.Criticality, v)
			continue
		}
		b = s1ap.AppendElement(b, it.ID, it.Criticality, it.Value)
	}
	for it := fresh.Elements(); it.Next(); {
		if _, had := old.Find(it.ID); !had && it.ID != s1ap.GlobalENBID {
			b = s1ap.AppendElement(b, it.ID, it.Criticality, it.Value)
			count++
		}
	}
	if count > mostElements {
		return setup
	}
	return s1ap.End(b, 0)
}

// mostElements bounds the elements of an S1 Setup Request and of an update, because merge is
// quadratic. The messages in TS 36.413 have about ten elements.
const mostElements = 64

// longestSetup bounds the total length of an S1 Setup Request and an update, in octets, so that
// the merged request fits one frame.
const longestSetup = 16_000

// broadcast forwards a frame of an eNodeB to all instances that it reaches.
func (t *turn) broadcast(e *enodeb, whole []byte) {
	for _, l := range e.links {
		if l != nil && l.state == up {
			t.pass(l.association, whole)
		}
	}
}
