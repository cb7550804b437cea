package redis

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"vitrine/store"
)

//go:embed common.lua
var commonSource string

//go:embed write.lua
var writeSource string

//go:embed sweep.lua
var sweepSource string

//go:embed read.lua
var readSource string

// Write implements store.Engine.
func (e *Engine) Write(ctx context.Context, space string, ops ...store.Op) error {
	err := e.write(ctx, space, ops)
	store.NoteFull(&e.full, ops, err)
	return err
}

func (e *Engine) write(ctx context.Context, space string, ops []store.Op) error {
	if err := store.ValidOps(space, ops); err != nil {
		return err
	}
	if e.ctx.Err() != nil {
		return store.ErrClosed
	}
	args := make([]any, 0, 3+8*len(ops))
	args = append(args, e.config.Now().UnixMilli(), e.config.History, space)
	for i := range ops {
		args = appendOp(args, &ops[i])
	}
	got, err := e.scripts.write.Run(context.WithoutCancel(ctx), e.client, e.keys(space), args...).Int64Slice()
	if err != nil {
		if _, cluster := e.client.(*redis.ClusterClient); cluster && refused(err) {
			return fmt.Errorf("store: redis: %w", err) // the library retries on a cluster, and an earlier attempt may have succeeded
		}
		return e.translate(err)
	}
	if len(got) == 3 && got[0] < 0 {
		return &store.Conflict{Op: int(got[1]), Version: uint64(got[2])}
	}
	if len(got) != 2*len(ops) {
		return fmt.Errorf("store: redis: the script answered %d numbers for %d ops", len(got), len(ops))
	}
	for i := range ops {
		ops[i].Version, ops[i].Existed = uint64(got[2*i]), got[2*i+1] == 1
	}
	return nil
}

// appendOp appends an op's arguments for write.lua: action, name, condition, version, record,
// expiry, count of tags, tags.
func appendOp(args []any, o *store.Op) []any {
	condition := ""
	if o.If.Absent {
		condition += "a"
	}
	if o.If.Present {
		condition += "p"
	}
	version := ""
	if o.If.Version != 0 {
		version = fmt.Sprintf("%016x", o.If.Version)
	}
	action := map[store.Action]string{store.Put: "p", store.Delete: "d", store.Check: "c"}[o.Action]
	args = append(args, action, o.Name, condition, version)
	if o.Action != store.Put {
		return append(args, "", 0, 0)
	}
	args = append(args, store.AppendRecord(make([]byte, 0, store.EncodedSize(o)), o), store.Milliseconds(o.Expires), len(o.Tags))
	for _, t := range o.Tags {
		args = append(args, t.Name+"\x00"+t.Value+"\x00"+o.Name)
	}
	return args
}

const sweepRecords = 256 // per script, so that a sweep does not block other requests for long

// sweep removes expired records of all spaces.
func (e *Engine) sweep() error {
	now := func() string { return strconv.FormatInt(e.config.Now().UnixMilli(), 10) }
	due := func(p redis.Pipeliner, k keys) *redis.IntCmd { return p.ZCount(e.ctx, k[keyExpiry], "-inf", now()) }
	return e.eachSpace(e.ctx, due, func(space string, left int64) error {
		for ; left > 0; left -= sweepRecords {
			n, err := e.scripts.sweep.Run(e.ctx, e.client, e.keys(space), now(), e.config.History, space, sweepRecords).Int()
			if err != nil || n < sweepRecords { // another store may sweep too
				return err
			}
		}
		return nil
	})
}
