package resp_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"vitrine/wire/resp"
)

// read reads a stream whose octets come in pieces of a size. It returns a line for
// each message: its values with their depths, and ! before a key.
func read(octets []byte, requests bool, size, keep int) (messages []string, err error) {
	d := resp.Decoder{Requests: requests, Keep: keep}
	var r resp.Request
	var line strings.Builder
	for at, end := 0, 0; ; end = min(end+size, len(octets)) {
		for {
			n, e, err := d.Next(octets[at:end])
			at += n
			if err != nil {
				return messages, err
			}
			if e == resp.More {
				break
			}
			if e == resp.End {
				messages = append(messages, strings.TrimSpace(line.String()))
				line.Reset()
				continue
			}
			if requests && r.Argument(&d.Value) {
				line.WriteString("!")
			}
			line.WriteString(show(&d.Value) + " ")
		}
		if end == len(octets) {
			if line.Len() > 0 || at < end {
				return messages, errCut
			}
			return messages, nil
		}
	}
}

var errCut = errors.New("the stream ends within a message")

func show(v *resp.Value) string {
	t := string(rune(v.Type))
	if v.Type == resp.Inline {
		t = "inline:"
	}
	if v.Text == nil {
		return fmt.Sprintf("%s%d", t, v.Size)
	}
	return t + string(v.Text)
}

type stream struct {
	name     string
	requests bool
	octets   string
	want     []string
	err      error
}

func streams() []stream {
	return []stream{
		{"requests", true, "*2\r\n$3\r\nGET\r\n$1\r\na\r\n*3\r\n$3\r\nset\r\n$1\r\nb\r\n$4\r\nc\r\nd\r\n", []string{"*2 $GET !$a", "*3 $set !$b $c\r\nd"}, nil},
		{"inline requests", true, "PING\r\n\r\n get  a\n*1\r\n$4\r\nPING\r\n", []string{"inline:PING", "inline:get  a", "*1 $PING"}, nil},
		{"empty requests", true, "*0\r\n*-1\r\n*1\r\n$0\r\n\r\n", []string{"*0", "*-1", "*1 $"}, nil},
		{"a string above what is kept", true, "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$12\r\n0123456789ab\r\n", []string{"*3 $SET !$a $01234567"}, nil},
		{"keys by their number", true, "*6\r\n$4\r\nEVAL\r\n$1\r\nx\r\n$1\r\n2\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n", []string{"*6 $EVAL $x $2 !$a !$b $c"}, nil},
		{"streams", true, "*7\r\n$5\r\nXREAD\r\n$5\r\ncount\r\n$1\r\n9\r\n$7\r\nStreams\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\n0\r\n", []string{"*7 $XREAD $count $9 $Streams !$a $b $0"}, nil},

		{"simple replies", false, "+OK\r\n-WRONGTYPE no\r\n:-12\r\n$2\r\nab\r\n$-1\r\n*-1\r\n", []string{"+OK", "-WRONGTYPE no", ":-12", "$ab", "$-1", "*-1"}, nil},
		{"nested replies", false, "*3\r\n*2\r\n:1\r\n*0\r\n$0\r\n\r\n*1\r\n*1\r\n+a\r\n:5\r\n", []string{"*3 *2 :1 *0 $ *1 *1 +a", ":5"}, nil},
		{"types of RESP3", false, "_\r\n#t\r\n,1.5\r\n(123456789012345678901234567890\r\n!5\r\nERR x\r\n=7\r\ntxt:abc\r\n%1\r\n+a\r\n~2\r\n:1\r\n:2\r\n>2\r\n+message\r\n+x\r\n", []string{"_", "#t", ",1.5", "(123456789012345678901234567890", "!ERR x", "=txt:abc", "%2 +a ~2 :1 :2", ">2 +message +x"}, nil},
		{"attributes", false, "|1\r\n+ttl\r\n:3\r\n*2\r\n|1\r\n+b\r\n%0\r\n:1\r\n|0\r\n:2\r\n+OK\r\n", []string{"|2 +ttl :3 *2 |2 +b %0 :1 |0 :2", "+OK"}, nil},
		{"depth of 32", false, strings.Repeat("*1\r\n", 32) + ":1\r\n", []string{strings.Repeat("*1 ", 32) + ":1"}, nil},

		{"depth of 33", false, strings.Repeat("*1\r\n", 33) + ":1\r\n", nil, resp.ErrDepth},
		{"unknown type", false, "OK\r\n", nil, resp.ErrType},
		{"number in a request", true, "*1\r\n:1\r\n", nil, resp.ErrType},
		{"line without CR", false, "+OK\n", nil, resp.ErrEnd},
		{"string longer than its size", false, "$2\r\nabc\r\n", nil, resp.ErrEnd},
		{"string shorter than its size", false, "$2\r\na\r\n:1\r\n", nil, resp.ErrEnd},
		{"size below -1", false, "$-2\r\n", nil, resp.ErrSize},
		{"size with a sign", false, "*+1\r\n:1\r\n", nil, resp.ErrSize},
		{"no size", false, "$\r\n", nil, resp.ErrSize},
		{"unknown size", false, "$?\r\n;2\r\nab\r\n;0\r\n", nil, resp.ErrSize},
		{"string above the bound", false, "$536870913\r\n", nil, resp.ErrSize},
		{"aggregate above the bound", false, "*18446744073709551617\r\n", nil, resp.ErrSize},
		{"line above the bound", false, "+" + strings.Repeat("x", 70000), nil, resp.ErrBound},
		{"cut in an aggregate", false, "*2\r\n:1\r\n", nil, errCut},
		{"cut in a string", false, "$5\r\nab", nil, errCut},
	}
}

