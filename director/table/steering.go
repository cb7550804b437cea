package table

import (
	"math/bits"
	"sync/atomic"
	"time"

	"vitrine"
)

// Steering chooses instances for one worker across changes of epoch and of health. It is
// the soft state of a director. It remembers which keys it saw within the last transition
// and where they went, up to the number of keys that NewSteering was given.
//
// A key goes where the table in force says, with one exception. If the key was seen
// within the last transition before the change that moved it, it stays at its old
// instance until a transition after the change. Then it moves, once. The changes of
// several epochs in one transition count as the first of them.
//
// After a restart the memory is empty: see Restore.
//
// Only one goroutine at a time may choose; any may call Counters. Nothing is allocated after
// NewSteering.
type Steering struct {
	epochs  *Epochs
	buckets []bucket
	tick    time.Duration
	counts  counts

	now   time.Duration // of the last message
	since uint64        // now in ticks; a division less for the other messages of a batch
}

// A bucket is one cache line of entries. An entry has, from the high bits:
//
//   - 28 bits of the key's hash
//   - 16 bits of the instance's ID
//   - 8 bits of the generation in which the table last agreed with the ID
//   - 12 bits of the time when the key was last seen, in ticks
//
// 0 is an empty entry, since no ID is 0.
//
// Two keys of a bucket with the same 28 bits count as one. This matters only during a
// transition: one new key in 33 million then goes to another key's instance. A key last
// seen 4096 ticks ago looks fresh, which at worst keeps it where it was for a transition
// longer.
type bucket [8]uint64

const (
	hashShift       = 36
	idShift         = 20
	generationShift = 12
	tickMask        = 1<<12 - 1
	ticks           = 32 // per transition
)

type counts struct {
	kept, moved, gone, unknown, forgotten, none atomic.Uint64
}

// Counters count, since the start, the messages that did not simply go by the table in
// force.
type Counters struct {
	Kept      uint64 // went to their key's instance from before a change
	Moved     uint64 // were the first of their key to go by the new table
	Gone      uint64 // of those, had an old instance that went away before the end of the transition
	Unknown   uint64 // had an unknown key and went by the table before a restart
	Forgotten uint64 // made the memory forget a key that was seen within a transition
	None      uint64 // found no instance
}

// NewSteering returns the Steering of one worker, which remembers limit keys, with 8 bytes each.
func NewSteering(epochs *Epochs, limit int) *Steering {
	return &Steering{epochs: epochs, buckets: make([]bucket, max(1, (limit+7)/8)), tick: max(1, epochs.transition/ticks)}
}

// Counters returns a snapshot of the counts.
func (s *Steering) Counters() Counters {
	c := &s.counts
	return Counters{Kept: c.kept.Load(), Moved: c.moved.Load(), Gone: c.gone.Load(), Unknown: c.unknown.Load(),
		Forgotten: c.forgotten.Load(), None: c.none.Load()}
}

// Add adds other counts.
func (c *Counters) Add(other Counters) {
	c.Kept += other.Kept
	c.Moved += other.Moved
	c.Gone += other.Gone
	c.Unknown += other.Unknown
	c.Forgotten += other.Forgotten
	c.None += other.None
}

// Choose returns the instance that a message with that key goes to. now is the monotonic
// time since any fixed moment. ok is false if the type has no available instance.
func (s *Steering) Choose(now time.Duration, ty Type, key uint64, region Region) (target *Target, ok bool) {
	v := s.epochs.view.Load()
	h := hash(ty, key, 0)
	place, entry := s.find(now, h)
	i, ok := v.Table.Pick(ty, key, region, v.Health)
	if !ok {
		return s.chooseOld(v, now, ty, h, place, entry)
	}
	target = &v.Table.targets[i]
	switch {
	case entry == 0:
		target, generation := s.chooseUnknown(v, now, ty, key, region, target)
		s.put(place, now, h, target.ID, generation)
		return target, true
	case entryID(entry) == target.ID:
	case !s.isBound(v, now, entry):
		s.counts.moved.Add(1)
	default:
		if kept := v.findUsable(ty, entryID(entry)); kept != nil {
			s.counts.kept.Add(1)
			s.put(place, now, h, kept.ID, entryGeneration(entry))
			return kept, true
		}
		s.counts.moved.Add(1)
		s.counts.gone.Add(1)
	}
	s.put(place, now, h, target.ID, v.generation)
	return target, true
}

// Resume returns the instance for a request that carries the ID of its instance: a request
// of a dialog, or a request from an instance. If that instance is away, Resume is like
// Choose. It is also like Choose if the instance drains, unless the instance keeps its
// dialogs to their end (dialogs) or is known to have this key's transaction.
func (s *Steering) Resume(now time.Duration, ty Type, id uint16, key uint64, region Region, dialogs bool) (target *Target, ok bool) {
	v := s.epochs.view.Load()
	target = v.findUsable(ty, id)
	if target == nil {
		return s.Choose(now, ty, key, region)
	}
	h := hash(ty, key, id)
	place, entry := s.find(now, h)
	if target.State == vitrine.Active || dialogs {
		s.put(place, now, h, id, v.generation)
		return target, true
	}
	if entry != 0 && entryID(entry) == id && s.isBound(v, now, entry) && entryGeneration(entry) != v.generation {
		s.counts.kept.Add(1)
		s.put(place, now, h, id, entryGeneration(entry))
		return target, true
	}
	return s.Choose(now, ty, key, region)
}

