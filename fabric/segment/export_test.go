package segment

// SetNumber sets the number of ends that the segment has made so far.
func (s *Segment) SetNumber(n int) { s.number = n }
