package table

import (
	"encoding/binary"
	"fmt"
	"io"
	"time"
)

// Carry writes what the memory holds of the last transition, for another process
// on the same host and with the same clock to take over. The worker must have
// stopped.
func (s *Steering) Carry(now time.Duration, to io.Writer) error {
	count := uint64(0)
	s.live(now, func(uint64, uint64) { count++ })
	out := binary.BigEndian.AppendUint64(nil, uint64(len(s.buckets)))
	out = binary.BigEndian.AppendUint64(out, count)
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

// TakeOver reads what Carry wrote, before the worker starts. The memory must
// have the same size, or nothing is taken over; the rest is read in any case.
func (s *Steering) TakeOver(from io.Reader) (keys int, err error) {
	var head [16]byte
	if _, err := io.ReadFull(from, head[:]); err != nil {
		return 0, fmt.Errorf("take over the memory of a worker: %w", err)
	}
	same := binary.BigEndian.Uint64(head[:8]) == uint64(len(s.buckets))
	for range binary.BigEndian.Uint64(head[8:]) {
		if _, err := io.ReadFull(from, head[:]); err != nil {
			return keys, fmt.Errorf("take over the memory of a worker: %w", err)
		}
		n, entry := binary.BigEndian.Uint64(head[:8]), binary.BigEndian.Uint64(head[8:])
		if !same || n >= uint64(len(s.buckets)) {
			continue
		}
		for i, e := range s.buckets[n] {
			if e == 0 {
				s.buckets[n][i] = entry
				keys++
				break
			}
		}
	}
	return keys, nil
}

// Carry writes when the changes were that the memories refer to, and until when
// what they do not know goes by the table before a restart.
func (e *Epochs) Carry(to io.Writer) error {
	v := e.View()
	unknown := byte(0)
	if v.previous != nil {
		unknown = 1
	}
	out := binary.BigEndian.AppendUint64([]byte{v.generation, unknown}, uint64(v.until))
	for _, at := range v.changed {
		out = binary.BigEndian.AppendUint64(out, uint64(at))
	}
	if _, err := to.Write(out); err != nil {
		return fmt.Errorf("hand over the times of the epochs: %w", err)
	}
	return nil
}

// TakeOver reads what Carry wrote, before any worker starts. The tables are the
// same that were carried from. As the memories come with it, no key counts as
// unknown, unless it did before.
func (e *Epochs) TakeOver(from io.Reader) error {
	in := make([]byte, 2+8+8*generations)
	if _, err := io.ReadFull(from, in); err != nil {
		return fmt.Errorf("take over the times of the epochs: %w", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	v := *e.view.Load()
	v.generation, v.until = in[0], time.Duration(binary.BigEndian.Uint64(in[2:]))
	if in[1] == 0 {
		v.previous, v.previousHealth = nil, nil
	}
	for i := range v.changed {
		v.changed[i] = time.Duration(binary.BigEndian.Uint64(in[2+8+8*i:]))
	}
	e.view.Store(&v)
	return nil
}
