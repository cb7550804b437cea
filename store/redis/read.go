package redis

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"vitrine/store"
)

// Get implements store.Engine.
func (e *Engine) Get(ctx context.Context, key store.Key, r *store.Record) error {
	if err := key.Valid(); err != nil {
		return err
	}
	if e.ctx.Err() != nil {
		return store.ErrClosed
	}
	raw, err := e.client.HGet(ctx, e.keys(key.Space)[keyRecords], key.Name).Bytes()
	if errors.Is(err, redis.Nil) {
		return store.ErrNotFound
	}
	if err != nil {
		return e.translate(err)
	}
	r.Key = key
	if err := decode(r, raw); err != nil {
		return err
	}
	if r.Expired(e.config.Now()) {
		return store.ErrNotFound
	}
	return nil
}

const versionDigits = 16

func decode(r *store.Record, raw []byte) (err error) {
	if len(raw) < versionDigits {
		return fmt.Errorf("store: redis: record %s in %s is cut short", r.Key.Name, r.Key.Space)
	}
	if r.Version, err = strconv.ParseUint(string(raw[:versionDigits]), 16, 64); err != nil {
		return fmt.Errorf("store: redis: record %s in %s: version: %w", r.Key.Name, r.Key.Space, err)
	}
	return r.Decode(raw[versionDigits:])
}

// Limits of one page of a scan: names or entries, and bytes of records.
const (
	page      = 128
	pageBytes = 4 << 20
)

// Scan implements store.Engine. It reads page by page; each page is a view of its own instant.
func (e *Engine) Scan(ctx context.Context, q store.Query) iter.Seq2[*store.Record, error] {
	return store.Scanned(ctx, q, e.config.Now, func(ctx context.Context, give func(*store.Record) bool) error {
		if e.ctx.Err() != nil {
			return store.ErrClosed
		}
		s := &scan{Engine: e, query: q, keys: e.keys(q.Space), give: give}
		return s.run(ctx)
	})
}

// A scan is the state of one Scan.
type scan struct {
	*Engine
	query   store.Query
	keys    keys
	give    func(*store.Record) bool
	record  store.Record
	stopped bool
}

func (s *scan) run(ctx context.Context) error {
	q := &s.query
	if q.Match == nil {
		low, high := "["+q.Prefix, "+"
		if end := store.PrefixEnd(q.Prefix); end != "" {
			high = "(" + end
		}
		if q.After >= q.Prefix && q.After != "" {
			low = "(" + q.After
		}
		return s.pages(ctx, keyNames, low, high, func(entry string) (string, bool) { return entry, true })
	}
	base := q.Match.Tag + "\x00"
	for _, r := range q.Match.Ranges(base) {
		err := s.pages(ctx, keyTags, "["+r[0], "("+r[1], func(entry string) (string, bool) {
			_, name, _ := strings.Cut(entry[len(base):], "\x00")
			return name, strings.HasPrefix(name, q.Prefix)
		})
		if err != nil || s.stopped {
			return err
		}
	}
	return nil
}

// pages reads a range of a sorted set, page by page.
func (s *scan) pages(ctx context.Context, key int, low, high string, name func(entry string) (string, bool)) error {
	for {
		entries, err := s.client.ZRangeByLex(ctx, s.keys[key], &redis.ZRangeBy{Min: low, Max: high, Count: page}).Result()
		if err != nil {
			return s.translate(err)
		}
		var names []string
		var from []string
		for _, entry := range entries {
			if n, ok := name(entry); ok {
				names, from = append(names, n), append(from, entry)
			}
		}
		if err := s.fetch(ctx, names, from); err != nil || s.stopped || len(entries) < page {
			return err
		}
		low = "(" + entries[len(entries)-1]
	}
}

// fetch passes on the records of a page that still exist and still match. Each request answers with
// at most pageBytes and one record.
func (s *scan) fetch(ctx context.Context, names, entries []string) error {
	for len(names) > 0 {
		args := make([]any, 0, 1+len(names))
		args = append(args, pageBytes)
		for _, name := range names {
			args = append(args, name)
		}
		values, err := s.scripts.read.Run(ctx, s.client, s.keys[:1], args...).Slice()
		if err != nil {
			return s.translate(err)
		}
		if len(values) == 0 || len(values) > len(names) {
			return fmt.Errorf("store: redis: the script answered %d records for %d names", len(values), len(names))
		}
		for i, v := range values {
			raw, ok := v.(string)
			if !ok {
				continue
			}
			s.record.Key = store.Key{Space: s.query.Space, Name: names[i]}
			if err := decode(&s.record, []byte(raw)); err != nil {
				return err
			}
			if s.query.Match != nil && !s.tagged(entries[i]) {
				continue
			}
			if s.stopped = !s.give(&s.record); s.stopped {
				return nil
			}
		}
		names, entries = names[len(values):], entries[len(values):]
	}
	return nil
}

// tagged reports whether the record still has its index entry. The record was read after the entry.
func (s *scan) tagged(entry string) bool {
	for _, t := range s.record.Tags {
		if t.Name+"\x00"+t.Value+"\x00"+s.record.Key.Name == entry {
			return true
		}
	}
	return false
}

