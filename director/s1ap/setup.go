package s1ap

import (
	"bytes"
	"time"

	"vitrine/director/meter"
	"vitrine/wire/s1ap"
	"vitrine/wire/s1ap/frame"
)

// timeToWait is the value of Time To Wait that tells an eNodeB to try again after 1 s (TS
// 36.413 clause 9.2.3.26).
const timeToWait = 0

// setupPause is how soon after its S1 Setup an eNodeB may begin another, because each
// makes associations with all instances anew.
const setupPause = time.Second

// noResource is the cause "transport resource unavailable": there is no MME behind the
// director.
var noResource = s1ap.Cause{Group: s1ap.Transport, Value: 0}

// setUp begins the S1 Setup of an eNodeB (TS 36.413 clause 8.7.3). The director repeats the
// request to each instance. It answers when all have answered, so that the eNodeB's first
// message finds its instance. An eNodeB that sends the request again has lost its UEs.
func (t *turn) setUp(e *enodeb, data []byte) {
	in := &t.in
	served, sound := t.policy.Pool.serves(in.areas)
	switch {
	case in.has&(hasENodeB|hasAreas) != hasENodeB|hasAreas || !sound || in.count > mostElements:
		t.malformed(e, 0, s1ap.CauseAbstractSyntax)
		return
	case e.state == settingUp:
		t.worker.counts.unexpected.Add(1)
		t.indicate(e.association, 0, s1ap.CauseIncompatible)
		return
	case !served:
		t.failSetup(e, s1ap.CauseUnknownPLMN, false)
		return
	case e.state == up && t.now < e.last+setupPause:
		t.failSetup(e, s1ap.CauseIncompatible, true)
		return
	case !t.server.claim(e, in.enodeb):
		t.worker.meter.Drop(t.now, meter.NoType, meter.Stranger, e.peer)
		t.failSetup(e, s1ap.CauseIncompatible, true)
		return
	}
	t.clear(e)
	e.id, e.key, e.setup, e.state = in.enodeb, keyOf(in.enodeb), bytes.Clone(data), settingUp
}

// settle answers S1 Setup when each instance has accepted the eNodeB or failed to.
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
		t.failSetup(e, noResource, true)
		return
	}
	e.state, e.last = up, t.now
	t.server.setups.Add(1)
	pool := &t.policy.Pool
	b := s1ap.AppendHeader(t.out[:0], s1ap.Successful, s1ap.S1Setup, s1ap.Reject)
	b = s1ap.AppendName(b, s1ap.MMEName, s1ap.Ignore, pool.Name)
	b = s1ap.AppendServedGroup(b, s1ap.Reject, pool.PLMN, pool.Group, pool.codes())
	start := len(b)
	b = append(s1ap.BeginElement(b, s1ap.RelativeCapacity, s1ap.Ignore), pool.Capacity)
	t.out = s1ap.EndElement(b, start)
	t.answer(e.association, frame.Common)
}

func (t *turn) failSetup(e *enodeb, cause s1ap.Cause, again bool) {
	t.server.setupFailures.Add(1)
	b := s1ap.AppendHeader(t.out[:0], s1ap.Unsuccessful, s1ap.S1Setup, s1ap.Reject)
	b = s1ap.AppendCause(b, s1ap.Ignore, cause)
	if again {
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

// reconfigure handles an eNB Configuration Update (TS 36.413 clause 8.7.4): the director
// answers it, passes it on to every instance, and repeats the new configuration to those
// that come later.
func (t *turn) reconfigure(e *enodeb, whole, data []byte) {
	if t.in.count > mostElements {
		t.malformed(e, 0, s1ap.CauseAbstractSyntax)
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

// merge returns an S1 Setup Request with the elements of an eNB Configuration Update in
// place of its own. If it gets too long or has too many, the request stays as it is.
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

// mostElements is how many elements an S1 Setup Request and an update may have. Those of TS
// 36.413 have about ten. merge compares each element of one with each of the other.
const mostElements = 64

// longestSetup is how long an S1 Setup Request and an update may be together, in octets:
// what one message can hold.
const longestSetup = 16_000

// broadcast sends a frame of an eNodeB to every instance that it reaches.
func (t *turn) broadcast(e *enodeb, whole []byte) {
	for _, l := range e.links {
		if l != nil && l.state == up {
			t.pass(l.association, whole)
		}
	}
}