// TestReadsStreams checks that each stream is read the same whatever its pieces.
func TestReadsStreams(t *testing.T) {
	for _, s := range streams() {
		for _, size := range []int{1, 2, 3, 7, 64, len(s.octets)} {
			if size < 64 && len(s.octets) > 10000 {
				continue
			}
			got, err := read([]byte(s.octets), s.requests, size, 8)
			if s.name == "types of RESP3" || s.name == "line above the bound" {
				got, err = read([]byte(s.octets), s.requests, size, 0)
			}
			if !errors.Is(err, s.err) || s.err == nil && strings.Join(got, "|") != strings.Join(s.want, "|") {
				t.Errorf("%s, in pieces of %d: got %q, %v, want %q, %v", s.name, size, got, err, s.want, s.err)
			}
		}
	}
}

func TestReadsPlaces(t *testing.T) {
	var d resp.Decoder
	octets := []byte("*2\r\n*2\r\n-MOVED 1 host:1\r\n:2\r\n$-1\r\n")
	var places []string
	for e := resp.More; e != resp.End; {
		n, next, err := d.Next(octets)
		if err != nil {
			t.Fatal(err)
		}
		if octets, e = octets[n:], next; e == resp.Found {
			v := &d.Value
			places = append(places, fmt.Sprintf("%d:%d/%d", v.Depth, v.Index, v.Of))
			if v.IsError() && string(v.Code()) != "MOVED" {
				t.Errorf("got code %q, want MOVED", v.Code())
			}
		}
	}
	if got := strings.Join(places, " "); got != "0:0/1 1:0/2 2:0/2 2:1/2 1:1/2" {
		t.Errorf("got places %s", got)
	}
}

// TestGoesOnBehindAGap checks that octets may be missing in the skipped part of a string,
// and nowhere else.
func TestGoesOnBehindAGap(t *testing.T) {
	d := resp.Decoder{Keep: 2}
	if d.Skip(1) {
		t.Error("Skip accepted a gap between messages")
	}
	if n, e, err := d.Next([]byte("$10\r\nab")); n != 7 || e != resp.Found || err != nil {
		t.Fatal(n, e, err)
	}
	if d.Skip(9) || !d.Skip(8) {
		t.Error("Skip accepted a gap beyond the string, or refused a gap inside it")
	}
	if n, e, err := d.Next([]byte("\r\n")); n != 2 || e != resp.End || err != nil {
		t.Fatal(n, e, err)
	}
}

func TestKnowsCommandsInAnyCase(t *testing.T) {
	if c, ok := resp.Lookup([]byte("ZRangeByScore")); !ok || c.Name != "zrangebyscore" {
		t.Errorf("%q, %v", c.Name, ok)
	}
	for _, name := range []string{"", "nonesuch", strings.Repeat("x", 100)} {
		if c, ok := resp.Lookup([]byte(name)); ok || c.Name != "" {
			t.Errorf("Lookup of %q: got command %q", name, c.Name)
		}
	}
}

func TestNothingIsAllocated(t *testing.T) {
	var requests, replies []byte
	for _, s := range streams() {
		if s.err == nil && s.requests {
			requests = append(requests, s.octets...)
		} else if s.err == nil {
			replies = append(replies, s.octets...)
		}
	}
	keys, errs := 0, 0
	if n := testing.AllocsPerRun(100, func() {
		for _, side := range []bool{true, false} {
			d, rest := resp.Decoder{Requests: side}, replies
			if side {
				rest = requests
			}
			var r resp.Request
			for e := resp.End; e != resp.More; {
				n, next, err := d.Next(rest)
				if err != nil {
					t.Fatal(err)
				}
				rest, e = rest[n:], next
				if e == resp.Found && side && r.Argument(&d.Value) {
					keys += len(d.Value.Text)
				} else if e == resp.Found && d.Value.IsError() {
					errs += len(d.Value.Code())
				}
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if keys == 0 || errs == 0 {
		t.Error("found no key or no error")
	}
}

func BenchmarkRead(b *testing.B) {
	octets := []byte("*3\r\n$3\r\nSET\r\n$10\r\nsession:42\r\n$16\r\n0123456789abcdef\r\n")
	d := resp.Decoder{Requests: true}
	var r resp.Request
	b.SetBytes(int64(len(octets)))
	for b.Loop() {
		for rest, e := octets, resp.Found; e != resp.More; {
			n, next, err := d.Next(rest)
			if err != nil {
				b.Fatal(err)
			}
			if rest, e = rest[n:], next; e == resp.Found {
				r.Argument(&d.Value)
			}
		}
	}
}

// FuzzRead checks that a stream is read the same whole and in pieces.
func FuzzRead(f *testing.F) {
	for _, s := range streams() {
		if len(s.octets) < 1000 {
			f.Add([]byte(s.octets), s.requests, uint8(3), uint8(8))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, requests bool, size, keep uint8) {
		if len(data) > 1<<12 {
			return
		}
		before := string(data)
		whole, first := read(data, requests, len(data)+1, int(keep))
		pieces, second := read(data, requests, int(size)+1, int(keep))
		if strings.Join(whole, "|") != strings.Join(pieces, "|") || !errors.Is(second, first) {
			t.Fatalf("whole: %q, %v; in pieces of %d: %q, %v", whole, first, int(size)+1, pieces, second)
		}
		if string(data) != before {
			t.Fatal("the stream was changed")
		}
	})
}
