package http2_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"vitrine/wire/http2"
)

// A script is a stream with the octets that a capture lost.
type script struct {
	octets []byte
	gaps   []gap // in order
}

// A gap lies before the octet at a place.
type gap struct {
	at   int
	lost int64
}

// read reads a script whose octets come in pieces of a size. It returns a line for
// each event, one for all consecutive octets of a body.
func read(d *http2.Decoder, s script, size int) (lines []string, err error) {
	body := uint32(0) // the stream of the octets before
	at, end := 0, 0
	for i := 0; ; i++ {
		stop := len(s.octets)
		if i < len(s.gaps) {
			stop = s.gaps[i].at
		}
		for {
			n, e, err := d.Next(s.octets[at:end])
			if n < 0 || n > end-at {
				return lines, fmt.Errorf("%d of %d octets are read", n, end-at)
			}
			at += n
			if err != nil {
				return lines, err
			}
			if e == http2.More && end == stop {
				break
			}
			if e == http2.More {
				end = min(end+size, stop)
				continue
			}
			if line := show(d, e); e == http2.Body && body == d.Stream {
				lines[len(lines)-1] += string(d.Data)
			} else {
				lines = append(lines, line)
			}
			if body = 0; e == http2.Body {
				body = d.Stream
			}
		}
		if i == len(s.gaps) {
			return lines, d.Close()
		}
		lost := s.gaps[i].lost
		if lost >= 0 {
			lost += int64(stop - at)
		}
		at, body = stop, 0
		lines = append(lines, fmt.Sprintf("gap %v", d.Lost(lost)))
	}
}

func show(d *http2.Decoder, e http2.Event) string {
	switch e {
	case http2.Head:
		return fmt.Sprintf("%d %s", d.Stream, head(&d.Message))
	case http2.Body:
		return fmt.Sprintf("%d body %s", d.Stream, d.Data)
	case http2.End:
		if d.Whole {
			return fmt.Sprintf("%d end", d.Stream)
		}
		return fmt.Sprintf("%d end with a part missing", d.Stream)
	case http2.Reset:
		return fmt.Sprintf("%d reset %s", d.Stream, d.Code)
	case http2.GoAway:
		return fmt.Sprintf("go away above %d, %s", d.Stream, d.Code)
	}
	line := "settings"
	for p := d.Parameters; p.Next(); {
		line += fmt.Sprintf(" %d=%d", p.ID, p.Value)
	}
	return line
}

func head(m *http2.Message) string {
	var s []string
	switch m.Kind {
	case http2.Request:
		s = append(s, known(m.Method), known(m.Scheme), known(m.Authority), known(m.Path))
	case http2.Response:
		s = append(s, fmt.Sprint(m.Status))
	case http2.Trailers:
		s = append(s, "trailers")
	case http2.Unclear:
		s = append(s, "unclear")
	}
	if m.Promised != 0 {
		s = append(s, fmt.Sprintf("promised on %d", m.Promised))
	}
	for _, f := range m.Fields {
		if !bytes.HasPrefix(f.Name, []byte(":")) {
			s = append(s, known(f.Name)+"="+known(f.Value))
		}
	}
	if m.Dropped > 0 {
		s = append(s, fmt.Sprintf("without %d", m.Dropped))
	}
	if m.IsMalformed {
		s = append(s, "malformed")
	}
	return strings.Join(s, " ")
}

// known shows text that may be absent or unknown.
func known(text []byte) string {
	if text == nil {
		return "?"
	}
	return string(text)
}

const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// frame returns a frame: its type, flags, stream and payload.
func frame(kind, flags byte, stream uint32, payload ...string) string {
	text := strings.Join(payload, "")
	b := []byte{byte(len(text) >> 16), byte(len(text) >> 8), byte(len(text)), kind, flags}
	return string(binary.BigEndian.AppendUint32(b, stream)) + text
}

const (
	data, headers, priority, reset, settings, push, ping, goAway, window, continuation = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9
	ends, ack, whole, padded, prioritised                                              = 1, 1, 4, 8, 0x20
)

// literal returns a field that is added to the table; its lengths are below 127.
func literal(name, value string) string { return "\x40" + text(name) + text(value) }

func text(s string) string { return string(rune(len(s))) + s }

// Fields of the static table.
const get, post, scheme, root, ok = "\x82", "\x83", "\x86", "\x84", "\x88"

