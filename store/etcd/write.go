package etcd

import (
	"context"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"vitrine/store"
)

const (
	maxTxn   = 128 // operations in one transaction: etcd's default limit (--max-txn-ops)
	attempts = 64  // of one write, if other writers change its records each time
)

// A storedRecord is a record before a write.
type storedRecord struct {
	record   store.Record
	revision int64 // 0: none
}

// Write implements store.Engine. It reads the records and commits only if nobody changed them
// meanwhile.
func (e *Engine) Write(ctx context.Context, space string, ops ...store.Op) error {
	err := e.write(ctx, space, ops)
	store.NoteFull(&e.full, ops, err)
	return err
}

func (e *Engine) write(ctx context.Context, space string, ops []store.Op) error {
	if err := store.ValidOps(space, ops); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx, cancel := e.bound(context.WithoutCancel(ctx))
	defer cancel()
	for range attempts {
		done, err := e.attempt(ctx, space, ops)
		if done || err != nil {
			return err
		}
	}
	return &store.Busy{What: "others change the same records", RetryAfter: 100 * time.Millisecond}
}

// bound returns a context that also ends when the engine closes.
func (e *Engine) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(e.ctx, cancel)
	return ctx, func() { stop(); cancel() }
}

func (e *Engine) attempt(ctx context.Context, space string, ops []store.Op) (done bool, err error) {
	stored, err := e.read(ctx, space, ops)
	if err != nil {
		return false, err
	}
	now := e.Now()
	for i := range ops {
		if stored[i].revision != 0 && stored[i].record.Expired(now) {
			if err := e.expire(ctx, &stored[i]); err != nil {
				return false, err
			}
			return false, nil // read again: another store may have changed the record
		}
	}
	var guards []clientv3.Cmp
	var changes []clientv3.Op
	for i := range ops {
		o, was := &ops[i], &stored[i]
		o.Existed, o.Version = was.revision != 0, uint64(was.revision)
		guards = append(guards, clientv3.Compare(clientv3.ModRevision(e.recordKey(space, o.Name)), "=", was.revision))
		if !o.If.Holds(o.Version) {
			// The read was linearizable and at one revision, so the conflict is real.
			return false, &store.Conflict{Op: i, Version: o.Version}
		}
		changes = e.change(changes, space, o, was)
	}
	if len(changes) > maxTxn {
		return false, &store.TooLarge{What: "ops with their tags", Size: len(changes), Limit: maxTxn}
	}
	answer, err := e.client.Txn(ctx).If(guards...).Then(changes...).Commit()
	for i := range ops { // also after an error, because the write may have been done
		if ops[i].Action == store.Put && !ops[i].Expires.IsZero() {
			store.Lower(&e.swept.put, store.Milliseconds(ops[i].Expires))
		}
	}
	if err != nil {
		return false, e.translate(err)
	}
	if !answer.Succeeded {
		return false, nil
	}
	for i := range ops {
		if ops[i].Action == store.Put || (ops[i].Action == store.Delete && ops[i].Existed) {
			ops[i].Version = uint64(answer.Header.Revision)
		}
	}
	return true, nil
}

// read returns the records of the ops, all at one revision.
func (e *Engine) read(ctx context.Context, space string, ops []store.Op) ([]storedRecord, error) {
	gets, keys := make([]clientv3.Op, len(ops)), make([]store.Key, len(ops))
	for i := range ops {
		keys[i] = store.Key{Space: space, Name: ops[i].Name}
		gets[i] = clientv3.OpGet(e.recordKey(space, ops[i].Name))
	}
	within, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	answer, err := e.client.Txn(within).Then(gets...).Commit()
	if err != nil {
		return nil, e.readError(ctx, err)
	}
	return decodeStored(keys, answer.Responses)
}

// decodeStored returns the records that a transaction read, one for each key.
func decodeStored(keys []store.Key, responses []*pb.ResponseOp) ([]storedRecord, error) {
	stored := make([]storedRecord, len(keys))
	for i, r := range responses {
		for _, kv := range r.GetResponseRange().Kvs {
			stored[i].revision = kv.ModRevision
			stored[i].record.Key = keys[i]
			stored[i].record.Version = uint64(kv.ModRevision)
			if err := stored[i].record.Decode(kv.Value); err != nil {
				return nil, err
			}
		}
	}
	return stored, nil
}

// change appends the etcd operations of one op.
func (e *Engine) change(changes []clientv3.Op, space string, o *store.Op, was *storedRecord) []clientv3.Op {
	if o.Action == store.Check {
		return changes
	}
	key := e.recordKey(space, o.Name)
	var next []string
	if o.Action == store.Put {
		value := store.AppendRecord(make([]byte, 0, store.EncodedSize(o)), o)
		changes = append(changes, clientv3.OpPut(key, string(value)))
		next = e.index(space, o.Name, o.Tags, o.Expires)
	} else if was.revision != 0 {
		changes = append(changes, clientv3.OpDelete(key))
	}
	var before []string
	if was.revision != 0 {
		before = e.index(space, o.Name, was.record.Tags, was.record.Expires)
	}
	slices.Sort(next)
	for _, k := range slices.Compact(next) {
		if !slices.Contains(before, k) {
			changes = append(changes, clientv3.OpPut(k, ""))
		}
	}
	slices.Sort(before)
	for _, k := range slices.Compact(before) {
		if !slices.Contains(next, k) {
			changes = append(changes, clientv3.OpDelete(k))
		}
	}
	return changes
}

// expire deletes an expired record unless it has changed since was.
func (e *Engine) expire(ctx context.Context, was *storedRecord) error {
	key := was.record.Key
	guard := clientv3.Compare(clientv3.ModRevision(e.recordKey(key.Space, key.Name)), "=", was.revision)
	deletions := e.change(nil, key.Space, &store.Op{Action: store.Delete, Name: key.Name}, was)
	_, err := e.commitExpiry(ctx, []clientv3.Cmp{guard}, deletions, []clientv3.Op{clientv3.OpPut(e.markerKey(key.Space), "")})
	return err
}
