package capture

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestFragmentsOfIP checks reassembly of datagrams whose fragments arrive in any
// order, repeated, overlapping or not at all.
func TestFragmentsOfIP(t *testing.T) {
	text := strings.Repeat("0123456789abcdef", 20)
	want := func(version int) []string {
		ends := map[int]string{4: "192.0.2.1:5060>192.0.2.2:5062", 6: "[2001:db8::1]:5060>[2001:db8::2]:5062"}
		return []string{fmt.Sprintf("UDP %s %q", ends[version], text)}
	}
	for version, all := range map[int][][]byte{4: fragments4(udp4(t, text), 64), 6: fragments6(udp6(t, text), 64)} {
		reversed := slices.Clone(all)
		slices.Reverse(reversed)
		overlapping := slices.Clone(all)
		if version == 4 {
			overlapping[1] = fragments4(udp4(t, text), 72)[1] // bytes 72 to 144
		} else {
			overlapping[1] = fragments6(udp6(t, text), 72)[1]
		}
		changed := slices.Clone(all[0])
		changed[len(changed)-1] ^= 1
		tests := []struct {
			name   string
			frames [][]byte
			want   []string
			counts Reassembly
		}{
			{"in order", all, want(version), Reassembly{Fragments: 6, Complete: 1}},
			{"reversed", reversed, want(version), Reassembly{Fragments: 6, Complete: 1}},
			{"repeated", slices.Concat(all[:3], all[:3], all[3:]), want(version), Reassembly{Fragments: 9, Complete: 1, Repeated: 3}},
			{"one is missing", all[1:], nil, Reassembly{Fragments: 5, Expired: 1}},
			{"overlapping", overlapping, nil, Reassembly{Fragments: 6, Overlapped: 1}},
			{"repeated with other bytes", slices.Concat(all[:1], [][]byte{changed}, all[1:]), nil, Reassembly{Fragments: 7, Overlapped: 1}},
		}
		for _, test := range tests {
			t.Run(fmt.Sprintf("IPv%d %s", version, test.name), func(t *testing.T) {
				w := NewWalker(Options{})
				if got := walk(w, Raw, test.frames...); !slices.Equal(got, test.want) {
					t.Errorf("got %v, want %v", got, test.want)
				}
				w.finish()
				if got := w.Counts().IP; got != test.counts {
					t.Errorf("got %+v, want %+v", got, test.counts)
				}
			})
		}
	}
}

// TestFragmentsOfEachPlaceAreTheirOwn checks that copies of fragments from two
// interfaces give two datagrams.
func TestFragmentsOfEachPlaceAreTheirOwn(t *testing.T) {
	w := NewWalker(Options{})
	n := 0
	for _, f := range fragments4(udp4(t, strings.Repeat("x", 100)), 64) {
		for place := range uint16(2) {
			w.Walk(Raw, 0, Where{Interface: place}, f)
			if p := w.Next(); p != nil {
				n++
			}
		}
	}
	if c := w.Counts().IP; n != 2 || c.Overlapped+c.Repeated > 0 {
		t.Errorf("got %d datagrams, counts %+v", n, c)
	}
}

// TestFragmentsOfAMirrorAreOneDatagram: a mirror port has each fragment twice, the last one also after the
// datagram is complete. The sender uses the identification again a second later.
func TestFragmentsOfAMirrorAreOneDatagram(t *testing.T) {
	const fragments = 2
	w := NewWalker(Options{})
	n := 0
	for second := range 2 {
		at := int64(second) * int64(time.Second)
		for _, f := range fragments4(udp4(t, strings.Repeat("x", 100)), 64) {
			for range 2 {
				at += int64(time.Microsecond)
				w.Walk(Raw, at, Where{}, f)
				if w.Next() != nil {
					n++
				}
			}
		}
	}
	w.finish()
	want := Reassembly{Fragments: 4 * fragments, Complete: 2, Repeated: 2 * fragments}
	if c := w.Counts().IP; n != 2 || c != want {
		t.Errorf("got %d datagrams, counts %+v, want 2, %+v", n, c, want)
	}
}

