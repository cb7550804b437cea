package overload

import (
	"hash/maphash"
	"math/bits"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"vitrine/internal/source"
)

// A QuotaConfig sets the token buckets of a Quota.
type QuotaConfig struct {
	Rate    float64 // tokens per second of one source
	Burst   float64 // tokens of a full bucket
	Sources int     // buckets to remember, of some 26 bytes each
}

// A Quota has a token bucket for each source: an IPv4 address, or a /64 of IPv6. Any number of
// workers may use it concurrently. Its memory is allocated once.
//
// A source that the Quota does not remember has a full bucket. If there is no room for a
// new source, the Quota forgets the fullest bucket of a set. So sources that send little
// make room for each other, and a source far over its limit stays. A sender that forges
// many addresses gets a bucket for each of them, but no other source gets less because of
// that.
type Quota struct {
	interval  int64        // nanoseconds between two tokens
	tolerance int64        // how far the theoretical arrival time of GCRA may lie ahead
	seed      maphash.Seed // nobody can choose addresses for one set without it
	sets      []quotaSet
	forgotten atomic.Uint64
}

const quotaWays = 5

// A quotaSet fills two cache lines.
type quotaSet struct {
	sync.Mutex
	buckets [quotaWays]bucket
}

// A bucket is the token bucket of one source. The times are GCRA's theoretical arrival
// times.
type bucket struct {
	tag      uint64 // hash of the source; 0: unused
	admitted int64
	refused  int64 // for refusals that are answered
}

// A Verdict says what to do with a request.
type Verdict uint8

// The verdicts.
const (
	Admitted Verdict = iota
	Refused          // over the limit; to be answered
	Dropped          // over the limit, and the source had as many answers as the limit allows
)

// NewQuota returns a Quota with full buckets.
func NewQuota(c QuotaConfig) *Quota {
	const most = 1 << 61 // nanoseconds, so that no sum of times overflows
	interval := min(max(1, float64(time.Second)/c.Rate), most)
	return &Quota{
		seed: maphash.MakeSeed(), interval: int64(interval), tolerance: int64(min(interval*max(c.Burst-1, 0), most)),
		sets: make([]quotaSet, max(1, (c.Sources+quotaWays-1)/quotaWays)),
	}
}

// Take takes a token of the source for one request. Without a token, the request is
// refused, but at most as often as the bucket admits requests; beyond that it is dropped.
// So a forged address cannot get more refusals than requests admitted. A nil Quota admits
// all.
func (q *Quota) Take(now time.Duration, from netip.Addr) Verdict {
	if q == nil {
		return Admitted
	}
	tag := maphash.Comparable(q.seed, source.Of(from).As16()) | 1 // 0 is an unused bucket
	n, _ := bits.Mul64(tag, uint64(len(q.sets)))
	s := &q.sets[n]
	s.Lock()
	defer s.Unlock()
	b := q.find(s, int64(now), tag)
	switch {
	case q.take(&b.admitted, int64(now)):
		return Admitted
	case q.take(&b.refused, int64(now)):
		return Refused
	}
	return Dropped
}

// find returns the bucket of a source. A new source replaces the fullest bucket of the set.
func (q *Quota) find(s *quotaSet, now int64, tag uint64) *bucket {
	fullest := &s.buckets[0]
	for i := range s.buckets {
		b := &s.buckets[i]
		if b.tag == tag {
			return b
		}
		if b.tag == 0 || fullest.tag != 0 && b.admitted < fullest.admitted {
			fullest = b
		}
	}
	if fullest.tag != 0 && fullest.admitted > now {
		q.forgotten.Add(1)
	}
	*fullest = bucket{tag: tag}
	return fullest
}

// take takes one token.
func (q *Quota) take(at *int64, now int64) bool {
	from := max(*at, now)
	if from-now > q.tolerance {
		return false
	}
	*at = from + q.interval
	return true
}

// Forgotten returns how many buckets that were not full made room for other sources.
func (q *Quota) Forgotten() uint64 { return q.forgotten.Load() }
