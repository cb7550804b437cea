package diameter_test

import (
	"bytes"
	"errors"
	"testing"

	"vitrine/wire/diameter"
)

func TestReadsEveryInterface(t *testing.T) {
	for _, s := range golden() {
		var m diameter.Message
		if n, err := m.Parse(s.octets); err != nil || n != len(s.octets) || m.Check() != nil {
			t.Fatalf("%s: parsed %d of %d octets, errors %v, %v", s.name, n, len(s.octets), err, m.Check())
		}
		if m.HopByHop != 0x01020304 || m.EndToEnd != 0xfedcba98 {
			t.Errorf("%s: got identifiers %x and %x", s.name, m.HopByHop, m.EndToEnd)
		}
		if got := found(&m); got != s.want {
			t.Errorf("%s:\n got %+v\nwant %+v", s.name, got, s.want)
		}
	}
}

// TestFramesAStream checks that messages are found wherever the stream is cut.
func TestFramesAStream(t *testing.T) {
	var stream []byte
	for _, s := range golden() {
		stream = append(stream, s.octets...)
	}
	for size := range 80 {
		var held []byte
		count := 0
		for rest := stream; len(rest) > 0; {
			take := min(size+1, len(rest))
			held, rest = append(held, rest[:take]...), rest[take:]
			for {
				n, err := diameter.Frame(held, 4096)
				if err != nil {
					t.Fatal(err)
				}
				if n == 0 {
					break
				}
				if !bytes.Equal(held[:n], golden()[count].octets) {
					t.Fatalf("message %d in pieces of %d is %x", count, size+1, held[:n])
				}
				held, count = held[n:], count+1
			}
		}
		if count != len(golden()) || len(held) != 0 {
			t.Errorf("got %d messages from pieces of %d, %d octets left", count, size+1, len(held))
		}
	}
}

func TestRejectsMalformedMessages(t *testing.T) {
	good := golden()[2].octets
	change := func(at int, v byte) []byte {
		b := bytes.Clone(good)
		b[at] = v
		return b
	}
	for name, c := range map[string]struct {
		octets []byte
		parse  error
		frame  error
	}{
		"empty":             {nil, diameter.ErrShort, nil},
		"half a header":     {good[:19], diameter.ErrShort, nil},
		"cut":               {good[:len(good)-1], diameter.ErrLength, nil},
		"version 2":         {change(0, 2), diameter.ErrVersion, diameter.ErrVersion},
		"odd length":        {change(3, good[3]-1), diameter.ErrLength, diameter.ErrLength},
		"length below 20":   {change(3, 16), diameter.ErrLength, diameter.ErrLength},
		"length of 8 MiB":   {change(1, 0x80), diameter.ErrLength, diameter.ErrBound},
		"a whole one":       {good, nil, nil},
		"a text, not octet": {[]byte("REGISTER sip:ims.example SIP/2.0"), diameter.ErrVersion, diameter.ErrVersion},
	} {
		var m diameter.Message
		if n, err := m.Parse(c.octets); !errors.Is(err, c.parse) || err != nil && n != 0 {
			t.Errorf("%s: %d, %v", name, n, err)
		}
		if n, err := diameter.Frame(c.octets, 4096); !errors.Is(err, c.frame) || err != nil && n != 0 {
			t.Errorf("%s: got a frame of %d octets, error %v", name, n, err)
		}
	}
}

func TestRejectsMalformedAVPs(t *testing.T) {
	for name, avps := range map[string][]byte{
		"half a header":         {0, 0, 1, 7, 0x40, 0, 0},
		"longer than the rest":  {0, 0, 1, 7, 0x40, 0, 0, 16, 1, 2, 3, 4},
		"shorter than a header": {0, 0, 1, 7, 0x40, 0, 0, 7},
		"no room for a vendor":  {0, 0, 1, 7, 0xc0, 0, 0, 8, 0, 0, 0, 0},
	} {
		a := diameter.Group(avps)
		if a.Next() || !errors.Is(a.Err, diameter.ErrAVP) || a.Next() {
			t.Errorf("%s: %+v", name, a)
		}
	}
	a := diameter.Group([]byte{0, 0, 1, 7, 0x40, 0, 0, 9, 'x'}) // without padding at the end of a group
	if !a.Next() || string(a.Value) != "x" || a.Next() || a.Err != nil {
		t.Errorf("%+v", a)
	}
}

// TestIgnoresAVPsOfOtherVendors checks that a code counts with its vendor.
func TestIgnoresAVPsOfOtherVendors(t *testing.T) {
	b := message(diameter.Request, diameter.UpdateLocation, diameter.S6a, avp(nil, 9, diameter.UserName, '1'), avp(nil, 0, diameter.PublicIdentity, '2'))
	var m diameter.Message
	if _, err := m.Parse(b); err != nil || value(&m, diameter.UserName) != nil || publicIdentity(&m) != nil {
		t.Errorf("%v, %q, %q", err, value(&m, diameter.UserName), publicIdentity(&m))
	}
}

func TestNamesUnknownCommands(t *testing.T) {
	m := diameter.Message{Command: 999}
	if m.Name() != "Command-999" || diameter.Application(7).String() != "application-7" {
		t.Errorf("got name %s of %s", m.Name(), diameter.Application(7))
	}
}

func TestNothingIsAllocated(t *testing.T) {
	samples := golden()
	total := 0
	if n := testing.AllocsPerRun(100, func() {
		for i := range samples {
			var m diameter.Message
			n, err := diameter.Frame(samples[i].octets, 4096)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := m.Parse(samples[i].octets[:n]); err != nil || m.Check() != nil {
				t.Fatal(err)
			}
			total += len(value(&m, diameter.SessionID)) + len(value(&m, diameter.CCRequestType)) + len(publicIdentity(&m))
			total += len(identity(&m, diameter.IMSI)) + len(m.Application.String())
			result, _ := m.Result()
			total += int(result.Code)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkRead reads header, identities and result of each sample in turn.
func BenchmarkRead(b *testing.B) {
	samples := golden()
	for i := 0; b.Loop(); i++ {
		var m diameter.Message
		if _, err := m.Parse(samples[i%len(samples)].octets); err != nil {
			b.Fatal(err)
		}
		_, _, _, _ = value(&m, diameter.SessionID), value(&m, diameter.OriginHost), value(&m, diameter.UserName), publicIdentity(&m)
		_, _ = m.Result()
	}
}
