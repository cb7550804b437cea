package message

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"vitrine"
	"vitrine/affinity/capture"
	"vitrine/internal/capturetest"
)

// registrations adds n registrations: a REGISTER and its answer, 20 ms later.
func registrations(n int, add func(at int64, frame []byte, back bool)) {
	var b capturetest.Frames
	at := start
	for i := range n {
		user := fmt.Sprintf("user%d", i)
		at += 10e6
		add(at, b.UDP(ue, proxy, sipRequest("REGISTER", user, i)), false)
		at += 20e6
		add(at, b.UDP(proxy, ue, sipAnswer(200, "REGISTER", user, i)), true)
	}
}

// two writes the captures of two hosts. The second host captures each packet after a delay,
// with a clock that is ahead.
func two(t *testing.T, n int, forth, back, ahead time.Duration, drift float64) (files [2]string) {
	type packet struct {
		at    int64
		frame []byte
	}
	var packets [2][]packet
	registrations(n, func(at int64, frame []byte, isBack bool) {
		near, far := at, at+int64(forth)
		if isBack {
			near, far = at+int64(back), at
		}
		far += int64(ahead) + int64(drift*float64(far-start))
		packets[0] = append(packets[0], packet{near, bytes.Clone(frame)})
		packets[1] = append(packets[1], packet{far, bytes.Clone(frame)})
	})
	for i := range files {
		slices.SortStableFunc(packets[i], func(a, b packet) int { return int(a.at - b.at) })
		files[i] = built(t, func(f *capturetest.File) {
			for _, p := range packets[i] {
				f.Add(p.at, p.frame)
			}
		})
	}
	return files
}

// doubled writes a capture that has each packet of another one twice, as a mirror port of both directions
// gives them.
func doubled(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return built(t, func(f *capturetest.File) {
		const header, record = 24, 16
		le := binary.LittleEndian
		for rest := content[header:]; len(rest) > 0; {
			at := int64(le.Uint32(rest))*1e9 + int64(le.Uint32(rest[4:]))
			end := record + int(le.Uint32(rest[8:]))
			f.Add(at, rest[record:end])
			f.Add(at+1000, rest[record:end])
			rest = rest[end:]
		}
	})
}

