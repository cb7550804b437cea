package table

import (
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"time"
)

// headSize is the size of a memory's head: its buckets, tick, time and number of entries.
const headSize = 4 * 8

// Carry writes the memory's entries of the last transition, for another process on the
// same host and with the same clock to take over. The worker must have stopped.
func (s *Steering) Carry(now time.Duration, to io.Writer) error {
	count := uint64(0)
	s.live(now, func(uint64, uint64) { count++ })
	var out []byte
	for _, v := range [headSize / 8]uint64{uint64(len(s.buckets)), uint64(s.tick), uint64(now / s.tick), count} {
		out = binary.BigEndian.AppendUint64(out, v)
	}
	if _, err := to.Write(out); err != nil {
		return fmt.Errorf("hand over the memory of a worker: %w", err)
	}
	var err error
	out = out[:0]
	s.live(now, func(bucket, entry uint64) {
		out = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(out, bucket), entry)
		if len(out) >= 1<<16 && err == nil {
			_, err = to.Write(out)
			out = out[:0]
		}
	})
	if err == nil {
		_, err = to.Write(out)
	}
	if err != nil {
		return fmt.Errorf("hand over the memory of a worker: %w", err)
	}
	return nil
}

func (s *Steering) live(now time.Duration, each func(bucket, entry uint64)) {
	tick := uint64(now / s.tick)
	for i := range s.buckets {
		for _, e := range s.buckets[i] {
			if e != 0 && ageOf(e, tick) <= ticks {
				each(uint64(i), e)
			}
		}
	}
}

// TakeOver reads what Carry wrote, before the worker starts, and adds it to this memory.
// The two memories may differ in size and transition. keys is how many keys were taken
// over.
func (s *Steering) TakeOver(from io.Reader) (keys int, err error) {
	var head [headSize]byte
	if _, err := io.ReadFull(from, head[:]); err != nil {
		return 0, fmt.Errorf("take over the memory of a worker: %w", err)
	}
	var was [headSize / 8]uint64
	for i := range was {
		was[i] = binary.BigEndian.Uint64(head[8*i:])
	}
	buckets, tick, now, count := was[0], was[1], was[2], was[3]
	for range count {
		if _, err := io.ReadFull(from, head[:16]); err != nil {
			return keys, fmt.Errorf("take over the memory of a worker: %w", err)
		}
		n, entry := binary.BigEndian.Uint64(head[:8]), binary.BigEndian.Uint64(head[8:])
		if n >= buckets || tick == 0 {
			return keys, fmt.Errorf("take over the memory of a worker: bucket %d of %d, tick %d", n, buckets, tick)
		}
		seen := min((now-ageOf(entry, now)+1)*tick-1, now*tick) // the end of its tick, or the current tick
		if s.add(n, buckets, entry&^tickMask|seen/uint64(s.tick)&tickMask) {
			keys++
		}
	}
	return keys, nil
}

// add puts an entry of bucket n of buckets into this memory if there is room. The entry has
// only the low bits of its key's hash. So if this memory has more buckets, add puts the
// entry into each bucket that the key may belong to.
func (s *Steering) add(n, buckets, entry uint64) (added bool) {
	own := uint64(len(s.buckets))
	for at := n * own / buckets; at <= ((n+1)*own-1)/buckets; at++ {
		b := &s.buckets[at]
		if i := slices.Index(b[:], 0); i >= 0 {
			b[i], added = entry, true
		}
	}
	return added
}

// Carry writes the times of the changes that the memories refer to, and the time until
// which unknown keys go by the table before a restart.
func (e *Epochs) Carry(to io.Writer) error {
	v := e.View()
	unknown := byte(0)
	if v.previous != nil {
		unknown = 1
	}
	out := binary.BigEndian.AppendUint64([]byte{v.generation, unknown}, uint64(v.until))
	out = binary.BigEndian.AppendUint64(out, v.Table.Epoch())
	for _, at := range v.changed {
		out = binary.BigEndian.AppendUint64(out, uint64(at))
	}
	if _, err := to.Write(out); err != nil {
		return fmt.Errorf("hand over the times of the epochs: %w", err)
	}
	return nil
}

// TakeOver reads what Carry wrote, before any worker starts or Publish is called. The table is the writer's, or
// one of another epoch, which counts as a change. The memories are taken over too, so a key
// is unknown only if it was unknown to the writer. condition should find the instances away that the
// writer found away, because the writer's choices are in the memories.
func (e *Epochs) TakeOver(from io.Reader, condition func(*Target) Condition) error {
	var in [2 + 8 + 8 + 8*generations]byte
	if _, err := io.ReadFull(from, in[:]); err != nil {
		return fmt.Errorf("take over the times of the epochs: %w", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	v := *e.view.Load()
	v.Health = v.Table.Health(condition)
	began := v.changed[v.generation]
	v.generation, v.until = in[0], time.Duration(binary.BigEndian.Uint64(in[2:]))
	if in[1] == 0 {
		v.previous, v.previousHealth = nil, nil
	} else if v.previous != nil {
		v.previousHealth = v.previous.Health(condition)
	}
	for i := range v.changed {
		v.changed[i] = time.Duration(binary.BigEndian.Uint64(in[2+8+8+8*i:]))
	}
	if binary.BigEndian.Uint64(in[2+8:]) != v.Table.Epoch() {
		v.generation++
		v.changed[v.generation] = began
	}
	e.view.Store(&v)
	return nil
}
