package resp_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"vitrine/wire/resp"
	"vitrine/wire/wiretest"
)

// A recorder is a connection that keeps what passes it.
type recorder struct {
	net.Conn
	mu        sync.Mutex
	out, back []byte
}

func (r *recorder) Write(b []byte) (int, error) {
	n, err := r.Conn.Write(b)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.out = append(r.out, b[:n]...)
	return n, err
}

func (r *recorder) Read(b []byte) (int, error) {
	n, err := r.Conn.Read(b)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.back = append(r.back, b[:n]...)
	return n, err
}

// server starts a Redis server, and returns a client of it that speaks a version
// of RESP over one connection, with a record of that. The test is skipped without
// redis-server.
func server(t *testing.T, version int) (*redis.Client, *recorder) {
	t.Helper()
	program, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip("this test needs redis-server: ", err)
	}
	socket := filepath.Join(t.TempDir(), "redis.sock")
	command := exec.CommandContext(t.Context(), program, "--port", "0", "--unixsocket", socket, "--save", "", "--enable-debug-command", "yes")
	printed, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = command.Process.Kill(), command.Wait() })
	lines := bufio.NewScanner(printed)
	for lines.Scan() && !strings.Contains(lines.Text(), "eady to accept connections") {
	}
	r := &recorder{}
	client := redis.NewClient(&redis.Options{
		Protocol: version, PoolSize: 1,
		Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
			r.Conn, err = (&net.Dialer{}).DialContext(ctx, "unix", socket)
			return r, err
		},
	})
	t.Cleanup(func() { client.Close() })
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	return client, r
}

// messages splits a stream into its messages.
func messages(t *testing.T, stream []byte, requests bool) (all [][]byte) {
	t.Helper()
	d := resp.Decoder{Requests: requests}
	for at, start := 0, 0; ; {
		n, e, err := d.Next(stream[at:])
		if err != nil {
			t.Fatalf("message %d: %v at %q", len(all), err, stream[at:min(at+40, len(stream))])
		}
		at += n
		switch e {
		case resp.More:
			if at != len(stream) {
				t.Fatalf("%d octets were not read", len(stream)-at)
			}
			return all
		case resp.End:
			all, start = append(all, stream[start:at]), at
		}
	}
}

// work does what applications do, in a pipeline and alone.
func work(t *testing.T, client *redis.Client) {
	t.Helper()
	ctx := t.Context()
	pipe := client.Pipeline()
	for i := range 100 {
		pipe.Set(ctx, fmt.Sprint("key:", i), strings.Repeat("v", i*100), 0)
		pipe.HSet(ctx, fmt.Sprint("hash:", i), "field", i, "other", "x")
	}
	pipe.HGetAll(ctx, "hash:1")
	pipe.MGet(ctx, "key:1", "nonesuch", "key:2")
	pipe.SAdd(ctx, "set", "a", "b")
	pipe.SMembers(ctx, "set")
	pipe.ZAdd(ctx, "zset", redis.Z{Score: 1.5, Member: "m"})
	pipe.ZRangeWithScores(ctx, "zset", 0, -1)
	pipe.Eval(ctx, "return {1,{2,'three'}}", []string{"k"}, "argument")
	pipe.Get(ctx, "nonesuch")
	pipe.LPush(ctx, "key:1", "of another type")
	pipe.XAdd(ctx, &redis.XAddArgs{Stream: "stream", Values: []string{"a", "b"}})
	pipe.XRead(ctx, &redis.XReadArgs{Streams: []string{"stream", "0"}, Block: -1})
	_, _ = pipe.Exec(ctx) // one has another type
	if err := client.Command(ctx).Err(); err != nil {
		t.Fatal(err)
	}
}

// TestRedis compares all messages of a session in RESP2 with tshark's reading.
func TestRedis(t *testing.T) {
	client, r := server(t, 2)
	work(t, client)
	client.Close()
	requests, replies := messages(t, r.out, true), messages(t, r.back, false)
	if len(requests) != len(replies) || len(replies) < 210 {
		t.Errorf("got %d requests and %d replies", len(requests), len(replies))
	}
	replies = slices.DeleteFunc(replies, func(b []byte) bool { return len(b) > 16<<10 }) // tshark shows less than the table of commands
	fields := []string{"resp.string", "resp.error", "resp.bulk_string.length", "resp.array.length", "resp.integer"}
	place := map[resp.Type]int{resp.String: 0, resp.Error: 1, resp.Bulk: 2, resp.Array: 3, resp.Integer: 4}
	for side, all := range [][][]byte{requests, replies} {
		for i, row := range wiretest.TCPFields(t, 6379, all, fields...) {
			want := make([][]string, len(fields))
			d := resp.Decoder{Requests: side == 0}
			for at, e := 0, resp.More; e != resp.End; {
				n, next, err := d.Next(all[i][at:])
				if err != nil {
					t.Fatal(err)
				}
				if at, e = at+n, next; e != resp.Found {
					continue
				}
				text := string(d.Value.Text)
				if d.Value.Type == resp.Bulk || d.Value.Type == resp.Array {
					text = strconv.FormatInt(d.Value.Size, 10)
				}
				want[place[d.Value.Type]] = append(want[place[d.Value.Type]], text)
			}
			for f := range fields {
				if got := strings.Join(want[f], ","); got != row[f] {
					t.Errorf("%.60q: %s: got %q, tshark has %q", all[i], fields[f], got, row[f])
				}
			}
		}
	}
}

