package mme

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
)

// FuzzRecord parses records of a store. One that is accepted can be restored.
func FuzzRecord(f *testing.F) {
	k := kept{IMSI: "001010000000001", Code: 1, TMSI: 2, KASME: make([]byte, 32), Cipher: 2, Capability: []byte{0xa0, 0x20}}
	value, err := json.Marshal(k)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(value)
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
		again := w.snapshot(u, 0)
		if again.IMSI != k.IMSI || !bytes.Equal(again.KASME, k.KASME) || again.Up != k.Up || again.Down != k.Down || !reflect.DeepEqual(again.Session, k.Session) {
			t.Errorf("%+v becomes %+v", k, again)
		}
	})
}
