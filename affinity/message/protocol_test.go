package message

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"vitrine/internal/capturetest"
	"vitrine/wire/gtpc"
)

// The functions of built captures.
var (
	ue     = end("192.0.2.1:5060")
	proxy  = end("192.0.2.2:5060")
	client = end("192.0.2.3:40000")
	server = end("192.0.2.4:3868")
)

// sipRequest returns a request of a user, one of a number of calls.
func sipRequest(method, user string, n int) []byte {
	return fmt.Appendf(nil, "%s sip:ims.test SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.1:5060;branch=z9hG4bK-%d-%s\r\nMax-Forwards: 70\r\n"+
		"From: <sip:%s@IMS.test>;tag=f%d\r\nTo: <sip:%s@ims.test>\r\nCall-ID: call-%d@192.0.2.1\r\nCSeq: 1 %s\r\n"+
		"Authorization: Digest username=\"%s@ims.test\", realm=\"ims.test\", nonce=\"\", uri=\"sip:ims.test\", response=\"\"\r\nContent-Length: 0\r\n\r\n",
		method, n, method, user, n, user, n, method, user)
}

// sipAnswer returns the answer to sipRequest.
func sipAnswer(status int, method, user string, n int) []byte {
	return fmt.Appendf(nil, "SIP/2.0 %d Fine\r\nVia: SIP/2.0/UDP 192.0.2.1:5060;branch=z9hG4bK-%d-%s\r\n"+
		"From: <sip:%s@IMS.test>;tag=f%d\r\nTo: <sip:%s@ims.test>;tag=t%d\r\nCall-ID: call-%d@192.0.2.1\r\nCSeq: 1 %s\r\nContent-Length: 0\r\n\r\n",
		status, n, method, user, n, user, n, n, method)
}

// avp appends an AVP.
func avp(b []byte, code, vendor uint32, value string) []byte {
	b = binary.BigEndian.AppendUint32(b, code)
	size, flags := uint32(8), uint32(0x40)
	if vendor != 0 {
		size, flags = 12, 0xc0
	}
	b = binary.BigEndian.AppendUint32(b, flags<<24|size+uint32(len(value)))
	if vendor != 0 {
		b = binary.BigEndian.AppendUint32(b, vendor)
	}
	b = append(b, value...)
	return append(b, make([]byte, -len(value)&3)...)
}

// diameterMessage returns a message of Cx about a user.
func diameterMessage(command uint32, request bool, n uint32, user string) []byte {
	b := []byte{1, 0, 0, 0}
	flags := uint32(0x40)
	if request {
		flags = 0xc0
	}
	b = binary.BigEndian.AppendUint32(b, flags<<24|command)
	b = binary.BigEndian.AppendUint32(b, 16777216)
	b = binary.BigEndian.AppendUint32(b, n)
	b = binary.BigEndian.AppendUint32(b, n+7)
	b = avp(b, 263, 0, fmt.Sprintf("cscf.test;1;%d", n))
	b = avp(b, 264, 0, "cscf.test")
	if request {
		b = avp(b, 1, 0, user+"@ims.test")
		b = avp(b, 601, 10415, "sip:"+user+"@ims.test")
	} else {
		b = avp(b, 268, 0, "\x00\x00\x07\xd1")
	}
	b[1], b[2], b[3] = byte(len(b)>>16), byte(len(b)>>8), byte(len(b))
	return b
}

// connection returns a capture of one TCP connection. Each piece begins with > if the client
// sends it, with < if the server does.
func connection(t testing.TB, c, s string, pieces ...string) string {
	return built(t, func(f *capturetest.File) {
		at := start
		add := func(frame []byte) {
			at += 1e6
			f.Add(at, frame)
		}
		conn := capturetest.Conn{Client: end(c), Server: end(s), Frames: &capturetest.Frames{}}
		conn.Open(add)
		for _, p := range pieces {
			add(conn.Send(p[0] == '<', []byte(p[1:])))
		}
	})
}

// expect compares lines of messages. Each line has to have some words.
func expect(t *testing.T, lines []string, words ...string) {
	t.Helper()
	if len(lines) != len(words) {
		t.Errorf("got %d messages, want %d:\n%s", len(lines), len(words), strings.Join(lines, "\n"))
		return
	}
	for i, all := range words {
		for _, w := range strings.Split(all, "|") {
			if !strings.Contains(lines[i], w) {
				t.Errorf("message %d lacks %q:\n%s", i+1, w, lines[i])
			}
		}
	}
}

