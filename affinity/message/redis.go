package message

import (
	"math"
	"strings"
	"time"

	"vitrine/wire/resp"
	"vitrine/wire/sip"
)

// redisPort is the port of Redis. It is a hint for connections that the capture joins
// midway.
const redisPort = 6379

// looksRedis reports whether data begins with a Redis request: an array of strings. A reply is
// recognised only by its port.
func looksRedis(data []byte, x *half) verdict {
	const longest = 16
	switch data[0] {
	case '*':
	case '+', '-', ':', '$', '_', '#', ',', '(', '!', '=', '%', '~', '>', '|':
		if x.conn.protocol == Redis || x.src.Port() == redisPort {
			return yes
		}
		return no
	default:
		return no
	}
	i, digits := 1, 0
	for ; i < len(data) && data[i] >= '0' && data[i] <= '9'; i++ {
		digits++
	}
	switch {
	case i < len(data) && (digits == 0 || digits > longest || data[i] != '\r'):
		return no
	case len(data) < i+3:
		return more
	case data[i+1] != '\n' || data[i+2] != '$':
		if x.conn.protocol == Redis && data[i+1] == '\n' { // an array of other values is a reply
			return yes
		}
		return no
	}
	return yes
}

// redisValues collects data of a request while its arguments arrive.
type redisValues struct {
	push    bool
	write   bool  // the command writes its next key
	reads   bool  // see Access.Reads
	keyed   bool  // its last key has an access
	seconds int64 // lifetime
	unit    time.Duration
	option  redisOption
}

// A redisOption is an argument that is followed by a lifetime.
type redisOption uint8

const (
	noOption redisOption = iota
	inSeconds
	inMillis
)

// readRedis reads requests or replies. The client is the side that sends arrays of strings
// first.
func (r *reading) readRedis(x *half, data []byte) (n int, err error) {
	c := x.conn
	if c.client < 0 {
		c.client = x.side
		if x.src.Port() == redisPort {
			c.client = 1 - x.side
		}
	}
	requests := c.client == x.side
	x.needOrdered()
	d := &x.redis
	d.Requests = requests
	for {
		k, event, err := d.Next(data[n:])
		n += k
		if err != nil {
			return min(n+1, len(data)), err
		}
		switch event {
		case resp.More:
			return n, nil
		case resp.Found:
			if requests {
				r.redisArgument(x, &d.Value)
			} else {
				r.redisReply(x, &d.Value)
			}
		case resp.End:
			if x.slot != nil {
				x.slot.m.Time = x.at
			}
			if requests {
				r.redisAsked(x)
			} else {
				r.redisAnswered(x)
			}
			if n == len(data) {
				return n, nil
			}
		}
	}
}

// redisSlot begins a message.
func (r *reading) redisSlot(x *half) *slot {
	o := r.origin(x)
	x.slot = r.slot(&o, Redis)
	x.values = redisValues{}
	return x.slot
}

// redisArgument reads an argument of a request.
func (r *reading) redisArgument(x *half, v *resp.Value) {
	s := x.slot
	if v.Depth == 0 && v.Type != resp.Inline {
		s = r.redisSlot(x)
		s.m.Bytes = len("*1\r\n")
		x.command.Argument(v)
		return
	}
	if s == nil {
		s = r.redisSlot(x)
	}
	size := int(max(v.Size, int64(len(v.Text))))
	s.m.Bytes += size + len("$1\r\n\r\n")
	isKey := x.command.Argument(v)
	values := &x.values
	if v.Index == 0 {
		values.write, values.reads = !redisReads(x.command.Command.Name), redisTakes(x.command.Command.Name)
		return
	}
	name := x.command.Command.Name
	switch {
	case isKey:
		redisKey(s, values, v.Text)
		values.write = values.write && !redisStores(name)
	case values.option != noOption, v.Index == 2 && isExpiry(name):
		if n, ok := parseDigits(v.Text); ok {
			unit := time.Second
			if values.option == inMillis || values.option == noOption && (name == "psetex" || name == "pexpire") {
				unit = time.Millisecond
			}
			values.seconds, values.unit = min(n, int64(math.MaxInt64/unit)), unit
		}
		values.option = noOption
	case name == "set" && v.Index > 2 && sip.EqualFold(v.Text, "ex"):
		values.option = inSeconds
	case name == "set" && v.Index > 2 && sip.EqualFold(v.Text, "px"):
		values.option = inMillis
	case name == "set" && v.Index > 2: // an option such as NX, which is no part of the value
		values.reads = values.reads || sip.EqualFold(v.Text, "get")
	default:
		if values.write && values.keyed {
			s.m.Access[len(s.m.Access)-1].Bytes += size
		}
		s.scan(v.Text[:min(len(v.Text), maxScan)])
	}
}

// redisKey adds a key of a request.
func redisKey(s *slot, values *redisValues, key []byte) {
	from := len(s.text)
	s.text = append(s.text, key...)
	a := s.access(from, values.write)
	values.keyed = a != nil
	if a != nil {
		s.scan(a.Key.Text)
	}
}

