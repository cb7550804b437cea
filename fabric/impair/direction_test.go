package impair

import (
	"net"
	"testing"
	"time"

	"vitrine/fabric/fabrictest"
	"vitrine/internal/netns"
)

// TestImpairDelayBeginsWithTheArrival checks that the delay begins when the frame arrives. This
// must also hold for frames that arrive during a long round, or after the time of day was put
// forward.
func TestImpairDelayBeginsWithTheArrival(t *testing.T) {
	run := fabrictest.NewRun(t, t.TempDir()+"/runs")
	place := fabrictest.Place(t, run.ID, "generator")
	const delay, stall = 20 * time.Millisecond, 5 * time.Millisecond
	began := time.Now()
	clock := func() int64 { return int64(time.Since(began)) }
	for name, forward := range map[string]time.Duration{"a long round": 0, "the time put forward": time.Hour} {
		d := onLoopback(t, place, Link{Delay: delay})
		read := time.Now()
		now := int64(read.Sub(began) - stall) // when the round began
		sendOnLoopback(t, place)
		if !d.take(now, read.UnixNano()-int64(read.Sub(began)+forward), clock, 1) {
			t.Fatalf("%s: the frame was not taken", name)
		}
		leaves := time.Duration(d.ordered.peek(0).leaves)
		if least, most := time.Duration(now)+stall+delay, time.Duration(clock())+delay; leaves < least || leaves > most {
			t.Errorf("%s: the frame left at %s, want %s to %s", name, leaves, least, most)
		}
	}
}

// onLoopback returns a direction from a namespace's lo back to the same lo.
func onLoopback(t *testing.T, place string, link Link) (d *direction) {
	t.Helper()
	err := netns.Do(place, func() error {
		lo, err := openSocket("lo")
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = lo.Close() })
		d, err = newDirection(lo, lo, "generator", link, 1)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.close() })
	return d
}

func sendOnLoopback(t *testing.T, place string) {
	t.Helper()
	err := netns.Do(place, func() error {
		c, err := net.Dial("udp", "127.0.0.1:9")
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write([]byte("a frame"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestImpairCountsSentFrames checks that frames that the kernel refuses do not count as sent.
func TestImpairCountsSentFrames(t *testing.T) {
	run := fabrictest.NewRun(t, t.TempDir()+"/runs")
	d := onLoopback(t, fabrictest.Place(t, run.ID, "generator"), Link{Delay: time.Millisecond})
	for _, size := range []int{60, 13, 61} { // 13 bytes are less than an Ethernet header
		d.ordered.reserve(vnetSize + size) // the bytes are 0
		d.ordered.commit(vnetSize+size, 0)
	}
	if !d.give(0, func() int64 { return 0 }) {
		t.Fatal("no frame was due")
	}
	if m := d.made; m.Sent != 2 || m.Refused != 1 || m.Bytes != 60+61 || d.lateness.TotalCount() != 2 {
		t.Errorf("sent %d frames of %d bytes, refused %d, lateness of %d", m.Sent, m.Bytes, m.Refused, d.lateness.TotalCount())
	}
}

// TestImpairRoom checks the documented bound on the memory of a direction.
func TestImpairRoom(t *testing.T) {
	for name, link := range map[string]Link{"ordered": {Delay: time.Second}, "reordered": {Delay: time.Second, Reorder: 0.1}} {
		d, err := newDirection(nil, nil, "generator", link, 1)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = d.close() })
		room := len(d.ordered.bytes)
		if d.express != nil {
			room += len(d.express.bytes)
		}
		if room != 256<<20 {
			t.Errorf("%s: got a buffer of %d bytes, want 256 MiB", name, room)
		}
	}
}