// checkDelays checks that both files have each message, with its delay, and how many packets are copies.
func checkDelays(t *testing.T, files [2]string, n, copies int, forth, back, within time.Duration) *Summary {
	t.Helper()
	got := 0
	s, err := Read(context.Background(), files[:], Options{}, func(m *Message) error {
		got++
		want := forth
		if m.Kind == Answer {
			want = back
			if m.Answers == 0 {
				t.Errorf("answer %d at %d has no request", m.ID, m.Time)
			}
		}
		if d := time.Duration(m.Arrived - m.Time); m.Arrived == 0 || (d-want).Abs() > within {
			t.Errorf("%s took %v, want %v", m.Name, d, want)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got != 2*n || s.Copies != uint64(copies) {
		t.Errorf("got %d messages and %d copies, want %d and %d", got, s.Copies, 2*n, copies)
	}
	return s
}

// TestDelayBetweenTwoPlaces checks that the delay of a hop shows, also if it is in one
// direction only.
func TestDelayBetweenTwoPlaces(t *testing.T) {
	for _, d := range [][2]time.Duration{{5 * time.Millisecond, 5 * time.Millisecond}, {5 * time.Millisecond, 100 * time.Microsecond}} {
		s := checkDelays(t, two(t, 50, d[0], d[1], 0, 0), 50, 100, d[0], d[1], 0)
		if s.Clocks[1].Corrected {
			t.Errorf("a correct clock was corrected: %+v", s.Clocks[1])
		}
	}
}

// TestClockThatIsAheadIsCorrected checks offsets beyond the window of copies, and drift. It does so also if
// one of the files has each packet twice.
func TestClockThatIsAheadIsCorrected(t *testing.T) {
	for _, c := range []struct {
		ahead time.Duration
		drift float64
		n     int
	}{{300 * time.Millisecond, 0, 50}, {-300 * time.Millisecond, 0, 50}, {3 * time.Hour, 0, 50}, {300 * time.Millisecond, 50e-6, 2000}} {
		const delay = 2 * time.Millisecond
		files := two(t, c.n, delay, delay, c.ahead, c.drift)
		for twice := range 3 {
			these, copies := files, 2*c.n
			if twice < len(files) {
				these[twice] = doubled(t, files[twice])
				copies *= 2
			}
			k := checkDelays(t, these, c.n, copies, delay, delay, 200*time.Microsecond).Clocks[1]
			if !k.Corrected || math.Abs(k.Offset-c.ahead.Seconds()) > 0.004 || math.Abs(k.Drift-c.drift*1e6) > 2 || k.Residual > 0.001 {
				t.Errorf("clock ahead by %v, drift %v, file %d has packets twice: got %+v", c.ahead, c.drift, twice, k)
			}
		}
	}
}

// TestEachGroupOfFilesHasAReference reads the captures of two hosts, in files of an hour.
func TestEachGroupOfFilesHasAReference(t *testing.T) {
	const n, ahead = 50, 300 * time.Millisecond
	type packet struct {
		at    int64
		frame []byte
	}
	var packets [4][]packet // of both hosts in one hour, then of both in the next
	i := 0
	registrations(2*n, func(at int64, frame []byte, _ bool) {
		hour := i / (2 * n)
		i++
		at += int64(hour) * int64(time.Hour)
		packets[2*hour] = append(packets[2*hour], packet{at, bytes.Clone(frame)})
		packets[2*hour+1] = append(packets[2*hour+1], packet{at + int64(ahead), bytes.Clone(frame)})
	})
	var files []string
	for _, all := range packets {
		files = append(files, built(t, func(f *capturetest.File) {
			for _, p := range all {
				f.Add(p.at, p.frame)
			}
		}))
	}
	_, s := read(t, Options{}, files...)
	for i, c := range s.Clocks {
		reference, offset := "", 0.0
		if i%2 == 1 {
			reference, offset = files[i-1], ahead.Seconds()
		}
		if c.Reference != reference || c.Corrected != (offset > 0) || math.Abs(c.Offset-offset) > 1e-6 {
			t.Errorf("clock %d: got %+v, want %g s ahead of %q", i, c, offset, reference)
		}
	}
	if len(s.Clocks) != 4 || s.Copies != 4*n {
		t.Errorf("got %d clocks and %d copies, want 4 and %d", len(s.Clocks), s.Copies, 4*n)
	}
}

// TestSamplesAreBounded: with many files, fewer packets of each are compared, and no more are kept.
func TestSamplesAreBounded(t *testing.T) {
	for _, files := range []int{2, 64, 65, 1000, math.MaxUint16} {
		if n := samplesOf(files); n*files > allSamples || n < fewest || files <= 64 && n != samples {
			t.Errorf("of each of %d files, %d packets are compared", files, n)
		}
	}
	const packets, number = 100, 16
	file := built(t, func(f *capturetest.File) {
		registrations(packets/2, func(at int64, frame []byte, _ bool) { f.Add(at, frame) })
	})
	all, err := takeSamples(context.Background(), file, samples)
	if err != nil || len(all) != packets {
		t.Fatalf("got %d samples, error %v", len(all), err)
	}
	some, err := takeSamples(context.Background(), file, number)
	if err != nil || !slices.Equal(some, all[:number]) || cap(some) >= 2*number {
		t.Errorf("got %d samples with room for %d, error %v, want the lowest %d", len(some), cap(some), err, number)
	}
}

// TestPacketsTwiceAreCopies checks a capture that has every second packet twice, as a mirror port of both
// directions gives them. They are no retransmissions.
func TestPacketsTwiceAreCopies(t *testing.T) {
	file := built(t, func(f *capturetest.File) {
		i := 0
		registrations(20, func(at int64, frame []byte, _ bool) {
			f.Add(at, frame)
			if i++; i%4 < 2 {
				f.Add(at+1000, frame)
			}
		})
	})
	_, s := read(t, Options{}, file)
	if n := s.Protocols[0]; n.Requests != 20 || n.Answers != 20 || n.Repeats != 0 || n.Orphans != 0 || s.Copies != 20 {
		t.Errorf("got counts %+v, %d copies", n, s.Copies)
	}
}

// TestCookedCopiesAreNoRepeats checks a capture of all interfaces in the old format, SLL. It has each packet
// at the veth of a container, at the bridge and at eth0.
func TestCookedCopiesAreNoRepeats(t *testing.T) {
	const ethernet, linkType, sll = 14, 20, 113
	file := built(t, func(f *capturetest.File) {
		registrations(20, func(at int64, frame []byte, _ bool) {
			for i, seen := range [][2]byte{{3, 1}, {0, 1}, {4, 2}} { // packet type, and the end of the sender's address
				head := []byte{0, seen[0], 0, 1, 0, 6, 2, 0, 0, 0, 0, seen[1], 0, 0, 8, 0}
				f.Add(at+int64(i)*1000, append(head, frame[ethernet:]...))
			}
		})
	})
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	content[linkType] = sll
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	_, s := read(t, Options{}, file)
	if n := s.Protocols[0]; n.Requests != 20 || n.Answers != 20 || n.Repeats != 0 || s.Copies != 80 {
		t.Errorf("got counts %+v, %d copies", n, s.Copies)
	}
}

// TestStreamWithPacketsTwice checks that a TCP connection does not deliver anything
// twice.
func TestStreamWithPacketsTwice(t *testing.T) {
	file := built(t, func(f *capturetest.File) {
		at := start
		add := func(frame []byte) {
			at += 1e6
			f.Add(at, frame)
			f.Add(at+1000, frame)
		}
		conn := capturetest.Conn{Client: client, Server: server, Frames: &capturetest.Frames{}}
		conn.Open(add)
		for i := range uint32(10) {
			add(conn.Send(false, diameterMessage(302, true, i, "a")))
			add(conn.Send(true, diameterMessage(302, false, i, "a")))
		}
	})
	_, s := read(t, Options{}, file)
	if n := s.Protocols[0]; n.Messages != 20 || n.Requests != 10 || n.Answers != 10 || n.Orphans != 0 {
		t.Errorf("got counts %+v", n)
	}
}

// TestLostSegmentsCostTheirMessagesOnly checks that streams go on behind a gap.
func TestLostSegmentsCostTheirMessagesOnly(t *testing.T) {
	const n, lost = 30, 7
	texts := map[string][2]func(i int) string{
		"Diameter": {func(i int) string { return string(diameterMessage(302, true, uint32(i), "a")) }, func(i int) string { return string(diameterMessage(302, false, uint32(i), "a")) }},
		"SIP":      {func(i int) string { return string(sipRequest("MESSAGE", "a", i)) }, func(i int) string { return string(sipAnswer(200, "MESSAGE", "a", i)) }},
		"HTTP":     {func(i int) string { return fmt.Sprintf("GET /%d HTTP/1.1\r\n\r\n", i) }, func(int) string { return "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok" }},
		"Redis":    {func(int) string { return "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n" }, func(int) string { return "$2\r\nok\r\n" }},
		"S1AP":     {func(int) string { return frame(s1Setup) }, func(int) string { return frame(s1SetupResponse) }},
		"MongoDB":  {func(i int) string { return opMsg(uint32(i+1), 0, bson("\x10ping\x00\x01\x00\x00\x00")) }, func(i int) string { return opMsg(uint32(i+100), uint32(i+1), bson("")) }},
	}
	for name, text := range texts {
		t.Run(name, func(t *testing.T) {
			file := built(t, func(f *capturetest.File) {
				at := start
				add := func(frame []byte) { at += 200e6; f.Add(at, frame) }
				conn := capturetest.Conn{Client: client, Server: end("192.0.2.4:7777"), Frames: &capturetest.Frames{}}
				conn.Open(add)
				for i := range n {
					// Messages do not end where segments do.
					a, b := text[0](i), text[1](i)
					for _, piece := range []string{a[:len(a)/2], a[len(a)/2:]} {
						if frame := conn.Send(false, []byte(piece)); i != lost {
							add(frame)
						}
					}
					add(conn.Send(true, []byte(b)))
				}
			})
			_, s := read(t, Options{}, file)
			if len(s.Protocols) != 1 {
				t.Fatalf("got protocols %+v, want 1", s.Protocols)
			}
			c := s.Protocols[0]
			if c.Protocol != name || c.Requests < n-2 || c.Requests > n-1 || c.Answers != n || c.Answers-c.Orphans < n-2 {
				t.Errorf("got counts %+v", c)
			}
			if c.Undecodable["bytes lost"] == 0 {
				t.Errorf("the gap was not counted: %v", c.Undecodable)
			}
		})
	}
}

// TestLostBytesOfABodyCount loses a segment within a body.
func TestLostBytesOfABodyCount(t *testing.T) {
	const head, part = "PUT /x HTTP/1.1\r\nContent-Length: 30\r\n\r\n", "0123456789"
	file := built(t, func(f *capturetest.File) {
		at := start
		add := func(frame []byte) { at += 200e6; f.Add(at, frame) }
		conn := capturetest.Conn{Client: client, Server: end("192.0.2.4:7777"), Frames: &capturetest.Frames{}}
		conn.Open(add)
		add(conn.Send(false, []byte(head+part)))
		conn.Send(false, []byte(part)) // lost
		add(conn.Send(false, []byte(part)))
		add(conn.Send(true, []byte("HTTP/1.1 204 No Content\r\n\r\n")))
	})
	lines, _ := read(t, Options{}, file)
	if all, want := strings.Join(lines, "\n"), fmt.Sprintf(`"PUT /x" %d B`, len(head)+30); !strings.Contains(all, want) {
		t.Errorf("got no %s:\n%s", want, all)
	}
}

// TestConnectionsFromTheMiddle checks captures that begin within connections.
func TestConnectionsFromTheMiddle(t *testing.T) {
	file := built(t, func(f *capturetest.File) {
		at := start
		add := func(frame []byte) { at += 1e6; f.Add(at, frame) }
		conn := capturetest.Conn{Client: client, Server: server, Frames: &capturetest.Frames{}}
		m := diameterMessage(302, true, 1, "a")
		add(conn.Send(false, m[len(m)/2:]))
		for i := range uint32(5) {
			add(conn.Send(false, diameterMessage(302, true, i, "a")))
			add(conn.Send(true, diameterMessage(302, false, i, "a")))
		}
	})
	lines, s := read(t, Options{}, file)
	if n := s.Protocols[0]; n.Requests != 5 || n.Answers != 5 || n.Orphans != 0 || !strings.Contains(lines[0], "192.0.2.3 > 192.0.2.4") {
		t.Errorf("got counts %+v, %s", n, lines[0])
	}
}

// TestUnknownProtocolsAreEdges checks bytes and round trips of what is not known.
func TestUnknownProtocolsAreEdges(t *testing.T) {
	file := built(t, func(f *capturetest.File) {
		var b capturetest.Frames
		at := start
		add := func(frame []byte) { at += 1e6; f.Add(at, frame) }
		for range 3 {
			add(b.UDP(end("192.0.2.3:40000"), end("192.0.2.5:53"), []byte("question")))
			add(b.UDP(end("192.0.2.5:53"), end("192.0.2.3:40000"), []byte("reply")))
		}
		conn := capturetest.Conn{Client: client, Server: end("192.0.2.6:22"), Frames: &b}
		conn.Open(add)
		for range 100 {
			add(conn.Send(false, []byte{0, 0, 0, 12, 200, 1, 2, 3}))
			add(conn.Send(true, []byte{0, 0, 0, 13, 201, 1, 2, 3, 4}))
		}
	})
	_, s := read(t, Options{}, file)
	want := []Edge{{"192.0.2.3", "192.0.2.6", "TCP", 22, 200, 1700, 100}, {"192.0.2.3", "192.0.2.5", "UDP", 53, 6, 39, 3}}
	if !slices.Equal(s.Unknown, want) || s.Messages != 0 {
		t.Errorf("got edges %+v, want %+v", s.Unknown, want)
	}
}

// TestBadCaptures checks that each kind of bad input says what is wrong, and that what was
// understood is reported.
func TestBadCaptures(t *testing.T) {
	whole, err := os.ReadFile(built(t, func(f *capturetest.File) {
		registrations(20, func(at int64, frame []byte, _ bool) { f.Add(at, frame) })
	}))
	if err != nil {
		t.Fatal(err)
	}
	link := bytes.Clone(whole)
	link[20] = 147 // a link type for private use
	huge := bytes.Clone(whole)
	copy(huge[len(huge)-500:], bytes.Repeat([]byte{0xff}, 500))
	for name, c := range map[string]struct {
		content  []byte
		bad      bool // *vitrine.BadInput
		damaged  bool // *capture.Damage
		messages uint64
	}{
		"not a capture": {content: []byte("hello, world"), bad: true},
		"empty":         {content: nil, bad: true},
		"only a header": {content: whole[:24]},
		"truncated":     {content: whole[:len(whole)-100], damaged: true, messages: 39},
		"unknown link":  {content: link},
		"huge lengths":  {content: huge, damaged: true, messages: 38},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "x.pcap")
			if err := os.WriteFile(file, c.content, 0o600); err != nil {
				t.Fatal(err)
			}
			s, err := Read(context.Background(), []string{file}, Options{}, func(*Message) error { return nil })
			var bad *vitrine.BadInput
			var damage *capture.Damage
			if errors.As(err, &bad) != c.bad || errors.As(err, &damage) != c.damaged {
				t.Errorf("got error %v", err)
			}
			if s == nil || s.Messages+1 < c.messages || s.Messages > c.messages {
				t.Errorf("got summary %+v, want %d messages", s, c.messages)
			}
			if s != nil && s.Functions == nil {
				t.Error("got no list of functions, want one that may be empty")
			}
			if name == "unknown link" && s.Captures.Unknown[147] != 40 {
				t.Errorf("the unknown link type was not counted: %+v", s.Captures)
			}
		})
	}
}

