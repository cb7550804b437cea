package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
)

// The load on devices under test.
const (
	callIDs   = 20_000
	burstSize = 8 // messages per system call
	padding   = "X-Pad: \r\n"
	stampTail = "0000000000000000" // load.c writes the send time here
	sampled   = 8                  // one of this many messages is a latency sample
)

var (
	clients   = ports{20000, 1000}
	instances = ports{25001, 4}
)

const devicePort = 5060

// methods are the methods of the corpus that need a director rule. ACK, CANCEL and BYE follow the
// INVITE.
var methods = []string{"REGISTER", "INVITE", "OPTIONS"}

// A message is an element of a corpus. It can be padded, because all messages
// of one system call must have the same size.
type message interface {
	source() int // source port
	length() int // length without padding
	bytes(size int, stamp string, random *rand.Rand) []byte
}

// A sipMessage is a SIP message without padding.
type sipMessage struct {
	port  int
	start string
	lines []string // header lines, without line ends
	body  string
}

func (m sipMessage) source() int { return m.port }

func (m sipMessage) length() int {
	n := len(m.start) + 4 + len(padding) + 1 + len(m.body)
	for _, l := range m.lines {
		n += len(l) + 2
	}
	return n
}

// bytes returns the message, padded to size bytes. With a stamp, the padding is the last header,
// ends with the stamp and replaces the body. Without a stamp, the padding has a random position
// among the headers.
func (m sipMessage) bytes(size int, stamp string, random *rand.Rand) []byte {
	line := strings.TrimSuffix(padding, "\r\n") + strings.Repeat(".", size-m.length()-len(stamp)+1) + stamp
	at, lines, body := len(m.lines), slices.Clone(m.lines), m.body
	if stamp == "" {
		at = random.IntN(at + 1)
	} else if body != "" { // the padding replaces the body
		for i, l := range lines {
			if strings.HasPrefix(l, "Content-Length: ") {
				lines[i] = fmt.Sprintf("Content-Length: %*d", len(l)-len("Content-Length: "), 0)
			}
		}
		line = strings.TrimSuffix(padding, "\r\n") + strings.Repeat(".", size-m.length()-len(stamp)+1+len(body)) + stamp
		body = ""
	}
	lines = slices.Insert(lines, at, line)
	return []byte(m.start + "\r\n" + strings.Join(lines, "\r\n") + "\r\n\r\n" + body)
}

// A plot is the requests that share one Call-ID. share is its weight in the random choice of plots.
//
// Plots, shares, headers and sizes follow the SIP requests in two captures of the public project
// nDPI (tests/pcap): phones at an operator in sip.pcap, and the calls of a gateway in
// FAX-Call-t38-CA-TDM-SIP-FB-1.pcap. The captures have 18 REGISTER (half of them with credentials),
// 27 INVITE, 23 ACK, 11 CANCEL, 8 OPTIONS and 4 BYE. Keep-alives that are not SIP are left out: a
// proxy does not forward them, but a bare forwarder would.
type plot struct {
	share    int
	requests []string
}

func plots() []plot {
	return []plot{
		{9, []string{"REGISTER", "REGISTER with credentials"}},
		{11, []string{"INVITE", "CANCEL", "ACK"}},
		{8, []string{"INVITE with credentials", "ACK"}},
		{4, []string{"INVITE", "ACK in a dialog", "OPTIONS in a dialog", "OPTIONS in a dialog", "BYE in a dialog"}},
		{4, []string{"INVITE"}},
	}
}

// A caller has the identifiers of one Call-ID and of its phone.
type caller struct {
	number, port             int
	tag, branch, id, toTag   string
	response, nonce, contact string
	route                    string // Route header of the dialog; empty: none
}

