package delay

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// stream returns n arrivals, sent 10 µs apart. Arrival i is delayed by delay(i), in ns.
func stream(n int, delay func(i int) int64) []Packet {
	list := make([]Packet, n)
	for i := range list {
		sent := int64(1_700_000_000_000_000_000) + int64(i)*10_000
		list[i] = Packet{Sequence: uint32(i), Sent: sent, Received: sent + delay(i)}
	}
	return list
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-6*max(1, math.Abs(want)) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func TestAConstantDelayIsReadBack(t *testing.T) {
	r := Analyze(1000, stream(1000, func(int) int64 { return 5_000_000 }), Cut{})
	near(t, "mean", r.Delay.Mean, 5000)
	near(t, "deviation", r.Delay.Deviation, 0)
	near(t, "jitter", r.Jitter.Max, 0)
	near(t, "lateness", r.Lateness.Max, 0)
	near(t, "PDV", r.PDV.Max, 0)
	if r.Received != 1000 || r.Lost != 0 || r.Reordered != 0 || r.Duplicates != 0 {
		t.Errorf("got counts %+v", r)
	}
}

func TestAddedDelayIsReadBack(t *testing.T) {
	// A delay of 20 µs, and 3 ms more for one packet in a hundred.
	r := Analyze(10000, stream(10000, func(i int) int64 {
		if i%100 == 50 {
			return 3_020_000
		}
		return 20_000
	}), Cut{Head: 100, Tail: 100})
	near(t, "least", r.Delay.Min, 20)
	near(t, "most", r.Delay.Max, 3020)
	near(t, "lateness", r.Lateness.Max, 3000)
	near(t, "mean lateness", r.Lateness.Mean, 30)
	near(t, "PDV at 99%", r.PDV.P99, 0)
	near(t, "PDV at 99.9%", r.PDV.P999, 3000)
	near(t, "IPDV", r.IPDV.Min, -3000)
	near(t, "IPDV", r.IPDV.Max, 3000)
	if r.Sent != 9800 || r.Received != 9800 {
		t.Errorf("with a cut: %d sent, %d received, want 9800", r.Sent, r.Received)
	}
}

// TestJitterIsThatOfRFC3550 compares J with the definition of RFC 3550, and with a value computed
// by hand. If the delay alternates between two values, |D| is constant and J approaches it.
func TestJitterIsThatOfRFC3550(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	arrivals := stream(5000, func(int) int64 { return int64(random.IntN(100_000)) })
	slices.SortFunc(arrivals, func(a, b Packet) int { return int(a.Received - b.Received) })
	var j, most float64
	for i := 1; i < len(arrivals); i++ {
		d := float64((arrivals[i].Received - arrivals[i-1].Received) - (arrivals[i].Sent - arrivals[i-1].Sent))
		j += (math.Abs(d) - j) / 16
		most = max(most, j)
	}
	r := Analyze(5000, arrivals, Cut{})
	near(t, "greatest jitter", r.Jitter.Max, most/1e3)

	r = Analyze(1000, stream(1000, func(i int) int64 { return 10_000 + int64(i%2)*4_000 }), Cut{Head: 500})
	near(t, "jitter of a change of 4 µs", r.Jitter.P50, 4)
}

func TestAnOffsetOfTheClocksChangesOnlyTheDelay(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	arrivals := stream(1000, func(int) int64 { return int64(random.IntN(9_000)) })
	a := Analyze(1000, arrivals, Cut{})
	for i := range arrivals {
		arrivals[i].Received -= 3_600_000_000_000
	}
	b := Analyze(1000, arrivals, Cut{})
	near(t, "jitter", b.Jitter.Mean, a.Jitter.Mean)
	near(t, "lateness", b.Lateness.Mean, a.Lateness.Mean)
	near(t, "PDV", b.PDV.P99, a.PDV.P99)
	near(t, "deviation", b.Delay.Deviation, a.Delay.Deviation)
	near(t, "delay", b.Delay.Mean, a.Delay.Mean-3_600_000_000)
}

func TestLossDuplicatesAndReorderingAreReadBack(t *testing.T) {
	arrivals := stream(1000, func(int) int64 { return 1000 })
	// Packet 7 does not arrive, 20 arrives twice, and 30 arrives after 31, 32 and 33.
	arrivals[30], arrivals[31], arrivals[32], arrivals[33] = arrivals[31], arrivals[32], arrivals[33], arrivals[30]
	arrivals = slices.Insert(arrivals, 21, arrivals[20])
	arrivals = slices.Delete(arrivals, 7, 8)
	r := Analyze(1000, arrivals, Cut{})
	if r.Lost != 1 || r.Duplicates != 1 || r.Reordered != 1 || r.Extent != 3 || r.Received != 999 {
		t.Errorf("lost %d, duplicates %d, reordered %d by %d, received %d; want 1, 1, 1 by 3, 999", r.Lost, r.Duplicates, r.Reordered, r.Extent, r.Received)
	}
	near(t, "loss", float64(r.Lost)/float64(r.Sent), 0.001)

	// The example of RFC 4737, section 3.3: of packets 4, 7, 5, 6, two are reordered.
	order := []uint32{0, 1, 2, 3, 4, 7, 5, 6, 8}
	arrivals = arrivals[:0]
	for i, n := range order {
		arrivals = append(arrivals, Packet{Sequence: n, Received: int64(i)})
	}
	if r = Analyze(9, arrivals, Cut{}); r.Reordered != 2 || r.Extent != 2 {
		t.Errorf("reordered %d by %d, want 2 by 2", r.Reordered, r.Extent)
	}
}

func TestCutLeavesHalfOfTheStream(t *testing.T) {
	for cut, want := range map[Cut]bool{
		{}: true, {50, 0}: true, {25, 25}: true, {26, 25}: false, {51, 0}: false, {-1, 0}: false, {0, -1}: false, {1<<63 - 1, 9}: false, {9, 1<<63 - 1}: false,
	} {
		if got := cut.Fits(100); got != want {
			t.Errorf("%+v of 100 packets: got %t, want %t", cut, got, want)
		}
	}
}

func TestNothingAndNonsense(t *testing.T) {
	for _, r := range []Report{
		Analyze(0, nil, Cut{}),
		Analyze(10, nil, Cut{Head: 20, Tail: 20}),
		Analyze(1, []Packet{{Sequence: 9}}, Cut{}),
		Analyze(-1, []Packet{{Sequence: 9}}, Cut{Head: -1}),
	} {
		if r.Received != 0 || r.Delay != (Distribution{}) || r.Lost > r.Sent {
			t.Errorf("%+v", r)
		}
	}
}

func TestIntervalsAreOfRepeats(t *testing.T) {
	i := OfRepeats([]float64{9, 10, 11})
	near(t, "mean", i.Mean, 10)
	near(t, "half", i.High-i.Mean, 4.302652729911275/math.Sqrt(3)) // Student's t of 2 degrees of freedom
	if !slices.Equal(i.Each, []float64{9, 10, 11}) {
		t.Errorf("got the figures %v", i.Each)
	}
	if i = OfRepeats([]float64{5}); i.Confidence != 0 || i.Low != 5 || i.High != 5 {
		t.Errorf("got an interval from one repeat: %+v", i)
	}
}
