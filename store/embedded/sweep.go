package embedded

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"vitrine/store"
)

const (
	sweepOps = 512         // expiries per write
	sweepMax = time.Second // the longest sleep, so that a jump of the clock is noticed
)

// sweepLoop removes expired records soon after they expire.
func (e *Engine) sweepLoop() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-e.closing:
			return
		case <-e.dueSoon:
		case <-timer.C:
		}
		// No record expires before from. A put after this line lowers nextDue again.
		from := e.nextDue.Swap(math.MaxInt64)
		next, err := e.sweep(from)
		if err != nil {
			e.log.Error("cannot remove expired records", "dir", e.config.Dir, "error", err)
			store.Lower(&e.nextDue, from)
			timer.Reset(sweepMax)
			continue
		}
		store.Lower(&e.nextDue, next)
		wait := time.Duration(min(e.nextDue.Load()-e.config.Now().UnixMilli(), sweepMax.Milliseconds())) * time.Millisecond
		timer.Reset(max(wait, time.Millisecond))
	}
}

// wakeSweeper wakes the sweeper if ms, when a record expires, is earlier than all other expiries.
func (e *Engine) wakeSweeper(ms int64) {
	if store.Lower(&e.nextDue, ms) {
		select {
		case e.dueSoon <- struct{}{}:
		default:
		}
	}
}

// sweep removes all records due since from and returns when the next one is due. It only moves
// forward, because the deleted entries leave tombstones, which are slow to read again.
func (e *Engine) sweep(from int64) (next int64, err error) {
	low := appendExpiryKey(nil, from, "", "")[:9]
	for {
		space, ops, next, err := e.due(&low)
		if err != nil || len(ops) == 0 {
			return next, err
		}
		if err := e.submit(space, ops, true); err != nil {
			if errors.Is(err, store.ErrClosed) {
				return next, nil
			}
			return next, err
		}
		if !slices.ContainsFunc(ops, func(o store.Op) bool { return o.Version != 0 }) {
			return next, fmt.Errorf("%s in %s is in the index of expiries but does not exist", ops[0].Name, space)
		}
	}
}

// due collects due records of one space and moves low past them.
func (e *Engine) due(low *[]byte) (space string, ops []store.Op, next int64, err error) {
	it, err := e.db.NewIter(&pebble.IterOptions{LowerBound: *low, UpperBound: []byte{'x' + 1}})
	if err != nil {
		return "", nil, 0, err
	}
	defer it.Close()
	now := e.config.Now().UnixMilli()
	for ok := it.First(); ok; ok = it.Next() {
		key := it.Key()
		ms := int64(binary.BigEndian.Uint64(key[1:]))
		where, name, _ := bytes.Cut(key[9:], []byte{0})
		if ms > now || len(ops) == sweepOps || (len(ops) > 0 && string(where) != space) {
			return space, ops, ms, nil
		}
		space = string(where)
		ops = append(ops, store.Op{Action: expire, Name: string(name)})
		*low = append(append((*low)[:0], key...), 0)
	}
	return space, ops, math.MaxInt64, it.Error()
}
