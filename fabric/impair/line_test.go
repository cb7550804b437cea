package impair

import (
	"math"
	"slices"
	"testing"
	"time"
)

// fates offers n packets of 1000 bytes to a line, one per millisecond.
func fates(link Link, seed uint64, n int) (leaves []int64, what []fate) {
	l := newLine(link, seed)
	for i := range n {
		at, f := l.offer(int64(i)*1e6, 1000)
		leaves, what = append(leaves, at), append(what, f)
	}
	return leaves, what
}

func share(list []fate, f fate) float64 {
	n := 0
	for _, v := range list {
		if v == f {
			n++
		}
	}
	return float64(n) / float64(len(list))
}

func TestImpairLineRepeats(t *testing.T) {
	link := Link{Delay: 5 * time.Millisecond, Jitter: 5 * time.Millisecond, Loss: 0.2, Reorder: 0.1}
	leaves, what := fates(link, 7, 1000)
	again, whatAgain := fates(link, 7, 1000)
	if !slices.Equal(leaves, again) || !slices.Equal(what, whatAgain) {
		t.Error("two lines with the same seed gave different results")
	}
	if _, other := fates(link, 8, 1000); slices.Equal(what, other) {
		t.Error("two lines with different seeds gave the same result")
	}
	// The other options do not change which packets are lost.
	_, plain := fates(Link{Loss: 0.2}, 7, 1000)
	for i := range what {
		if (what[i] == lost) != (plain[i] == lost) {
			t.Fatalf("packet %d is lost either with or without delay, but not in both cases", i)
		}
	}
}

func TestImpairLineShares(t *testing.T) {
	const n = 100000
	_, what := fates(Link{Delay: time.Second, Loss: 0.25, Reorder: 0.5}, 1, n)
	sigma := math.Sqrt(0.25 / n)
	within(t, "lost", share(what, lost), 0.25-5*sigma, 0.25+5*sigma)
	within(t, "overtook", share(what, overtakes), 0.375-5*sigma, 0.375+5*sigma)
	if _, what = fates(Link{Loss: 1}, 1, 100); share(what, lost) != 1 {
		t.Error("with a loss of 1 not all packets were lost")
	}
}

func TestImpairLineKeepsOrder(t *testing.T) {
	leaves, _ := fates(Link{Delay: 20 * time.Millisecond, Jitter: 20 * time.Millisecond}, 1, 10000)
	if !slices.IsSorted(leaves) {
		t.Error("jitter reordered packets")
	}
	for i, at := range leaves {
		if d := at - int64(i)*1e6; d < 0 || d > 40e6+1 {
			t.Fatalf("packet %d was delayed by %s", i, time.Duration(d))
		}
	}
}

// TestImpairLineJitterMean checks what docs/impair.md says about the mean delay with jitter.
func TestImpairLineJitterMean(t *testing.T) {
	for apart, want := range map[time.Duration]float64{4 * time.Millisecond: 20, 100 * time.Microsecond: 21.3} {
		const n = 20000
		l := newLine(Link{Delay: 20 * time.Millisecond, Jitter: 2 * time.Millisecond}, 1)
		var sum int64
		for i := range n {
			at := int64(i) * int64(apart)
			leaves, _ := l.offer(at, 1000)
			sum += leaves - at
		}
		within(t, apart.String()+" apart: mean delay, ms", float64(sum)/n/1e6, want-0.1, want+0.1)
	}
}

func TestImpairLineRate(t *testing.T) {
	// 1000 bytes take 2 ms at 4 Mb/s, but a packet arrives every ms. So the queue
	// fills.
	leaves, what := fates(Link{Rate: 4e6, Queue: 10000}, 1, 1000)
	if leaves[0] != 2e6 || leaves[1] != 4e6 || leaves[5] != 12e6 {
		t.Errorf("the first packets left at %v", leaves[:6])
	}
	within(t, "dropped", share(what, dropped), 0.48, 0.5)
	for i, at := range leaves {
		if what[i] == kept && at-int64(i)*1e6 > 20e6 {
			t.Fatalf("packet %d waited for %s in a queue of 20ms", i, time.Duration(at-int64(i)*1e6))
		}
	}
	// After a pause a packet takes its full time again, because idle time is not saved.
	l := newLine(Link{Rate: 4e6, Queue: 10000}, 1)
	for _, at := range []int64{0, 1e9, 1e9} {
		leaves[0], _ = l.offer(at, 1000)
	}
	if leaves[0] != 1e9+4e6 {
		t.Errorf("after a pause the second packet left at %d", leaves[0])
	}
}

// TestImpairLane checks that a lane keeps as many packets as it has room for, unchanged, even
// across the end of its ring.
func TestImpairLane(t *testing.T) {
	l, err := newLane(1 << 16)
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	written, read := 0, 0
	check := func() {
		p := l.peek(0)
		b := l.bytes[p.at : p.at+p.length]
		if p.leaves != int64(read) || len(b) != 200+read%1300 || b[0] != byte(read) || b[len(b)-1] != byte(read) {
			t.Fatalf("packet %d left at %d with %d bytes, first byte %d", read, p.leaves, len(b), b[0])
		}
		l.pop(1)
		read++
	}
	for round := range 2000 {
		for {
			room := l.reserve(200 + written%1300)
			if room == nil {
				break
			}
			for i := range room {
				room[i] = byte(written)
			}
			l.commit(len(room), int64(written))
			written++
		}
		if held := written - read; held < 40 {
			t.Fatalf("the lane was full with %d packets, want at least 40", held)
		}
		for range 1 + round%30 {
			check()
		}
	}
	for read < written {
		check()
	}
	if !l.empty() || l.peek(0) != nil {
		t.Error("the lane is not empty")
	}
}

func TestImpairSaysWhatWasNotAsAsked(t *testing.T) {
	asked := Link{Delay: 5 * time.Millisecond}
	for _, m := range []Made{
		{Asked: asked, Missed: 1}, {Asked: asked, Refused: 1}, {Asked: asked, Lateness: Late{P99: 251 * time.Microsecond}}, {By: Netem, Asked: asked, Lost: 1},
	} {
		if m.isAsConfigured() {
			t.Errorf("%+v counts as configured", m)
		}
	}
	lossy := Link{Delay: 5 * time.Millisecond, Loss: 0.1}
	for _, m := range []Made{{Asked: lossy, Lost: 1, Lateness: Late{P99: 250 * time.Microsecond}}, {Lateness: Late{P99: time.Second}}} {
		if !m.isAsConfigured() {
			t.Errorf("%+v does not count as configured", m)
		}
	}
}
