package e2e

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"vitrine/affinity/correlate"
	"vitrine/affinity/message"
	"vitrine/internal/truth"
)

// A found is a message with the transaction that the analysis assigned.
type found struct {
	message.Message
	event uint64 // 0: none
	kind  string // the transaction's type
	truth *observed
}

// An analysis is the result for captures.
type analysis struct {
	messages []found
	kinds    map[uint64]string // of transactions
	stray    int               // messages that are none of the truth's
	strays   string            // some of them
	summary  *message.Summary
}

// analyse analyses captures as a user does, without names.
func analyse(t testing.TB, files ...string) *analysis {
	t.Helper()
	a, err := analyseBy(func(handle func(*message.Message) error) (*message.Summary, error) {
		return message.Read(t.Context(), files, message.Options{}, handle)
	})
	if err != nil {
		t.Logf("read the captures: %v", err)
	}
	if a.summary == nil {
		t.Fatal("the captures contain no messages")
	}
	return a
}

// analyseBy analyses the messages that a function reads.
func analyseBy(read func(func(*message.Message) error) (*message.Summary, error)) (*analysis, error) {
	a := &analysis{kinds: map[uint64]string{}}
	c := correlate.New(correlate.Options{}, func(e *correlate.Event) { a.kinds[e.ID] = e.Type() })
	var err error
	a.summary, err = read(func(m *message.Message) error {
		l := c.Add(m)
		kept := *m
		kept.Identifiers, kept.Access = nil, nil // valid during the call alone
		a.messages = append(a.messages, found{Message: kept, event: l.Event})
		return nil
	})
	c.Close()
	for i := range a.messages {
		a.messages[i].kind = a.kinds[a.messages[i].event]
	}
	return a, err
}

// protocolOf returns the truth's name of a protocol.
func protocolOf(p message.Protocol) string {
	switch p {
	case message.SIP:
		return truth.SIP
	case message.HTTP, message.HTTP2:
		return truth.HTTP
	case message.Diameter:
		return truth.Diameter
	case message.GTPv2:
		return truth.GTP
	case message.S1AP:
		return truth.S1AP
	}
	return ""
}

// match finds the truth of each message: the observed one of the same direction whose
// time is nearest, within a tolerance, each once. It returns the observed messages
// that the analysis has not found.
func (a *analysis) match(messages []observed, tolerance time.Duration) (missed []*observed) {
	type way struct {
		src, dst netip.AddrPort
		protocol string
	}
	by := map[way][]*observed{}
	for i := range messages {
		m := &messages[i]
		of := way{m.src, m.dst, m.protocol}
		by[of] = append(by[of], m)
	}
	mine := map[way][]*found{}
	for i := range a.messages {
		f := &a.messages[i]
		if f.Kind == message.Repeat {
			continue // folded
		}
		of := way{f.Src, f.Dst, protocolOf(f.Protocol)}
		mine[of] = append(mine[of], f)
	}
	taken := map[*observed]bool{}
	for of, list := range mine {
		slices.SortStableFunc(list, func(x, y *found) int { return cmp.Compare(x.Time, y.Time) })
		for _, f := range list {
			f.truth = nearest(by[of], f.Time, tolerance, taken)
			if f.truth == nil && isBase(f) {
				continue
			}
			if f.truth == nil {
				a.stray++
				if a.stray <= 5 {
					a.strays += fmt.Sprintf("\n%v %v -> %v %s at %d (message %d)", f.Protocol, f.Src, f.Dst, f.Name, f.Time, f.ID)
				}
				continue
			}
			taken[f.truth] = true
		}
	}
	for i := range messages {
		if m := &messages[i]; !taken[m] && !m.again {
			missed = append(missed, m)
		}
	}
	return missed
}

// isBase reports whether a message is of Diameter's base protocol, which go-diameter
// speaks, so that the functions do not log it.
func isBase(f *found) bool {
	return strings.HasPrefix(f.Name, "Capabilities-Exchange") || strings.HasPrefix(f.Name, "Device-Watchdog")
}

// nearest returns the message that is not taken whose time is nearest.
func nearest(list []*observed, at int64, tolerance time.Duration, taken map[*observed]bool) (best *observed) {
	least := int64(tolerance)
	from, _ := slices.BinarySearchFunc(list, at-least, func(m *observed, at int64) int { return cmp.Compare(m.at, at) })
	for _, m := range list[from:] {
		if m.began > at+int64(tolerance) {
			break
		}
		away := min(max(m.at-at, at-m.at), max(m.began-at, at-m.began))
		if !taken[m] && (away < least || best == nil && away <= least) {
			best, least = m, away
		}
	}
	return best
}