// hashes returns the identifiers of a capture by kind and text.
func hashes(t *testing.T, file string) map[string]uint64 {
	t.Helper()
	found := map[string]uint64{}
	each(t, file, func(m *Message) {
		for _, id := range m.Identifiers {
			found[id.Kind.String()+" "+string(id.Text)] = id.Hash
		}
	})
	return found
}

// TestOneUserIsTheSameInAllProtocols checks that identifiers are normalised.
func TestOneUserIsTheSameInAllProtocols(t *testing.T) {
	sip := hashes(t, built(t, func(f *capturetest.File) {
		f.Add(start, (&capturetest.Frames{}).UDP(ue, proxy, sipRequest("REGISTER", "alice", 1)))
	}))
	diameter := hashes(t, connection(t, client.String(), server.String(), ">"+string(diameterMessage(302, true, 1, "alice"))))
	http := hashes(t, connection(t, client.String(), "192.0.2.4:8888", ">GET /impi/alice%40ims.test/av?impu=sip%3Aalice%40ims.test HTTP/1.1\r\nHost: h\r\n\r\n"))
	json := hashes(t, connection(t, client.String(), "192.0.2.4:8888", ">PUT /x HTTP/1.1\r\nContent-Length: 46\r\n\r\n"+`{"impi":"alice@ims.test","a":"sip:alice@ims.test"}`[:46]))
	redis := hashes(t, connection(t, client.String(), "192.0.2.4:6379", ">*2\r\n$3\r\nGET\r\n$22\r\nreg:sip:alice@ims.test\r\n"))
	for _, id := range []string{"IMPU alice@ims.test", "IMPI alice@ims.test"} {
		want := sip[id]
		if want == 0 {
			t.Errorf("SIP does not report %s: %v", id, sip)
		}
		for name, other := range map[string]map[string]uint64{"Diameter": diameter, "HTTP": http} {
			if other[id] != want {
				t.Errorf("%s reports %s as %x, SIP as %x: %v", name, id, other[id], want, other)
			}
		}
	}
	if json["IMPI alice@ims.test"] != sip["IMPI alice@ims.test"] {
		t.Errorf("JSON reports %v", json)
	}
	record := hashes(t, connection(t, client.String(), "192.0.2.4:9999", ">PUT /kv/reg%2Fsip%3Aalice%40ims.test HTTP/1.1\r\nContent-Length: 0\r\n\r\n"))
	batch := hashes(t, connection(t, client.String(), "192.0.2.4:9999", ">POST /kv HTTP/1.1\r\nContent-Length: 32\r\n\r\n"+`{"key":"reg/sip:alice@ims.test"}`))
	for name, got := range map[string]map[string]uint64{"the key of a record": record, "a key in a body": batch} {
		if id := "IMPU alice@ims.test"; got[id] != sip[id] || len(got) > 2 {
			t.Errorf("%s reports %v", name, got)
		}
	}
	one := hashes(t, connection(t, client.String(), "192.0.2.4:9999", ">PUT /kv/reg%2Fa?space=one HTTP/1.1\r\nContent-Length: 0\r\n\r\n"))
	other := hashes(t, connection(t, client.String(), "192.0.2.4:9999", ">PUT /kv/reg%2Fa?space=other HTTP/1.1\r\nContent-Length: 0\r\n\r\n"))
	if one["key reg/a"] == 0 || one["key reg/a"] == other["key reg/a"] {
		t.Errorf("keys of two namespaces: got %v and %v, want two hashes", one, other)
	}
	if redis["key reg:sip:alice@ims.test"] == 0 {
		t.Errorf("Redis reports %v", redis)
	}
}

