package http1_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"vitrine/wire/http1"
)

// read reads a stream whose octets come in pieces of a size, and returns a line
// for each message: its first words, the octets of its body, its trailers. The
// responses answer requests of a method.
func read(stream, method string, size int) (messages []string, err error) {
	var d http1.Decoder
	var body strings.Builder
	line, octets := "", []byte(stream)
	for at, end := 0, 0; ; end = min(end+size, len(octets)) {
		for {
			n, e, err := d.Next(octets[at:end])
			at += n
			if err != nil {
				return messages, err
			}
			if e == http1.More {
				break
			}
			switch e {
			case http1.Head:
				d.Answer([]byte(method))
				line = start(&d.Message)
				body.Reset()
			case http1.Body:
				body.Write(d.Data)
			case http1.Tunnel:
				line += string(d.Data)
			case http1.End:
				for f := d.Trailers; f.Next(); {
					fmt.Fprintf(&body, " %s=%s", f.Name, f.Value)
				}
				messages = append(messages, line+" "+body.String())
			}
		}
		if end == len(octets) {
			complete, err := d.Close()
			if complete {
				messages = append(messages, line+" "+body.String())
			} else if err == nil && strings.HasSuffix(line, "tunnel") {
				messages = append(messages, line)
			}
			return messages, err
		}
	}
}

func start(m *http1.Message) string {
	if m.Request {
		return fmt.Sprintf("%s %s", m.Method, m.Target)
	}
	return fmt.Sprint(m.Status)
}

type stream struct {
	name, method, octets string
	want                 []string
	err                  error
}

