package e2e

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"vitrine/affinity"
	"vitrine/affinity/compare"
	"vitrine/affinity/correlate"
	"vitrine/affinity/course"
	"vitrine/affinity/message"
	"vitrine/wire/gtpc"
)

// noise is the difference in ms between two medians that a busy host can cause without any
// change of the functions. The test of delays uses the same value.
const noise = injected / 2

// sideOf analyses captures.
func sideOf(t testing.TB, name string, captured *affinity.Captured) compare.Side {
	t.Helper()
	a, err := affinity.Analyse(captured.Flows, affinity.Options{Captured: captured})
	if err != nil {
		t.Fatal(err)
	}
	if len(a.Types) == 0 {
		t.Fatalf("%s has no transactions", name)
	}
	return compare.Side{Name: name, Analysis: a}
}

// read analyses a capture.
func (s *site) read(name, file string) compare.Side {
	s.t.Helper()
	captured, err := affinity.ReadCaptures(s.t.Context(), []string{file}, message.Options{Name: s.byPlace()}, correlate.Options{}, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	return sideOf(s.t, name, captured)
}

// byChance divides the transactions of a capture into random halves. It can be called
// repeatedly.
func (s *site) byChance(file string, often int) (halves [][2]compare.Side) {
	s.t.Helper()
	random := rand.New(rand.NewPCG(1, 1))
	all := make([][2]*course.Collector, often)
	correlator := correlate.New(correlate.Options{}, func(e *correlate.Event) {
		for _, two := range all {
			two[random.IntN(2)].Add(e)
		}
	})
	for i := range all {
		all[i] = [2]*course.Collector{course.New(correlator, 0), course.New(correlator, 0)}
	}
	_, err := message.Read(s.t.Context(), []string{file}, message.Options{Name: s.byPlace()}, func(m *message.Message) error {
		correlator.Add(m)
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	correlator.Close()
	for i, two := range all {
		var sides [2]compare.Side
		for half, c := range two {
			found := c.Result(func(string) bool { return false })
			sides[half] = sideOf(s.t, fmt.Sprintf("half %d of division %d", half+1, i+1),
				&affinity.Captured{Read: &message.Summary{}, Flows: found.Flows, Measured: found.Measured})
		}
		halves = append(halves, sides)
	}
	return halves
}

// changesOf returns the changes, with times separate from changes of messages.
func changesOf(t testing.TB, a, b compare.Side) (sent, times []string) {
	t.Helper()
	c, err := compare.Compare(a, b)
	if err != nil {
		t.Fatal(err)
	}
	for i := range c.Types {
		x := &c.Types[i]
		is := func(list *[]string, format string, args ...any) {
			*list = append(*list, x.Type+" "+fmt.Sprintf(format, args...))
		}
		if x.Share != nil {
			is(&sent, "share %+v", *x.Share)
		}
		if x.Aggregate != nil {
			is(&sent, "aggregate %v", *x.Aggregate)
		}
		if x.Path != nil {
			is(&sent, "path longer by %d, new %v, gone %v", x.Path.Length[1]-x.Path.Length[0], x.Path.New, x.Path.Gone)
		}
		for _, m := range x.Messages {
			is(&sent, "%s %s > %s %s", m.What, m.From, m.To, m.Name)
		}
		if x.Duration != nil {
			is(&times, "duration %+v", *x.Duration)
		}
		for _, y := range x.Times {
			is(&times, "%s %v %+v", y.Of, y.Message, y.Interval)
		}
	}
	if len(sent)+len(times) != c.Changes {
		t.Errorf("listed %d changes, counted %d", len(sent)+len(times), c.Changes)
	}
	return sent, times
}

// TestHalvesOfTrafficDoNotDiffer plays the life of UEs twice, and compares the captures.
func TestHalvesOfTrafficDoNotDiffer(t *testing.T) {
	const ues = 100
	s := newSite(t, nil)
	file, finish := s.capture("rounds")
	s.placeEPC()
	s.startEPC()
	var second int64
	s.useEPC(ues, 2, func() {
		s.settle(file)
		second = time.Now().UnixNano()
	})
	s.settle(file)
	s.stop()
	finish()
	header, frames := readFrames(t, file)
	at := slices.IndexFunc(frames, func(f frame) bool { return f.at >= second })
	if at < 0 {
		t.Fatal("the second round captured nothing")
	}
	earlier := s.read("the first half", writeFrames(t, "first.pcap", header, frames[:at]))
	later := s.read("the second half", writeFrames(t, "second.pcap", header, frames[at:]))

	t.Run("a capture and itself", func(t *testing.T) {
		for _, side := range []compare.Side{earlier, later} {
			if sent, times := changesOf(t, side, side); len(sent)+len(times) > 0 {
				t.Errorf("%s compared with itself has changes: %v %v", side.Name, sent, times)
			}
		}
	})
	t.Run("halves one after the other", func(t *testing.T) {
		sent, times := changesOf(t, earlier, later)
		if len(sent) > 0 {
			t.Errorf("messages changed:\n%s", strings.Join(sent, "\n"))
		}
		t.Logf("times that changed, perhaps with the load of the host:\n%s", strings.Join(times, "\n"))
	})
	t.Run("halves by chance", func(t *testing.T) {
		const often = 20
		wrong := 0
		for _, half := range s.byChance(file, often) {
			if sent, times := changesOf(t, half[0], half[1]); len(sent)+len(times) > 0 {
				wrong++
				t.Logf("%s:\n%s", half[0].Name, strings.Join(append(sent, times...), "\n"))
			}
		}
		if wrong > often*compare.Doubt {
			t.Errorf("%d of %d comparisons report a false change", wrong, often)
		}
	})
	t.Run("one more exchange", func(t *testing.T) {
		sgw, pgw := s.places["sgw"].addr.As4(), s.places["pgw"].addr.As4()
		more := s.read("with notifications", writeFrames(t, "more.pcap", header, withNotifications(header, frames[at:], sgw, pgw)))
		sent, times := changesOf(t, later, more)
		want := []string{"ATTACH new pgw > sgw Change Notification Response", "ATTACH new sgw > pgw Change Notification Request"}
		// The S-GW waits for it, so that the critical path may be another one.
		const path = "ATTACH path longer by "
		sent = slices.DeleteFunc(sent, func(change string) bool {
			return strings.HasPrefix(change, path) && strings.Contains(change, "Change Notification")
		})
		slices.Sort(sent)
		if !slices.Equal(sent, want) || len(times) > 0 {
			t.Errorf("got  %q %q\nwant %q", sent, times, want)
		}
	})
}

// withNotifications adds, before each Create Session Request from the S-GW to the P-GW, a
// Change Notification of the same user and its response (TS 29.274 clause 7.3.14).
func withNotifications(header []byte, frames []frame, sgw, pgw [4]byte) (out []frame) {
	const src, dst, id, udp = 12, 16, 4, 20 // offsets in IPv4
	ip := ipOffset(header)
	for _, f := range frames {
		if gtp := ip + udp + 8; len(f.data) > gtp+8 && [4]byte(f.data[ip+src:]) == sgw && [4]byte(f.data[ip+dst:]) == pgw &&
			f.data[ip+9] == 17 && gtpc.Type(f.data[gtp+1]) == gtpc.CreateSessionRequest {
			request := slices.Clone(f.data)
			request[ip+id] ^= 0x80
			request[gtp+1] = byte(gtpc.ChangeNotificationRequest)
			request[gtp+8] ^= 0x80                   // the sequence number, behind the TEID
			const cause = "\x02\x00\x02\x00\x10\x00" // accepted
			response := append(slices.Clone(request[:gtp+12]), cause...)
			copy(response[ip+src:], pgw[:])
			copy(response[ip+dst:], sgw[:])
			response[gtp+1] = byte(gtpc.ChangeNotificationResponse)
			binary.BigEndian.PutUint16(response[ip+2:], uint16(len(response)-ip))
			binary.BigEndian.PutUint16(response[ip+udp+4:], uint16(len(response)-ip-udp))
			binary.BigEndian.PutUint16(response[gtp+2:], uint16(len(response)-gtp-4))
			out = append(out, frame{at: f.at - 2000, wire: uint32(len(request)), data: request},
				frame{at: f.at - 1000, wire: uint32(len(response)), data: response})
		}
		out = append(out, f)
	}
	return out
}

// TestASlowerLinkIsTheOnlyChange adds 5 ms to the link of the HSS. The comparison must
// report them for messages between HSS and MME, no longer way for any other message, and
// the same messages. Processing times may change, because they depend on the load of the
// host.
func TestASlowerLinkIsTheOnlyChange(t *testing.T) {
	const ues = 60
	before, after := sideOf(t, "before", captureLinks(t, nil, ues)), sideOf(t, "after", captureLinks(t, slowHSS(), ues))
	if sent, times := changesOf(t, before, after); len(sent) > 0 {
		t.Errorf("messages changed:\n%s", strings.Join(sent, "\n"))
	} else {
		t.Logf("times that changed:\n%s", strings.Join(times, "\n"))
	}
	c, err := compare.Compare(before, after)
	if err != nil {
		t.Fatal(err)
	}
	const most = 1.02 * injected // the kernel's delay is a little longer, and times are kept to 1%
	ways := 0
	for i := range c.Types {
		for _, y := range c.Types[i].Times {
			link := y.From == "mme" && y.To == "hss" || y.From == "hss" && y.To == "mme"
			more := y.B - y.A
			switch {
			case y.Of != compare.Way:
			case link:
				if ways++; more < injected-noise || more > injected+noise || y.Least > most || y.Least <= 0 {
					t.Errorf("%s %v: got %+v, want %g ms more", c.Types[i].Type, y.Message, y.Interval, injected)
				}
			case math.Abs(more) > noise:
				t.Errorf("%s %v: %+v", c.Types[i].Type, y.Message, y.Interval)
			}
		}
	}
	if ways < 4 { // the requests for vectors and for the subscription, and their answers
		t.Errorf("the delay is on %d messages, want at least 4: %+v", ways, c)
	}
}
