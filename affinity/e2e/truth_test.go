package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"vitrine/internal/truth"
)

// A mark identifies a message, or several with the same octets.
type mark struct {
	src, dst      netip.AddrPort
	protocol, key string
}

// A claim is a line in a log.
type claim struct {
	truth.Line
	log int
}

// Claims are what the functions have logged.
type claims struct {
	t    testing.TB
	by   map[mark][]claim // in the order of each log
	logs []string
}

// readLogs reads the logs of messages.
func readLogs(t testing.TB, files []string) *claims {
	t.Helper()
	c := &claims{t: t, by: map[mark][]claim{}, logs: files}
	for n, name := range files {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(f)
		for lines.Scan() {
			of := claim{log: n}
			if err := json.Unmarshal(lines.Bytes(), &of.Line); err != nil {
				t.Fatalf("%s: %v: %s", name, err, lines.Text())
			}
			at := mark{of.Src, of.Dst, of.Protocol, of.Key}
			c.by[at] = append(c.by[at], of)
		}
		if err := lines.Err(); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// A node is a message or an event of a function. Nodes that belong together are joined.
type node struct {
	mark
	n     int // of the messages with the mark, if they may be of different events
	log   int
	event truth.Event // 0: it is a message
}

// A union joins nodes to network events.
type union struct{ of map[node]node }

func (u *union) find(n node) node {
	root := n
	for {
		up, ok := u.of[root]
		if !ok || up == root {
			break
		}
		root = up
	}
	u.of[n] = root
	return root
}

func (u *union) join(a, b node) { u.of[u.find(a)] = u.find(b) }

// label gives each message its class and type. It checks that each message is in one line
// of its sender's log and one line of its receiver's log, if they have logs, that each line
// belongs to one message, and that no class has two network events of the generator.
func (c *claims) label(messages []observed) {
	c.t.Helper()
	captured := map[mark]int{}
	number := make([]int, len(messages)) // of the messages with its mark
	for i, m := range messages {
		at := mark{m.src, m.dst, m.protocol, m.key}
		number[i] = captured[at]
		captured[at]++
		messages[i].again = number[i] > 0 && oneEvent(m.protocol)
	}
	c.checkWhole(captured)
	u := &union{of: map[node]node{}}
	names := map[node]string{} // the types of the generator's events
	for at, lines := range c.by {
		count := map[[2]any]int{}
		for _, l := range lines {
			side := [2]any{l.log, l.Received}
			message := node{mark: at}
			if !oneEvent(at.protocol) {
				message.n = count[side]
			}
			count[side]++
			if l.Event == 0 {
				continue
			}
			event := node{log: l.log, event: l.Event}
			u.join(message, event)
			if l.Type != "" {
				names[event] = l.Type
			}
		}
	}
	types := map[node]string{}
	for event, name := range names {
		root := u.find(event)
		if other, taken := types[root]; taken {
			c.t.Errorf("a class has two network events: %s and %s (event %d of %s)", other, name, event.event, c.logs[event.log])
		}
		types[root] = name
	}
	for i := range messages {
		m := &messages[i]
		of := node{mark: mark{m.src, m.dst, m.protocol, m.key}}
		if !oneEvent(m.protocol) {
			of.n = number[i]
		}
		root := u.find(of)
		m.kind = types[root]
		if m.kind != "" {
			m.class = fmt.Sprint(m.kind, " ", root)
		}
	}
}

// oneEvent reports whether messages with the same octets belong to one event:
// retransmissions over UDP. Over TCP, two events may have messages with the same octets.
func oneEvent(protocol string) bool { return protocol == truth.SIP || protocol == truth.GTP }

// checkWhole checks that the captured messages are those of the logs. A busy receiver's
// socket may drop a copy of a message that is sent again over UDP.
func (c *claims) checkWhole(captured map[mark]int) {
	c.t.Helper()
	missing, extra := map[string]int{}, map[string]int{}
	example := map[string]string{}
	for at, n := range captured {
		sides := map[bool]int{}
		for _, l := range c.by[at] {
			sides[l.Received]++
		}
		for received, lines := range sides {
			if dropped := received && oneEvent(at.protocol) && lines < n; lines != n && !dropped {
				what := fmt.Sprintf("%s, received: %t", at.protocol, received)
				missing[what]++
				example[what] = fmt.Sprintf("%+v: %d in the capture, %d lines", at, n, lines)
			}
		}
		if len(sides) == 0 {
			missing[at.protocol+" in no log"]++
			example[at.protocol+" in no log"] = fmt.Sprintf("%+v", at)
		}
	}
	for at, lines := range c.by {
		if captured[at] == 0 {
			extra[at.protocol]++
			example[at.protocol] = fmt.Sprintf("%+v %s of %s", at, lines[0].Name, lines[0].Function)
		}
	}
	for what, n := range missing {
		c.t.Errorf("%d marks of messages do not match the logs: %s; for example %s", n, what, example[what])
	}
	for what, n := range extra {
		c.t.Errorf("%d log lines have no captured message: %s; for example %s", n, what, example[what])
	}
}

// summary returns how many messages and classes there are of each type.
func summary(messages []observed) string {
	count, classes := map[string]int{}, map[string]map[string]bool{}
	for _, m := range messages {
		count[m.kind]++
		if classes[m.kind] == nil {
			classes[m.kind] = map[string]bool{}
		}
		classes[m.kind][m.class] = true
	}
	var out []string
	for kind, n := range count {
		if kind == "" {
			out = append(out, fmt.Sprintf("%d messages of no network event", n))
			continue
		}
		out = append(out, fmt.Sprintf("%s: %d messages of %d events", kind, n, len(classes[kind])))
	}
	slices.Sort(out)
	return strings.Join(out, "; ")
}
