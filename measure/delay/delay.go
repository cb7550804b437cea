// Package delay analyses a stream of packets by when each was sent and received:
// delay, jitter, delay variation, lateness, reordering, duplicates and loss. It
// is pure.
//
// The clocks that stamp a stream must not drift apart during the stream. If the two
// ends have different clocks, Delay contains their unknown offset, but all other
// results are valid.
package delay

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"
)

// A Packet is a packet that arrived.
type Packet struct {
	Sequence uint32 // from 0, in the order of sending
	Sent     int64  // ns
	Received int64  // ns
}

// A Cut excludes both ends of a stream, by sequence number: the first packets, which warm up the
// path, and the last packets.
type Cut struct {
	Head int `json:"head"` // packets
	Tail int `json:"tail"` // packets
}

// Fits reports whether the cut leaves at least half of a stream's packets.
func (c Cut) Fits(packets int) bool {
	return c.Head >= 0 && c.Tail >= 0 && c.Head <= packets/2 && c.Tail <= packets/2-c.Head
}

// A Distribution describes values in microseconds. Percentiles are by nearest
// rank.
type Distribution struct {
	N         int     `json:"n"`
	Min       float64 `json:"min_us"`
	Max       float64 `json:"max_us"`
	Mean      float64 `json:"mean_us"`
	Deviation float64 `json:"deviation_us"` // sample standard deviation
	P50       float64 `json:"p50_us"`
	P90       float64 `json:"p90_us"`
	P95       float64 `json:"p95_us"`
	P99       float64 `json:"p99_us"`
	P999      float64 `json:"p99.9_us"`
}

// A Report describes one stream. It counts packets within the cut.
type Report struct {
	Cut        Cut `json:"cut"`
	Sent       int `json:"sent"`
	Received   int `json:"received"`       // distinct packets
	Lost       int `json:"lost"`           // RFC 7680: sent and never received
	Duplicates int `json:"duplicates"`     // RFC 5560: further arrivals of a packet
	Reordered  int `json:"reordered"`      // RFC 4737, section 3.3: arrived after a packet that was sent later
	Extent     int `json:"reorder_extent"` // RFC 4737, section 4.2: the largest extent of any packet, in arrivals

	Delay    Distribution `json:"delay"`    // RFC 7679, or RFC 2681 if the packets came back
	Jitter   Distribution `json:"jitter"`   // J after each arrival, RFC 3550, section 6.4.1
	PDV      Distribution `json:"pdv"`      // RFC 5481, section 4.2: relative to the minimum delay of the stream
	IPDV     Distribution `json:"ipdv"`     // RFC 5481, section 4.1: relative to the previous packet sent; signed
	Lateness Distribution `json:"lateness"` // relative to the minimum delay of all arrivals, including those outside the cut
}

// Analyze returns a Report on a stream of sent packets. arrivals are in the order of arrival.
// Analyze ignores sequence numbers that were never sent.
func Analyze(sent int, arrivals []Packet, cut Cut) Report {
	cut.Head, cut.Tail = max(cut.Head, 0), max(cut.Tail, 0)
	r := Report{Cut: cut, Sent: max(sent-cut.Head-cut.Tail, 0)}
	s := series{report: &r, first: uint32(cut.Head), end: uint32(max(sent-cut.Tail, 0)), seen: make([]bool, max(sent, 0))}
	for _, p := range arrivals {
		if int64(p.Sequence) < int64(sent) {
			s.arrive(p)
		}
	}
	r.Lost = r.Sent - r.Received
	s.lateness = make([]float64, len(s.delay))
	for i, d := range s.delay {
		s.lateness[i] = d - float64(s.least)
	}
	r.Lateness = describe(s.lateness)
	r.PDV, r.IPDV = describe(above(s.delay)), describe(s.ipdv())
	r.Delay, r.Jitter = describe(s.delay), describe(s.jitter)
	return r
}

// A series accumulates the arrivals. Values are in ns.
type series struct {
	report     *Report
	first, end uint32 // sequence numbers that count: [first, end)
	seen       []bool

	began    bool
	last     Packet   // the previous arrival
	j        float64  // RFC 3550's J
	least    int64    // minimum delay so far
	highest  uint32   // highest sequence number so far
	highs    []uint32 // sequence numbers that raised highest, for the extent
	places   []int    // positions of highs in the order of arrival
	arrived  int
	counted  []Packet // first arrivals within the cut
	delay    []float64
	jitter   []float64
	lateness []float64
}