const (
	watchBlock = 250 * time.Millisecond // how long one read of the log blocks
	watchCount = 8                      // changes in one read of the log, at most; each has a record of up to 1 MiB
)

// Watch implements store.Engine.
func (e *Engine) Watch(ctx context.Context, space, prefix string, from uint64) iter.Seq2[*store.Event, error] {
	return func(yield func(*store.Event, error) bool) {
		at, err := e.watchStart(ctx, space, from)
		if err != nil {
			yield(nil, err)
			return
		}
		v := &store.Event{Change: store.Started, Record: store.Record{Key: store.Key{Space: space}, Version: at}}
		if !yield(v, nil) {
			return
		}
		for count := 1; ; {
			messages, err := e.readLog(ctx, space, at, count)
			if err != nil {
				yield(nil, err)
				return
			}
			messages, count = fit(messages, count)
			for i := range messages {
				v, err := event(space, messages[i])
				messages[i] = redis.XMessage{} // v has a copy of the record
				if err == nil && v.Record.Version != at+1 {
					err = &store.Behind{Oldest: v.Record.Version - 1} // revisions have no gaps, so entries were trimmed
				}
				if err != nil {
					yield(nil, err)
					return
				}
				at = v.Record.Version
				if strings.HasPrefix(v.Record.Key.Name, prefix) && !yield(v, nil) {
					return
				}
			}
		}
	}
}

// watchStart returns the revision after which a watch begins.
func (e *Engine) watchStart(ctx context.Context, space string, from uint64) (uint64, error) {
	if err := store.ValidSpace(space); err != nil {
		return 0, err
	}
	if e.ctx.Err() != nil {
		return 0, store.ErrClosed
	}
	k := e.keys(space)
	last, err := e.client.Get(ctx, k[keyRevision]).Uint64()
	if errors.Is(err, redis.Nil) { // a watch needs a revision to go on from, and 0 means from now
		if err = e.client.SetNX(ctx, k[keyRevision], 1, 0).Err(); err == nil {
			last, err = e.client.Get(ctx, k[keyRevision]).Uint64()
		}
	}
	if err != nil {
		return 0, e.translate(err)
	}
	if from == 0 || from == last {
		return last, nil
	}
	first, err := e.client.XRangeN(ctx, k[keyLog], "-", "+", 1).Result()
	if err != nil {
		return 0, e.translate(err)
	}
	oldest := last
	if len(first) > 0 {
		if oldest, err = revision(first[0].ID); err != nil {
			return 0, err
		}
		oldest--
	}
	if from < oldest || from > last {
		return 0, &store.Behind{Oldest: oldest}
	}
	return from, nil
}

// readLog waits for changes after revision at, and returns at most count. It returns none when watchBlock has
// passed.
func (e *Engine) readLog(ctx context.Context, space string, at uint64, count int) ([]redis.XMessage, error) {
	if e.ctx.Err() != nil {
		return nil, store.ErrClosed
	}
	got, err := e.watcher.XRead(ctx, &redis.XReadArgs{
		Streams: []string{e.keys(space)[keyLog], strconv.FormatUint(at, 10) + "-0"}, Count: int64(count), Block: watchBlock,
	}).Result()
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, redis.Nil):
		return nil, nil
	case err != nil:
		return nil, e.translate(err)
	}
	return got[0].Messages, nil
}

// fit drops the changes of a page beyond store.WatchBytes, which are read again after the others. It returns how many
// changes to read next: as many as fitted, or twice the count if all did.
func fit(page []redis.XMessage, count int) (kept []redis.XMessage, next int) {
	bytes := 0
	for i := range page {
		record, _ := page[i].Values["r"].(string)
		if bytes += len(record); bytes > store.WatchBytes {
			n := max(i, 1)
			clear(page[n:])
			return page[:n], n
		}
	}
	return page, min(2*count, watchCount)
}

func revision(id string) (uint64, error) {
	number, _, _ := strings.Cut(id, "-")
	v, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("store: redis: log entry %q: %w", id, err)
	}
	return v, nil
}

func event(space string, m redis.XMessage) (*store.Event, error) {
	field := func(name string) string { s, _ := m.Values[name].(string); return s }
	v := &store.Event{Existed: field("e") == "1"}
	v.Record.Key = store.Key{Space: space, Name: field("n")}
	v.Change = map[string]store.Change{"w": store.Written, "d": store.Deleted, "x": store.Expired}[field("c")]
	if v.Change == 0 {
		return nil, fmt.Errorf("store: redis: log entry %s has an unknown kind of change: was it written by another version?", m.ID)
	}
	if err := decode(&v.Record, []byte(field("r"))); err != nil {
		return nil, err
	}
	var err error
	v.Record.Version, err = revision(m.ID)
	return v, err
}

// Gauges implements store.Measured.
func (e *Engine) Gauges(ctx context.Context) (store.Gauges, error) {
	s := store.Gauges{Bytes: -1, Waiting: -1, Full: e.full.Load()}
	if e.ctx.Err() != nil {
		return s, store.ErrClosed
	}
	records := func(p redis.Pipeliner, k keys) *redis.IntCmd { return p.HLen(ctx, k[keyRecords]) }
	err := e.eachSpace(ctx, records, func(_ string, n int64) error {
		s.Records += n
		return nil
	})
	return s, e.translate(err)
}