// TestRedis3 reads a session in RESP3, and every type that the server can send.
func TestRedis3(t *testing.T) {
	client, r := server(t, 3)
	work(t, client)
	types := []string{"string", "integer", "double", "null", "array", "set", "map", "attrib", "verbatim", "true", "false", "bignum"}
	for _, of := range types {
		_ = client.Do(t.Context(), "debug", "protocol", of).Err() // go-redis reports nulls and attributes as errors
	}
	client.Close()
	requests, replies := messages(t, r.out, true), messages(t, r.back, false)
	if len(requests) != len(replies) {
		t.Errorf("got %d requests and %d replies", len(requests), len(replies))
	}
	var seen []byte
	for _, b := range replies {
		seen = append(seen, b[0])
	}
	for _, of := range []resp.Type{resp.Map, resp.Set, resp.Double, resp.Null, resp.Boolean, resp.Verbatim, resp.BigNumber, resp.Attribute, resp.Error} {
		if bytes.IndexByte(seen, byte(of)) < 0 {
			t.Errorf("no reply of type %c among %q", of, seen)
		}
	}
}

// TestKeysOfRedis compares the keys of all commands with the server's reading.
func TestKeysOfRedis(t *testing.T) {
	client, _ := server(t, 2)
	all, err := client.Do(t.Context(), "command").Slice()
	if err != nil {
		t.Fatal(err)
	}
	requests := [][]string{
		{"eval", "x", "2", "a", "b", "c"}, {"fcall", "f", "1", "a", "b"}, {"zunion", "2", "a", "b", "weights", "1", "2"}, {"zdiff", "1", "a"},
		{"zunionstore", "d", "2", "a", "b"}, {"zinterstore", "d", "1", "a"}, {"lmpop", "2", "a", "b", "left"}, {"blmpop", "0", "1", "a", "left"},
		{"bzmpop", "0", "2", "a", "b", "min"}, {"zmpop", "1", "a", "min"}, {"sintercard", "2", "a", "b"}, {"zintercard", "2", "a", "b"},
		{"xread", "count", "2", "STREAMS", "a", "b", "0", "0"}, {"xreadgroup", "group", "streams", "c", "streams", "a", ">"},
		{"object", "encoding", "a"}, {"xinfo", "stream", "a"}, {"xgroup", "create", "a", "g", "$"}, {"memory", "usage", "a"}, {"sort", "a", "by", "x"},
		{"set", "a", "b"}, {"mset", "a", "1", "b", "2"}, {"blpop", "a", "b", "0"}, {"bitop", "and", "a", "b", "c"},
	}
	internal := []string{"pfselftest", "asking", "restore-asking", "pfdebug"}
	for _, c := range all {
		row := c.([]any)
		name, first := row[0].(string), row[3].(int64)
		if slices.Contains(internal, name) {
			continue
		}
		if _, ok := resp.Lookup([]byte(name)); !ok {
			t.Errorf("the command %s is unknown", name)
		}
		if first == 0 || slices.Contains(row[2].([]any), any("movablekeys")) {
			continue
		}
		arity := row[1].(int64)
		request := []string{name}
		for i := range max(arity, -arity) - 1 {
			request = append(request, fmt.Sprint("a", i))
		}
		if arity < 0 && row[4].(int64) < 0 { // the last keys are counted from the end
			request = append(request, "y", "z")
		}
		requests = append(requests, request)
	}
	for _, request := range requests {
		arguments := []any{"command", "getkeys"}
		for _, a := range request {
			arguments = append(arguments, a)
		}
		want, err := client.Do(t.Context(), arguments...).StringSlice()
		if err != nil && !strings.Contains(err.Error(), "no key arguments") {
			t.Fatalf("%q: %v", request, err)
		}
		var got []string
		var r resp.Request
		for i, a := range request {
			v := resp.Value{Type: resp.Bulk, Depth: 1, Index: int64(i), Of: int64(len(request)), Text: []byte(a)}
			if r.Argument(&v) {
				got = append(got, a)
			}
		}
		slices.Sort(got) // the server has a destination last
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%q: got keys %q, the server has %q", request, got, want)
		}
	}
	if len(requests) < 150 {
		t.Errorf("got only %d requests, want at least 150", len(requests))
	}
}
