package callback

import "testing"

// TestSuccessor ends a lane after its receiver was dropped and a new one took its place.
func TestSuccessor(t *testing.T) {
	s := New(Config{})
	before := &receiver{authority: "http://a", lanes: make([]lane, 1)}
	after := &receiver{authority: "http://a", waiting: 1}
	s.receivers["http://a"] = after
	if _, ok := s.take(before, &before.lanes[0]); ok || s.receivers["http://a"] != after {
		t.Error("the end of a lane removed its receiver's successor")
	}
}