// TestAUserAtAnIPv6Address checks that the colons of an address begin no port, in any protocol. Otherwise users
// at different hosts would be one user.
func TestAUserAtAnIPv6Address(t *testing.T) {
	request := bytes.Replace(sipRequest("NOTIFY", "bob", 1), []byte("sip:ims.test"), []byte("sip:alice@[2001:DB8::10]:5060;x=y"), 1)
	const body = `{"key":"reg/sip:alice@[2001:db8::10]:5060","impu":"sip:alice@[2001:db8::10]"}`
	post := fmt.Sprintf(">POST /kv HTTP/1.1\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	web := "192.0.2.4:9999"
	var want uint64
	for _, c := range []struct{ name, file string }{
		{"SIP", built(t, func(f *capturetest.File) { f.Add(start, (&capturetest.Frames{}).UDP(ue, proxy, request)) })},
		{"Redis", connection(t, client.String(), "192.0.2.4:6379", ">*2\r\n$3\r\nGET\r\n$29\r\nsip:alice@[2001:db8::10]:5060\r\n")},
		{"a path", connection(t, client.String(), web, ">PUT /kv/reg%2Fsip%3Aalice%40%5B2001%3Adb8%3A%3A10%5D HTTP/1.1\r\nContent-Length: 0\r\n\r\n")},
		{"a query", connection(t, client.String(), web, ">GET /x?impu=sip:alice@[2001:db8::10] HTTP/1.1\r\nHost: h\r\n\r\n")},
		{"JSON", connection(t, client.String(), web, post)},
	} {
		const id = "IMPU alice@[2001:db8::10]"
		got := hashes(t, c.file)
		if want == 0 {
			want = got[id]
		}
		users := slices.DeleteFunc(slices.Collect(maps.Keys(got)), func(user string) bool { return !strings.HasPrefix(user, "IMPU alice") })
		if want == 0 || got[id] != want || len(users) != 1 {
			t.Errorf("%s: got %v, want only %s of alice, with the hash %x", c.name, got, id, want)
		}
	}
	key := []byte("sip:alice@%5B2001%3Adb8%3A%3A10%5D")
	if n := testing.AllocsPerRun(100, func() { isPerson(key) }); n > 0 || !isPerson(key) || isPerson([]byte("alice@[10]")) {
		t.Errorf("recognised %s: %t, with %g allocations; alice@[10]: %t", key, isPerson(key), n, isPerson([]byte("alice@[10]")))
	}
}

// TestDatagramsAndAnswers checks SIP over UDP: answers, retransmissions, and ACK.
func TestDatagramsAndAnswers(t *testing.T) {
	file := built(t, func(f *capturetest.File) {
		var b capturetest.Frames
		at := start
		for _, p := range []struct {
			back bool
			text []byte
		}{
			{false, sipRequest("INVITE", "bob", 1)}, {false, sipRequest("INVITE", "bob", 1)}, {true, sipAnswer(100, "INVITE", "bob", 1)},
			{true, sipAnswer(486, "INVITE", "bob", 1)}, {true, sipAnswer(486, "INVITE", "bob", 1)}, {false, sipRequest("ACK", "bob", 1)},
			{false, sipRequest("ACK", "bob", 1)}, {false, sipRequest("INVITE", "bob", 2)}, {false, []byte("\r\n\r\n")},
		} {
			at += 500e6
			if p.back {
				f.Add(at, b.UDP(proxy, ue, p.text))
			} else {
				f.Add(at, b.UDP(ue, proxy, p.text))
			}
		}
	})
	lines, s := read(t, Options{}, file)
	expect(t, lines, "1 0.000000 192.0.2.1 > 192.0.2.2 SIP request \"INVITE\"", "repeat \"INVITE\"| of 1", "answer \"100 INVITE\"| of 1", "answer \"486 INVITE\"| of 1 failed cause 486",
		"repeat| of 4", "notice \"ACK\"", "repeat \"ACK\"| of 6", "request \"INVITE\"")
	if n := s.Protocols[0]; n.Repeats != 3 || n.Requests != 2 || n.Answers != 2 || n.Orphans != 0 || n.Failed != 1 {
		t.Errorf("got counts %+v", n)
	}
}

// TestMergedDatagrams checks that all messages of datagrams are found that the kernel merged before
// the capture (UDP_GRO), and that a retransmission in a datagram of its own is known as one.
func TestMergedDatagrams(t *testing.T) {
	modification := func(sequence uint32) []byte {
		return gtpc.End(gtpc.AppendHeader(nil, gtpc.ModifyBearerRequest, 7, sequence), 0)
	}
	deletion := func(sequence byte) []byte { return []byte{0x21, 54, 0, 12, 0, 0, 0, 0, 0, 0, 0, 19, 0, 0, sequence, 0} }
	for want, two := range map[string][2][]byte{
		`SIP request "MESSAGE"`:                   {sipRequest("MESSAGE", "a", 1), sipRequest("MESSAGE", "a", 2)},
		`GTPv2 request "Modify Bearer Request"`:   {modification(1), modification(2)},
		`PFCP request "Session Deletion Request"`: {deletion(1), deletion(2)},
	} {
		lines, s := read(t, Options{}, built(t, func(f *capturetest.File) {
			var b capturetest.Frames
			f.Add(start, b.UDP(ue, proxy, slices.Concat(two[0], two[1])))
			f.Add(start+500e6, b.UDP(ue, proxy, two[1]))
		}))
		size := fmt.Sprintf(" %d B ", len(two[1]))
		expect(t, lines, want+size, want+size, "repeat| of 2")
		if len(s.Unknown) != 0 {
			t.Errorf("%s: messages were not decoded: %+v", want, s.Unknown)
		}
	}
}

// TestGTPAnswersFromAnotherPort: the S-GW of NextEPC answers from another port than the one that received
// the request.
func TestGTPAnswersFromAnotherPort(t *testing.T) {
	lines, _ := read(t, Options{}, built(t, func(f *capturetest.File) {
		var b capturetest.Frames
		mme, sgw, other := end("192.0.2.7:2123"), end("192.0.2.8:2123"), end("192.0.2.8:40000")
		f.Add(start, b.UDP(mme, sgw, gtpc.End(gtpc.AppendHeader(nil, gtpc.CreateSessionRequest, 0, 7), 0)))
		f.Add(start+1e6, b.UDP(other, mme, gtpc.End(gtpc.AppendCause(gtpc.AppendHeader(nil, gtpc.CreateSessionResponse, 5, 7), gtpc.RequestAccepted), 0)))
	}))
	expect(t, lines, `GTPv2 request "Create Session Request"`, `GTPv2 answer "Create Session Response"| of 1`)
}

// TestTunnelsOfBothFamilies: the header of a later message over IPv6 names the tunnel of an F-TEID that
// also has an IPv4 address.
func TestTunnelsOfBothFamilies(t *testing.T) {
	sgw := gtpc.Endpoint{Interface: gtpc.S11SGW, TEID: 0x42, V4: netip.MustParseAddr("198.51.100.4"), V6: netip.MustParseAddr("2001:db8::c000:204")}
	created := gtpc.End(gtpc.AppendFTEID(gtpc.AppendHeader(nil, gtpc.CreateSessionResponse, 1, 7), 0, sgw), 0)
	modify := gtpc.End(gtpc.AppendHeader(nil, gtpc.ModifyBearerRequest, sgw.TEID, 8), 0)
	var named [2][]uint64 // the tunnels with that TEID in each message
	each(t, built(t, func(f *capturetest.File) {
		var b capturetest.Frames
		f.Add(start, sixth(b.UDP(end("192.0.2.4:2123"), end("192.0.2.3:2123"), created)))
		f.Add(start+1e6, sixth(b.UDP(end("192.0.2.3:2123"), end("192.0.2.4:2123"), modify)))
	}), func(m *Message) {
		for _, id := range m.Identifiers {
			if id.Kind == TEID && string(id.Text) == "0x42" {
				named[m.ID-1] = append(named[m.ID-1], id.Hash)
			}
		}
	})
	if len(named[0]) != 2 || len(named[1]) != 1 || !slices.Contains(named[0], named[1][0]) {
		t.Errorf("got the tunnels %x", named)
	}
}

// TestChallengesAreNoFailures: these answers ask for another round (RFC 3261 section 22, RFC 3329).
func TestChallengesAreNoFailures(t *testing.T) {
	for status, failed := range map[int]bool{401: false, 407: false, 494: false, 403: true} {
		each(t, built(t, func(f *capturetest.File) {
			f.Add(start, (&capturetest.Frames{}).UDP(proxy, ue, sipAnswer(status, "REGISTER", "bob", 1)))
		}), func(m *Message) {
			if m.Failed != failed || m.Cause != fmt.Sprint(status) {
				t.Errorf("%s failed: got %t with cause %s, want %t", m.Name, m.Failed, m.Cause, failed)
			}
		})
	}
}

// TestAddressesOfAUEAreTheSameInAllProtocols: GTPv2 and PFCP have an interface identifier behind the /64
// of a UE, and Diameter has only the /64.
func TestAddressesOfAUEAreTheSameInAllProtocols(t *testing.T) {
	address := netip.MustParseAddr("2001:db8:1::5")
	session := gtpc.AppendAddress(gtpc.AppendHeader(nil, gtpc.CreateSessionResponse, 1, 7), gtpc.Address{Type: gtpc.PDNv6, V6: address, Bits: 64})
	v6 := address.As16()
	modification := append([]byte{0x21, 52, 0, 33, 0, 0, 0, 0, 0, 0, 0, 19, 0, 0, 1, 0, 0, 93, 0, 17, 1}, v6[:]...)
	rule := avp(diameterMessage(272, true, 5, "alice"), 97, 0, "\x00\x40"+string(v6[:8]))
	rule[2], rule[3] = byte(len(rule)>>8), byte(len(rule))
	datagram := func(port uint16, payload []byte) string {
		return built(t, func(f *capturetest.File) {
			f.Add(start, (&capturetest.Frames{}).UDP(netip.AddrPortFrom(client.Addr(), port), netip.AddrPortFrom(server.Addr(), port), payload))
		})
	}
	const id = "UE-address 2001:db8:1::"
	want := hashes(t, connection(t, client.String(), server.String(), ">"+string(rule)))[id]
	if want == 0 {
		t.Errorf("Diameter does not report %s", id)
	}
	for name, file := range map[string]string{"GTPv2": datagram(2123, gtpc.End(session, 0)), "PFCP": datagram(8805, modification)} {
		if got := hashes(t, file); got[id] != want {
			t.Errorf("%s reports %s as %x, Diameter as %x: %v", name, id, got[id], want, got)
		}
	}
}

// TestPFCPMessagesOfNodesNameNoSession: a SEID in the header of a heartbeat names nobody.
func TestPFCPMessagesOfNodesNameNoSession(t *testing.T) {
	const heartbeat, deletion = 1, 54
	lines, _ := read(t, Options{}, built(t, func(f *capturetest.File) {
		var b capturetest.Frames
		for i, kind := range []byte{heartbeat, deletion} {
			f.Add(start+int64(i), b.UDP(end("192.0.2.7:8805"), end("192.0.2.8:8805"), []byte{0x21, kind, 0, 12, 0, 0, 0, 0, 0, 0, 0, 19, 0, 0, kind, 0}))
		}
	}))
	expect(t, lines, `PFCP request "Heartbeat Request" 16 B sequence=0x1`, `PFCP request "Session Deletion Request" 16 B sequence=0x36 SEID*=0x13`)
	if strings.Contains(lines[0], "SEID") {
		t.Error(lines[0])
	}
}

// TestStreamsOfEachProtocol checks recognition, framing and answers over TCP.
func TestStreamsOfEachProtocol(t *testing.T) {
	cea := string(diameterMessage(257, false, 5, ""))
	const batch = `{"ops":[{"op":"put","key":"reg/a","value":"aGVsbG8h","ttl":"1h0m59.5s"},{"op":"delete","key":"due/1/reg/a","n":1,"ttl":"-9s"},{"op":"check","key":"b"}]}`
	tests := map[string]struct {
		server string
		pieces []string
		want   []string
	}{
		"Diameter": {"192.0.2.4:9999", []string{">" + string(diameterMessage(257, true, 5, "x")), "<" + cea[:30], "<" + cea[30:]},
			[]string{"Diameter request \"Capabilities-Exchange-Request\"", "Diameter answer \"Capabilities-Exchange-Answer\"| of 1"}},
		"Diameter with the same number from both ends": {"192.0.2.4:9999",
			[]string{">" + string(diameterMessage(272, true, 5, "x")), "<" + string(diameterMessage(258, true, 5, "x")), "<" + string(diameterMessage(272, false, 5, "")), ">" + string(diameterMessage(258, false, 5, ""))},
			[]string{"request \"Credit-Control-Request\"", "request \"Re-Auth-Request\"", "answer \"Credit-Control-Answer\"| of 1 ", "answer \"Re-Auth-Answer\"| of 2 "}},
		"SIP": {"192.0.2.4:9999", []string{">" + string(sipRequest("MESSAGE", "a", 1)) + string(sipRequest("MESSAGE", "a", 2)), "<" + string(sipAnswer(200, "MESSAGE", "a", 1)), "<\r\n\r\n", "<" + string(sipAnswer(200, "MESSAGE", "a", 2))},
			[]string{"SIP request \"MESSAGE\"", "SIP request \"MESSAGE\"", "answer \"200 MESSAGE\"| of 1", "answer \"200 MESSAGE\"| of 2"}},
		"HTTP": {"192.0.2.4:9999", []string{">PUT /kv/reg%2Falice?ttl=90s HTTP/1.1\r\nContent-Length: 5\r\n\r\n", ">hello", ">HEAD /x HTTP/1.1\r\n\r\n", "<HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n", "<HTTP/1.1 404 No\r\nContent-Length: 700\r\n\r\n"},
			[]string{"HTTP request \"PUT /kv/{}\"|writes reg/alice of 192.0.2.4 5 B 1m30s", "HTTP request \"HEAD /x\"", "answer \"201 PUT /kv/{}\"| of 1", "answer \"404 HEAD /x\"| of 2 failed cause 404"}},
		"a batch of the store": {"192.0.2.4:9999", []string{">POST /kv?space=s HTTP/1.1\r\nContent-Length: 152\r\n\r\n", ">" + batch[:60], ">" + batch[60:], "<HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"},
			[]string{"HTTP request \"POST /kv\"|writes reg/a of 192.0.2.4 6 B 1h0m59.5s|writes due/1/reg/a of 192.0.2.4 0 B 0s|reads b of", "answer \"200 POST /kv\"| of 1"}},
		"Redis": {"192.0.2.4:9999", []string{">*5\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nvalue\r\n$2\r\nEX\r\n$2\r\n60\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", "<+OK\r\n$5\r\nvalue\r\n", ">*1\r\n$5\r\nWRONG\r\n", "<-ERR unknown\r\n"},
			[]string{"Redis request \"SET\"|writes k of 192.0.2.4 5 B 1m0s", "request \"GET\"|reads k", "answer \"SET reply\"| of 1", "answer \"GET reply\"| of 2", "request \"(other)\"", "of 5 failed cause ERR"}},
		"Redis with an option": {"192.0.2.4:9999", []string{">*6\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nvalue\r\n$2\r\nNX\r\n$2\r\nPX\r\n$4\r\n1500\r\n", "<+OK\r\n"},
			[]string{"Redis request \"SET\"|writes k of 192.0.2.4 5 B 1.5s", "answer \"SET reply\"| of 1"}},
		"Redis that returns the old value": {"192.0.2.4:9999", []string{">*4\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nvalue\r\n$3\r\nGET\r\n*2\r\n$6\r\nGETDEL\r\n$1\r\nk\r\n", "<$-1\r\n$5\r\nvalue\r\n"},
			[]string{"Redis request \"SET\"|takes k of 192.0.2.4 5 B 0s", "request \"GETDEL\"|takes k of 192.0.2.4 0 B", "answer \"SET reply\"| of 1", "answer \"GETDEL reply\"| of 2"}},
		"Redis with an attribute": {"192.0.2.4:9999", []string{">*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", "<|1\r\n+ttl\r\n:3600\r\n$5\r\nvalue\r\n"},
			[]string{"Redis request \"GET\"|reads k", "answer \"GET reply\"| of 1"}},
		"Nudsf": {"192.0.2.4:9999", []string{">GET /nudsf-dr/v1/realm/amf/records/r1/meta HTTP/1.1\r\n\r\n"},
			[]string{"HTTP request \"GET /nudsf-dr/|reads realm/amf/r1 of 192.0.2.4"}},
		"S1AP": {"192.0.2.4:9999", []string{">" + frame(s1Setup), "<" + frame(s1SetupResponse)},
			[]string{"S1AP request \"S1 Setup Request\"", "S1AP answer \"S1 Setup Response\"| of 1"}},
		"MongoDB": {"192.0.2.4:9999", []string{">" + mongoFind, "<" + mongoReply},
			[]string{"MongoDB request \"find subscribers\"|reads subscribers/001010000000001 of 192.0.2.4 0 B|IMSI*=001010000000001", "answer \"find subscribers reply\"| of 1"}},
		"MongoDB that writes": {"192.0.2.4:9999", []string{">" + mongoInsert, "<" + mongoReply},
			[]string{fmt.Sprintf("MongoDB request \"insert subscribers\"|writes subscribers of 192.0.2.4 %d B", len(mongoInsert)), "answer \"insert subscribers reply\"| of 1"}},
		"MongoDB with a long reply": {"192.0.2.4:9999", []string{">" + mongoFind, "<" + mongoLong[:40_000], "<" + mongoLong[40_000:80_000], "<" + mongoLong[80_000:], ">" + mongoInsert, "<" + mongoReply},
			[]string{"MongoDB request \"find subscribers\"", fmt.Sprintf("answer \"find subscribers reply\" %d B of 1", len(mongoLong)), "request \"insert subscribers\"", "answer \"insert subscribers reply\"| of 3"}},
		"a resource with a short number": {"192.0.2.4:7777", []string{">POST /nsmf-pdusession/v1/sm-contexts/1/modify HTTP/1.1\r\nContent-Length: 0\r\n\r\n"},
			[]string{"HTTP request \"POST /nsmf-pdusession/v1/sm-contexts/{}/modify\""}},
		"HTTP/2": {"192.0.2.4:9999", []string{">PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00" + "\x00\x00\x03\x01\x05\x00\x00\x00\x01\x82\x84\x86", "<\x00\x00\x00\x04\x00\x00\x00\x00\x00" + "\x00\x00\x01\x01\x05\x00\x00\x00\x01\x88"},
			[]string{"HTTP2 request \"GET /\"", "HTTP2 answer \"200 GET /\"| of 1"}},
		"a tunnel of HTTP/2": {"192.0.2.4:9999", []string{">PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00" + "\x00\x00\x17\x01\x05\x00\x00\x00\x01\x02\x07CONNECT\x01\x0csip.test:443", "<\x00\x00\x00\x04\x00\x00\x00\x00\x00" + "\x00\x00\x01\x01\x05\x00\x00\x00\x01\x88"},
			[]string{"HTTP2 request \"CONNECT /{}\"", "HTTP2 answer \"200 CONNECT /{}\"| of 1"}},
		// A terminal must not obey what senders write.
		"Redis with control characters": {"192.0.2.4:9999", []string{">*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", "<-E\x1b[2J\x9b unknown\r\n"},
			[]string{"Redis request \"GET\"", "of 1 failed cause E?[2J?"}},
		"MongoDB with control characters": {"192.0.2.4:9999", []string{">" + opMsg(7, 0, bson("\x02fi\x1b]0;x\a\nnd\x00"+bsonText("a\tb")))},
			[]string{"MongoDB request \"fi?]0;x??nd a?b\""}},
		"HTTP/2 with control characters": {"192.0.2.4:9999", []string{">PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00" + "\x00\x00\x08\x01\x05\x00\x00\x00\x01\x02\x04GE\x1bT\x84\x86"},
			[]string{"HTTP2 request \"GE?T /\""}},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			lines, s := read(t, Options{}, connection(t, "192.0.2.3:50000", c.server, c.pieces...))
			expect(t, lines, c.want...)
			if len(s.Unknown) != 0 || len(s.Protocols) != 1 || len(s.Protocols[0].Undecodable) != 0 {
				t.Errorf("messages were not decoded: %+v %+v", s.Unknown, s.Protocols)
			}
		})
	}
}

