package mme

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"reflect"
	"testing"

	"vitrine/wire/s1ap"
)

// FuzzRecord parses records of a store. One that is accepted can be restored.
func FuzzRecord(f *testing.F) {
	k := kept{IMSI: "001010000000001", Code: 1, TMSI: 2, KASME: make([]byte, 32), Cipher: 2, Capability: []byte{0xa0, 0x20}}
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
		if again.IMSI != k.IMSI || !bytes.Equal(again.KASME, k.KASME) || again.Up != k.Up || again.Down != k.Down || !reflect.DeepEqual(again.Session, k.Session) {
			t.Errorf("record %+v became %+v", k, again)
		}
	})
}