// Follow returns the instance for a message that belongs to an earlier one with the same ID and key,
// as an ACK belongs to its INVITE. If the instance with that ID drains, the earlier message may have
// gone to another one by its key. So Follow returns the instance that the key had last, if the key is
// remembered. Otherwise Follow is like Resume with dialogs.
func (s *Steering) Follow(now time.Duration, ty Type, id uint16, key uint64, region Region) (target *Target, ok bool) {
	v := s.epochs.view.Load()
	if named := v.findUsable(ty, id); named != nil && named.State != vitrine.Active {
		if _, entry := s.find(now, hash(ty, key, 0)); entry != 0 {
			if latest := v.findUsable(ty, entryID(entry)); latest != nil {
				return latest, true
			}
		}
	}
	return s.Resume(now, ty, id, key, region, true)
}

// chooseOld chooses when the table in force has no instance for new keys. A known key's old
// instance may still be there.
func (s *Steering) chooseOld(v *View, now time.Duration, ty Type, h uint64, place *uint64, entry uint64) (*Target, bool) {
	if entry != 0 && s.isBound(v, now, entry) {
		if kept := v.findUsable(ty, entryID(entry)); kept != nil {
			s.counts.kept.Add(1)
			s.put(place, now, h, kept.ID, entryGeneration(entry))
			return kept, true
		}
	}
	s.counts.none.Add(1)
	return nil, false
}

// chooseUnknown chooses for a key that is not remembered, and returns the generation of the
// choice. target is the choice of the table in force. After a restart, the previous table
// chooses until the transition is over.
func (s *Steering) chooseUnknown(v *View, now time.Duration, ty Type, key uint64, region Region, target *Target) (*Target, uint8) {
	if v.previous == nil || now >= v.until {
		return target, v.generation
	}
	i, ok := v.previous.Pick(ty, key, region, v.previousHealth)
	if !ok || v.previous.targets[i].ID == target.ID {
		return target, v.generation
	}
	was := v.findUsable(ty, v.previous.targets[i].ID)
	if was == nil {
		return target, v.generation
	}
	s.counts.unknown.Add(1)
	return was, 0
}

// findUsable returns the instance with that ID in the table in force; nil if it is missing or
// away.
func (v *View) findUsable(ty Type, id uint16) *Target {
	t := v.Table.ByID(ty, id)
	if t == nil || v.Health.away.has(t.Index) {
		return nil
	}
	return t
}

// isBound reports whether a key still belongs to the instance of its entry, which find
// returned. It does if there was no change since the table agreed with the entry, or if
// the first such change was within a transition.
func (s *Steering) isBound(v *View, now time.Duration, entry uint64) bool {
	g := entryGeneration(entry)
	return g == v.generation || now < v.changed[g+1]+s.epochs.transition
}

// hash returns the hash that an entry is found by. id is 0 for keys that the table
// chooses for.
func hash(ty Type, key uint64, id uint16) uint64 {
	return mix(key, memorySeed+uint64(ty)<<16+uint64(id))
}

// memorySeed differs from the seeds of choices and rooms.
const memorySeed = 1 << 40

func entryID(e uint64) uint16        { return uint16(e >> idShift) }
func entryGeneration(e uint64) uint8 { return uint8(e >> generationShift) }

// find looks up a hash, and returns the place of its entry and the entry. For a key not
// seen within a transition, it returns the place for a new entry, and 0.
func (s *Steering) find(now time.Duration, h uint64) (place *uint64, entry uint64) {
	b := s.bucket(h)
	tick := s.tickOf(now)
	for i, e := range b {
		if e>>hashShift == h&(1<<28-1) && e != 0 {
			if ageOf(e, tick) > ticks {
				return &b[i], 0
			}
			return &b[i], e
		}
	}
	var oldest uint64
	for i, e := range b {
		age := ageOf(e, tick)
		if e == 0 {
			age = tickMask + 1
		}
		if place == nil || age > oldest {
			place, oldest = &b[i], age
		}
	}
	return place, 0
}

func (s *Steering) bucket(h uint64) *bucket {
	n, _ := bits.Mul64(h, uint64(len(s.buckets)))
	return &s.buckets[n]
}

// tickOf returns the time in ticks.
func (s *Steering) tickOf(now time.Duration) uint64 {
	if now != s.now {
		s.now, s.since = now, uint64(now/s.tick)
	}
	return s.since
}

// ageOf returns how many ticks ago an entry's key was seen. If the time has gone back a
// little since, the age is 0.
func ageOf(entry, tick uint64) uint64 {
	age := (tick - entry) & tickMask
	if age > tickMask-ticks {
		return 0
	}
	return age
}

// put remembers a key in the place that find returned.
func (s *Steering) put(place *uint64, now time.Duration, h uint64, id uint16, generation uint8) {
	tick := s.tickOf(now) & tickMask
	fresh := h<<hashShift | uint64(id)<<idShift | uint64(generation)<<generationShift | tick
	if old := *place; old != 0 && (old^fresh)>>hashShift != 0 && ageOf(old, tick) <= ticks {
		s.counts.forgotten.Add(1)
	}
	*place = fresh
}