// TestLongMessagesOfMongoDB: a message of more than 1 MiB is read by its beginning, and skipped
// to its end, also if some of its bytes are lost.
func TestLongMessagesOfMongoDB(t *testing.T) {
	const part = 60_000
	pad := bsonPad(2 << 20)
	insert := opMsg(7, 0, bson("\x02insert\x00"+bsonText("subscribers")+pad))
	reply := opMsg(8, 7, bson(bsonOK+pad))
	for _, lost := range []int{-1, 20} { // the segment of each message that is lost
		file := built(t, func(f *capturetest.File) {
			at := start
			add := func(frame []byte) {
				at += 20e6
				f.Add(at, frame)
			}
			conn := capturetest.Conn{Client: client, Server: end("192.0.2.4:9999"), Frames: &capturetest.Frames{}}
			conn.Open(add)
			for i, text := range []string{mongoFind, mongoReply, insert, reply, mongoFind, mongoReply} {
				for n := 0; len(text) > 0; n++ {
					piece := text[:min(part, len(text))]
					text = text[len(piece):]
					if frame := conn.Send(i%2 == 1, []byte(piece)); n != lost {
						add(frame)
					}
				}
				for range 2 { // acknowledgements, and time for lost bytes to arrive
					add(conn.Send(i%2 == 0, nil))
				}
			}
		})
		lines, s := read(t, Options{}, file)
		expect(t, lines, "request \"find subscribers\"", "answer \"find subscribers reply\"| of 1",
			fmt.Sprintf("request \"insert subscribers\" %d B|writes subscribers of 192.0.2.4 %d B", len(insert), len(insert)),
			fmt.Sprintf("answer \"insert subscribers reply\" %d B of 3", len(reply)),
			"request \"find subscribers\"", "answer \"find subscribers reply\"| of 5")
		if len(s.Protocols) != 1 || len(s.Protocols[0].Undecodable) != 0 {
			t.Errorf("messages were not decoded: %+v", s.Protocols)
		}
	}
}

