package nas_test

import (
	"bytes"
	"errors"
	"testing"

	"vitrine/wire/nas"
)

func TestFrames(t *testing.T) {
	g := golden(t)
	for _, c := range []struct {
		name, body string
		security   nas.Security
		mac        uint32
		sequence   uint8
	}{
		{"attach-complete", "attach-complete", nas.Plain, 0, 0},
		{"pdn-disconnect-request", "pdn-disconnect-request", nas.Plain, 0, 0},
		{"protected-attach-complete", "attach-complete", nas.Ciphered, 0x01020304, 9},
		{"protected-new-context", "security-mode-command", nas.ProtectedNewContext, 0xdeadbeef, 0},
		{"ciphered-new-context", "security-mode-complete", nas.CipheredNewContext, 0xcafebabe, 0},
	} {
		var p nas.PDU
		if err := p.Parse(g[c.name]); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if p.Security != c.security || p.MAC != c.mac || p.Sequence != c.sequence || !bytes.Equal(p.Body, g[c.body]) || !bytes.Equal(p.Octets, g[c.name]) {
			t.Errorf("%s: %+v", c.name, p)
		}
		if c.security == nas.Plain {
			if p.Covered() != nil || p.Security.IsCiphered() {
				t.Errorf("%s: a plain message counts as protected", c.name)
			}
			continue
		}
		if want := append([]byte{c.sequence}, g[c.body]...); !bytes.Equal(p.Covered(), want) {
			t.Errorf("%s: got covered octets %x, want %x", c.name, p.Covered(), want)
		}
		b := append(nas.AppendFrame([]byte("start"), c.security, c.sequence), g[c.body]...)
		nas.SetMAC(b, 5, c.mac)
		if !bytes.Equal(b[5:], g[c.name]) || !bytes.Equal(nas.FrameBody(b, 5), g[c.body]) || !bytes.Equal(nas.FrameCovered(b, 5), p.Covered()) {
			t.Errorf("%s: encoded as %x", c.name, b[5:])
		}
	}
}

func TestServiceRequest(t *testing.T) {
	want := golden(t)["service-request"]
	var p nas.PDU
	if err := p.Parse(want); err != nil || p.Security != nas.ServiceRequestHeader || p.KSI != 2 || p.Sequence != 5 || p.ShortMAC != 0xbeef || p.Body != nil {
		t.Errorf("%+v, %v", p, err)
	}
	if !bytes.Equal(p.Covered(), want[:2]) {
		t.Errorf("got covered octets %x", p.Covered())
	}
	b := nas.AppendServiceRequest(nil, 2, 0x25) // the high bits of the sequence number are not sent
	if nas.SetShortMAC(b, 0, 0x1234beef); !bytes.Equal(b, want) {
		t.Errorf("got %x, want %x", b, want)
	}
	// Reserved security headers are read as those of a Service Request.
	if err := p.Parse([]byte{0xf7, 0x45, 0xbe, 0xef}); err != nil || p.Security != nas.ServiceRequestHeader || p.ShortMAC != 0xbeef {
		t.Errorf("header 15: got %+v, error %v", p, err)
	}
}

func TestRefused(t *testing.T) {
	for _, c := range []struct {
		name string
		data []byte
		want error
	}{
		{"nothing", nil, nas.ErrShort},
		{"one octet", []byte{7}, nas.ErrShort},
		{"GMM", []byte{8, 1}, nas.ErrDiscriminator},
		{"5GMM", []byte{0x7e, 0, 0x41}, nas.ErrDiscriminator},
		{"service request without its MAC", []byte{0xc7, 1, 2}, nas.ErrShort},
		{"reserved security header", []byte{0x57, 0, 0, 0, 0, 0, 7, 0x43}, nas.ErrValue},
		{"no body", []byte{0x17, 0, 0, 0, 0, 0, 7}, nas.ErrShort},
	} {
		var p nas.PDU
		if err := p.Parse(c.data); !errors.Is(err, c.want) {
			t.Errorf("%s: got error %v, want %v", c.name, err, c.want)
		}
	}
	for _, c := range []struct {
		name string
		body []byte
		want error
	}{
		{"ESM without a type", []byte{0x02, 1}, nas.ErrShort},
		{"protected in protected", []byte{0x17, 0x41}, nas.ErrValue},
		{"GMM", []byte{8, 1}, nas.ErrDiscriminator},
	} {
		if _, err := nas.ParseHeader(c.body); !errors.Is(err, c.want) {
			t.Errorf("%s: got error %v, want %v", c.name, err, c.want)
		}
	}
	if err := new(nas.AttachRequest).Parse(golden(t)["attach-accept"]); !errors.Is(err, nas.ErrType) {
		t.Errorf("attach request from an attach accept: got error %v", err)
	}
	if err := new(nas.ConnectivityRequest).Parse(golden(t)["attach-accept"]); !errors.Is(err, nas.ErrType) {
		t.Errorf("ESM message from an EMM message: got error %v", err)
	}
}

// TestTruncated checks that no prefix of a message is parsed beyond its end, and
// that those which end inside a mandatory element are refused.
func TestTruncated(t *testing.T) {
	whole := golden(t)["attach-accept"]
	const mandatory = 4 + 7 + 2 + 0x2e
	for n := range whole {
		var m nas.AttachAccept
		err := m.Parse(whole[:n:n])
		if n < mandatory && err == nil || n == mandatory && err != nil {
			t.Errorf("message of %d octets: got error %v", n, err)
		}
	}
}

func TestNothingIsAllocated(t *testing.T) {
	g := golden(t)
	attach, accept, frame := g["attach-request-guti"], g["attach-accept"], g["protected-attach-complete"]
	b := make([]byte, 0, 1024)
	if n := testing.AllocsPerRun(100, func() {
		var p nas.PDU
		var complete nas.AttachComplete
		if p.Parse(frame) != nil || complete.Parse(p.Body) != nil {
			t.Fatal("cannot parse the frame")
		}
		var request nas.AttachRequest
		var reply nas.AttachAccept
		var bearer nas.DefaultBearerRequest
		if request.Parse(attach) != nil || reply.Parse(accept) != nil || bearer.Parse(reply.ESM) != nil {
			t.Fatal("cannot parse the messages")
		}
		_, _ = nas.ParseQoS(bearer.QoS)
		b = request.Append(b[:0])
		b = reply.Append(b)
		b = bearer.Append(b)
		b = nas.AMBR{Up: 1, Down: 2}.Append(nas.QoS{QCI: 1, MaxUp: 1}.Append(b))
		b = nas.AppendServiceRequest(b, 1, 2)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
