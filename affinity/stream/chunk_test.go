package stream

import "testing"

// TestSearchFromBothEnds searches for places near both ends of the held chunks. The list is cut in
// the middle, so a search that crosses the middle finds a wrong place.
func TestSearchFromBothEnds(t *testing.T) {
	const chunks, step = 100, 10
	var held [chunks]chunk
	for i := range held {
		held[i].seq = uint32(i) * step
		if i > 0 {
			held[i].prev, held[i-1].next = &held[i-1], &held[i]
		}
	}
	held[chunks/2].prev, held[chunks/2].next = nil, nil
	h := &Half{early: &held[0], last: &held[chunks-1]}
	for seq, want := range map[uint32]*chunk{
		0:                         &held[0],
		1:                         &held[0],
		step:                      &held[1],
		3*step - 1:                &held[2],
		(chunks - 2) * step:       &held[chunks-2],
		(chunks-1)*step - 1:       &held[chunks-2],
		chunks * step:             &held[chunks-1],
		1<<32 - 1:                 nil, // before all, because sequence numbers wrap
		(chunks/2 + 20) * step:    &held[chunks/2+20],
		(chunks/2-20)*step + 1:    &held[chunks/2-20],
		(chunks/2-20)*step - step: &held[chunks/2-21],
	} {
		if got := h.before(seq); got != want {
			t.Errorf("before %d: got %v, want %v", seq, got, want)
		}
	}
	if got := (&Half{}).before(1); got != nil {
		t.Errorf("without chunks: got %v", got)
	}
}
