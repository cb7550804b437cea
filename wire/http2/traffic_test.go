package http2_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"vitrine/wire/http2"
)

// A side holds the results of a decoder for a stream in one direction.
type side struct {
	method, path, authority string
	status, octets          int
	interim, trailers       bool
	whole, ended            bool
}

// sides reads a direction in pieces of a size.
func sides(t *testing.T, octets []byte, size int) (map[uint32]*side, http2.Counts) {
	t.Helper()
	var d http2.Decoder
	all := map[uint32]*side{}
	for at, end := 0, 0; ; {
		n, e, err := d.Next(octets[at:end])
		if at += n; err != nil {
			t.Fatal(err)
		}
		if e == http2.More {
			if end == len(octets) {
				break
			}
			end = min(end+size, len(octets))
			continue
		}
		s := all[d.Stream]
		if s == nil {
			s = &side{}
			all[d.Stream] = s
		}
		switch e {
		case http2.Head:
			switch m := &d.Message; {
			case m.IsMalformed:
				t.Errorf("stream %d is malformed: %+v", d.Stream, m)
			case m.IsInterim():
				s.interim = true
			case m.Kind == http2.Trailers:
				s.trailers = true
			default:
				s.method, s.path, s.authority, s.status = string(m.Method), string(m.Path), string(m.Authority), m.Status
			}
		case http2.Body:
			s.octets += len(d.Data)
		case http2.End:
			s.ended, s.whole = true, d.Whole
		}
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	delete(all, 0)
	return all, d.Counts
}

// TestReadsRealTraffic compares the exchanges of net/http's client and server with the
// decoders' results for their connection.
func TestReadsRealTraffic(t *testing.T) {
	all := exchanges()
	r := record(t, all)
	for _, size := range []int{1, 100, 1448, 1 << 20} {
		requests, sent := sides(t, r.direction(false), size)
		responses, received := sides(t, r.direction(true), size)
		if len(requests) != len(all) || sent.Whole != uint64(len(all)) || received.Whole != uint64(len(all)) || sent.Partial+received.Partial+sent.Cut+received.Cut > 0 {
			t.Fatalf("got %d of %d requests, %+v, %+v", len(requests), len(all), sent, received)
		}
		var got []exchange
		for id, q := range requests {
			p := responses[id]
			if p == nil || !p.whole || !q.whole {
				t.Fatalf("stream %d: got %+v, %+v", id, q, p)
			}
			got = append(got, exchange{q.method, q.path, q.authority, q.octets, p.octets, p.status, p.interim, p.trailers})
		}
		order := func(a, b exchange) int { return strings.Compare(a.method+a.path, b.method+b.path) }
		slices.SortFunc(got, order)
		want := slices.SortedFunc(slices.Values(all), order)
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("got %+v, want %+v", got[i], want[i])
			}
		}
	}
}

// A block is a header block as it is read.
type block struct {
	stream uint32
	kind   http2.Kind
	fields []http2.Field
}

// heads reads the header blocks of a direction without some of its octets.
func heads(octets []byte, from, to int) (all []block, d *http2.Decoder, err error) {
	d = &http2.Decoder{}
	take := func(rest []byte) (n int, err error) {
		for {
			took, e, err := d.Next(rest[n:])
			if n += took; err != nil || e == http2.More {
				return n, err
			}
			if e == http2.Head {
				b := block{stream: d.Stream, kind: d.Message.Kind}
				for _, f := range d.Message.Fields {
					b.fields = append(b.fields, http2.Field{Name: bytes.Clone(f.Name), Value: bytes.Clone(f.Value), Sensitive: f.Sensitive})
				}
				all = append(all, b)
			}
		}
	}
	n, err := take(octets[:from])
	if err == nil && to > from {
		d.Lost(int64(to - n))
		_, err = take(octets[to:])
	}
	return all, d, err
}

// isOf reports whether a block may be an incompletely known form of the block whole: all
// its known parts are equal.
func (b *block) isOf(whole block) bool {
	if b.stream != whole.stream || len(b.fields) != len(whole.fields) || b.kind != http2.Unclear && b.kind != whole.kind {
		return false
	}
	for i, f := range b.fields {
		w := whole.fields[i]
		if f.Name != nil && !bytes.Equal(f.Name, w.Name) || f.Value != nil && !bytes.Equal(f.Value, w.Value) {
			return false
		}
	}
	return true
}

// TestNothingIsWrongBehindAGap loses octets at random places of real traffic. All blocks
// read after a gap must be as sent, or unknown.
func TestNothingIsWrongBehindAGap(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	r := record(t, exchanges())
	for _, fromServer := range []bool{false, true} {
		octets := r.direction(fromServer)
		want, _, err := heads(octets, len(octets), 0)
		if err != nil {
			t.Fatal(err)
		}
		var sum http2.Counts
		const gaps = 400
		for range gaps {
			from := random.IntN(len(octets) - 1)
			to := min(len(octets), from+1+random.IntN(3000))
			got, d, err := heads(octets, from, to)
			if err != nil {
				t.Fatalf("piece from %d to %d: %v", from, to, err)
			}
			for _, b := range got {
				if !slices.ContainsFunc(want, b.isOf) {
					t.Fatalf("piece from %d to %d: stream %d has %+v, which was not sent", from, to, b.stream, b.fields)
				}
			}
			c := &d.Counts
			sum.Heads, sum.Partial, sum.Undecoded = sum.Heads+c.Heads, sum.Partial+c.Partial, sum.Undecoded+c.Undecoded
			sum.Fields, sum.Unknown, sum.Skipped = sum.Fields+c.Fields, sum.Unknown+c.Unknown, sum.Skipped+c.Skipped
		}
		t.Logf("from the server %v: of %d heads in %d octets %.1f%% are decoded; %.1f%% of these lack fields; %.1f%% of all fields are unknown; %d octets are skipped", fromServer,
			len(want), len(octets), 100*float64(sum.Heads)/float64(gaps*len(want)), 100*float64(sum.Partial)/float64(sum.Heads), 100*float64(sum.Unknown)/float64(sum.Fields), sum.Skipped/gaps)
		if sum.Heads < uint64(gaps*len(want)*9/10) || sum.Partial == 0 || sum.Unknown > sum.Fields/5 {
			t.Errorf("%+v", sum)
		}
	}
}

// TestReadsFromTheMiddle reads real traffic from each place on.
func TestReadsFromTheMiddle(t *testing.T) {
	r := record(t, exchanges()[:40])
	octets := r.direction(true)
	want, _, err := heads(octets, len(octets), 0)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for from := 1; from < len(octets); from += 97 {
		got, _, err := heads(octets, 0, from)
		if err != nil {
			t.Fatalf("piece from %d: %v", from, err)
		}
		found += len(got)
		for _, b := range got {
			if !slices.ContainsFunc(want, b.isOf) {
				t.Fatalf("piece from %d: stream %d has %s, which was not sent", from, b.stream, fmt.Sprint(b.fields))
			}
		}
	}
	if found == 0 {
		t.Error("no piece has a block that can be read")
	}
}