func isExpiry(name string) bool {
	return name == "setex" || name == "psetex" || name == "expire" || name == "pexpire"
}

func parseDigits(text []byte) (n int64, ok bool) {
	const longest = 12
	if len(text) > longest || !isDigits(text) {
		return 0, false
	}
	for _, c := range text {
		n = n*10 + int64(c-'0')
	}
	return n, true
}

// redisAsked delivers a request.
func (r *reading) redisAsked(x *half) {
	s, c := x.slot, x.conn
	if s == nil {
		return
	}
	x.slot = nil
	command := x.command.Command.Name
	x.command = resp.Request{}
	s.m.Name = r.words.number(Redis, uint64(len(command))<<48|hashOf([]byte(command))>>16, func() string {
		if command == "" {
			return "(other)"
		}
		return strings.ToUpper(command)
	})
	for i := range s.m.Access {
		if a := &s.m.Access[i]; a.Write {
			a.Lifetime = time.Duration(x.values.seconds) * x.values.unit
			a.Reads = x.values.reads
		}
	}
	switch command {
	case "subscribe", "psubscribe", "ssubscribe", "monitor", "psync", "sync":
		c.loose = true
	}
	s.part, s.key = opens, c.ask(x.at, nil)
	r.commit(s)
}

// redisReply reads a value of a reply. If an attribute precedes the reply, the attribute has
// already begun the slot.
func (r *reading) redisReply(x *half, v *resp.Value) {
	s := x.slot
	if s == nil {
		s = r.redisSlot(x)
		s.m.Kind = Answer
	}
	if v.Depth == 0 && v.Type != resp.Attribute {
		x.values.push = v.Type == resp.Push
		if v.IsError() {
			s.m.Failed = true
			s.m.Cause = r.words.intern(Redis, v.Code())
		}
	}
	s.m.Bytes += int(max(v.Size, int64(len(v.Text)), 0)) + len("+\r\n")
	if v.Type == resp.Bulk {
		s.scan(v.Text)
	}
}

// redisAnswered delivers a reply.
func (r *reading) redisAnswered(x *half) {
	s, c := x.slot, x.conn
	if s == nil {
		return
	}
	x.slot = nil
	if c.loose || x.values.push {
		s.m.Kind, s.m.Name = Notice, "push"
		r.commit(s)
		return
	}
	s.part, s.status = only, plain
	s.key, _ = c.answer(x.at)
	r.commit(s)
}

// redisReads reports whether a command only reads its keys.
func redisReads(name string) bool {
	switch name {
	case "get", "mget", "exists", "strlen", "getrange", "substr", "lcs", "getbit", "bitcount", "bitpos", "bitfield_ro", "pfcount",
		"hget", "hgetall", "hmget", "hkeys", "hvals", "hlen", "hexists", "hscan", "hstrlen", "hrandfield",
		"lrange", "llen", "lindex", "lpos", "sort_ro",
		"scard", "sismember", "smembers", "smismember", "sscan", "srandmember", "sinter", "sintercard", "sunion", "sdiff",
		"zrange", "zrangebyscore", "zrangebylex", "zrevrange", "zrevrangebyscore", "zrevrangebylex", "zscore", "zmscore", "zcard", "zcount", "zlexcount",
		"zrank", "zrevrank", "zscan", "zrandmember", "zinter", "zintercard", "zunion", "zdiff",
		"geodist", "geohash", "geopos", "geosearch", "georadius_ro", "georadiusbymember_ro",
		"xrange", "xrevrange", "xlen", "xread", "xpending", "xinfo",
		"ttl", "pttl", "expiretime", "pexpiretime", "type", "dump", "object", "memory", "touch", "watch",
		"eval_ro", "evalsha_ro", "fcall_ro":
		return true
	}
	return false
}

// redisTakes reports whether a command that writes its keys also returns or uses their old values.
// Scripts may.
func redisTakes(name string) bool {
	switch name {
	case "getset", "getdel", "getex", "append", "incr", "incrby", "incrbyfloat", "decr", "decrby", "setbit", "bitfield",
		"hincrby", "hincrbyfloat", "zincrby",
		"lpop", "rpop", "lmpop", "blpop", "brpop", "blmpop", "rpoplpush", "brpoplpush", "lmove", "blmove",
		"spop", "smove", "zpopmin", "zpopmax", "zmpop", "bzpopmin", "bzpopmax", "bzmpop",
		"rename", "renamenx", "copy", "sort", "xreadgroup", "pfmerge",
		"eval", "evalsha", "fcall":
		return true
	}
	return false
}

// redisStores reports whether a command writes its first key, and only reads the others.
func redisStores(name string) bool {
	switch name {
	case "sdiffstore", "sinterstore", "sunionstore", "zdiffstore", "zinterstore", "zunionstore", "zrangestore", "geosearchstore", "pfmerge", "bitop":
		return true
	}
	return false
}