// TestFalseHeadersOfMongoDBAreNotSkipped: a header with an unknown operation is a false one. Its
// length must not hide the messages behind it.
func TestFalseHeadersOfMongoDBAreNotSkipped(t *testing.T) {
	const operation = 12
	long := []byte(opMsg(7, 0, bson(bsonPad(2<<20))))
	for code, skipped := range map[byte]bool{0xdc: true, 0xdd: true, 0xde: false} { // OP_COMPRESSED, OP_MSG, none
		long[operation] = code
		r := newReading(Options{}, nil)
		x := &half{conn: &conn{protocol: Mongo}, src: client, dst: server}
		if n, err := r.frameMongo(x, long); (err == nil) != skipped || (n > 0) != skipped || (x.slot != nil) != skipped {
			t.Errorf("operation %d: got %d bytes, error %v", 0x700|int(code), n, err)
		}
	}
}

// TestPipelinedRequestsFindTheirAnswers sends more requests at once than a connection
// remembers HEAD for.
func TestPipelinedRequestsFindTheirAnswers(t *testing.T) {
	const n = pending + 36
	for name, text := range map[string][2]string{
		"Redis": {"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", "$1\r\nv\r\n"},
		"HTTP":  {"GET /k HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nv"},
	} {
		file := connection(t, client.String(), "192.0.2.4:9999", ">"+strings.Repeat(text[0], n), "<"+strings.Repeat(text[1], n))
		answers := 0
		each(t, file, func(m *Message) {
			if m.Kind != Answer {
				return
			}
			if answers++; m.Answers != uint64(answers) || m.ID != n+m.Answers {
				t.Errorf("%s: message %d answers message %d, want %d", name, m.ID, m.Answers, answers)
			}
		})
		if answers != n {
			t.Errorf("%s: got %d answers, want %d", name, answers, n)
		}
	}
}

