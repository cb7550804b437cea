package segment

// UplinkWithin is Uplink with another limit on the wait for a carrier.
var UplinkWithin = uplink

// SetNumber sets the number of ends that the segment has made so far.
func (s *Segment) SetNumber(n int) { s.number = n }
