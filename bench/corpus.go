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
	callIDs   = 50_000
	burstSize = 8 // messages per system call
	padding   = "User-Agent: \r\n"
	stampTail = "0000000000000000" // load.c writes the send time here
	sampled   = 8                  // one of this many messages is a latency sample
)

var (
	clients   = ports{20000, 1000}
	instances = ports{25001, 4}
)

const devicePort = 5060

var methods = []string{"REGISTER", "INVITE", "SUBSCRIBE", "MESSAGE"}

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
}

func (m sipMessage) source() int { return m.port }

func (m sipMessage) length() int {
	n := len(m.start) + 4 + len(padding) + 1
	for _, l := range m.lines {
		n += len(l) + 2
	}
	return n
}

// bytes returns the message, padded to a size. The padding is the last header
// if it holds a stamp; otherwise its position is random.
func (m sipMessage) bytes(size int, stamp string, random *rand.Rand) []byte {
	line := strings.TrimSuffix(padding, "\r\n") + strings.Repeat(".", size-m.length()-len(stamp)+1) + stamp
	at := len(m.lines)
	if stamp == "" {
		at = random.IntN(at + 1)
	}
	lines := slices.Insert(slices.Clone(m.lines), at, line)
	return []byte(m.start + "\r\n" + strings.Join(lines, "\r\n") + "\r\n\r\n")
}

// requests returns callIDs requests, each with its own Call-ID. They use four
// methods and come from all clients in turn. Header order is random, and some
// headers have the compact form.
func requests(random *rand.Rand) []message {
	all := make([]message, callIDs)
	for i := range all {
		method := methods[random.IntN(len(methods))]
		all[i] = newRequest(method, i, clients.first+i/burstSize%clients.count, random)
	}
	return all
}

func newRequest(method string, user, port int, random *rand.Rand) sipMessage {
	m := sipMessage{port: port, start: fmt.Sprintf("%s sip:u%05d@bench.test SIP/2.0", method, user)}
	add := func(long, compact, format string, args ...any) {
		name := long
		if compact != "" && random.IntN(3) == 0 {
			name = compact
		}
		m.lines = append(m.lines, name+": "+fmt.Sprintf(format, args...))
	}
	add("Via", "v", "SIP/2.0/UDP 127.0.0.1:%d;branch=z9hG4bK%08x;rport", port, random.Uint32())
	add("Max-Forwards", "", "70")
	add("From", "f", "<sip:u%05d@bench.test>;tag=%08x", user, random.Uint32())
	add("To", "t", "<sip:u%05d@bench.test>", user)
	add("Call-ID", "i", "%05x%011x@127.0.0.1", user, random.Uint64()>>20)
	add("CSeq", "", "%d %s", random.IntN(1000)+1, method)
	if method != "MESSAGE" {
		add("Contact", "m", "<sip:u%05d@127.0.0.1:%d>", user, port)
	}
	if method == "SUBSCRIBE" {
		add("Event", "o", "reg")
	}
	add("Content-Length", "l", "0")
	random.Shuffle(len(m.lines), func(i, j int) { m.lines[i], m.lines[j] = m.lines[j], m.lines[i] })
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

// bursts groups the messages by source port, at most that many per group.
// Groups are in the order in which they fill; incomplete groups come last.
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