func path(p string) string { return "\x44" + text(p) } // is added to the table

type stream struct {
	name   string
	octets string
	gaps   []gap
	want   []string
	err    error
}

func streams() []stream {
	begin := preface + frame(settings, 0, 0)
	return slices.Concat(messages(begin), behindGaps(begin), invalid(begin))
}

func messages(begin string) []stream {
	server := frame(settings, 0, 0, "\x00\x03\x00\x00\x00\x64") + frame(settings, ack, 0)
	request := get + scheme + root
	return []stream{
		{"empty connection", "", nil, nil, nil},
		{"settings", preface + frame(settings, 0, 0, "\x00\x01\x00\x00\x10\x00\x00\x04\x00\x00\xff\xff"), nil, []string{"settings 1=4096 4=65535"}, nil},
		{"request", begin + frame(headers, ends|whole, 1, request, "\x41", text("host")), nil, []string{"settings", "1 GET http host /", "1 end"}, nil},
		{"requests with bodies, interleaved", begin + frame(headers, whole, 1, post, scheme, path("/a")) + frame(headers, whole, 3, post, scheme, path("/b")) +
			frame(data, 0, 1, "ab") + frame(data, 0, 3, "12") + frame(data, 0, 3) + frame(data, ends, 1, "c") + frame(data, ends, 3), nil,
			[]string{"settings", "1 POST http ? /a", "3 POST http ? /b", "1 body ab", "3 body 12", "1 body c", "1 end", "3 end"}, nil},
		{"fields of earlier requests", begin + frame(headers, ends|whole, 1, get, scheme, path("/a"), literal("x", "1")) + frame(headers, ends|whole, 3, get, scheme, "\xbf\xbe"), nil,
			[]string{"settings", "1 GET http ? /a x=1", "1 end", "3 GET http ? /a x=1", "3 end"}, nil},
		{"block in three frames", begin + frame(headers, ends, 1, get+scheme) + frame(continuation, 0, 1, "\x44\x02/") + frame(continuation, whole, 1, "a"), nil,
			[]string{"settings", "1 GET http ? /a", "1 end"}, nil},
		{"empty frames of a block", begin + frame(headers, ends, 1) + frame(continuation, 0, 1) + frame(continuation, whole, 1, request), nil,
			[]string{"settings", "1 GET http ? /", "1 end"}, nil},
		{"padding and priority", begin + frame(headers, whole|padded|prioritised, 1, "\x02\x80\x00\x00\x00\x10", request, "\x00\x00") +
			frame(data, padded, 1, "\x03abc\x00\x00\x00") + frame(data, padded, 1, "\x00") + frame(data, padded|ends, 1, "\x02\x00\x00"), nil,
			[]string{"settings", "1 GET http ? /", "1 body abc", "1 end"}, nil},
		{"frames that are skipped", begin + frame(ping, 0, 0, "12345678") + frame(priority, 0, 1, "12345") + frame(window, 0, 0, "1234") + frame(0x10, 0xff, 0, "u=1") +
			frame(priority, 0, 1, "1") + frame(0xff, 0, 77) + frame(headers, 0xc2|ends|whole, 1<<31|1, request), nil, []string{"settings", "1 GET http ? /", "1 end"}, nil},
		{"responses", server + frame(headers, whole, 1, "\x08\x03103") + frame(headers, whole, 1, ok) + frame(data, 0, 1, "hi") + frame(headers, ends|whole, 1, literal("sum", "1")) +
			frame(headers, ends|whole, 3, "\x8d"), nil,
			[]string{"settings 3=100", "1 103", "1 200", "1 body hi", "1 trailers sum=1", "1 end", "3 404", "3 end"}, nil},
		{"promised request", server + frame(push, whole|padded, 1, "\x01\x00\x00\x00\x02", request, "\x00") + frame(push, 0, 1, "\x00\x00\x00\x04", get) + frame(continuation, whole, 1, scheme+root) +
			frame(headers, ends|whole, 1, ok) + frame(headers, ends|whole, 2, ok), nil,
			[]string{"settings 3=100", "2 GET http ? / promised on 1", "4 GET http ? / promised on 1", "1 200", "1 end", "2 200", "2 end"}, nil},
		{"response on a promised stream beside another", server + frame(headers, whole, 3, ok) + frame(headers, whole, 2, ok) + frame(data, ends, 2) + frame(data, ends, 3), nil,
			[]string{"settings 3=100", "3 200", "2 200", "2 end", "3 end"}, nil},
		{"ends of streams and of the connection", begin + frame(headers, whole, 1, request) + frame(reset, 0, 1, "\x00\x00\x00\x08") + frame(goAway, 0, 0, "\x80\x00\x00\x05\x00\x00\x00\x0bdebug") +
			frame(reset, 0, 5, "\x00\x00\xff\xff"), nil,
			[]string{"settings", "1 GET http ? /", "1 reset cancel", "go away above 5, enhance your calm", "5 reset code 65535"}, nil},
		{"tunnel", begin + frame(headers, whole, 1, "\x42", text("CONNECT"), "\x41", text("a:1")) + frame(data, 0, 1, "\x16"), nil,
			[]string{"settings", "1 CONNECT ? a:1 ?", "1 body \x16"}, nil},
		{"tunnel of a protocol", begin + frame(headers, whole, 1, "\x42", text("CONNECT"), scheme, root, literal(":protocol", "websocket")), nil, []string{"settings", "1 CONNECT http ? /"}, nil},
		{"request without a path", begin + frame(headers, whole, 1, get, scheme), nil, []string{"settings", "1 GET http ? ? malformed"}, nil},
		{"name in capitals", begin + frame(headers, whole, 1, request, literal("A", "")), nil, []string{"settings", "1 GET http ? / A= malformed"}, nil},
		{"repeated method", begin + frame(headers, whole, 1, get, post, scheme, root), nil, []string{"settings", "1 GET http ? / malformed"}, nil},
		{"path behind a field", begin + frame(headers, whole, 1, get, scheme, literal("a", ""), root), nil, []string{"settings", "1 GET http ? / a= malformed"}, nil},
		{"status in a request", begin + frame(headers, whole, 1, request, ok), nil, []string{"settings", "1 GET http ? / malformed"}, nil},
		{"status of two digits", begin + frame(headers, whole, 1, "\x08\x0220"), nil, []string{"settings", "1 0 malformed"}, nil},
		{"unknown pseudo-header field", begin + frame(headers, whole, 1, request, literal(":x", "")), nil, []string{"settings", "1 GET http ? / malformed"}, nil},
		{"trailers before an end", server + frame(headers, whole, 1, ok) + frame(headers, whole, 1, literal("a", "")), nil, []string{"settings 3=100", "1 200", "1 trailers a= malformed"}, nil},
		{"more fields than the bound", begin + frame(headers, ends|whole, 1, request, strings.Repeat("\x90", 1030)) + frame(headers, ends|whole, 3, request), nil,
			[]string{"settings", "1 GET http ? /" + strings.Repeat(" accept-encoding=gzip, deflate", 1021) + " without 9", "1 end with a part missing", "3 GET http ? /", "3 end"}, nil},
		{"block above the bound", begin + frame(headers, ends, 1, request, strings.Repeat("\x90", 40000)) + frame(continuation, whole, 1, strings.Repeat("\x90", 30000)) +
			frame(headers, ends|whole, 3, request, "\xbe"), nil,
			[]string{"settings", "1 end with a part missing", "3 GET http ? / ?=?", "3 end with a part missing"}, nil},
	}
}

