package etcd

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"vitrine/store"
)

// sweepEntries bounds the entries that a sweep handles in one transaction. A record without
// tags takes two operations of the transaction, and the marker of its space takes one.
const sweepEntries = (maxTxn - 1) / 2

// sweepListed bounds the entries of one list. For each list, etcd 3.4 walks over all due
// entries, even beyond the limit of the list.
const sweepListed = 4096

// A sweep begins sweepMargin before the end of the last one, because etcd walks over deleted keys
// until it compacts them. The margin is for records of other stores, whose clocks may differ. A sweep
// begins earlier if this store has written a record that expires earlier. Once per sweepWhole, a sweep
// begins at the first entry.
const (
	sweepMargin = 10 * time.Second
	sweepWhole  = time.Minute
)

// swept is the progress of the sweeps.
type swept struct {
	to    time.Time    // expiries up to here are swept, by the clock that expires records; only for the sweeping goroutine
	whole time.Time    // end of the last sweep of all entries, by the host's clock; only for the sweeping goroutine
	put   atomic.Int64 // Unix milliseconds; no record that this store wrote since the last sweep began expires earlier
}

// An expiry is an entry of the index of expiries.
type expiry struct {
	key    string
	ms     int64 // Unix milliseconds
	record store.Key
}

// sweep deletes expired records. Several stores may sweep at once; the first one deletes the
// record.
func (e *Engine) sweep() error {
	s, now := &e.swept, e.Now()
	from := min(s.put.Swap(math.MaxInt64), store.Milliseconds(s.to.Add(-sweepMargin)))
	whole := time.Since(s.whole) >= sweepWhole || now.Before(s.to)
	if whole {
		from = 0
	}
	if err := e.sweepFrom(time.UnixMilli(max(from, 1)), now); err != nil {
		s.whole = time.Time{} // so that the next sweep looks at all entries
		return err
	}
	if whole {
		s.whole = time.Now()
	}
	s.to = now
	return nil
}

// sweepFrom deletes the records that expire between two times.
func (e *Engine) sweepFrom(from, to time.Time) error {
	base, listed, limit := e.config.Prefix+"x/", int64(sweepListed), sweepEntries
	low, end := e.expiryKey(from, "", "")[:len(base)+16], e.expiryKey(time.UnixMilli(to.UnixMilli()+1), "", "")[:len(base)+16]
	for low < end {
		due, err := e.rangeOf(e.ctx, &pb.RangeRequest{Key: []byte(low), RangeEnd: []byte(end), KeysOnly: true}, &listed)
		if err != nil || len(due.Kvs) == 0 {
			return err
		}
		entries, err := expiries(base, due.Kvs)
		if err != nil {
			return err
		}
		for len(entries) > 0 {
			some := entries[:min(limit, len(entries))]
			stored, err := e.readDue(some)
			if status.Code(err) == codes.ResourceExhausted && limit > 1 { // the answer is too large, or etcd has too many requests
				limit /= 2
				continue
			}
			if err != nil {
				return e.translate(rpctypes.Error(err))
			}
			done, err := e.expireAll(some, stored)
			if err != nil {
				return err
			}
			if done == 0 { // the entries have changed
				break
			}
			low = some[done-1].key + "\x00"
			entries = entries[done:]
			limit = min(2*limit, sweepEntries)
		}
	}
	return nil
}

// expiries parses entries.
func expiries(base string, entries []*mvccpb.KeyValue) ([]expiry, error) {
	var all []expiry
	for _, kv := range entries {
		x := expiry{key: string(kv.Key)}
		at, record := "", ""
		if rest := x.key[len(base):]; len(rest) >= 16 {
			at, record = rest[:16], rest[16:]
		}
		var err error
		if x.ms, err = strconv.ParseInt(at, 16, 64); err != nil {
			return nil, fmt.Errorf("store: etcd: key %q: %w", x.key, err)
		}
		x.record.Space, x.record.Name, _ = strings.Cut(record, "\x00")
		all = append(all, x)
	}
	return all, nil
}

// readDue reads the records of entries, all at one revision. The answer is at most pageBytes, or one
// record.
func (e *Engine) readDue(entries []expiry) ([]storedRecord, error) {
	var get pb.TxnRequest
	var keys []store.Key
	for _, x := range entries {
		keys = append(keys, x.record)
		r := &pb.RangeRequest{Key: []byte(e.recordKey(x.record.Space, x.record.Name))}
		get.Success = append(get.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: r}})
	}
	answer, err := e.reader.Txn(e.ctx, &get, grpc.MaxCallRecvMsgSize(pageBytes))
	if err != nil {
		return nil, err
	}
	return decodeStored(keys, answer.Responses)
}

// expireAll deletes expired records in one transaction, as many as fit, and returns how many entries
// it handled. If one of the records has changed meanwhile, it handles none, and the caller lists the
// entries again.
func (e *Engine) expireAll(entries []expiry, stored []storedRecord) (handled int, err error) {
	var changes, marks []clientv3.Op
	var guards []clientv3.Cmp
	marked := map[string]bool{}
	for i, x := range entries {
		was, space := &stored[i], x.record.Space
		next := []clientv3.Op{clientv3.OpDelete(x.key)} // no other change if another store has deleted the record already
		var mark []clientv3.Op
		if was.revision != 0 && store.Milliseconds(was.record.Expires) == x.ms {
			next = e.change(nil, space, &store.Op{Action: store.Delete, Name: x.record.Name}, was)
			if !marked[space] {
				mark = []clientv3.Op{clientv3.OpPut(e.markerKey(space), "")}
			}
		}
		if len(changes)+len(marks)+len(next)+len(mark) > maxTxn {
			break
		}
		handled++
		marked[space] = marked[space] || mark != nil
		changes, marks = append(changes, next...), append(marks, mark...)
		guards = append(guards, clientv3.Compare(clientv3.ModRevision(e.recordKey(space, x.record.Name)), "=", was.revision))
	}
	done, err := e.commitExpiry(e.ctx, guards, changes, marks)
	if err != nil || !done {
		return 0, err
	}
	return handled, nil
}

// commitExpiry deletes expired records and puts the markers of their spaces, unless the records have changed.
// A full etcd takes deletions but no markers. Without these, watchers see the records as deleted.
func (e *Engine) commitExpiry(ctx context.Context, guards []clientv3.Cmp, deletions, marks []clientv3.Op) (done bool, err error) {
	answer, err := e.client.Txn(ctx).If(guards...).Then(slices.Concat(deletions, marks)...).Commit()
	if errors.Is(err, rpctypes.ErrNoSpace) {
		answer, err = e.client.Txn(ctx).If(guards...).Then(deletions...).Commit()
	}
	if err != nil {
		return false, e.translate(err)
	}
	return answer.Succeeded, nil
}
