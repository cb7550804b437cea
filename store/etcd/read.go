package etcd

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"vitrine/store"
)

// answerTime is how long a read waits for etcd. Without it, etcd's client repeats a read for minutes
// while the members have no leader.
const answerTime = 5 * time.Second

// readError translates the error of a read. A read changes nothing, so its client may repeat it when
// etcd did not answer. ctx is the caller's context, without answerTime.
func (e *Engine) readError(ctx context.Context, err error) error {
	var known rpctypes.EtcdError
	unavailable := status.Code(err) == codes.Unavailable || errors.As(err, &known) && known.Code() == codes.Unavailable
	// A member knows the deadline too. If its error comes first, it has no code.
	late := errors.Is(err, context.DeadlineExceeded) ||
		status.Code(err) == codes.Unknown && strings.HasPrefix(status.Convert(err).Message(), context.DeadlineExceeded.Error())
	if (unavailable || late) && ctx.Err() == nil && e.ctx.Err() == nil {
		return &store.Busy{What: "etcd does not answer", RetryAfter: time.Second}
	}
	return e.translate(err)
}

// Get implements store.Engine.
func (e *Engine) Get(ctx context.Context, key store.Key, r *store.Record) error {
	if err := key.Valid(); err != nil {
		return err
	}
	if e.ctx.Err() != nil {
		return store.ErrClosed
	}
	within, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	answer, err := e.client.Get(within, e.recordKey(key.Space, key.Name))
	if err != nil {
		return e.readError(ctx, err)
	}
	if len(answer.Kvs) == 0 {
		return store.ErrNotFound
	}
	r.Key, r.Version = key, uint64(answer.Kvs[0].ModRevision)
	if err := r.Decode(answer.Kvs[0].Value); err != nil {
		return err
	}
	if r.Expired(e.Now()) {
		return store.ErrNotFound
	}
	return nil
}

// Limits of one page of a scan: bytes, and records or entries. The next page has twice as many while
// they are small. The first page has few, because etcd makes the whole answer before the client can
// refuse it.
const (
	pageBytes = 4 << 20
	firstPage = 128
	mostPage  = 4096
)

// Scan implements store.Engine. It reads page by page; each page is a view of its own instant.
func (e *Engine) Scan(ctx context.Context, q store.Query) iter.Seq2[*store.Record, error] {
	return store.Scanned(ctx, q, e.Now, func(ctx context.Context, give func(*store.Record) bool) error {
		if e.ctx.Err() != nil {
			return store.ErrClosed
		}
		s := &scan{Engine: e, query: q, give: give}
		return s.run(ctx)
	})
}

// A scan is the state of one Scan.
type scan struct {
	*Engine
	query   store.Query
	give    func(*store.Record) bool
	record  store.Record
	stopped bool
}

func (s *scan) run(ctx context.Context) error {
	q := &s.query
	if q.Match == nil {
		base := s.recordKey(q.Space, "")
		low, high := base+q.Prefix, clientv3.GetPrefixRangeEnd(base+q.Prefix)
		if after := base + q.After + "\x00"; q.After != "" && after > low {
			low = after
		}
		return s.pages(ctx, low, high, func(_ context.Context, key string, value []byte, revision int64) error {
			return s.hand(key[len(base):], value, revision)
		})
	}
	base := s.tagBase(q.Space, q.Match.Tag)
	for _, r := range q.Match.Ranges(base) {
		err := s.pages(ctx, r[0], r[1], func(ctx context.Context, key string, _ []byte, _ int64) error {
			return s.follow(ctx, key, len(base))
		})
		if err != nil || s.stopped {
			return err
		}
	}
	return nil
}

func (s *scan) pages(ctx context.Context, low, high string, do func(ctx context.Context, key string, value []byte, revision int64) error) error {
	limit, end, next := int64(firstPage), high, ahead{}
	for low < high {
		answer, err := s.rangeOf(ctx, &pb.RangeRequest{Key: []byte(low), RangeEnd: []byte(end)}, &limit)
		if err != nil {
			return err
		}
		bytes := 0
		for _, kv := range answer.Kvs {
			if err := do(ctx, string(kv.Key), kv.Value, kv.ModRevision); err != nil || s.stopped {
				return err
			}
			bytes += len(kv.Key) + len(kv.Value)
		}
		bounded := end != high || answer.Count > walkKeys
		switch n := len(answer.Kvs); {
		case answer.More:
			last := string(answer.Kvs[n-1].Key)
			next.saw(string(answer.Kvs[0].Key), last)
			low = last + "\x00"
		case end == high:
			return nil
		default:
			low = end
			if n < int(limit)/2 {
				next.few()
			}
		}
		if bytes <= pageBytes/4 {
			limit = min(2*limit, mostPage)
		}
		if bounded {
			end = next.bound(low, high)
		}
	}
	return nil
}

// rangeOf answers a range with at most limit keys. If the answer is over pageBytes, it halves limit
// and asks again: the client library refuses a larger answer before it reads it. One record always
// fits.
func (e *Engine) rangeOf(ctx context.Context, r *pb.RangeRequest, limit *int64) (*pb.RangeResponse, error) {
	for {
		r.Limit = *limit
		answer, err := e.reader.Range(ctx, r, grpc.MaxCallRecvMsgSize(pageBytes))
		if err == nil {
			return answer, nil
		}
		known := rpctypes.Error(err)
		if status.Code(err) != codes.ResourceExhausted || errors.Is(known, rpctypes.ErrTooManyRequests) || *limit == 1 {
			return nil, e.readError(ctx, known)
		}
		*limit /= 2
	}
}

// follow passes on the record of an index entry if the record still has the tag.
func (s *scan) follow(ctx context.Context, key string, base int) error {
	_, name, _ := strings.Cut(key[base:], "\x00")
	if !strings.HasPrefix(name, s.query.Prefix) {
		return nil
	}
	answer, err := s.client.Get(ctx, s.recordKey(s.query.Space, name))
	if err != nil {
		return s.readError(ctx, err)
	}
	for _, kv := range answer.Kvs {
		var r store.Record
		if err := r.Decode(kv.Value); err != nil {
			return err
		}
		for _, k := range s.index(s.query.Space, name, r.Tags, r.Expires) {
			if k == key {
				return s.hand(name, kv.Value, kv.ModRevision)
			}
		}
	}
	return nil
}

func (s *scan) hand(name string, value []byte, revision int64) error {
	s.record.Key = store.Key{Space: s.query.Space, Name: name}
	s.record.Version = uint64(revision)
	if err := s.record.Decode(value); err != nil {
		return err
	}
	s.stopped = !s.give(&s.record)
	return nil
}

// Gauges implements store.Measured. It counts the records of all spaces under this prefix.
func (e *Engine) Gauges(ctx context.Context) (store.Gauges, error) {
	s := store.Gauges{Bytes: -1, Waiting: -1, Full: e.full.Load()}
	if e.ctx.Err() != nil {
		return s, store.ErrClosed
	}
	answer, err := e.client.Get(ctx, e.config.Prefix+"s/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return s, e.translate(err)
	}
	s.Records = answer.Count
	if status, err := e.client.Status(ctx, e.config.Endpoints[0]); err == nil {
		s.Bytes = status.DbSize
	}
	return s, nil
}

// isRecord reports whether key is the key of a record in space, and returns the record's name.
func (e *Engine) isRecord(space string, key []byte) (name string, ok bool) {
	rest, ok := bytes.CutPrefix(key, []byte(e.recordKey(space, "")))
	return string(rest), ok
}
