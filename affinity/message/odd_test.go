package message

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"vitrine/internal/capturetest"
)

// sixth returns an Ethernet frame of IPv4 as one of IPv6.
func sixth(frame []byte) []byte {
	const kind, protocol, src, dst, header = 12, 23, 26, 30, 34
	b := append(bytes.Clone(frame[:kind]), 0x86, 0xdd, 0x60, 0, 0, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(len(frame)-header))
	b = append(b, frame[protocol], 64)
	for _, at := range []int{src, dst} {
		b = append(b, 0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0)
		b = append(b, frame[at:at+4]...)
	}
	return append(b, frame[header:]...)
}

// snapped returns a capture with frames of at most n bytes, as with a snapshot length.
func snapped(t testing.TB, file string, n int) string {
	t.Helper()
	const header, record, captured = 24, 16, 8
	in, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	out, in := bytes.Clone(in[:header]), in[header:]
	for len(in) > 0 {
		whole := int(binary.LittleEndian.Uint32(in[captured:]))
		part := min(n, whole)
		binary.LittleEndian.PutUint32(in[captured:], uint32(part))
		out = append(out, in[:record+part]...)
		in = in[record+whole:]
	}
	name := filepath.Join(t.TempDir(), "snapped.pcap")
	if err := os.WriteFile(name, out, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestSIPOverTCPAndIPv6: one segment has several requests after a keep-alive, and answers
// span segments.
func TestSIPOverTCPAndIPv6(t *testing.T) {
	lines, _ := read(t, Options{}, built(t, func(f *capturetest.File) {
		at := start
		add := func(frame []byte) { at += 1e6; f.Add(at, sixth(frame)) }
		conn := capturetest.Conn{Client: client, Server: end("192.0.2.4:5060"), Frames: &capturetest.Frames{}}
		conn.Open(add)
		add(conn.Send(false, bytes.Join([][]byte{[]byte("\r\n\r\n"), sipRequest("REGISTER", "a", 1), sipRequest("REGISTER", "b", 2)}, nil)))
		answers := append(sipAnswer(200, "REGISTER", "b", 2), sipAnswer(403, "REGISTER", "a", 1)...)
		add(conn.Send(true, answers[:100]))
		add(conn.Send(true, answers[100:]))
	}))
	const forth, back = "2001:db8::c000:203 > 2001:db8::c000:204 SIP ", "2001:db8::c000:204 > 2001:db8::c000:203 SIP "
	expect(t, lines, forth+`request "REGISTER"|IMPU*=a@ims.test`, forth+`request "REGISTER"|IMPU*=b@ims.test`,
		back+`answer "200 REGISTER"| of 2 `, back+`answer "403 REGISTER"| of 1 failed cause 403 `)
}

// TestASnapshotLengthCutsMessages: a message with a complete header is understood; other
// messages are counted.
func TestASnapshotLengthCutsMessages(t *testing.T) {
	const headers, body = 42, 300 // Ethernet, IPv4 and UDP; SDP
	text := bytes.Replace(sipRequest("INVITE", "a", 1), []byte("Content-Length: 0"), []byte("Content-Length: 300"), 1)
	whole := built(t, func(f *capturetest.File) {
		var b capturetest.Frames
		f.Add(start, b.UDP(ue, proxy, append(bytes.Clone(text), strings.Repeat("a=x\r\n", body/5)...)))
	})
	lines, s := read(t, Options{}, snapped(t, whole, headers+len(text)+50))
	expect(t, lines, fmt.Sprintf(`SIP request "INVITE" %d B|Call-ID=call-1`, len(text)+body))
	if s.Captures.Cut != 1 {
		t.Errorf("got %d truncated packets, want 1", s.Captures.Cut)
	}
	lines, s = read(t, Options{}, snapped(t, whole, headers+len(text)/2))
	if len(lines) != 0 || s.Protocols[0].Undecodable[cutReason] != 1 {
		t.Errorf("%q, %+v", lines, s.Protocols)
	}
}

// TestMessagesAfterAClockWasSetBack: the first of them says so, and a message that began
// before has the time of its end.
func TestMessagesAfterAClockWasSetBack(t *testing.T) {
	at := start
	var ends []int64
	file := built(t, func(f *capturetest.File) {
		conn := capturetest.Conn{Client: client, Server: server, Frames: &capturetest.Frames{}}
		add := func(frame []byte) {
			at += 1e6
			f.Add(at, frame)
		}
		conn.Open(add)
		for i := range uint32(3) {
			text := diameterMessage(302, true, i, "alice")
			add(conn.Send(false, text[:40]))
			if i == 1 {
				at -= int64(10 * time.Second)
			}
			add(conn.Send(false, text[40:]))
			ends = append(ends, at)
		}
	})
	var times []int64
	var setBack []bool
	each(t, file, func(m *Message) {
		times, setBack = append(times, m.Time), append(setBack, m.SetBack)
	})
	if want := []bool{false, true, false}; !slices.Equal(times, ends) || !slices.Equal(setBack, want) {
		t.Errorf("got times %v, want %v; set back %v, want %v", times, ends, setBack, want)
	}
}

// TestDisorderIsCounted: packets that are out of order by more than the window of copies are
// counted, and the summary says what to do.
func TestDisorderIsCounted(t *testing.T) {
	_, s := read(t, Options{}, built(t, func(f *capturetest.File) {
		var b capturetest.Frames
		for i, at := range []int64{0, 100, 50, 49, 51, 300, 150, 310, 261} { // ms: 49 and 150 are too early
			f.Add(start+at*1e6, b.UDP(ue, proxy, sipRequest("REGISTER", "a", i)))
		}
	}))
	var b strings.Builder
	if err := s.Text(&b); err != nil {
		t.Fatal(err)
	}
	if s.Disordered != 2 || !strings.Contains(b.String(), "sort each file with reordercap  2\n") {
		t.Errorf("counted %d packets, want 2:\n%s", s.Disordered, b.String())
	}
}

// TestBytesSentAgainAreCounted: a message of TCP that is sent again is one message, and the summary has its
// bytes.
func TestBytesSentAgainAreCounted(t *testing.T) {
	const text = "GET / HTTP/1.1\r\n\r\n"
	lines, s := read(t, Options{}, built(t, func(f *capturetest.File) {
		at := start
		add := func(frame []byte) { at += 200e6; f.Add(at, frame) }
		conn := capturetest.Conn{Client: client, Server: server, Frames: &capturetest.Frames{}}
		conn.Open(add)
		add(conn.Send(false, []byte(text)))
		add(conn.Frames.TCP(client, server, 1001, 1001, capturetest.ACK, []byte(text)))
	}))
	expect(t, lines, `request "GET /"`)
	if want := (Gap{"bytes of TCP sent again", uint64(len(text))}); !slices.Contains(s.Gaps(), want) {
		t.Errorf("got %+v, want %+v", s.Gaps(), want)
	}
}

// TestSCTPMessagesThatAreNotWhole: a message whose fragments are not all in the capture, or
// were cut off, is counted.
func TestSCTPMessagesThatAreNotWhole(t *testing.T) {
	const headers, flags, middle, first, last = 62, 47, 0, 2, 1 // Ethernet, IPv4, SCTP and DATA; the flags of DATA
	text := diameterMessage(302, true, 1, "alice")
	pieces := [][]byte{text[:40], text[40:80], text[80:]}
	fragments := func(f *capturetest.File, n int) {
		var b capturetest.Frames
		for i, edges := range []byte{first, middle, last}[:n] {
			frame := b.SCTP(client, server, uint32(i), ppidDiameter, pieces[i])
			frame[flags] = edges
			f.Add(start+int64(i), frame)
		}
	}
	whole := built(t, func(f *capturetest.File) { fragments(f, 3) })
	lines, s := read(t, Options{}, whole)
	expect(t, lines, `Diameter request "Location-Info-Request"|IMPI*=alice@ims.test`)
	if len(s.Protocols[0].Undecodable) != 0 {
		t.Errorf("%+v", s.Protocols[0])
	}
	for name, c := range map[string]struct{ file, why string }{
		"the capture ends before the last fragment": {built(t, func(f *capturetest.File) { fragments(f, 2) }), fragmentReason},
		"later fragments are missing": {built(t, func(f *capturetest.File) {
			fragments(f, 1)
			f.Add(start+60e9, (&capturetest.Frames{}).SCTP(client, end("192.0.2.9:3868"), 7, ppidDiameter, diameterMessage(302, true, 2, "bob")))
		}), fragmentReason},
		"cut off within the payload": {snapped(t, whole, headers+20), cutReason},
		"cut off after the headers":  {snapped(t, whole, headers), cutReason},
	} {
		t.Run(name, func(t *testing.T) {
			_, s := read(t, Options{}, c.file)
			var b strings.Builder
			if err := s.Text(&b); err != nil {
				t.Fatal(err)
			}
			if n := s.Protocols[0].Undecodable[c.why]; n != 1 || !strings.Contains(b.String(), "Diameter: "+c.why+"  ") {
				t.Errorf("counted %d messages as %s:\n%s", n, c.why, b.String())
			}
		})
	}
}

// s1apSender returns a function that adds a frame of S1AP to a capture, each one a period (ns) after the last.
func s1apSender(f *capturetest.File, period int64) func(from, to netip.AddrPort, tag, tsn uint32, text string) {
	const verification = 38 // where a frame has the tag
	var b capturetest.Frames
	at := start
	return func(from, to netip.AddrPort, tag, tsn uint32, text string) {
		at += period
		frame := b.SCTP(from, to, tsn, ppidS1AP, []byte(text))
		binary.BigEndian.PutUint32(frame[verification:], tag)
		f.Add(at, frame)
	}
}

// TestSCTPOnTwoPaths: a request that is sent again on the other path of its association is a repeat, and an
// answer on that path finds the request.
func TestSCTPOnTwoPaths(t *testing.T) {
	enb, mme := [2]netip.AddrPort{end("192.0.2.7:36412"), end("192.0.2.17:36412")}, [2]netip.AddrPort{end("192.0.2.8:36412"), end("192.0.2.18:36412")}
	lines, _ := read(t, Options{}, built(t, func(f *capturetest.File) {
		send := s1apSender(f, 100e6)
		send(enb[0], mme[0], 1, 1, s1Setup)
		send(mme[0], enb[0], 2, 1, s1SetupResponse)
		send(enb[0], mme[0], 1, 2, s1Setup)
		send(enb[1], mme[1], 1, 2, s1Setup)
		send(mme[1], enb[1], 2, 2, s1SetupResponse)
	}))
	const forth, back = "192.0.2.7 > 192.0.2.8 S1AP ", "192.0.2.8 > 192.0.2.7 S1AP "
	expect(t, lines, forth+"request", back+"answer| of 1", forth+"request", forth+"repeat| of 3", back+"answer| of 3")
}

// TestSCTPThroughNAT: where addresses are translated, each message is seen twice. Both have their own answer.
func TestSCTPThroughNAT(t *testing.T) {
	enb, outside, mme := end("192.0.2.7:36412"), end("192.0.2.8:36412"), end("192.0.2.9:36412")
	lines, _ := read(t, Options{}, built(t, func(f *capturetest.File) {
		send := s1apSender(f, 1e6)
		for tsn := range uint32(2) {
			send(enb, outside, 1, tsn, s1Setup)
			send(enb, mme, 1, tsn, s1Setup)
			send(mme, enb, 2, tsn, s1SetupResponse)
			send(outside, enb, 2, tsn, s1SetupResponse)
		}
	}))
	const forth, inside, back, behind = "192.0.2.7 > 192.0.2.8 S1AP ", "192.0.2.7 > 192.0.2.9 S1AP ", "192.0.2.9 > 192.0.2.7 S1AP ", "192.0.2.8 > 192.0.2.7 S1AP "
	expect(t, lines, forth+"request", inside+"request", back+"answer| of 2", behind+"answer| of 1",
		forth+"request", inside+"request", back+"answer| of 6", behind+"answer| of 5")
}

// TestClocksThatAreWrong: requests find their answers although all packets have the same
// time, or the clock was set back, and the summary says so.
func TestClocksThatAreWrong(t *testing.T) {
	for name, c := range map[string]struct {
		at   func(i int, at int64) int64
		says string
	}{
		"no times": {func(int, int64) int64 { return 0 }, "all packets have the same time"},
		"set back": {func(i int, at int64) int64 {
			if i >= 20 {
				at -= int64(time.Hour)
			}
			return at
		}, "a clock was set back  1"},
	} {
		t.Run(name, func(t *testing.T) {
			i := 0
			_, s := read(t, Options{}, built(t, func(f *capturetest.File) {
				registrations(20, func(at int64, frame []byte, _ bool) {
					f.Add(c.at(i, at), frame)
					i++
				})
			}))
			var b strings.Builder
			if err := s.Text(&b); err != nil {
				t.Fatal(err)
			}
			if n := s.Protocols[0]; n.Requests != 20 || n.Answers != 20 || n.Orphans != 0 || !strings.Contains(b.String(), c.says) {
				t.Errorf("got %+v, want %q in\n%s", n, c.says, b.String())
			}
		})
	}
}