// requests returns the requests of callIDs Call-IDs from all clients. The requests of one system
// call come from one client and are of one kind, so that they need little padding. Header order
// differs between phones, and some header names have the compact form. routes holds the Route
// header of each dialog by Call-ID. Only the director can make these headers; nil leaves them out.
func requests(random *rand.Rand, routes map[string]string) []message {
	// Identities have random numbers of their own, so that they do not depend on the routes.
	identities := rand.New(rand.NewPCG(random.Uint64(), random.Uint64()))
	var groups [][]message
	var order []plot
	for _, p := range plots() {
		for range p.share {
			order = append(order, p)
		}
	}
	for first := 0; first < callIDs; first += burstSize {
		p := order[identities.IntN(len(order))]
		group := make([]caller, burstSize)
		for i := range group {
			group[i] = newCaller(first+i, clients.first+first/burstSize%clients.count, identities)
			group[i].route = routes[group[i].id]
		}
		for sequence, kind := range p.requests {
			var all []message
			for i := range group {
				all = append(all, group[i].request(kind, sequence+1, random))
			}
			groups = append(groups, all)
		}
	}
	random.Shuffle(len(groups), func(i, j int) { groups[i], groups[j] = groups[j], groups[i] })
	return slices.Concat(groups...)
}

func newCaller(number, port int, random *rand.Rand) caller {
	hex := func(digits int) string { return fmt.Sprintf("%016x%016x", random.Uint64(), random.Uint64())[:digits] }
	return caller{
		number: number, port: port, tag: hex(7), branch: "z9hG4bKnp" + hex(20) + "127.0.0.1", id: fmt.Sprintf("%05x", number) + hex(13) + "@" + hex(18),
		toTag: "SD" + hex(7) + "-" + hex(9) + "-" + hex(9) + "-" + hex(8) + "-" + hex(9), response: hex(32), nonce: hex(31), contact: hex(16),
	}
}

const agent = "User-Agent: Nero SIPPS IP Phone Version 2.0.51.16"

// session is an SDP body of 272 bytes with five codecs.
const session = "v=0\r\no=SIPPS 105015165 105015162 IN IP4 127.0.0.1\r\ns=SIP call\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n" +
	"m=audio 30000 RTP/AVP 0 8 97 2 3\r\na=rtpmap:0 pcmu/8000\r\na=rtpmap:8 pcma/8000\r\na=rtpmap:97 iLBC/8000\r\n" +
	"a=rtpmap:2 G726-32/8000\r\na=rtpmap:3 GSM/8000\r\na=fmtp:97 mode=20\r\na=sendrecv\r\n"

// request returns a request of a kind such as "INVITE with credentials". sequence is its position
// among the requests of the Call-ID, from 1.
func (c *caller) request(kind string, sequence int, random *rand.Rand) sipMessage {
	method, with, _ := strings.Cut(kind, " ")
	target := fmt.Sprintf("sip:9723928%04d@bench.test", c.number)
	m := sipMessage{port: c.port}
	add := func(long, compact, format string, args ...any) {
		name := long
		if compact != "" && random.IntN(10) == 0 {
			name = compact
		}
		m.lines = append(m.lines, name+": "+fmt.Sprintf(format, args...))
	}
	branch, to := c.branch, ""
	switch {
	case with == "in a dialog":
		branch, to = fmt.Sprintf("%s%d", c.branch, sequence), ";tag="+c.toTag
	case method == "REGISTER":
		target = "sip:bench.test"
		branch = fmt.Sprintf("%s%d", c.branch, sequence)
	case method == "ACK":
		to = ";tag=" + c.toTag
	}
	cseq := sequence
	if method == "CANCEL" || method == "ACK" {
		cseq = 1
	}
	add("Via", "v", "SIP/2.0/UDP 127.0.0.1:%d;branch=%s;rport", c.port, branch)
	add("From", "f", "<sip:voi%05d@bench.test>;tag=%s", c.number, c.tag)
	add("To", "t", "<%s>%s", target, to)
	add("Call-ID", "i", "%s", c.id)
	add("CSeq", "", "%d %s", cseq, method)
	add("Max-Forwards", "", "70")
	if to != "" && c.route != "" && with == "in a dialog" {
		add("Route", "", "%s", c.route)
	}
	if with == "with credentials" {
		name := map[string]string{"REGISTER": "Authorization", "INVITE": "Proxy-Authorization"}[method]
		add(name, "", `Digest username="voi%05d",realm="bench.test",uri="sip:127.0.0.1",nonce="%s",opaque="1701a1351f70795",nc="00000001",response="%s"`, c.number, c.nonce, c.response)
	}
	switch method {
	case "REGISTER":
		add("Contact", "m", "<sip:voi%05d@127.0.0.1:%d;line=%s>;expires=1200;q=0.500", c.number, c.port, c.contact)
		add("Expires", "", "1200")
		m.lines = append(m.lines, agent)
	case "INVITE":
		add("Contact", "m", "<sip:voi%05d@127.0.0.1:%d>", c.number, c.port)
		m.lines = append(m.lines, agent, "Expires: 120", "Accept: application/sdp", "Content-Type: application/sdp",
			"Allow: INVITE, ACK, CANCEL, BYE, REFER, OPTIONS, NOTIFY, INFO")
		m.body = session
	case "CANCEL":
		m.lines = append(m.lines, agent)
	}
	m.lines = append(m.lines, fmt.Sprintf("Content-Length: %d", len(m.body)))
	m.start = method + " " + target + " SIP/2.0"
	// Half of the phones begin with Via, as in the captures. The others have their headers in random order.
	if c.number/burstSize%2 == 1 {
		random.Shuffle(len(m.lines), func(i, j int) { m.lines[i], m.lines[j] = m.lines[j], m.lines[i] })
	}
	return m
}