// items returns the items to judge: each message once, with its retransmissions. missed has
// the messages of the truth that are in the capture but were not found.
func (a *analysis) items(missed []*observed, kind func(*observed) string) (items []Item) {
	serves := map[uint64]bool{} // transactions with a message of a network event
	for i := range a.messages {
		if f := &a.messages[i]; f.truth != nil && f.truth.class != "" {
			serves[f.event] = true
		}
	}
	for i := range a.messages {
		f := &a.messages[i]
		if f.truth == nil || f.truth.again || f.truth.class == "" && !serves[f.event] {
			continue
		}
		item := Item{Class: f.truth.class, Type: kind(f.truth)}
		if f.event != 0 {
			item.Cluster = strconv.FormatUint(f.event, 10)
		}
		items = append(items, item)
	}
	for _, m := range missed {
		if m.class != "" {
			items = append(items, Item{Class: m.class, Type: kind(m)})
		}
	}
	return items
}

func byKind(m *observed) string     { return cmp.Or(m.kind, "none") }
func byProtocol(m *observed) string { return m.protocol }

// A verdict is the comparison of an analysis with the truth.
type verdict struct {
	kinds, protocols Scores
	stray, missed    int
	examples         string
}

// judge compares an analysis with the truth. whole says that all messages of the truth
// are in the captures.
func judge(a *analysis, messages []observed, tolerance time.Duration, whole bool) verdict {
	missed := a.match(messages, tolerance)
	if !whole {
		missed = nil
	}
	return verdict{
		kinds: Judge(a.items(missed, byKind)), protocols: Judge(a.items(missed, byProtocol)),
		stray: a.stray, missed: len(missed), examples: a.strays,
	}
}

func (v verdict) String() string {
	var b strings.Builder
	row := func(name string, s Score) {
		fmt.Fprintf(&b, "\n%-14s %6d messages  precision %.4f  recall %.4f", name, s.Items, s.Precision, s.Recall)
	}
	row("all", v.kinds.Score)
	for _, of := range []map[string]Score{v.kinds.ByType, v.protocols.ByType} {
		var names []string
		for name := range of {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			row(name, of[name])
		}
	}
	fmt.Fprintf(&b, "\n%d found messages are not of the truth, %d of the truth are not found%s", v.stray, v.missed, v.examples)
	return b.String()
}

// reach checks that precision and recall reach their floors, and logs how far they are
// below the aim.
func (v verdict) reach(t testing.TB, what string, s Score, least, aim float64) {
	t.Helper()
	low := min(s.Precision, s.Recall)
	if s.Items == 0 || low < least {
		t.Errorf("%s: precision %.4f, recall %.4f over %d messages, want %.2f; the goal is %.2f", what, s.Precision, s.Recall, s.Items, least, aim)
	} else if low < aim {
		t.Logf("%s: %.4f is below the goal of %.2f", what, low, aim)
	}
}

// mistakes lists the most frequent ways in which the analysis differs from the truth.
func (a *analysis) mistakes(most int) string {
	type way struct{ what, name string }
	count, example := map[way]int{}, map[way]uint64{}
	owner, home := a.owners(), a.homes()
	for i := range a.messages {
		f := &a.messages[i]
		if f.truth == nil || f.truth.again {
			continue
		}
		of := way{name: fmt.Sprintf("%v %s, truth %s, found in %s", f.Protocol, f.Name, cmp.Or(f.truth.kind, "none"), cmp.Or(f.kind, "none"))}
		switch {
		case f.truth.class == "" && owner[f.event] != "":
			of.what = "intruder"
		case f.truth.class == "" || owner[f.event] == f.truth.class && home[f.truth.class] == f.event:
			continue
		case owner[f.event] != f.truth.class:
			of.what = "in another's transaction"
		default:
			of.what = "apart from most of its transaction"
		}
		count[of]++
		if example[of] == 0 {
			example[of] = f.ID
		}
	}
	var ways []way
	for w := range count {
		ways = append(ways, w)
	}
	slices.SortFunc(ways, func(x, y way) int { return cmp.Or(count[y]-count[x], strings.Compare(x.name, y.name)) })
	var b strings.Builder
	for _, w := range ways[:min(most, len(ways))] {
		fmt.Fprintf(&b, "\n%5d %s: %s (message %d)", count[w], w.what, w.name, example[w])
	}
	return b.String()
}

// owners returns the class of most messages of each transaction.
func (a *analysis) owners() map[uint64]string {
	count := map[uint64]map[string]int{}
	for i := range a.messages {
		f := &a.messages[i]
		if f.truth == nil || f.event == 0 {
			continue
		}
		if count[f.event] == nil {
			count[f.event] = map[string]int{}
		}
		count[f.event][f.truth.class]++
	}
	owners := map[uint64]string{}
	for event, classes := range count {
		for class, n := range classes {
			if best := owners[event]; n > classes[best] || n == classes[best] && class < best {
				owners[event] = class
			}
		}
	}
	return owners
}

// homes returns the transaction with most messages of each class.
func (a *analysis) homes() map[string]uint64 {
	count := map[string]map[uint64]int{}
	for i := range a.messages {
		f := &a.messages[i]
		if f.truth == nil {
			continue
		}
		if count[f.truth.class] == nil {
			count[f.truth.class] = map[uint64]int{}
		}
		count[f.truth.class][f.event]++
	}
	homes := map[string]uint64{}
	for class, events := range count {
		for event, n := range events {
			if best := homes[class]; n > events[best] || n == events[best] && event < best {
				homes[class] = event
			}
		}
	}
	return homes
}