// TestFragmentsWaitWithinBounds checks the limits in time and memory.
func TestFragmentsWaitWithinBounds(t *testing.T) {
	first := func(id byte) []byte {
		f := fragments4(udp4(t, strings.Repeat("x", 3000)), 1400)[0]
		f[5] = id
		return f
	}
	t.Run("time", func(t *testing.T) {
		w := NewWalker(Options{FragmentTimeout: 10 * time.Second})
		all := fragments4(udp4(t, strings.Repeat("x", 100)), 64)
		w.Walk(Raw, 0, Where{}, all[0])
		w.Walk(Raw, int64(11*time.Second), Where{}, all[1])
		if p := w.Next(); p != nil || w.Counts().IP.Expired != 1 {
			t.Errorf("%+v, %+v", p, w.Counts().IP)
		}
	})
	t.Run("memory", func(t *testing.T) {
		const limit = 64 << 10
		w := NewWalker(Options{MaxMemory: 2 * limit})
		for i := range 200 {
			w.Walk(Raw, 0, Where{}, first(byte(i)))
			if w.fragments.memory > limit {
				t.Fatalf("the fragments use %d bytes", w.fragments.memory)
			}
		}
		held := 0
		for e := w.fragments.ends.next; e != &w.fragments.ends; e = e.next {
			held++
		}
		if c := w.Counts().IP; held == 0 || int(c.GivenUp) != 200-held {
			t.Errorf("%d fragments are held, counts %+v", held, c)
		}
	})
	t.Run("memory of small fragments", func(t *testing.T) {
		const limit, each = 64 << 10, 500
		w := NewWalker(Options{MaxMemory: 2 * limit})
		for i := range uint32(8 * each) {
			w.Walk(Raw, 0, Where{}, sctp4(t, dataChunk(0, i, uint16(i/each), 1, 46, "x")))
			w.Next()
		}
		held := 0
		for e := w.messages.ends.next; e != &w.messages.ends; e = e.next {
			held += cap(e.octets) + cap(e.parts)*partSize
		}
		if c := w.Counts().Messages; held == 0 || held > limit || c.GivenUp == 0 {
			t.Errorf("%d bytes are held, %+v", held, c)
		}
	})
	t.Run("one datagram is larger than the bound", func(t *testing.T) {
		w := NewWalker(Options{MaxMemory: 1000})
		w.Walk(Raw, 0, Where{}, first(1))
		if c := w.Counts().IP; c.GivenUp != 1 || w.fragments.memory != 0 {
			t.Errorf("got counts %+v, %d bytes", c, w.fragments.memory)
		}
	})
}

