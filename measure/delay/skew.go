package delay

import (
	"cmp"
	"slices"
)

// MostSkew is the largest relative skew of computers' clocks (NTP's bound, RFC 5905, section
// 11.1). A steeper slope is not skew: it shows packets that wait longer and longer.
const MostSkew = 500e-6

// Skew returns the relative excess of the receiving clock's rate over the sending clock's rate,
// computed from the packets alone. It is the slope of the line below all delays that is closest to
// them (Moon, Skelly, Towsley: Estimation and Removal of Clock Skew from Network Delay
// Measurements, INFOCOM 1999). It is 0 for fewer than two packets and for a slope beyond MostSkew.
func Skew(arrivals []Packet) float64 {
	points := slices.Clone(arrivals)
	slices.SortFunc(points, func(a, b Packet) int {
		return cmp.Or(cmp.Compare(a.Sent, b.Sent), cmp.Compare(a.Received-a.Sent, b.Received-b.Sent))
	})
	points = slices.CompactFunc(points, func(a, b Packet) bool { return a.Sent == b.Sent })
	if len(points) < 2 {
		return 0
	}
	// Times are relative to the first packet, because products of absolute times lose their
	// digits.
	origin := points[0]
	x := func(p Packet) float64 { return float64(p.Sent - origin.Sent) }
	y := func(p Packet) float64 { return float64((p.Received - p.Sent) - (origin.Received - origin.Sent)) }
	var hull []Packet // lower hull, from left to right
	var mean float64
	for _, p := range points {
		mean += x(p) / float64(len(points))
		for len(hull) > 1 {
			a, b := hull[len(hull)-2], hull[len(hull)-1]
			if (x(b)-x(a))*(y(p)-y(a)) > (y(b)-y(a))*(x(p)-x(a)) {
				break
			}
			hull = hull[:len(hull)-1]
		}
		hull = append(hull, p)
	}
	// The edge of the hull at the mean of x is the closest line: it has the least sum
	// of distances.
	i := max(slices.IndexFunc(hull, func(p Packet) bool { return x(p) >= mean }), 1)
	slope := (y(hull[i]) - y(hull[i-1])) / (x(hull[i]) - x(hull[i-1]))
	if slope > MostSkew || slope < -MostSkew {
		return 0
	}
	return slope
}

// Unskewed returns the arrivals with the skew removed from the receive stamps,
// relative to the first packet.
func Unskewed(arrivals []Packet, skew float64) []Packet {
	out := slices.Clone(arrivals)
	for i := range out {
		out[i].Received -= int64(skew * float64(out[i].Sent-arrivals[0].Sent))
	}
	return out
}