// arrive processes the next arrival.
func (s *series) arrive(p Packet) {
	counts := p.Sequence >= s.first && p.Sequence < s.end
	if s.seen[p.Sequence] {
		if counts {
			s.report.Duplicates++
		}
		return
	}
	s.seen[p.Sequence] = true
	d := p.Received - p.Sent
	if !s.began {
		s.least = d
	} else {
		// D(i-1, i) is over arrivals, "not necessarily in sequence" (RFC 3550, section 6.4.1).
		variation := float64(d - (s.last.Received - s.last.Sent))
		s.j += (math.Abs(variation) - s.j) / 16
	}
	s.least = min(s.least, d)
	s.order(p.Sequence, counts)
	if counts {
		s.report.Received++
		s.counted = append(s.counted, p)
		s.delay = append(s.delay, float64(d))
		if s.began {
			s.jitter = append(s.jitter, s.j)
		}
	}
	s.began, s.last = true, p
}

// order counts the packet as reordered if a packet with a higher number arrived before
// it. The extent is the number of arrivals since the first such packet.
func (s *series) order(sequence uint32, counts bool) {
	if s.arrived == 0 || sequence > s.highest {
		s.highest = sequence
		s.highs, s.places = append(s.highs, sequence), append(s.places, s.arrived)
	} else if counts {
		s.report.Reordered++
		i, _ := slices.BinarySearch(s.highs, sequence) // the first higher number; no number is equal
		s.report.Extent = max(s.report.Extent, s.arrived-s.places[i])
	}
	s.arrived++
}

// ipdv returns the differences in delay between consecutive packets, if both arrived.
func (s *series) ipdv() []float64 {
	slices.SortFunc(s.counted, func(a, b Packet) int { return cmp.Compare(a.Sequence, b.Sequence) })
	var list []float64
	for i := 1; i < len(s.counted); i++ {
		a, b := s.counted[i-1], s.counted[i]
		if b.Sequence == a.Sequence+1 {
			list = append(list, float64((b.Received-b.Sent)-(a.Received-a.Sent)))
		}
	}
	return list
}

// above returns the values minus their minimum.
func above(values []float64) []float64 {
	if len(values) == 0 {
		return nil
	}
	least := slices.Min(values)
	out := make([]float64, len(values))
	for i, v := range values {
		out[i] = v - least
	}
	return out
}

// describe returns the distribution of durations in nanoseconds. It sorts ns.
func describe(ns []float64) Distribution {
	if len(ns) == 0 {
		return Distribution{}
	}
	slices.Sort(ns)
	var mean, squares float64
	for i, v := range ns { // Welford's method, because squares of nanoseconds since an epoch lose their significant digits
		delta := v - mean
		mean += delta / float64(i+1)
		squares += delta * (v - mean)
	}
	at := func(share float64) float64 { return ns[NearestRank(share, len(ns))-1] / 1e3 }
	d := Distribution{
		N: len(ns), Min: ns[0] / 1e3, Max: ns[len(ns)-1] / 1e3, Mean: mean / 1e3,
		P50: at(0.5), P90: at(0.9), P95: at(0.95), P99: at(0.99), P999: at(0.999),
	}
	if len(ns) > 1 {
		d.Deviation = math.Sqrt(squares/float64(len(ns)-1)) / 1e3
	}
	return d
}

// NearestRank returns the rank of a percentile among n sorted values, from 1 to n. It is the
// lowest rank such that at least that share of the values does not exceed its value.
func NearestRank(share float64, n int) int {
	return min(max(int(math.Ceil(share*float64(n))), 1), n)
}

// Confidence is the confidence level of all intervals of repeats.
const Confidence = 0.95

// An Interval is the mean of repeats, and its confidence interval at the level
// Confidence.
type Interval struct {
	Mean       float64   `json:"mean"`
	Low        float64   `json:"low"`
	High       float64   `json:"high"`
	Repeats    int       `json:"repeats"`
	Confidence float64   `json:"confidence"` // 0: one repeat gives no interval, and Low and High are the mean
	Each       []float64 `json:"-"`          // the repeats' figures, in their order; nil: not known
}

// OfRepeats returns Student's confidence interval of figures from different repeats.
// Packets of one stream are not independent, so they give no interval.
func OfRepeats(figures []float64) Interval {
	n := len(figures)
	if n == 0 {
		return Interval{}
	}
	var sum float64
	for _, v := range figures {
		sum += v
	}
	mean := sum / float64(n)
	i := Interval{Mean: mean, Low: mean, High: mean, Repeats: n, Each: figures}
	if n == 1 {
		return i
	}
	var squares float64
	for _, v := range figures {
		squares += (v - mean) * (v - mean)
	}
	t := distuv.StudentsT{Sigma: 1, Nu: float64(n - 1)}.Quantile(1 - (1-Confidence)/2)
	half := t * math.Sqrt(squares/float64(n-1)/float64(n))
	i.Low, i.High, i.Confidence = mean-half, mean+half, Confidence
	return i
}