// streams returns streams with their expected events.
func streams() []stream {
	const ok = "HTTP/1.1 200 OK\r\n"
	const chunks = "4;name=value\r\nWiki\r\n06;a=\"b\"\r\npedia \r\n0\r\n"
	return []stream{
		{"pipelined requests", "", "GET /a HTTP/1.1\r\nHost: x\r\n\r\nPOST /b HTTP/1.1\r\ncontent-length: 3\r\n\r\nabcGET /c HTTP/1.0\r\n\r\n", []string{"GET /a ", "POST /b abc", "GET /c "}, nil},
		{"empty lines before a request", "", "\r\n\r\nGET / HTTP/1.1\r\n\r\n\n", []string{"GET / "}, nil},
		{"line ends without CR", "", "GET / HTTP/1.1\nContent-Length: 1\n\nx", []string{"GET / x"}, nil},
		{"chunked request", "", "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + "\r\n", []string{"POST / Wikipedia "}, nil},
		{"trailers", "", ok + "Transfer-Encoding: Chunked\r\n\r\n" + chunks + "Sum: 1\r\nOther:  2 \r\n\r\n" + ok + "Content-Length: 0\r\n\r\n", []string{"200 Wikipedia  Sum=1 Other=2", "200 "}, nil},
		{"coding before chunked", "", ok + "Transfer-Encoding: gzip, chunked\r\n\r\n" + "1 ; x\r\na\r\n0\r\n\r\n", []string{"200 a"}, nil},
		{"trailers of a request", "", "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nSum: 1\r\n\r\n", []string{"POST /  Sum=1"}, nil},
		{"length", "GET", ok + "Content-Length: 5\r\n\r\nhello" + "HTTP/1.1 404\r\nContent-Length:2\r\n\r\nno", []string{"200 hello", "404 no"}, nil},
		{"body until the connection closes", "GET", "HTTP/1.0 200 OK\r\n\r\nhello", []string{"200 hello"}, nil},
		{"coding without chunked in a response", "GET", ok + "Transfer-Encoding: gzip\r\n\r\nhello", []string{"200 hello"}, nil},
		{"responses to HEAD", "HEAD", ok + "Content-Length: 5\r\n\r\n" + ok + "Transfer-Encoding: chunked\r\n\r\n", []string{"200 ", "200 "}, nil},
		{"statuses without a body", "GET", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\nContent-Length: 9\r\n\r\nHTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", []string{"100 ", "204 ", "304 "}, nil},
		{"other protocol", "GET", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n\x00tunnel", []string{"101\x00tunnel"}, nil},
		{"tunnel", "CONNECT", ok + "Content-Length: 5\r\n\r\n\x16\x03tunnel", []string{"200\x16\x03tunnel"}, nil},
		{"refused tunnel", "CONNECT", "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno", []string{"403 no"}, nil},
		{"the same length several times", "", "PUT / HTTP/1.1\r\nContent-Length: 2, 2\r\nContent-Length: 2\r\n\r\nabGET / HTTP/1.1\r\n\r\n", []string{"PUT / ab", "GET / "}, nil},
		{"length and transfer coding", "", "PUT / HTTP/1.1\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n", []string{"PUT / ", "GET / "}, nil},
		{"folded field", "", "PUT / HTTP/1.1\r\nA: b\r\n\t c\r\nContent-Length:\r\n 2\r\n\r\nab", []string{"PUT / ab"}, nil},
		{"codings of two fields", "", "PUT / HTTP/1.1\r\nTransfer-Encoding: gzip\r\nTransfer-Encoding: , chunked\r\n\r\n0\r\n\r\n", []string{"PUT / "}, nil},

		{"lengths that differ", "", "PUT / HTTP/1.1\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc", nil, http1.ErrLength},
		{"lengths that differ in a list", "", "PUT / HTTP/1.1\r\nContent-Length: 2, 3\r\n\r\nabc", nil, http1.ErrLength},
		{"length with a sign", "", "PUT / HTTP/1.1\r\nContent-Length: +2\r\n\r\nab", nil, http1.ErrLength},
		{"length without a number", "", "PUT / HTTP/1.1\r\nContent-Length: \r\n\r\nab", nil, http1.ErrLength},
		{"length above all", "", "PUT / HTTP/1.1\r\nContent-Length: 18446744073709551618\r\n\r\nab", nil, http1.ErrLength},
		{"length above an int64", "", "PUT / HTTP/1.1\r\nContent-Length: 10000000000000000000\r\n\r\nab", nil, http1.ErrLength},
		{"length folded into two", "", "PUT / HTTP/1.1\r\nContent-Length: 1\r\n 2\r\n\r\nab", nil, http1.ErrLength},
		{"coding in HTTP/1.0", "", "PUT / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", nil, http1.ErrTransfer},
		{"coding without chunked in a request", "", "PUT / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n", nil, http1.ErrTransfer},
		{"coding behind chunked", "", "PUT / HTTP/1.1\r\nTransfer-Encoding: chunked, gzip\r\n\r\n", nil, http1.ErrTransfer},
		{"chunked twice", "", "PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", nil, http1.ErrTransfer},
		{"quoted coding", "", "PUT / HTTP/1.1\r\nTransfer-Encoding: x;a=\",chunked\"\r\n\r\n", nil, http1.ErrTransfer},
		{"space before the colon", "", "PUT / HTTP/1.1\r\nContent-Length : 2\r\n\r\nab", nil, http1.ErrField},
		{"space before the first field", "", "PUT / HTTP/1.1\r\n Content-Length: 2\r\n\r\nab", nil, http1.ErrField},
		{"CR in a value", "", "PUT / HTTP/1.1\r\nA: b\rContent-Length: 2\r\n\r\nab", nil, http1.ErrField},
		{"two CRs", "", "PUT / HTTP/1.1\r\nA: b\r\r\n\r\n", nil, http1.ErrField},
		{"NUL in a value", "", "PUT / HTTP/1.1\r\nA: \x00\r\n\r\n", nil, http1.ErrField},
		{"field without a colon", "", "PUT / HTTP/1.1\r\nA\r\n\r\n", nil, http1.ErrField},
		{"trailer without a colon", "", ok + "Transfer-Encoding: chunked\r\n\r\n0\r\nA\r\n\r\n", nil, http1.ErrField},
		{"HTTP/2", "", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", nil, http1.ErrVersion},
		{"SIP", "", "REGISTER sip:a SIP/2.0\r\n\r\n", nil, http1.ErrStart},
		{"HTTP/0.9", "", "GET /\r\n\r\n", nil, http1.ErrStart},
		{"target with a space", "", "GET /a b HTTP/1.1\r\n\r\n", nil, http1.ErrStart},
		{"status of two digits", "", "HTTP/1.1 20 OK\r\n\r\n", nil, http1.ErrStart},
		{"status of four digits", "", "HTTP/1.1 2000 OK\r\n\r\n", nil, http1.ErrStart},
		{"status of letters", "", "HTTP/1.1 abc OK\r\n\r\n", nil, http1.ErrStart},
		{"status below 100", "", "HTTP/1.1 099 OK\r\n\r\n", nil, http1.ErrStart},
		{"chunk without a size", "", ok + "Transfer-Encoding: chunked\r\n\r\n\r\n", nil, http1.ErrChunk},
		{"chunk with a prefix", "", ok + "Transfer-Encoding: chunked\r\n\r\n0x2\r\nab\r\n", nil, http1.ErrChunk},
		{"chunk above all", "", ok + "Transfer-Encoding: chunked\r\n\r\n10000000000000002\r\nab\r\n", nil, http1.ErrChunk},
		{"chunk line without CR", "", ok + "Transfer-Encoding: chunked\r\n\r\n2\nab\r\n", nil, http1.ErrChunk},
		{"chunk longer than its size", "", ok + "Transfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n0\r\n\r\n", nil, http1.ErrChunk},
		{"chunk line above the bound", "", ok + "Transfer-Encoding: chunked\r\n\r\n2;" + strings.Repeat("x", 5000), nil, http1.ErrBound},
		{"head above the bound", "", "GET / HTTP/1.1\r\n" + strings.Repeat("A: b\r\n", 12000), nil, http1.ErrBound},
		{"line above the bound", "", "GET /" + strings.Repeat("x", 70000), nil, http1.ErrBound},
		{"cut in a request line", "", "GET / HTTP/1.1\r\n\r\nGET / HT", []string{"GET / "}, http1.ErrCut},
		{"cut in a head", "", "GET / HTTP/1.1\r\n", nil, http1.ErrCut},
		{"cut in a body", "", ok + "Content-Length: 5\r\n\r\nhell", nil, http1.ErrCut},
		{"cut in trailers", "", ok + "Transfer-Encoding: chunked\r\n\r\n0\r\n", nil, http1.ErrCut},
	}
}

// TestReadsStreams checks that each stream is read the same whatever its pieces.
func TestReadsStreams(t *testing.T) {
	for _, s := range streams() {
		for _, size := range []int{1, 2, 3, 7, 64, len(s.octets)} {
			if size == 1 && len(s.octets) > 10000 {
				continue
			}
			got, err := read(s.octets, s.method, size)
			if !errors.Is(err, s.err) || strings.Join(got, "|") != strings.Join(s.want, "|") {
				t.Errorf("%s, in pieces of %d: got %q, %v, want %q, %v", s.name, size, got, err, s.want, s.err)
			}
		}
	}
}

func TestReadsHeads(t *testing.T) {
	var d http1.Decoder
	const octets = "PUT /a?b=c HTTP/1.1\r\nHOST: example:80 \r\nX-Empty:\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n"
	n, e, err := d.Next([]byte(octets))
	m := &d.Message
	if n != len(octets) || e != http1.Head || err != nil || string(m.Octets) != octets || m.Minor != 1 {
		t.Fatalf("%d, %d, %v, %+v", n, e, err, m)
	}
	if v := m.Find("host"); string(v) != "example:80" {
		t.Errorf("got host %q, want example:80", v)
	}
	if v := m.Find("x-empty"); v == nil || len(v) != 0 {
		t.Errorf("empty field: got %q", v)
	}
	if v := m.Find("cookie"); v != nil {
		t.Errorf("missing field: got %q", v)
	}
	if !m.HasLength || m.Length != 0 || !m.HasTransfer || !m.Chunked || m.IsInterim() {
		t.Errorf("got length %v of %d, transfer coding %v, chunked %v", m.HasLength, m.Length, m.HasTransfer, m.Chunked)
	}
	d = http1.Decoder{}
	if _, _, err := d.Next([]byte("HTTP/1.1 103 Early Hints\r\n\r\n")); err != nil || !d.Message.IsInterim() || string(d.Message.Reason) != "Early Hints" {
		t.Errorf("%v, %+v", err, d.Message)
	}
}

// TestGoesOnBehindAGap checks that octets of a body may be missing, and no others.
func TestGoesOnBehindAGap(t *testing.T) {
	var d http1.Decoder
	next := func(octets string, want http1.Event) {
		t.Helper()
		if n, e, err := d.Next([]byte(octets)); e != want || err != nil {
			t.Fatalf("%q: %d, %d, %v", octets, n, e, err)
		}
	}
	next("PUT / HTTP/1.1\r\nContent-Length: 10\r\n\r\n", http1.Head)
	next("ab", http1.Body)
	if d.Skip(9) || !d.Skip(8) {
		t.Error("Skip accepted a gap beyond the body, or refused a gap inside it")
	}
	next("", http1.End)
	if d.Skip(1) {
		t.Error("Skip accepted a gap in a head")
	}
	next("PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", http1.Head)
	next("", http1.More)
	if d.Skip(1) {
		t.Error("Skip accepted a gap in the line of a chunk")
	}
	d = http1.Decoder{}
	next("HTTP/1.0 200 OK\r\n\r\n", http1.Head)
	next("x", http1.Body)
	if !d.Skip(1 << 30) {
		t.Error("Skip refused a gap in a body that ends with the connection")
	}
	next("x", http1.Body)
}

// TestMalformedHeadsAreSkipped checks that an error comes with the octets that were searched.
// A caller that searches them again, from each line on, would take quadratic time.
func TestMalformedHeadsAreSkipped(t *testing.T) {
	const ok, next, bound = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "GET / HTTP/1.1\r\n\r\n", 64 << 10
	lines := strings.Repeat("GET / HTTP/1.1\r\n", 3000)
	for name, c := range map[string]struct {
		octets string
		want   int // octets that are read at the error
		err    error
	}{
		"field":                   {"GET / HTTP/1.1\r\nA\r\n\r\n" + next, len("GET / HTTP/1.1\r\nA\r\n\r\n"), http1.ErrField},
		"start line after a line": {"\r\nGET /\r\n\r\n" + next, len("\r\nGET /\r\n\r\n"), http1.ErrStart},
		"many start lines":        {lines + "\r\n" + next, len(lines) + 2, http1.ErrField},
		"no empty line":           {lines + lines, bound + len("GET / HTTP/1.1\r\n"), http1.ErrBound},
		"trailer":                 {ok + "0\r\nA\r\n\r\n" + next, len(ok + "0\r\nA\r\n\r\n"), http1.ErrField},
		"trailers without end":    {ok + "0\r\n" + lines + lines, len(ok+"0\r\n") + bound + len("GET / HTTP/1.1\r\n"), http1.ErrBound},
	} {
		var d http1.Decoder
		at := 0
		for {
			n, e, err := d.Next([]byte(c.octets[at:]))
			at += n
			if err != nil {
				if !errors.Is(err, c.err) || at != c.want {
					t.Errorf("%s: got %v after %d octets, want %v after %d", name, err, at, c.err, c.want)
				}
				break
			}
			if e == http1.More {
				t.Errorf("%s: got no error", name)
				break
			}
		}
	}
}

func TestNothingIsAllocated(t *testing.T) {
	octets := []byte("POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nSum: 1\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	total := 0
	if n := testing.AllocsPerRun(100, func() {
		var d http1.Decoder
		for rest := octets; ; {
			n, e, err := d.Next(rest)
			if err != nil {
				t.Fatal(err)
			}
			if rest = rest[n:]; e == http1.More {
				break
			}
			switch e {
			case http1.Head:
				d.Answer(d.Message.Method)
				total += len(d.Message.Find("host"))
			case http1.End:
				for f := d.Trailers; f.Next(); {
					total += len(f.Value)
				}
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if total == 0 {
		t.Error("no field was decoded")
	}
}

func BenchmarkRead(b *testing.B) {
	octets := []byte("GET /a HTTP/1.1\r\nHost: x\r\nUser-Agent: benchmark\r\nAccept: */*\r\n\r\n")
	var d http1.Decoder
	b.SetBytes(int64(len(octets)))
	for b.Loop() {
		for rest, e := octets, http1.Head; e != http1.More; {
			n, next, err := d.Next(rest)
			if err != nil {
				b.Fatal(err)
			}
			rest, e = rest[n:], next
		}
	}
}
