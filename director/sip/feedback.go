package sip

import (
	"maps"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"vitrine/director/overload"
	"vitrine/director/table"
	"vitrine/wire/sip"
)

// losses are what instances ask the director to hold back (RFC 7339, algorithm
// loss). Workers read without a lock.
type losses struct {
	mu sync.Mutex // one new instance at a time
	of atomic.Pointer[map[uint32]*loss]
}

// A loss is one instance's.
type loss struct {
	mu       sync.Mutex
	sequence uint64 // the newest oc-seq; a response that is overtaken says nothing new
	until    atomic.Int64
	percent  atomic.Uint32
}

func lossKey(ty table.Type, id uint16) uint32 { return uint32(ty)<<16 | uint32(id) }

// usualValidity is how long feedback counts that does not say (RFC 7339 section
// 4.3).
const usualValidity = 500 * time.Millisecond

// longestValidity bounds how long feedback counts, whatever it says: an instance
// that lives tells again.
const longestValidity = 10 * time.Second

// tell takes in the feedback in the director's own Via of a response.
func (l *losses) tell(now time.Duration, ty table.Type, id uint16, v *sip.ViaHop) {
	percent, ok := sip.ParseNumber(v.OC)
	if !ok || percent > 100 {
		return
	}
	validity := usualValidity
	if n, ok := sip.ParseNumber(v.OCValidity); ok && n <= 1<<24 {
		validity = min(time.Duration(n)*time.Millisecond, longestValidity)
	}
	one := l.find(ty, id)
	if one == nil {
		if percent == 0 {
			return
		}
		one = l.enter(ty, id)
	}
	one.mu.Lock()
	defer one.mu.Unlock()
	if sequence := v.OCSequence(); sequence >= one.sequence {
		one.sequence = sequence
		one.percent.Store(uint32(percent))
		one.until.Store(int64(now + validity))
	}
}

// refuses says whether a new transaction for an instance is to be held back:
// the asked share of all, and of one transaction always the same.
func (l *losses) refuses(now time.Duration, target *table.Target, transaction uint64) bool {
	one := l.find(target.Type, target.ID)
	return one != nil && int64(now) < one.until.Load() && transaction%100 < uint64(one.percent.Load())
}

func (l *losses) find(ty table.Type, id uint16) *loss {
	if m := l.of.Load(); m != nil {
		return (*m)[lossKey(ty, id)]
	}
	return nil
}

// enter makes room for an instance, once.
func (l *losses) enter(ty table.Type, id uint16) *loss {
	l.mu.Lock()
	defer l.mu.Unlock()
	if one := l.find(ty, id); one != nil {
		return one
	}
	next := map[uint32]*loss{}
	if m := l.of.Load(); m != nil {
		next = maps.Clone(*m)
	}
	one := new(loss)
	next[lossKey(ty, id)] = one
	l.of.Store(&next)
	return one
}

// feedback writes the gate's overload feedback into the Via of a client that
// asks for it (RFC 7339 section 4): what it had there of oc parameters is
// replaced.
func (p *Proxy) feedback(v *sip.ViaHop, gate *overload.Gate) {
	if !wantsFeedback(v, gate) {
		return
	}
	p.edits.replace(p.edits.offset(v.Text), p.edits.end(v.Text), p.built(appendFeedback(p.build(), v, gate)))
}

// wantsFeedback says whether a client asks for feedback and can do by the loss
// algorithm: it names it, or none (RFC 7339 section 4.2).
func wantsFeedback(v *sip.ViaHop, gate *overload.Gate) bool {
	return gate != nil && v.OC != nil && len(v.OC) == 0 && v.AllowsOC("loss")
}

// appendFeedback appends a Via element with the gate's feedback.
func appendFeedback(b []byte, v *sip.ViaHop, gate *overload.Gate) []byte {
	loss, validity, sequence := gate.Feedback()
	b = append(b, v.Text[:len(v.Text)-len(v.Params)]...)
	for at := v.Params; len(at) > 0; {
		name, _, rest := sip.CutParam(at)
		if !sip.EqualFold(name, "oc") && !sip.EqualFold(name, "oc-algo") && !sip.EqualFold(name, "oc-validity") && !sip.EqualFold(name, "oc-seq") {
			b = append(b, at[:len(at)-len(rest)]...)
		}
		at = rest
	}
	b = strconv.AppendInt(append(b, ";oc="...), int64(loss), 10)
	b = append(b, `;oc-algo="loss";oc-validity=`...)
	b = strconv.AppendInt(b, int64(validity/time.Millisecond), 10)
	return append(strconv.AppendUint(append(b, ";oc-seq="...), sequence, 10), ".0"...)
}