// TestFragmentsOfMessages checks reassembly of SCTP user messages.
func TestFragmentsOfMessages(t *testing.T) {
	const first, last, unordered = 2, 1, 4
	chunk := func(flags byte, tsn uint32, stream, number uint16, payload string) []byte {
		return sctp4(t, dataChunk(flags, tsn, stream, number, 46, payload))
	}
	message := func(text string, stream int, tsn uint32) string {
		return fmt.Sprintf(`SCTP 192.0.2.1:5060>192.0.2.2:5062 %q stream %d ppid 46 tsn %d`, text, stream, tsn)
	}
	begin, middle, end := chunk(first, 0xffffffff, 1, 5, "ab"), chunk(0, 0, 1, 5, "cd"), chunk(last, 1, 1, 5, "e")
	whole := message("abcde", 1, 0xffffffff)
	tests := []struct {
		name   string
		frames [][]byte
		want   []string
	}{
		{"in order, over the wrap of TSNs", [][]byte{begin, middle, end}, []string{whole}},
		{"reversed", [][]byte{end, middle, begin}, []string{whole}},
		{"repeated", [][]byte{begin, begin, middle, middle, end}, []string{whole}},
		{"in one packet", [][]byte{sctp4(t, dataChunk(first, 8, 1, 5, 46, "ab"), dataChunk(last, 9, 1, 5, 46, "c"))}, []string{message("abc", 1, 8)}},
		{"the middle is missing", [][]byte{begin, end}, nil},
		{"the start is missing", [][]byte{middle, end}, nil},
		{"two streams", [][]byte{begin, chunk(first, 7, 2, 5, "x"), end, chunk(last, 8, 2, 5, "y"), middle}, []string{message("xy", 2, 7), whole}},
		{"unordered messages of one stream", [][]byte{
			chunk(first|unordered, 20, 1, 0, "a"), chunk(first|unordered, 22, 1, 0, "c"), chunk(last|unordered, 23, 1, 0, "d"), chunk(last|unordered, 21, 1, 0, "b"),
		}, []string{message("cd", 1, 22), message("ab", 1, 20)}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := NewWalker(Options{})
			if got := walk(w, Raw, test.frames...); !slices.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
			if c := w.Counts().Messages; int(c.Complete) != len(test.want) {
				t.Errorf("%+v", c)
			}
		})
	}
	t.Run("cut off by the capture", func(t *testing.T) {
		w := NewWalker(Options{})
		cut := func(frame []byte, n int) []byte { return frame[:len(frame)-n] } // of 2 bytes with 2 of padding
		got := walk(w, Raw, begin, cut(middle, 3), cut(chunk(0, 1, 1, 5, "ef"), 2), chunk(last, 2, 1, 5, "gh"))
		want := `SCTP 192.0.2.1:5060>192.0.2.2:5062 "abc" missing 5 stream 1 ppid 46 tsn 4294967295`
		if c := w.Counts(); len(got) != 1 || got[0] != want || c.Cut != 1 || c.Malformed != 0 {
			t.Errorf("got %q, want %s; %+v", got, want, c)
		}
	})
	t.Run("repeated after the end", func(t *testing.T) {
		w := NewWalker(Options{})
		got := walk(w, Raw, begin, begin, middle, middle, end, end, middle, chunk(first, 2, 1, 6, "f"), chunk(last, 3, 1, 6, "g"))
		w.finish()
		want := Reassembly{Fragments: 9, Complete: 2, Repeated: 4}
		if c := w.Counts().Messages; !slices.Equal(got, []string{whole, message("fg", 1, 2)}) || c != want {
			t.Errorf("got %q, %+v, want %+v", got, c, want)
		}
	})
	t.Run("incomplete at the end", func(t *testing.T) {
		var ppids []uint32
		w := NewWalker(Options{Incomplete: func(ppid uint32) { ppids = append(ppids, ppid) }})
		walk(w, Raw, begin, end, chunk(first, 7, 2, 5, "x"), // the middle and the end are missing
			chunk(first|unordered, 20, 1, 0, "a"), chunk(last|unordered, 23, 1, 0, "d"), chunk(unordered, 26, 1, 0, "f"))
		if c := w.Counts().Messages; c.Expired != 0 {
			t.Errorf("counts before the end: got %+v", c)
		}
		w.finish()
		w.finish()
		if c := w.Counts().Messages; c.Expired != 4 || !slices.Equal(ppids, []uint32{46, 46, 46, 46}) || w.messages.memory != 0 {
			t.Errorf("got %+v, %v, %d bytes held", c, ppids, w.messages.memory)
		}
	})
	t.Run("an endless message", func(t *testing.T) {
		w := NewWalker(Options{})
		for i := range uint32(3 * maxParts) {
			w.Walk(Raw, 0, Where{}, chunk(0, i, 1, 5, "ab"))
			if w.Next() != nil {
				t.Fatal("got a message after the end")
			}
		}
		if c := w.Counts().Messages; c.GivenUp == 0 {
			t.Errorf("%+v", c)
		}
	})
}
