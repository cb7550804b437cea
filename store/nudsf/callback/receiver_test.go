package callback

import (
	"testing"
	"time"
)

// TestSuccessor checks that the end of a lane does not remove a receiver that has replaced the
// lane's own receiver.
func TestSuccessor(t *testing.T) {
	s := New(Config{})
	before := &receiver{authority: "http://a", lanes: make([]lane, 1)}
	after := &receiver{authority: "http://a", waiting: 1}
	s.receivers["http://a"] = after
	if _, ok := s.take(before, &before.lanes[0]); ok || s.receivers["http://a"] != after {
		t.Error("the end of a lane removed the receiver that replaced its own")
	}
}

// TestForgetsUpFirst checks the order in which receivers are forgotten: those that are up first,
// and those with the longest backoff last. A receiver with messages must not be forgotten.
func TestForgetsUpFirst(t *testing.T) {
	s := New(Config{Receivers: 5})
	now := time.Now()
	for name, until := range map[string]time.Time{"up": {}, "past": now.Add(-time.Hour), "short": now.Add(time.Hour), "long": now.Add(2 * time.Hour)} {
		s.receivers[name] = &receiver{authority: name, downUntil: until}
	}
	s.receivers["busy"] = &receiver{authority: "busy", waiting: 1}
	for _, name := range []string{"up", "past", "short", "long"} {
		if s.receivers[name] == nil {
			t.Errorf("receiver %s was removed too early", name)
		}
		if !s.forget() || s.receivers[name] != nil {
			t.Errorf("receiver %s was not removed next", name)
		}
	}
	if s.forget() || s.receivers["busy"] == nil {
		t.Error("a receiver with queued messages was removed")
	}
}