func behindGaps(begin string) []stream {
	first := begin + frame(headers, whole, 1, post, scheme, path("/a"), literal("x", "1"))
	at := len(first) + 9 + 2
	body := first + frame(data, 0, 1, "ab!") + frame(headers, ends|whole, 3, get, scheme, "\xbf") + frame(data, ends, 1)
	// What a capture shows behind a gap: three frames at least.
	next := func(fields string) string {
		return frame(window, 0, 0, "1234") + frame(headers, ends|whole, 5, get+scheme+fields) + frame(ping, 0, 0, "12345678")
	}
	return []stream{
		{"field of an earlier request", body, nil, []string{"settings", "1 POST http ? /a x=1", "1 body ab!", "3 GET http ? /a", "3 end", "1 end"}, nil},
		{"gap at the end of a body", first + frame(data, 0, 1, "ab!")[:9+2] + frame(headers, ends|whole, 3, get, scheme, "\xbf") + frame(data, ends, 1), []gap{{at, 1}},
			[]string{"settings", "1 POST http ? /a x=1", "1 body ab", "gap true", "3 GET http ? /a", "3 end", "1 end with a part missing"}, nil},
		{"gap over the end of a body", first + frame(data, 0, 1, "ab!")[:9+2] + next("\xbf"), []gap{{at, 20}},
			[]string{"settings", "1 POST http ? /a x=1", "1 body ab", "gap false", "5 GET http ? ? ?=?", "5 end with a part missing"}, nil},
		{"gap in a header block", first[:len(first)-4] + frame(headers, ends|whole, 3, get, scheme, path("/b"), "\xbf\x7f\x00\x03new\xbe"), []gap{{len(first) - 4, 4}},
			[]string{"settings", "gap true", "3 GET http ? /b ?=? ?=new ?=new", "3 end with a part missing"}, nil},
		{"gap in a header block that ends a stream", begin + frame(headers, ends|whole, 1, get, scheme, root)[:10], []gap{{len(begin) + 10, 2}},
			[]string{"settings", "gap true", "1 end with a part missing"}, nil},
		{"gap before a continuation", begin + frame(headers, ends, 1, get) + next(root), []gap{{len(begin) + 10, 11}}, []string{"settings", "gap false", "5 GET http ? /", "5 end"}, nil},
		{"gap in padding", first + frame(data, ends|padded, 1, "\x05ab\x00\x00\x00\x00\x00")[:9+5] + frame(ping, 0, 0, "12345678"), []gap{{len(first) + 9 + 5, 3}},
			[]string{"settings", "1 POST http ? /a x=1", "1 body ab", "gap true", "1 end with a part missing"}, nil},
		{"gap before padding", first + frame(data, ends|padded, 1, "\x05ab\x00\x00\x00\x00\x00")[:9] + "\x00\x00", []gap{{len(first) + 9, 6}},
			[]string{"settings", "1 POST http ? /a x=1", "gap true", "1 end with a part missing"}, nil},
		{"gap in the code of a reset", first + frame(reset, 0, 1, "\x00\x00\x00\x08")[:11] + frame(data, ends, 1), []gap{{len(first) + 11, 2}},
			[]string{"settings", "1 POST http ? /a x=1", "gap true", "1 end"}, nil},
		{"within a connection", "octets of a body" + next(path("/b")+"\xbf"), []gap{{0, -1}},
			[]string{"gap false", "5 GET http ? /b ?=?", "5 end with a part missing"}, nil},
		{"within a connection, a later block", next(path("/b")) + frame(headers, ends|whole, 7, get, scheme, "\xbe", "\xbf"), []gap{{0, -1}},
			[]string{"gap false", "5 GET http ? /b", "5 end", "7 GET http ? /b ?=?", "7 end with a part missing"}, nil},
		{"within a header block", "xyz" + frame(continuation, 0, 1, "abc") + frame(continuation, whole, 1, "abc") + next(root), []gap{{0, -1}}, []string{"gap false", "5 GET http ? /", "5 end"}, nil},
		{"within a response of unknown fields", frame(window, 0, 0, "1234") + frame(ping, 0, 0, "12345678") + frame(headers, whole, 1, "\xbe") + frame(headers, whole, 3, "\xbe", ok) + frame(headers, ends|whole, 3, "\xbe"),
			[]gap{{0, -1}}, []string{"gap false", "1 unclear ?=?", "3 200 ?=?", "3 trailers ?=?", "3 end with a part missing"}, nil},
		{"settings after an unknown update", next(path("/b")) + frame(headers, ends|whole, 7, "\x20", get, scheme, root) + frame(headers, ends|whole, 9, "\xbe"), []gap{{0, -1}},
			[]string{"gap false", "5 GET http ? /b", "5 end", "7 GET http ? /", "7 end"}, http2.ErrBlock},
		{"two frames alone", frame(window, 0, 0, "1234") + frame(headers, ends|whole, 5, get+scheme), []gap{{0, -1}}, []string{"gap false"}, nil},
		{"no frames", strings.Repeat("\x00", 100), []gap{{0, -1}}, []string{"gap false"}, nil},
	}
}

