package resp

import "strings"

// A spec says which arguments of a command are keys, like the reply of COMMAND:
// every step-th from first to last; a negative last counts from the end. The
// argument at index count has the number of keys after it. After the word
// STREAMS, at index streams or later, the first half of the arguments are keys.
type spec struct {
	first, last, step int64
	count             int64
	streams           int64
}

// specs are the commands of Redis 7.0, grouped by the position of their keys.
// Of SORT, GEORADIUS and MIGRATE only the first key is known, because words
// precede the others. In commands of two words, the key is after the second
// word.
var specs = []struct {
	spec
	names string
}{
	{spec{}, `
		acl auth bgrewriteaof bgsave client cluster command config dbsize debug discard echo exec failover flushall
		flushdb function hello info keys lastsave latency lolwut module monitor multi ping psubscribe psync publish
		pubsub punsubscribe quit randomkey readonly readwrite replconf replicaof reset role save scan script select
		shutdown slaveof slowlog spublish ssubscribe subscribe sunsubscribe swapdb sync time unsubscribe unwatch wait`},
	{spec{count: 1}, "lmpop sintercard zdiff zinter zintercard zmpop zunion"},
	{spec{count: 2}, "blmpop bzmpop eval eval_ro evalsha evalsha_ro fcall fcall_ro"},
	{spec{first: 1, last: -1, step: 1}, `
		del exists mget pfcount pfmerge sdiff sdiffstore sinter sinterstore sunion sunionstore
		touch unlink watch`},
	{spec{first: 1, last: -1, step: 2}, "mset msetnx"},
	{spec{first: 1, last: -2, step: 1}, "blpop brpop bzpopmax bzpopmin"},
	{spec{first: 1, last: 1, step: 1}, `
		append bitcount bitfield bitfield_ro bitpos decr decrby dump expire expireat expiretime geoadd geodist geohash
		geopos georadius georadius_ro georadiusbymember georadiusbymember_ro geosearch get getbit getdel getex
		getrange getset hdel hexists hget hgetall hincrby hincrbyfloat hkeys hlen hmget hmset hrandfield hscan hset
		hsetnx hstrlen hvals incr incrby incrbyfloat lindex linsert llen lpop lpos lpush lpushx lrange lrem lset ltrim
		move persist pexpire pexpireat pexpiretime pfadd psetex pttl restore rpop rpush rpushx sadd scard set setbit
		setex setnx setrange sismember smembers smismember sort sort_ro spop srandmember srem sscan strlen
		substr ttl type xack xadd xautoclaim xclaim xdel xlen xpending xrange xrevrange xsetid xtrim zadd zcard zcount
		zincrby zlexcount zmscore zpopmax zpopmin zrandmember zrange zrangebylex zrangebyscore zrank zrem
		zremrangebylex zremrangebyrank zremrangebyscore zrevrange zrevrangebylex zrevrangebyscore zrevrank zscan
		zscore`},
	{spec{first: 1, last: 1, step: 1, count: 2}, "zdiffstore zinterstore zunionstore"},
	{spec{first: 1, last: 2, step: 1}, "blmove brpoplpush copy geosearchstore lcs lmove rename renamenx rpoplpush smove zrangestore"},
	{spec{first: 2, last: -1, step: 1}, "bitop"},
	{spec{first: 2, last: 2, step: 1}, "memory object xgroup xinfo"},
	{spec{first: 3, last: 3, step: 1}, "migrate"},
	{spec{streams: 1}, "xread"},
	{spec{streams: 4}, "xreadgroup"},
}

// commands are the specs by name in lower case.
var commands = func() map[string]Command {
	all := map[string]Command{}
	for _, s := range specs {
		for _, name := range strings.Fields(s.names) {
			all[name] = Command{Name: name, spec: s.spec}
		}
	}
	return all
}()
