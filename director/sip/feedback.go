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

// losses holds the shares that instances ask the director to hold back (RFC 7339,
// algorithm loss). Workers read without a lock.
type losses struct {
	mu sync.Mutex // serializes the adding of instances
	of atomic.Pointer[map[uint32]*loss]
}

// A loss is the share that one instance asks for.
type loss struct {
	mu       sync.Mutex
	sequence uint64 // oc-seq of the present feedback
	until    atomic.Int64
	percent  atomic.Uint32
}

func lossKey(ty table.Type, id uint16) uint32 { return uint32(ty)<<16 | uint32(id) }

// defaultValidity is how long feedback without oc-validity counts (RFC 7339 section 4.3).
const defaultValidity = 500 * time.Millisecond

// maxValidity limits how long feedback counts. A live instance repeats its feedback.
const maxValidity = 10 * time.Second

// record stores the feedback in the director's own Via of a response.
func (l *losses) record(now time.Duration, ty table.Type, id uint16, v *sip.ViaHop) {
	percent, ok := sip.ParseNumber(v.OC)
	if !ok || percent > 100 {
		return
	}
	validity := defaultValidity
	if n, ok := sip.ParseNumber(v.OCValidity); ok && n <= 1<<24 {
		validity = min(time.Duration(n)*time.Millisecond, maxValidity)
	}
	asked := l.find(ty, id)
	if asked == nil {
		if percent == 0 {
			return
		}
		asked = l.add(ty, id)
	}
	asked.mu.Lock()
	defer asked.mu.Unlock()
	// A response that a later one overtook has a lower number and is ignored. Much later, a lower number
	// comes from another process: from the instance after a restart, or from another one with its ID.
	recent := int64(now) < asked.until.Load()+int64(maxValidity)
	if sequence := v.OCSequence(); sequence >= asked.sequence || !recent {
		asked.sequence = sequence
		asked.percent.Store(uint32(percent))
		asked.until.Store(int64(now + validity))
	}
}

// refuses reports whether to refuse a new transaction for an instance. It refuses the share
// that the instance asks for. The result is always the same for one transaction.
func (l *losses) refuses(now time.Duration, target *table.Target, transaction uint64) bool {
	asked := l.find(target.Type, target.ID)
	return asked != nil && int64(now) < asked.until.Load() && transaction%100 < uint64(asked.percent.Load())
}

func (l *losses) find(ty table.Type, id uint16) *loss {
	if m := l.of.Load(); m != nil {
		return (*m)[lossKey(ty, id)]
	}
	return nil
}

// add adds an instance if it is missing, and returns its entry.
func (l *losses) add(ty table.Type, id uint16) *loss {
	l.mu.Lock()
	defer l.mu.Unlock()
	if asked := l.find(ty, id); asked != nil {
		return asked
	}
	next := map[uint32]*loss{}
	if m := l.of.Load(); m != nil {
		next = maps.Clone(*m)
	}
	asked := new(loss)
	next[lossKey(ty, id)] = asked
	l.of.Store(&next)
	return asked
}

// feedback writes the director's overload feedback into the Via of a client that asks for it
// (RFC 7339 section 4). It replaces the oc parameters there.
func (p *Proxy) feedback(v *sip.ViaHop) {
	if !p.rules.tells(v) {
		return
	}
	p.edits.replace(p.edits.offset(v.Text), p.edits.end(v.Text), p.built(appendFeedback(p.build(), v, p.rules.overload)))
}

// tells reports whether there is feedback for a client. The client must ask for it and support
// the loss algorithm: it names loss, or no algorithm (RFC 7339 section 4.2).
func (r *Rules) tells(v *sip.ViaHop) bool {
	return r.overload != nil && v.OC != nil && len(v.OC) == 0 && v.AllowsOC("loss")
}

// appendFeedback appends a Via element with the feedback.
func appendFeedback(b []byte, v *sip.ViaHop, f *overload.Feedback) []byte {
	loss, validity, sequence := f.Values()
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