func invalid(begin string) []stream {
	cases := []struct {
		name   string
		octets string
		err    error
	}{
		{"stream zero", frame(data, 0, 0, "a"), http2.ErrFrame},
		{"head on stream zero", frame(headers, whole, 0, get), http2.ErrFrame},
		{"padding above the frame", frame(data, padded, 1, "\x02a"), http2.ErrFrame},
		{"padding without a length", frame(data, padded, 1), http2.ErrFrame},
		{"padding above a block", frame(headers, padded|whole, 1, "\x02", get), http2.ErrFrame},
		{"block shorter than its priority", frame(headers, prioritised|whole, 1, get), http2.ErrFrame},
		{"short promise", frame(push, whole, 1, "abc"), http2.ErrFrame},
		{"reset of three octets", frame(reset, 0, 1, "abc"), http2.ErrFrame},
		{"settings on a stream", frame(settings, 0, 1), http2.ErrFrame},
		{"settings of five octets", frame(settings, 0, 0, "abcde"), http2.ErrFrame},
		{"settings in an answer", frame(settings, ack, 0, "abcdef"), http2.ErrFrame},
		{"settings above the bound", frame(settings, 0, 0, strings.Repeat("abcdef", 3000)), http2.ErrFrame},
		{"short ping", frame(ping, 0, 0, "abc"), http2.ErrFrame},
		{"short going away", frame(goAway, 0, 0, "abc"), http2.ErrFrame},
		{"short window", frame(window, 0, 0, "abc"), http2.ErrFrame},
		{"continuation of nothing", frame(continuation, whole, 1, get), http2.ErrOrder},
		{"frame within a block", frame(headers, 0, 1, get) + frame(ping, 0, 0, "12345678"), http2.ErrOrder},
		{"continuation of another stream", frame(headers, 0, 1, get) + frame(continuation, whole, 3, get), http2.ErrOrder},
		{"unknown index", frame(headers, whole, 1, "\xbe"), http2.ErrBlock},
		{"string above its block", frame(headers, whole, 1, "\x40\x7f\xff\xff\xff\x07"), http2.ErrBlock},
		{"end within a header", frame(data, 0, 1)[:8], http2.ErrCut},
		{"end within a body", frame(data, 0, 1, "ab")[:10] + "", http2.ErrCut},
		{"end within a block", frame(headers, 0, 1, get), http2.ErrCut},
	}
	all := []stream{
		{"HTTP/1.1", "GET / HTTP/1.1\r\n", nil, nil, http2.ErrPreface},
		{"PROPFIND", "PROPFIND / HTTP/1.1\r\n", nil, nil, http2.ErrPreface},
		{"no settings", preface + frame(headers, whole, 1, get), nil, nil, http2.ErrPreface},
		{"end within the preface", preface[:10], nil, nil, http2.ErrCut},
	}
	for _, c := range cases {
		s := stream{c.name, begin + c.octets, nil, []string{"settings"}, c.err}
		if c.name == "end within a body" {
			s.want = append(s.want, "1 body a")
		}
		all = append(all, s)
	}
	return all
}

