package sip

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"vitrine/director/datagram"
	"vitrine/director/meter"
	"vitrine/director/table"
	"vitrine/wire/sip"
)

// corpusCalls is the number of Call-IDs in a corpus. `make bench` uses as many.
const corpusCalls = 20_000

// A corpus holds the requests of many Call-IDs in one block of memory, in the order in which they
// arrive.
type corpus struct {
	text []byte
	ends []int
	most int // length of the longest message
}

func (c *corpus) add(text string) {
	c.text = append(c.text, text...)
	c.ends = append(c.ends, len(c.text))
	c.most = max(c.most, len(text))
}

// at returns message i. After the last message, it starts again with the first.
func (c *corpus) at(i int) []byte {
	i %= len(c.ends)
	start := 0
	if i > 0 {
		start = c.ends[i-1]
	}
	return c.text[start:c.ends[i]]
}

// newCorpus returns the messages of phones: registrations, unanswered INVITEs, answered INVITEs,
// and calls that end with BYE. Their shares are those of the captures that `make bench` follows.
// The requests of all Call-IDs are mixed.
func newCorpus(s *stage) *corpus {
	random := rand.New(rand.NewPCG(1, 2))
	hex := func(digits int) string { return fmt.Sprintf("%016x%016x", random.Uint64(), random.Uint64())[:digits] }
	session := "Expires: 120\r\nAccept: application/sdp\r\nContent-Type: application/sdp\r\nAllow: INVITE, ACK, CANCEL, BYE, REFER, OPTIONS, NOTIFY, INFO\r\n"
	credentials := func(name string) string {
		return name + `: Digest username="voi18062",realm="sip.example.com",uri="sip:192.0.2.7",nonce="` + hex(31) + `",opaque="1701a1351f70795",nc="00000001",response="` + hex(32) + "\"\r\n"
	}
	body := strings.Repeat("a=rtpmap:97 iLBC/8000\r\n", 12)
	var all []string
	for range corpusCalls {
		own := strings.NewReplacer("105090259-446faf7a@578222732-4665d772", hex(18)+"@"+hex(18), "104984053-44ce4a41", hex(18), "6433ef9", hex(7))
		add := func(text string) { all = append(all, own.Replace(text)) }
		invite := func(more string) string { return asPhone("INVITE", more+session, body) }
		answered := func(text string) string {
			return strings.Replace(text, ".com>\r\nCall-ID", ".com>;tag=SD"+hex(20)+"\r\nCall-ID", 1)
		}
		switch n := random.IntN(36); {
		case n < 9:
			add(asPhone("REGISTER", "", ""))
			add(asPhone("REGISTER", credentials("Authorization"), ""))
		case n < 20:
			add(invite(""))
			add(asPhone("CANCEL", "", ""))
			add(answered(asPhone("ACK", "", "")))
		case n < 28:
			add(invite(credentials("Proxy-Authorization")))
			add(answered(asPhone("ACK", "", "")))
		case n < 32:
			first := own.Replace(invite(""))
			_, m := s.must(first, client, udp4)
			routes := elements(m, sip.RecordRoute)
			all = append(all, first)
			for _, method := range []string{"ACK", "OPTIONS", "OPTIONS", "BYE"} {
				add(answered(asPhone(method, "Route: "+routes[1]+", "+routes[0]+"\r\n", "")))
			}
		default:
			add(invite(""))
		}
	}
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	c := new(corpus)
	for _, text := range all {
		c.add(text)
	}
	return c
}

// BenchmarkCorpus handles the corpus as a worker does, in batches of 64 messages but without
// sockets. The time of "handle" includes the time of "copy", which only fills the batches.
func BenchmarkCorpus(b *testing.B) {
	s := newStage(b, rulesConfig())
	all := newCorpus(s)
	const memory = 1 << 18 // keys and transactions; the director's defaults
	s.meter = meter.New(memory, table.Transition)
	if err := s.meter.Register(s.epochs.View().Table); err != nil {
		b.Fatal(err)
	}
	s.proxy.steering, s.proxy.meter = table.NewSteering(s.epochs, memory), s.meter.Worker()
	const batch = 64
	var data, rooms [batch][]byte
	for i := range batch {
		data[i], rooms[i] = make([]byte, all.most), make([]byte, 0, datagram.RoomSize)
	}
	in := datagram.Datagram{From: client, At: s.now}
	var out Outgoing
	run := func(handle bool) func(b *testing.B) {
		return func(b *testing.B) {
			var lengths [batch]int
			for i := 0; b.Loop(); i++ {
				slot := i % batch
				lengths[slot] = copy(data[slot], all.at(i))
				for k := 0; handle && slot == batch-1 && k < batch; k++ {
					in.Data = data[k][:lengths[k]:lengths[k]]
					if !s.proxy.Handle(&in, rooms[k], &out) {
						b.Fatalf("the director sent nothing for %q", in.Data)
					}
				}
			}
		}
	}
	b.Run("copy", run(false))
	b.Run("handle", run(true))
}