// TestHandlersErrorEndsTheReading checks that a handler can stop.
func TestHandlersErrorEndsTheReading(t *testing.T) {
	file := built(t, func(f *capturetest.File) {
		registrations(20, func(at int64, frame []byte, _ bool) { f.Add(at, frame) })
	})
	stop := errors.New("stop")
	n := 0
	s, err := Read(context.Background(), []string{file}, Options{}, func(*Message) error { n++; return stop })
	if !errors.Is(err, stop) || n != 1 || s.Messages == 0 {
		t.Errorf("got %d messages, error %v", n, err)
	}
}

// TestMemoryIsBounded checks that a small limit holds, and that losses due to it are
// counted.
func TestMemoryIsBounded(t *testing.T) {
	file := built(t, func(f *capturetest.File) {
		var b capturetest.Frames
		for i := range 50_000 { // requests without answers, all at about one time
			f.Add(start+int64(i)*1000, b.UDP(ue, proxy, sipRequest("REGISTER", "a", i)))
		}
	})
	_, s := read(t, Options{MaxMemory: 1 << 20}, file)
	if s.Messages != 50_000 || s.GivenUp.Requests < 40_000 || s.GivenUp.Copies == 0 || s.GivenUp.Hurried == 0 {
		t.Errorf("got %d messages, given up %+v", s.Messages, s.GivenUp)
	}
}

// TestNamesOfFunctions checks names by address and by port, and ports on loopback.
func TestNamesOfFunctions(t *testing.T) {
	file := built(t, func(f *capturetest.File) {
		var b capturetest.Frames
		f.Add(start, b.UDP(ue, proxy, sipRequest("REGISTER", "a", 1)))
		f.Add(start+1e6, b.UDP(end("127.0.0.1:5060"), end("127.0.0.1:5080"), sipRequest("REGISTER", "a", 2)))
		f.Add(start+2e6, b.UDP(proxy, end("192.0.2.9:5080"), sipRequest("REGISTER", "a", 3)))
	})
	names := map[string]string{"192.0.2.2": "P-CSCF", "192.0.2.9:5080": "S-CSCF"}
	lines, _ := read(t, Options{Name: func(text string) string { return names[text] }}, file)
	expect(t, lines, "192.0.2.1 > P-CSCF", "127.0.0.1:5060 > 127.0.0.1:5080", "P-CSCF > S-CSCF")
}
