package s1ap

import (
	"sync/atomic"
	"testing"
	"time"

	"vitrine/reference/epc/enb"
	"vitrine/wire/s1ap"
	"vitrine/wire/s1ap/frame"
)

// TestConnectionWithoutAnswerEnds begins a connection and a path switch that their instance never answers.
// Both must end, because an instance with connections is never drained. A late answer must be refused.
func TestConnectionWithoutAnswerEnds(t *testing.T) {
	a := newInstance(t, attachType, 1)
	var ahead atomic.Int64 // of the director's clock, in nanoseconds
	s := newSite(t, false, []*instance{a}, func(c *Config, _ *Policy) {
		now := c.Now
		c.Now = func() time.Duration { return now() + time.Duration(ahead.Load()) }
	})
	e := s.enodeb(5)
	_, ids := e.connection(1, 1, attachRequest(1), nil, a)
	e.begin(2, attachRequest(2), nil, a)
	e.send(e.AppendPathSwitch(nil, enb.IDs{MME: a.id(9), ENB: 3}, 5))
	a.at(e.Cell).expect(s1ap.Initiating, s1ap.PathSwitchRequest)
	s.until("only the connection with an answer is left", func() bool {
		ahead.Add(int64(answerCheck / 3))
		return s.dialogs("m1") == 1
	})
	a.at(e.Cell).send(about(s1ap.Initiating, s1ap.DownlinkNASTransport, enb.IDs{MME: a.id(2), ENB: 2}, nil))
	if m, _ := a.at(e.Cell).expect(s1ap.Initiating, s1ap.ErrorIndication); m.Cause != s1ap.CauseUnknownENBUEID {
		t.Errorf("a late answer: cause %v", m.Cause)
	}
	e.download(a, ids)
	if c := s.server.Counters(); c.UEs != 1 {
		t.Errorf("got %d connections, want 1", c.UEs)
	}
}

// TestSlowInstanceHasTwoMinutes begins a connection shortly before a check, and never answers it.
func TestSlowInstanceHasTwoMinutes(t *testing.T) {
	b := newBench(t)
	begun := answerCheck - time.Second
	now := begun
	b.server.config.Now = func() time.Duration { return now }
	first := b.cell.AppendInitial(nil, 3, attachRequest(1), nil)
	b.begin()
	b.uplink(b.e, frame.Append(nil, frame.UE, first), first)
	b.done()
	for has := true; has && now < time.Hour; _, has = b.e.ues[3] {
		now += time.Second
		b.begin()
		b.expire(b.e)
		b.done()
	}
	if lasted := now - begun; lasted < 2*time.Minute || lasted > 2*time.Minute+answerCheck {
		t.Errorf("the connection ended after %v, want 2 to 2.5 minutes", lasted)
	}
	if len(b.e.ues) != len(b.links) {
		t.Errorf("%d connections are left, want the %d with an answer", len(b.e.ues), len(b.links))
	}
}
