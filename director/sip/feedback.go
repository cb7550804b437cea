package sip

import (
	"bytes"
	"maps"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"vitrine/director/overload"
	"vitrine/director/table"
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
func (l *losses) tell(now time.Duration, ty table.Type, id uint16, v *via) {
	percent, ok := parseSmall(v.oc, 100)
	if !ok {
		return
	}
	validity := usualValidity
	if n, ok := parseSmall(v.validity, 1<<24); ok {
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
	if sequence := parseSequence(v.ocSeq); sequence >= one.sequence {
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

// parseSmall reads a number up to most.
func parseSmall(text []byte, most int) (n int, ok bool) {
	for _, c := range text {
		if !isDigit(c) || n > most {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	return n, len(text) > 0 && n <= most
}

// parseSequence reads an oc-seq, a number with a fraction, in units of its fifth
// decimal; 0: none.
func parseSequence(text []byte) (n uint64) {
	whole, fraction, _ := bytes.Cut(text, dot)
	for _, c := range whole {
		if !isDigit(c) || n > 1<<40 {
			return 0
		}
		n = n*10 + uint64(c-'0')
	}
	for i := range 5 {
		n *= 10
		if i < len(fraction) && isDigit(fraction[i]) {
			n += uint64(fraction[i] - '0')
		}
	}
	return n
}

// feedback writes the gate's overload feedback into the Via of a client that
// asks for it (RFC 7339 section 4): what it had there of oc parameters is
// replaced.
func (p *Proxy) feedback(v *via, gate *overload.Gate) {
	if !wantsFeedback(v, gate) {
		return
	}
	p.edits.replace(p.edits.offset(v.text), p.edits.end(v.text), p.built(appendFeedback(p.build(), v, gate)))
}

// wantsFeedback says whether a client asks for feedback and can do by the loss
// algorithm: it names it, or none (RFC 7339 section 4.2).
func wantsFeedback(v *via, gate *overload.Gate) bool {
	return gate != nil && v.oc != nil && len(v.oc) == 0 && (len(v.ocAlgo) == 0 || bytes.Contains(v.ocAlgo, lossAlgorithm))
}

var lossAlgorithm = []byte("loss")

// appendFeedback appends a Via element with the gate's feedback.
func appendFeedback(b []byte, v *via, gate *overload.Gate) []byte {
	loss, validity, sequence := gate.Feedback()
	at := bytes.IndexByte(v.text, ';')
	b = append(b, v.text[:at]...)
	for at < len(v.text) {
		start := at
		var name []byte
		name, _, at = cutParam(v.text, at+1)
		if !equalFold(name, "oc") && !equalFold(name, "oc-algo") && !equalFold(name, "oc-validity") && !equalFold(name, "oc-seq") {
			b = append(b, v.text[start:at]...)
		}
	}
	b = strconv.AppendInt(append(b, ";oc="...), int64(loss), 10)
	b = append(b, `;oc-algo="loss";oc-validity=`...)
	b = strconv.AppendInt(b, int64(validity/time.Millisecond), 10)
	return append(strconv.AppendUint(append(b, ";oc-seq="...), sequence, 10), ".0"...)
}
