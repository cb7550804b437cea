package sip

import (
	"strings"
	"testing"
	"time"

	"vitrine/director/meter"
	"vitrine/director/overload"
	"vitrine/director/table"
)

// TestRefusalStatus checks that the director answers 503 only while no other SIP type serves,
// because 503 makes a client stop sending anything. Otherwise it answers 500. Both have
// Retry-After.
func TestRefusalStatus(t *testing.T) {
	const all = "registration session six"
	for _, c := range []struct {
		what string
		away string // types whose instances are all away
		text string
		want int
		why  meter.Cause
	}{
		{"no instance, others live", "registration", register, 500, meter.NoInstance},
		{"no instance, one other lives", "registration session", register, 500, meter.NoInstance},
		{"no instance of any type", all, register, 503, meter.NoInstance},
		{"gate, others live", "", lines("MESSAGE sip:b@example.com SIP/2.0"), 500, meter.Overloaded},
		{"gate, no other lives", "registration session", lines("MESSAGE sip:b@example.com SIP/2.0"), 503, meter.Overloaded},
	} {
		t.Run(c.what, func(t *testing.T) {
			config := rulesConfig()
			gate := overload.New(overload.Config{Target: time.Second, Initial: 1, Min: 1, Burst: 1}, 0)
			config.Options = map[string]TypeOptions{"six": {Gate: gate}}
			s := newStage(t, config)
			gate.Admit(s.now, overload.Begins) // the only token
			s.now += s.epochs.Pace()
			wait := s.epochs.Publish(s.now, s.epochs.View().Table, func(at *table.Target) table.Condition {
				if strings.Contains(c.away, at.TypeName()) {
					return table.Away
				}
				return table.Up
			})
			if wait != 0 {
				t.Fatalf("publication of the health has to wait %v", wait)
			}
			r, _ := s.status(c.want, c.text, client, udp4)
			if !strings.Contains(r.text, "\r\nRetry-After: ") {
				t.Errorf("answer without Retry-After:\n%s", r.text)
			}
			counted := uint64(0)
			for _, ty := range s.meter.Types() {
				counted += ty.Failures[c.why.String()]
			}
			if counted != 1 {
				t.Errorf("counted %d failures as %s, want 1", counted, c.why)
			}
		})
	}
}
