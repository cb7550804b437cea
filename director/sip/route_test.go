package sip

import (
	"strings"
	"testing"
)

// TestMarksAreBounded checks that a request makes the director verify only a few marks.
func TestMarksAreBounded(t *testing.T) {
	s := newStage(t, rulesConfig())
	target := s.epochs.View().Table.Target(0)
	bad, good := s.route('i', target, "another"), s.route('i', target, "c1")
	for n, want := range map[int]bool{maxMarks - 1: true, maxMarks: false} {
		s.pass(lines("BYE sip:b@10.9.9.9 SIP/2.0", "Route: "+strings.Repeat(bad+", ", n)+good, "To: <sip:b@x>;tag=2"), client, udp4)
		if got := s.proxy.pass.routes.known; got != want {
			t.Errorf("after %d wrong marks the right one counts: %t, want %t", n, got, want)
		}
	}
}
