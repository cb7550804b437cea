package message

import (
	"testing"

	"vitrine/internal/capturetest"
)

// TestACallMayRingForMinutes: the answer to a call comes three minutes after the call begins to ring, and
// again 31 s later.
func TestACallMayRingForMinutes(t *testing.T) {
	lines, s := read(t, Options{}, built(t, func(f *capturetest.File) {
		var b capturetest.Frames
		f.Add(start, b.UDP(ue, proxy, sipRequest("INVITE", "bob", 1)))
		f.Add(start+1e9, b.UDP(proxy, ue, sipAnswer(180, "INVITE", "bob", 1)))
		f.Add(start+181e9, b.UDP(proxy, ue, sipAnswer(200, "INVITE", "bob", 1)))
		f.Add(start+212e9, b.UDP(proxy, ue, sipAnswer(200, "INVITE", "bob", 1)))
	}))
	expect(t, lines, `request "INVITE"`, `answer "180 INVITE"| of 1`, `answer "200 INVITE"| of 1`, `repeat "200 INVITE"| of 3`)
	if n := s.Protocols[0].Orphans; n != 0 {
		t.Errorf("%d answers have no request, want 0", n)
	}
}

// TestRequestsWithoutAnswerAreForgotten: an answer is too late after the timeout, and after four
// timeouts if the request got a provisional answer.
func TestRequestsWithoutAnswerAreForgotten(t *testing.T) {
	const timeout = 100
	for name, c := range map[string]struct {
		provisional bool
		after       int64
		known       bool
	}{
		"in time":                        {false, timeout, true},
		"too late":                       {false, timeout + 1, false},
		"rings, in time":                 {true, 4 * timeout, true},
		"rings, too late":                {true, 4*timeout + 1, false},
		"rings, and a clock is set back": {true, -1 << 40, false},
	} {
		var x exchanges
		x.init(16, timeout)
		settle := func(id uint64, at int64, p part) uint64 {
			s := &slot{part: p, key: 1}
			s.m.ID, s.m.Time = id, at
			x.settle(s)
			return s.m.Answers
		}
		settle(1, 0, opens)
		if c.provisional {
			settle(2, 0, rings)
		}
		if got := settle(3, c.after, closes) == 1; got != c.known {
			t.Errorf("%s: the answer finds its request: %t, want %t", name, got, c.known)
		}
	}
}
