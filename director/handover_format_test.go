package director

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"vitrine/director/meter"
	"vitrine/director/table"
)

// newDirector returns a director without running it.
func newDirector(t *testing.T, text string, change ...func(*Options)) *Director {
	t.Helper()
	clock, err := HostClock()
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Path: write(t, filepath.Join(t.TempDir(), "director.yaml"), text), Clock: clock, Log: slog.New(slog.DiscardHandler)}
	for _, c := range change {
		c(&o)
	}
	d, err := New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// remembered returns the number of keys in a memory.
func remembered(t *testing.T, d *Director, s *table.Steering) int {
	t.Helper()
	var none, all bytes.Buffer
	if err := table.NewSteering(d.epochs, 8).Carry(d.now(), &none); err != nil {
		t.Fatal(err)
	}
	if err := s.Carry(d.now(), &all); err != nil {
		t.Fatal(err)
	}
	return (all.Len() - none.Len()) / 16
}

// TestSections checks that a process with other workers and listeners takes over the sections that
// it can use. A truncated stream must be an error.
func TestSections(t *testing.T) {
	both := strings.Replace(long, "listen:\n", "listen:\n  gtpc: [\"udp://127.0.0.1:0\"]\n", 1)
	both = strings.Replace(both, "rules:\n", "  - {name: attach, protocol: gtpc, number: 1}\nrules:\n  - {type: attach}\n", 1)
	for _, c := range []struct {
		from, to             string
		workers, moreWorkers int
		keys, each           int // keys taken over in total, and in each SIP worker's memory
	}{
		{both, both, 2, 2, 20, 5},
		{both, long, 2, 4, 10, 10},
		{long, both, 4, 1, 20, 20},
		{both, both, 1, 3, 10, 5},
	} {
		t.Run(fmt.Sprintf("%d workers to %d", c.workers, c.moreWorkers), func(t *testing.T) {
			old := newDirector(t, c.from+fmt.Sprintf("workers: %d\n", c.workers))
			next := newDirector(t, c.to+fmt.Sprintf("workers: %d\n", c.moreWorkers))
			key := uint64(0)
			for _, p := range old.protocols {
				for _, s := range p.Steerings() {
					for range 5 {
						key++
						s.Choose(old.now(), 0, key<<48, 0)
					}
				}
			}
			w := old.meter.Worker()
			w.Begin(old.now(), old.epochs.View().Table.ByName("reg-1"), 1)
			w.End(old.now(), 1, 0)
			w.Sample(0, time.Second)
			var stream bytes.Buffer
			if err := old.handOver(&stream); err != nil {
				t.Fatal(err)
			}
			whole := stream.Bytes()
			if n, err := next.takeOver(&stream); err != nil || n != c.keys || stream.Len() != 0 {
				t.Errorf("took over %d keys, want %d, and %d bytes are left, want 0: %v", n, c.keys, stream.Len(), err)
			}
			for i, s := range next.protocols[0].Steerings() {
				if n := remembered(t, next, s); n != c.each {
					t.Errorf("worker %d remembers %d keys, want %d", i, n, c.each)
				}
			}
			if n := next.meter.Samples()["registration"].Count; n != 1 {
				t.Errorf("counted %d answers, want 1", n)
			}
			if _, err := next.takeOver(bytes.NewReader(whole[:len(whole)-1])); err == nil {
				t.Error("takeOver accepted a stream without its last byte")
			}
		})
	}
}

// TestHandOverToOtherTypes hands over to a process that has the types in another order. Counts must
// follow the names of the types. Keys must not be found in the memory of another type.
func TestHandOverToOtherTypes(t *testing.T) {
	old := newDirector(t, long+"workers: 1\n")
	next := newDirector(t, reordered()+"workers: 1\n")
	old.protocols[0].Steerings()[0].Choose(old.now(), 0, 1<<48, 0)
	old.meter.Worker().Fail(0, meter.NoInstance) // registration
	var stream bytes.Buffer
	if err := old.handOver(&stream); err != nil {
		t.Fatal(err)
	}
	if n, err := next.takeOver(&stream); err != nil || n != 0 || remembered(t, next, next.protocols[0].Steerings()[0]) != 0 {
		t.Errorf("took over %d keys, want 0: %v", n, err)
	}
	for i, want := range []uint64{0, 1} { // session, registration
		if n := next.meter.Types()[i].Failures["no_instance"]; n != want {
			t.Errorf("type %d: got %d failures, want %d", i, n, want)
		}
	}
	if _, err := next.takeSection(section{Kind: typesSection}, []byte(`["session", "regis`)); err == nil {
		t.Error("takeSection accepted half a list of types")
	}
	// A removed last type moves no other one, so keys stay. But its number must not come back.
	here := next.epochs.View().Table.Types()
	var were bytes.Buffer
	if err := json.NewEncoder(&were).Encode(append(slices.Clone(here), "removed")); err != nil {
		t.Fatal(err)
	}
	next.reordered = false
	if err := next.takeTypes(&were); err != nil || next.reordered || next.numbers[len(here)] != -1 {
		t.Errorf("after the last type was removed: numbers %v, reordered %v, %v", next.numbers, next.reordered, err)
	}
}

// TestHandOverKeepsAwayInstancesAway checks that a new process sends nothing to an instance that the
// old one found away, until its own checks find the instance up.
func TestHandOverKeepsAwayInstancesAway(t *testing.T) {
	checked := strings.Replace(good, `health: {sip: "off"}`, "", 1)
	old, next := newDirector(t, checked), newDirector(t, checked)
	find(t, old, "reg-", "reg-1")
	var stream bytes.Buffer
	if err := old.handOver(&stream); err != nil {
		t.Fatal(err)
	}
	if _, err := next.takeOver(&stream); err != nil {
		t.Fatal(err)
	}
	if got := takers(next, 0); got != "reg-2" {
		t.Errorf("before the first publication keys go to %q, want reg-2", got)
	}
	publishNow(t, next)
	if got := takers(next, 0); got != "reg-2" || next.watch.reason("reg-1") != io.EOF.Error() {
		t.Errorf("keys go to %q, want reg-2; reg-1 is away because of %q", got, next.watch.reason("reg-1"))
	}
	find(t, next, "reg-")
	if got := takers(next, 0); got != "reg-1 reg-2" {
		t.Errorf("after a good check keys go to %q, want both", got)
	}
}

// TestUnknownSection checks that a section of another version is skipped and that all others are
// taken over. Older versions have a section of exchanges from before TEIDs were claimed.
func TestUnknownSection(t *testing.T) {
	const before = 3 // the kind of the older section
	old, next := newDirector(t, both), newDirector(t, both)
	old.protocols[0].Steerings()[0].Choose(old.now(), 0, 1<<48, 0)
	var stream, unknown bytes.Buffer
	body := []byte("\x00\x00\x00\x07\x01exchanges")
	if err := binary.Write(&unknown, binary.BigEndian, section{Kind: before, Length: uint64(len(body))}); err != nil {
		t.Fatal(err)
	}
	unknown.Write(body)
	if err := old.handOver(&stream); err != nil {
		t.Fatal(err)
	}
	for _, s := range old.parts() {
		if s.Kind == before {
			t.Fatal("the current section kind equals the kind of an earlier version")
		}
	}
	if n, err := next.takeOver(io.MultiReader(&unknown, &stream)); err != nil || n != 1 {
		t.Errorf("took over %d keys, want 1: %v", n, err)
	}
}
