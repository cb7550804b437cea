package epc_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"vitrine/director"
	"vitrine/internal/hosttest"
	"vitrine/reference/epc/gtp"
	"vitrine/wire/gtpc"
)

// TestBehindADirector puts two S-GWs behind a director, which steers by the TEIDs
// that they give. The MME knows the director alone, and it remembers nothing about
// the sessions.
func TestBehindADirector(t *testing.T) {
	const counter = 9
	s := newSite(t)
	file := filepath.Join(t.TempDir(), "director.yaml")
	text := fmt.Sprintf(`
state: %s
listen: {gtpc: ["udp://%s"], control: "%s"}
gtpc: {restart_counter: %d}
types:
- {name: sgw, protocol: gtpc, number: 3, drain: dialog}
rules:
- {type: sgw}
instances:
- {name: s1, id: 1, type: sgw, address: "%s"}
- {name: s2, id: 2, type: sgw, address: "%s"}
`, filepath.Join(t.TempDir(), "state"), s.at(51, gtp.Port), s.at(51, 8090), counter, s.at(11, gtp.Port), s.at(12, gtp.Port))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s.pgw()
	for i, host := range []int{11, 12} {
		s.sgw(host, "--type", "3", "--instance", fmt.Sprint(i+1), "--advertise", s.addr(51, 0).Addr().String(), "--restart-counter", fmt.Sprint(counter))
	}
	clock, err := director.HostClock()
	if err != nil {
		t.Fatal(err)
	}
	d, err := director.New(t.Context(), director.Options{Path: file, Clock: clock, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	hosttest.Run(t, patience, "the director", func(ctx context.Context) error { return errors.Join(d.Run(ctx), d.Close()) })

	m := s.mme(1, 1)
	const subscribers = 20
	var sessions []gtpc.CreateSessionAnswer
	at := map[uint32]int{} // how many sessions each instance has, by its prefix
	for n := range subscribers {
		a := m.create(51, m.request(imsi(n), uint32(n+1)))
		if a.Result.Cause != accepted || a.Sender.Addr() != s.addr(51, 0).Addr() || a.Recovery.Counter != counter {
			t.Fatalf("%+v", a)
		}
		at[a.Sender.TEID>>22]++
		sessions = append(sessions, a)
	}
	if first, second := at[3<<7|1], at[3<<7|2]; first == 0 || second == 0 || first+second != subscribers {
		t.Errorf("sessions by prefix: got %v", at)
	}
	for _, a := range sessions {
		modify := &gtpc.ModifyBearer{Bearers: []gtpc.Bearer{{EBI: 5, ENB: m.Own(gtpc.S1UeNodeB, 1)}}}
		for _, request := range []gtp.Message{modify, &gtpc.ReleaseAccessBearers{}, &gtpc.DeleteSession{Linked: 5, Flags: gtpc.Operation}} {
			if answer := m.ask(51, a.Sender.TEID, request); answer.Result.Cause != accepted {
				t.Errorf("%T: %+v", request, answer)
			}
		}
	}
	if left := s.metric(11, "sgw_ues") + s.metric(12, "sgw_ues") + s.metric(21, "pgw_sessions"); left != 0 {
		t.Errorf("%v sessions are left, want 0", left)
	}
	for _, host := range []int{11, 12} {
		if n := s.metric(host, "sgw_procedures_total", `cause="64"`); n != 0 {
			t.Errorf("%v messages reached the wrong S-GW, want 0", n)
		}
	}
}
