package nas_test

import (
	"bytes"
	"reflect"
	"testing"

	"vitrine/wire/nas"
)

// empties returns one message of every kind that may have a type.
func empties() []message {
	return []message{
		&nas.AttachRequest{}, &nas.AttachAccept{}, &nas.AttachComplete{}, &nas.Reject{}, &nas.DetachRequest{}, &nas.NetworkDetach{},
		&nas.UpdateRequest{}, &nas.UpdateAccept{}, &nas.AuthenticationRequest{}, &nas.AuthenticationResponse{}, &nas.Failure{},
		&nas.IdentityRequest{}, &nas.IdentityResponse{}, &nas.SecurityModeCommand{}, &nas.SecurityModeComplete{}, &nas.Empty{},
		&nas.ReallocationCommand{}, &nas.ConnectivityRequest{},
		&nas.ESMInformationRequest{}, &nas.ESMInformationResponse{}, &nas.DefaultBearerRequest{}, &nas.DedicatedBearerRequest{},
		&nas.BearerAccept{}, &nas.Release{}, &nas.ResourceRequest{},
	}
}

// FuzzParse checks that parsing does not panic or change the message, and that
// the fields of a parsed message are appended and parsed back to the same fields.
func FuzzParse(f *testing.F) {
	for _, b := range golden(f) {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		before := bytes.Clone(data)
		var p nas.PDU
		if p.Parse(data) != nil {
			return
		}
		if p.Security != nas.Plain && len(p.Covered()) < 2 {
			t.Fatalf("a message with security %v covers %x", p.Security, p.Covered())
		}
		for _, m := range empties() {
			if m.Parse(p.Body) != nil {
				continue
			}
			values(m)
			again := reflect.New(reflect.TypeOf(m).Elem()).Interface().(message)
			b := m.Append(nil)
			if err := again.Parse(b); err != nil || !reflect.DeepEqual(m, again) {
				t.Fatalf("message %+v was encoded as %x and parsed as %+v, %v", m, b, again, err)
			}
		}
		if !bytes.Equal(data, before) {
			t.Fatal("the message was changed")
		}
	})
}

// values parses all values inside a message.
func values(m message) {
	switch m := m.(type) {
	case *nas.ResourceRequest:
		_, _ = nas.ParseQoS(m.QoS)
		filters(m.Aggregate)
	case *nas.DedicatedBearerRequest:
		filters(m.TFT)
	case *nas.DefaultBearerRequest:
		_, _ = nas.ParseQoS(m.QoS)
		_, _ = nas.ParseAMBR(m.AMBR)
		_, _ = nas.ParseAddress(m.Address)
		_, _ = nas.AppendName(nil, m.APN)
	}
}

// filters walks over the packet filters of a template. Those of a sound one are written
// back to the same octets.
func filters(v []byte) {
	t, ok := nas.ParseTFT(v)
	if !ok {
		return
	}
	var all []nas.Filter
	for t.Next() {
		all = append(all, t.Filter)
	}
	if t.Malformed {
		return
	}
	again, ok := nas.ParseTFT(nas.AppendTFT(nil, t.Operation, all...))
	if !ok || again.Operation != t.Operation {
		panic("a template changed")
	}
	for _, f := range all {
		if !again.Next() || !reflect.DeepEqual(again.Filter, f) {
			panic("a packet filter changed")
		}
	}
}
