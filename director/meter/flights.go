package meter

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// flights is a table of the transactions in flight. It also keeps ended transactions while
// there is room, so that a retransmission after a lost answer does not begin a transaction.
// All workers change it without a lock. The hashes given to First are kept as ended
// transactions.
//
// The table consists of cache lines. An entry has, from the high bits:
//
//   - 1 bit that is set when a response came
//   - 21 bits of the transaction's hash
//   - 14 bits of the slot, 0 after the end
//   - 28 bits of the begin, in units of 8 microseconds, which wrap after 36 minutes
//
// 0 is an empty entry.
//
// Two transactions of a line with the same 21 bits count as one: four in a million. In a
// full line, the oldest ended transaction makes room. If none has ended, the oldest is
// forgotten and counted.
type flights struct {
	lines    []line
	lifetime time.Duration
}

type line [8]atomic.Uint64

const (
	slotBits    = 14
	timeBits    = 28
	timeUnit    = 8 * time.Microsecond
	timeMask    = 1<<timeBits - 1
	slotMask    = (1<<slotBits - 1) << timeBits
	flightShift = slotBits + timeBits
	heardBit    = 1 << 63
	tagMask     = heardBit>>flightShift - 1
)

// MaxLifetime is the longest lifetime of a transaction. The begin of an entry wraps after 36 minutes.
// An entry older than half of that counts as one from the future and never expires.
const MaxLifetime = 15 * time.Minute

func newFlights(limit int, lifetime time.Duration) *flights {
	return &flights{lines: make([]line, max(1, (limit+7)/8)), lifetime: lifetime}
}

func (f *flights) line(transaction uint64) *line {
	// The low bits are in the entry, so the line depends on the high bits.
	n, _ := bits.Mul64(transaction, uint64(len(f.lines)))
	return &f.lines[n]
}

// begin enters a transaction. begun is false if the table has or had the transaction
// already. displaced is the entry that made room. Its slot is 0 if that entry was empty or
// its transaction had ended.
func (f *flights) begin(now time.Duration, transaction uint64, slot uint16) (begun bool, displaced uint64) {
	l := f.line(transaction)
	at := uint64(now/timeUnit) & timeMask
	fresh := transaction&tagMask<<flightShift | uint64(slot)<<timeBits | at
	for {
		var place *atomic.Uint64
		var was, oldest uint64
		for i := range l {
			e := l[i].Load()
			age := (at - e) & timeMask
			switch {
			case e == 0:
				age = 2 * (timeMask + 1)
			case tagOf(e) == tagOf(fresh):
				return false, 0
			case slotOf(e) == 0:
				age += timeMask + 1
			}
			if place == nil || age > oldest {
				place, was, oldest = &l[i], e, age
			}
		}
		if place.CompareAndSwap(was, fresh) {
			return true, was
		}
	}
}

// end marks a transaction as ended. heard reports whether noteResponse noted a response.
func (f *flights) end(now time.Duration, transaction uint64) (slot uint16, latency time.Duration, heard, ok bool) {
	l := f.line(transaction)
	for i := range l {
		// Another worker may note a response meanwhile, and then the entry still has a slot.
		for e := l[i].Load(); slotOf(e) != 0 && tagOf(e) == transaction&tagMask; e = l[i].Load() {
			if l[i].CompareAndSwap(e, e&^slotMask) {
				return slotOf(e), sinceOf(e, now), e&heardBit != 0, true
			}
		}
	}
	return 0, 0, false, false
}

// noteResponse notes a response to a transaction in flight. first is false if one came before.
func (f *flights) noteResponse(now time.Duration, transaction uint64) (slot uint16, latency time.Duration, first bool) {
	l := f.line(transaction)
	for i := range l {
		e := l[i].Load()
		if slotOf(e) == 0 || tagOf(e) != transaction&tagMask {
			continue
		}
		if e&heardBit != 0 || !l[i].CompareAndSwap(e, e|heardBit) {
			return 0, 0, false
		}
		return slotOf(e), sinceOf(e, now), true
	}
	return 0, 0, false
}

// sinceOf returns how long ago an entry began.
func sinceOf(e uint64, now time.Duration) time.Duration {
	age := (uint64(now/timeUnit) - e) & timeMask
	if age > timeMask/2 {
		age = 0 // the workers' batches were read at slightly different times
	}
	return time.Duration(age) * timeUnit
}

// expire removes the entries that are older than a lifetime, and calls each for the
// transactions in flight among them. heard reports whether a response came.
func (f *flights) expire(now time.Duration, each func(slot uint16, heard bool)) {
	at := uint64(now/timeUnit) & timeMask
	for n := range f.lines {
		for i := range f.lines[n] {
			e := f.lines[n][i].Load()
			age := (at - e) & timeMask
			if e == 0 || age > timeMask/2 || age <= uint64(f.lifetime/timeUnit) {
				continue
			}
			if f.lines[n][i].CompareAndSwap(e, 0) && slotOf(e) != 0 {
				each(slotOf(e), e&heardBit != 0)
			}
		}
	}
}

func tagOf(e uint64) uint64 { return e &^ heardBit >> flightShift }

func slotOf(e uint64) uint16 { return uint16(e>>timeBits) & (maxSlots - 1) }
