package mme

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/netip"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vitrine/reference/keep"
	"vitrine/store/client"
	"vitrine/wire/s1ap"
)

// FuzzRecord parses records of a store. One that is accepted can be restored.
func FuzzRecord(f *testing.F) {
	k := kept{IMSI: "001010000000001", Code: 1, TMSI: 2, KASME: make([]byte, 32), Cipher: 2, Capability: []byte{0xa0, 0x20}, GEA: 0x60}
	v4, v6 := netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()
	for _, s := range []Session{
		{}, // without an address: S1AP cannot carry it
		{Uplink: s1ap.Tunnel{V4: v6, V6: v6}},
		{Uplink: s1ap.Tunnel{V6: v6}},
		{Uplink: s1ap.Tunnel{V4: v4}},
		{Uplink: s1ap.Tunnel{V4: v4}, Dedicated: []DedicatedBearer{{ID: 6, Uplink: s1ap.Tunnel{V4: v4}}}},
		{Uplink: s1ap.Tunnel{V4: v4}, Dedicated: []DedicatedBearer{{ID: 6, Uplink: s1ap.Tunnel{V4: v4}}, {ID: 16}}},
	} {
		k.Session = s
		value, err := json.Marshal(k)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(value)
	}
	f.Add([]byte(`{"imsi":"1","kasme":"AA=="}`))
	f.Add([]byte(`null`))
	w := newWorker(New(Config{}), 0)
	f.Fuzz(func(t *testing.T, value []byte) {
		k, err := parseKept(value)
		if err != nil {
			return
		}
		u := &ue{worker: w}
		if err := w.restore(u, k, "1"); err != nil {
			t.Fatal(err)
		}
		u.appendBearers(nil, s1ap.ToBeSetupContext, s1ap.ToBeSetupItemContext, nil)
		again := w.snapshot(u, 0)
		if again.IMSI != k.IMSI || !bytes.Equal(again.KASME, k.KASME) || again.GEA != k.GEA || again.Up != k.Up || again.Down != k.Down || !reflect.DeepEqual(again.Session, k.Session) {
			t.Errorf("record %+v became %+v", k, again)
		}
	})
}

// TestRecordsFollowTheClock checks that records are due by the calendar, as the store reads them, after
// the clock was set forward by three hours. A start three hours ago stands for that, because the worker
// has not counted these hours.
func TestRecordsFollowTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, err := keep.New(keep.Config{Access: client.Access{URL: "http://127.0.0.1:1"}, Calls: 1}, "mme", slog.New(slog.DiscardHandler), prometheus.NewRegistry())
		if err != nil {
			t.Fatal(err)
		}
		w := newWorker(New(Config{Store: store}), 0)
		w.mme.start = time.Now().Add(-3 * time.Hour)
		u := &ue{worker: w}
		due := w.snapshot(u, 0).due()
		if want := time.Now().Add(w.mme.config.Timers.Reachable); !due.Equal(want) {
			t.Errorf("the record of a UE is due at %s, want %s", due, want)
		}
		u.stored, u.due = true, due
		time.Sleep(time.Until(due))
		w.summoned(u)
		if len(w.mme.jobs) != 1 {
			t.Fatalf("a UE that was silent for too long causes %d calls, want 1 that begins its detach", len(w.mme.jobs))
		}
		j := <-w.mme.jobs
		if want := time.Now().Add(leaveWithin); j.what != callLeave || !j.kept.Leaving || !j.kept.due().Equal(want) {
			t.Errorf("the call is %d with a record that is due at %s, want %d and %s", j.what, j.kept.due(), callLeave, want)
		}
	})
}