// writeCorpus writes the messages in the format of load.c: bursts of messages
// with one source port and one size, as UDP segmentation offload requires.
// sources are the ports of the load tool. With stamps, each burst is one
// message, and one in sampled messages is a latency sample.
func writeCorpus(file string, messages []message, sources ports, stamps bool, random *rand.Rand) (err error) {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriter(f)
	most := burstSize
	if stamps {
		most = 1
	}
	for i, burst := range bursts(messages, most) {
		size := 0
		for _, m := range burst {
			size = max(size, m.length())
		}
		stamp := ""
		if stamps {
			stamp = map[bool]string{true: "T", false: "N"}[i%sampled == 0] + stampTail
			size += len(stamp)
		}
		head := []uint16{uint16(burst[0].source() - sources.first), uint16(size), uint16(len(burst))}
		if err := binary.Write(w, binary.NativeEndian, head); err != nil {
			return err
		}
		for _, m := range burst {
			data := m.bytes(size, stamp, random)
			if len(data) != size {
				return fmt.Errorf("a message of %d bytes in a burst of messages of %d", len(data), size)
			}
			if _, err := w.Write(data); err != nil {
				return err
			}
		}
	}
	return w.Flush()
}

// alike orders messages so that each group of burstSize has one source port and similar sizes. It
// drops messages that do not fill a group.
func alike(all []message, random *rand.Rand) []message {
	const step = 32 // bytes
	classes := map[[2]int][]message{}
	var order [][2]int
	var groups [][]message
	for _, m := range all {
		class := [2]int{m.source(), m.length() / step}
		if classes[class] == nil {
			order = append(order, class)
		}
		classes[class] = append(classes[class], m)
	}
	for _, class := range order {
		for group := range slices.Chunk(classes[class], burstSize) {
			if len(group) == burstSize {
				groups = append(groups, group)
			}
		}
	}
	random.Shuffle(len(groups), func(i, j int) { groups[i], groups[j] = groups[j], groups[i] })
	return slices.Concat(groups...)
}

// bursts groups the messages by source port, with at most most messages per group. Groups are in
// the order in which they fill. Incomplete groups come last.
func bursts(messages []message, most int) (all [][]message) {
	open := map[int][]message{}
	var order []int
	for _, m := range messages {
		port := m.source()
		if len(open[port]) == 0 {
			order = append(order, port)
		}
		open[port] = append(open[port], m)
		if len(open[port]) == most {
			all = append(all, open[port])
			open[port] = nil
		}
	}
	for _, port := range order {
		if len(open[port]) > 0 {
			all = append(all, open[port])
			open[port] = nil
		}
	}
	return all
}