// TestReadsStreams checks that each stream is read the same whatever its pieces.
func TestReadsStreams(t *testing.T) {
	for _, s := range streams() {
		for _, size := range []int{1, 2, 3, 7, 64, len(s.octets) + 1} {
			if size < 64 && len(s.octets) > 10000 {
				continue
			}
			var d http2.Decoder
			got, err := read(&d, script{[]byte(s.octets), s.gaps}, size)
			if !errors.Is(err, s.err) || strings.Join(got, "|") != strings.Join(s.want, "|") {
				t.Errorf("%s, in pieces of %d: got\n%q, %v, want\n%q, %v", s.name, size, got, err, s.want, s.err)
				break
			}
		}
	}
}

// TestCountsABlockThatAGapCuts loses the end of a header block of one frame, with and without
// octets after the frame.
func TestCountsABlockThatAGapCuts(t *testing.T) {
	octets := preface + frame(settings, 0, 0) + frame(headers, ends|whole, 1, get, scheme, root)
	cut := len(octets) - 2
	for _, lost := range []int64{2, 20, -1} {
		var d http2.Decoder
		if _, err := read(&d, script{[]byte(octets[:cut]), []gap{{cut, lost}}}, cut); err != nil {
			t.Fatalf("gap of %d octets: %v", lost, err)
		}
		if c := d.Counts; c.Undecoded != 1 || c.Heads != 0 || c.Gaps != 1 {
			t.Errorf("gap of %d octets: %+v", lost, c)
		}
	}
}
