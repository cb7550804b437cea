package epc_test

import (
	"testing"

	"vitrine/reference/epc/gtp"
	"vitrine/wire/gtpc"
)

// BenchmarkSession measures a session from its creation to its deletion, one after
// the other, through an S-GW and a P-GW in this process, with and without a PCRF.
// The MME is included.
func BenchmarkSession(b *testing.B) {
	for name, pcrf := range map[string]bool{"pcrf": true, "alone": false} {
		b.Run(name, func(b *testing.B) {
			s := newSite(b)
			var args []string
			if pcrf {
				s.pcrf()
				args = []string{"--pcrf", s.at(31, 3868)}
			}
			s.pgw(args...)
			s.sgw(11)
			m := s.mme(1, 1)
			request, to := m.request(imsi(0), 1), s.addr(11, gtp.Port)
			modify := &gtpc.ModifyBearer{Bearers: []gtpc.Bearer{{EBI: 5, ENB: m.Own(gtpc.S1UeNodeB, 1)}}}
			deletion := &gtpc.DeleteSession{Linked: 5, Flags: gtpc.Operation}
			b.ReportAllocs()
			for b.Loop() {
				var created gtpc.CreateSessionAnswer
				if err := m.Do(b.Context(), to, 0, request, &created); err != nil || created.Result.Cause != accepted {
					b.Fatalf("%+v, %v", created, err)
				}
				for _, next := range []gtp.Message{modify, deletion} {
					var answer gtpc.Answer
					if err := m.Do(b.Context(), to, created.Sender.TEID, next, &answer); err != nil || answer.Result.Cause != accepted {
						b.Fatalf("%+v, %v", answer, err)
					}
				}
			}
		})
	}
}

// BenchmarkAttach measures what an HSS does for an attach: a vector and a
// location, one after the other. The MME is included.
func BenchmarkAttach(b *testing.B) {
	s := newSite(b)
	s.hss()
	m := s.mme(1, 1)
	s.until("the MME has an HSS", m.s6a.Connected)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := m.s6a.Authenticate(b.Context(), imsi(0), plmn(), nil); err != nil {
			b.Fatal(err)
		}
		if _, err := m.s6a.UpdateLocation(b.Context(), imsi(0), plmn()); err != nil {
			b.Fatal(err)
		}
	}
}
