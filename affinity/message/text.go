package message

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// shown is the number of edges of unknown protocols in Text.
const shown = 20

// Text writes a summary for people.
func (s *Summary) Text(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%d messages in %v, from %d packets\n", s.Messages, time.Duration(s.End-s.Begin).Round(time.Millisecond), s.Captures.Frames)
	if c := &s.Captures; c.UDP+c.TCP+c.SCTP > 1 && s.Begin == s.End {
		fmt.Fprintln(w, "all packets have the same time: what takes long, and what follows what, cannot be said")
	}
	fmt.Fprint(w, "\nprotocol\tmessages\trequests\tanswers\tnotices\trepeats\tfailed\tanswers to requests not seen\n")
	for _, p := range s.Protocols {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\n", p.Protocol, p.Messages, p.Requests, p.Answers, p.Notices, p.Repeats, p.Failed, p.Orphans)
	}
	fmt.Fprint(w, "\nfunction\tsent\treceived\tbytes\n")
	for _, f := range s.Functions {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\n", f.Name, f.Sent, f.Received, f.Bytes)
	}
	s.clocks(w)
	if gaps := s.Gaps(); len(gaps) > 0 {
		fmt.Fprint(w, "\nnot understood, or told apart\tcount\n")
		for _, g := range gaps {
			fmt.Fprintf(w, "%s\t%d\n", g.What, g.Count)
		}
	}
	if len(s.Unknown) > 0 {
		fmt.Fprint(w, "\nin protocols that are not known\n\nclient\tserver\ttransport\tport\tpackets\tbytes\tround trips\n")
		for _, e := range s.Unknown[:min(len(s.Unknown), shown)] {
			fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%d\t%d\n", e.Client, e.Server, e.Transport, e.Port, e.Packets, e.Bytes, e.RoundTrips)
		}
		if more := len(s.Unknown) - shown; more > 0 {
			fmt.Fprintf(w, "and %d more\n", more)
		}
	}
	return w.Flush()
}

// clocks writes how the clocks of several files differ.
func (s *Summary) clocks(w io.Writer) {
	if len(s.Clocks) == 0 {
		return
	}
	fmt.Fprint(w, "\nclock of\tcompared with\tpackets\tahead by\tdrift\tresidual\tcorrected\n")
	for i := range s.Clocks {
		fmt.Fprintln(w, strings.Join(s.Clocks[i].Cells(), "\t"))
	}
}

// Cells returns the cells of the clock's row in a table for people: file, compared with, packets, ahead
// by, drift, residual, corrected.
func (c *Clock) Cells() []string {
	if c.Reference == "" {
		return []string{c.File, "-", "-", "-", "-", "-", "no"}
	}
	ahead, corrected := fmt.Sprintf("%.6f s", c.Offset), "yes"
	if !c.Corrected {
		ahead, corrected = fmt.Sprintf("%.6f to %.6f s", c.Least, c.Most), "no"
	}
	if c.OneWay {
		corrected += ", one direction only"
	}
	return []string{c.File, c.Reference, fmt.Sprint(c.Packets), ahead, fmt.Sprintf("%.3g ppm", c.Drift), fmt.Sprintf("%.6f s", c.Residual), corrected}
}

// A Gap counts something that was not understood, was dropped, or needs care.
type Gap struct {
	What  string // for people
	Count uint64
}

// messagesOf returns the number of messages of a protocol.
func (s *Summary) messagesOf(p Protocol) uint64 {
	at := slices.IndexFunc(s.Protocols, func(c Count) bool { return c.Protocol == p.String() })
	if at < 0 {
		return 0
	}
	return s.Protocols[at].Messages
}

// Gaps counts the messages that were not understood, and those that were dropped for lack of memory.
func (s *Summary) Gaps() []Gap {
	var all []Gap
	for _, p := range s.Protocols {
		for _, why := range slices.Sorted(maps.Keys(p.Undecodable)) {
			all = append(all, Gap{p.Protocol + ": " + why, p.Undecodable[why]})
		}
	}
	c, l := &s.Captures, &s.Streams.Lost
	if s.messagesOf(HTTP2) > 0 {
		all = append(all, Gap{"messages of NGAP, which name no user: most messages of the 5G core over HTTP/2 are in transactions of their own", s.messagesOf(NGAP)})
	}
	all = append(all, Gap{"packets captured more than once", s.Copies}, Gap{"frames that the kernel dropped, because they were read too slowly", c.Lost},
		Gap{"frames more than 1 s earlier than the one before: a clock was set back", c.SetBack},
		Gap{"packets more than 50 ms out of order: sort each file with reordercap", s.Disordered},
		Gap{"malformed frames", c.Malformed}, Gap{"frames that are not IP", c.NotIP},
		Gap{"packets that are neither UDP, TCP nor SCTP", c.NotTransport}, Gap{"SCTP chunks of I-DATA", c.Interleaved}, Gap{"packets cut off by the capture", c.Cut},
		Gap{"bytes of TCP missing", l.Timeout + l.Connection + l.Memory + l.Cut + l.End}, Gap{"bytes of TCP sent again", s.Streams.Repeated},
		Gap{"IP fragments without the rest", c.IP.Expired}, Gap{"SCTP messages that lack a fragment", c.Messages.Expired}, Gap{"for memory: fragments", c.IP.GivenUp + c.Messages.GivenUp},
		Gap{"for memory: requests whose answers are not found", s.GivenUp.Requests}, Gap{"for memory: packets whose copies are not found", s.GivenUp.Copies},
		Gap{"for memory: messages delivered before their copies", s.GivenUp.Hurried}, Gap{"for memory: pieces of connections", s.GivenUp.Streams},
		Gap{"for memory: connections that were given up; of HTTP/2 nothing more is read", s.Streams.Evicted},
		Gap{"for memory: packets of unknown protocols without an edge", s.GivenUp.Edges},
		Gap{"for memory: messages from or to functions that count as one, others", s.GivenUp.Functions},
		Gap{"for memory: names and causes of messages that count as one, (other)", s.GivenUp.Names})
	for _, link := range slices.Sorted(maps.Keys(c.Unknown)) {
		all = append(all, Gap{"frames of link type " + link.String(), c.Unknown[link]})
	}
	return slices.DeleteFunc(all, func(g Gap) bool { return g.Count == 0 })
}
