package forwarder

import (
	"bytes"
	"testing"
)

func FuzzClassify(f *testing.F) {
	a := addresses{own: [6]byte{2, 0, 0, 0, 0, 1}, source: [6]byte{2, 0, 0, 0, 0, 2}, next: [6]byte{2, 0, 0, 0, 0, 3}}
	ip := frame(a.own, a.next, 60, 1)
	f.Add(ip)
	f.Add(ip[:13])
	f.Add(append(append(append([]byte(nil), ip[:12]...), 0x81, 0, 0, 1), ip[12:]...))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		v := a.classify(data)
		if v >= verdicts {
			t.Fatalf("got the unknown verdict %d", v)
		}
		if len(data) < headerSize && v != short || v == forwarded && !bytes.HasPrefix(data, a.own[:]) {
			t.Fatalf("got verdict %d for %x", v, data)
		}
		if v != forwarded {
			return
		}
		rest := bytes.Clone(data[12:])
		a.rewrite(data)
		if !bytes.Equal(data[:6], a.next[:]) || !bytes.Equal(data[6:12], a.source[:]) || !bytes.Equal(data[12:], rest) {
			t.Fatalf("the frame was rewritten to %x", data)
		}
	})
}