// TestReadsOfRedis checks commands that other commands resemble.
func TestReadsOfRedis(t *testing.T) {
	for name, reads := range map[string]bool{
		"get": true, "getbit": true, "zrange": true, "zrevrange": true, "zunion": true, "eval_ro": true,
		"getset": false, "getdel": false, "getex": false, "zrangestore": false, "zunionstore": false, "eval": false,
	} {
		if redisReads(name) != reads {
			t.Errorf("%s only reads: got %t, want %t", name, !reads, reads)
		}
	}
}

// The messages of protocols that are tedious to build: S1 Setup Request of eNodeB 1 and its
// response (TS 36.413 clause 9.1.8), and a command of MongoDB with its reply.
const (
	s1Setup         = "\x00\x11\x00\x08\x00\x00\x01\x00\x89\x40\x01\x00"
	s1SetupResponse = "\x20\x11\x00\x09\x00\x00\x01\x00\x57\x40\x02\x00\xff"
)

func frame(message string) string {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(message)))
	b = binary.BigEndian.AppendUint32(b, 18)
	return string(append(b, 0, 0, 0, 0)) + message
}

var (
	mongoFind   = opMsg(7, 0, bson("\x02find\x00"+bsonText("subscribers")+"\x03filter\x00"+bson("\x02imsi\x00"+bsonText("001010000000001"))+"\x02$db\x00"+bsonText("nextepc")))
	mongoInsert = opMsg(7, 0, bson("\x02insert\x00"+bsonText("subscribers")+"\x02$db\x00"+bsonText("nextepc")))
	// A reply without documents.
	mongoReply = opMsg(9, 7, bson(bsonOK))
	// A reply that is longer than a first message may be.
	mongoLong = opMsg(8, 7, bson(bsonOK+bsonPad(80<<10)))
)

// bsonOK is the element ok: 1.0 of a reply.
const bsonOK = "\x01ok\x00\x00\x00\x00\x00\x00\x00\xf0\x3f"

// bsonPad returns an element with a text of n bytes.
func bsonPad(n int) string { return "\x02pad\x00" + bsonText(strings.Repeat("x", n)) }

func bsonText(s string) string {
	return string(binary.LittleEndian.AppendUint32(nil, uint32(len(s)+1))) + s + "\x00"
}

func bson(elements string) string {
	return string(binary.LittleEndian.AppendUint32(nil, uint32(len(elements)+5))) + elements + "\x00"
}

func opMsg(id, to uint32, document string) string {
	b := binary.LittleEndian.AppendUint32(nil, uint32(16+5+len(document)))
	b = binary.LittleEndian.AppendUint32(b, id)
	b = binary.LittleEndian.AppendUint32(b, to)
	b = binary.LittleEndian.AppendUint32(b, 2013)
	return string(append(b, 0, 0, 0, 0, 0)) + document
}
