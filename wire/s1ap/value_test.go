package s1ap_test

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"testing"

	"vitrine/wire/identity"
	"vitrine/wire/s1ap"
)

// value returns the value of an element from its parser, or nil for an element that the package
// only appends: TestGolden compares its octets.
func value(id s1ap.ID, v []byte) (any, bool) {
	switch id {
	case s1ap.MMEUEID, s1ap.SourceMMEUEID:
		x, ok := s1ap.ParseMMEUEID(v)
		return x, ok
	case s1ap.ENBUEID:
		x, ok := s1ap.ParseENBUEID(v)
		return x, ok
	case s1ap.UEIDs:
		mme, enb, pair, ok := s1ap.ParseUEIDs(v)
		return []any{mme, enb, pair}, ok
	case s1ap.NASPDU, s1ap.RadioCapability, s1ap.SourceToTarget, s1ap.TargetToSource:
		x, ok := s1ap.ParseNAS(v)
		return x, ok
	case s1ap.TAI, s1ap.TAIItem: // an item without extensions has the octets of its TAI
		x, ok := s1ap.ParseTAI(v)
		return x, ok
	case s1ap.ECGI:
		x, ok := s1ap.ParseECGI(v)
		return x, ok
	case s1ap.STMSI:
		x, ok := s1ap.ParseSTMSI(v)
		return x, ok
	case s1ap.GlobalENBID:
		x, ok := s1ap.ParseENB(v)
		return x, ok
	case s1ap.CauseID:
		x, ok := s1ap.ParseCause(v)
		return x, ok
	case s1ap.ENBName, s1ap.MMEName, s1ap.ServedGUMMEIs, s1ap.GUMMEI, s1ap.RelativeCapacity, s1ap.AggregateMaxBitRate,
		s1ap.SecurityCapabilities, s1ap.IdentityIndex:
		return nil, true
	}
	return more(id, v)
}

func more(id s1ap.ID, v []byte) (any, bool) {
	switch id {
	case s1ap.PagingDRX, s1ap.DefaultPagingDRX, s1ap.EstablishmentCause, s1ap.HandoverType, s1ap.TimeToWait, s1ap.CNDomain:
		x, ok := s1ap.ParseEnum(id, v)
		return x, ok
	case s1ap.SecurityKey:
		x, ok := s1ap.ParseKey(v)
		return x, ok
	case s1ap.SecurityContext:
		counter, k, ok := s1ap.ParseNextHop(v)
		return []any{counter, k}, ok
	case s1ap.TargetID:
		e, a, ok := s1ap.ParseTarget(v)
		return []any{e, a}, ok
	case s1ap.UEPagingID:
		s, imsi, ok := s1ap.ParsePaged(v)
		return []any{s, imsi}, ok
	case s1ap.SupportedTAs:
		var all []any
		a := s1ap.ParseAreas(v)
		for a.Next() {
			all = append(all, a.TAC, a.PLMNs)
		}
		return all, a.Err == nil
	}
	return resets(id, v)
}

func resets(id s1ap.ID, v []byte) (any, bool) {
	var all []any
	var some s1ap.Connections
	switch id {
	case s1ap.ResetType:
		whole, of, ok := s1ap.ParseReset(v)
		if whole || !ok {
			return whole, ok
		}
		some = of
	case s1ap.ResetConnections:
		some = s1ap.ParseConnections(v)
	default:
		return lists(id, v)
	}
	for some.Next() {
		all = append(all, some.Connection)
	}
	return all, !some.Malformed
}

func lists(id s1ap.ID, v []byte) (any, bool) {
	switch id {
	case s1ap.ToBeSetupContext, s1ap.SetupListContext, s1ap.FailedToSetupContext, s1ap.ToBeSetupBearer, s1ap.SetupListBearer,
		s1ap.ToBeSwitchedDL, s1ap.ToBeSwitchedUL, s1ap.ToBeSetupHO, s1ap.AdmittedList, s1ap.FailedToSetupHO,
		s1ap.SubjectToForwarding, s1ap.TAIList, s1ap.ToReleaseHO, s1ap.ToBeReleased, s1ap.FailedToSetupBearer, s1ap.FailedToRelease, s1ap.ReleasedBearer, s1ap.ReleasedIndication:
		var all []any
		items := s1ap.List(v)
		for items.Next() {
			x, ok := value(items.ID, items.Value)
			if !ok {
				return nil, false
			}
			all = append(all, x)
		}
		return all, items.Err == nil
	}
	x, ok := s1ap.ParseERAB(id, v)
	return x, ok
}

// elements returns the values of the elements of a message that the package parses, and
// fails if one is malformed.
func elements(t *testing.T, b []byte) map[s1ap.ID]any {
	t.Helper()
	var m s1ap.Message
	if err := m.Parse(b); err != nil {
		t.Fatal(err)
	}
	all := map[s1ap.ID]any{}
	e := m.Elements()
	for e.Next() {
		v, ok := value(e.ID, e.Value)
		if !ok {
			t.Errorf("element %d: cannot parse %x", e.ID, e.Value)
		}
		if v != nil {
			all[e.ID] = v
		}
	}
	if e.Err != nil {
		t.Error(e.Err)
	}
	return all
}

// connections returns the values of elements of messages without handovers.
func connections() map[string]map[s1ap.ID]any {
	plmns := slices.Concat(test[:], other[:])
	return map[string]map[s1ap.ID]any{
		"s1-setup-request": {
			s1ap.GlobalENBID: enb, s1ap.DefaultPagingDRX: uint8(1),
			s1ap.SupportedTAs: []any{uint16(12345), test[:], uint16(1), plmns},
		},
		"s1-setup-request-home": {s1ap.GlobalENBID: home, s1ap.SupportedTAs: []any{uint16(12345), test[:]}, s1ap.DefaultPagingDRX: uint8(3)},
		"s1-setup-failure":      {s1ap.CauseID: s1ap.CauseUnknownPLMN, s1ap.TimeToWait: uint8(3)},
		"initial-ue-message": {
			s1ap.ENBUEID: uint32(7), s1ap.NASPDU: nas, s1ap.TAI: tai, s1ap.ECGI: ecgi, s1ap.EstablishmentCause: uint8(3),
			s1ap.STMSI: stmsi,
		},
		"initial-ue-message-extension": {
			s1ap.ENBUEID: uint32(0xffffff), s1ap.NASPDU: []byte{1}, s1ap.TAI: tai, s1ap.ECGI: ecgi, s1ap.EstablishmentCause: uint8(6),
		},
		"downlink-nas-transport": {s1ap.MMEUEID: uint32(0xffffffff), s1ap.ENBUEID: uint32(0), s1ap.NASPDU: long},
		"initial-context-setup-request": {
			s1ap.MMEUEID: uint32(1), s1ap.ENBUEID: uint32(2), s1ap.SecurityKey: key, s1ap.RadioCapability: long,
			s1ap.ToBeSetupContext: []any{s1ap.ERAB{ID: 5, QoS: plain, Tunnel: tunnel, NAS: nas}, s1ap.ERAB{ID: 15, QoS: gbr, Tunnel: both}},
		},
		"initial-context-setup-response": {
			s1ap.MMEUEID: uint32(1), s1ap.ENBUEID: uint32(2), s1ap.SetupListContext: []any{s1ap.ERAB{ID: 5, Tunnel: over6}},
			s1ap.FailedToSetupContext: []any{s1ap.ERAB{ID: 6}},
		},
		"ue-context-release-command":     {s1ap.UEIDs: []any{uint32(1), uint32(2), true}, s1ap.CauseID: s1ap.CauseDetach},
		"ue-context-release-command-mme": {s1ap.UEIDs: []any{uint32(70000), uint32(0), false}, s1ap.CauseID: s1ap.Cause{Group: s1ap.RadioNetwork, Value: 40}},
	}
}

// handovers returns the values of elements of handovers and paging.
func handovers() map[string]map[s1ap.ID]any {
	return map[string]map[s1ap.ID]any{
		"path-switch-acknowledge": {
			s1ap.MMEUEID: uint32(1), s1ap.ENBUEID: uint32(3), s1ap.ToBeSwitchedUL: []any{s1ap.ERAB{ID: 5, Tunnel: tunnel}},
			s1ap.SecurityContext: []any{uint8(5), key},
		},
		"handover-required": {
			s1ap.MMEUEID: uint32(1), s1ap.ENBUEID: uint32(2), s1ap.HandoverType: uint8(0), s1ap.CauseID: s1ap.CauseHandoverDesirable,
			s1ap.TargetID: []any{enb, tai}, s1ap.SourceToTarget: long,
		},
		"handover-request-acknowledge": {
			s1ap.MMEUEID: uint32(9), s1ap.ENBUEID: uint32(4), s1ap.TargetToSource: nas,
			s1ap.AdmittedList:    []any{s1ap.ERAB{ID: 5, Tunnel: tunnel, ForwardDown: tunnel, ForwardUp: over6}, s1ap.ERAB{ID: 6, Tunnel: tunnel}},
			s1ap.FailedToSetupHO: []any{s1ap.ERAB{ID: 7, Cause: s1ap.Cause{Group: s1ap.Transport, Value: 1}}},
		},
		"handover-command": {
			s1ap.MMEUEID: uint32(1), s1ap.ENBUEID: uint32(2), s1ap.HandoverType: uint8(0),
			s1ap.SubjectToForwarding: []any{s1ap.ERAB{ID: 5, ForwardDown: tunnel}}, s1ap.TargetToSource: nas,
		},
		"paging": {
			s1ap.UEPagingID: []any{stmsi, []byte(nil)}, s1ap.CNDomain: uint8(0),
			s1ap.TAIList: []any{tai, identity.TAI{PLMN: other, TAC: 1}},
		},
		"paging-imsi": {
			s1ap.PagingDRX: uint8(0), s1ap.CNDomain: uint8(1), s1ap.TAIList: []any{tai},
			s1ap.UEPagingID: []any{identity.STMSI{}, []byte{0, 0x10, 0x10, 0x32, 0x54, 0x76, 0x98, 0xf0}},
		},
	}
}

// TestValues compares the parsed values of messages of pycrate with the values
// that pycrate was given.
func TestValues(t *testing.T) {
	for _, samples := range []map[string]map[s1ap.ID]any{connections(), handovers()} {
		for name, want := range samples {
			if got := elements(t, golden(t)[name]); !reflect.DeepEqual(got, want) {
				t.Errorf("%s: got\n%v, want\n%v", name, got, want)
			}
		}
	}
	for _, b := range golden(t) {
		elements(t, b)
	}
}

// TestExtensions reads sequences with iE-Extensions and extension additions, which
// later versions may add.
func TestExtensions(t *testing.T) {
	extension := []byte{0, 0, 0, 200, 0x40, 2, 0xaa, 0xbb} // one: id 200, ignore, two octets
	v := slices.Concat([]byte{0x40}, test[:], []byte{0x30, 0x39}, extension)
	if got, ok := s1ap.ParseTAI(v); !ok || got != tai {
		t.Errorf("TAI with iE-Extensions: %v, %v", got, ok)
	}
	if got, ok := s1ap.ParseTAI(v[:len(v)-1]); ok {
		t.Errorf("TAI with short iE-Extensions: %v", got)
	}
	// One addition: a count of 1 and a bit that it is there, then its octets.
	v = slices.Concat([]byte{0x80}, test[:], []byte{0x30, 0x39}, []byte{0x01, 1, 0xff})
	if got, ok := s1ap.ParseTAI(v); !ok || got != tai {
		t.Errorf("TAI with an addition: %v, %v", got, ok)
	}
	// Within another sequence, what follows is still found.
	target := slices.Concat([]byte{0x08}, test[:], []byte{0x00, 0x00, 0x19, 0xb4}, test[:], []byte{0x30, 0x39}, extension, extension)
	if e, got, ok := s1ap.ParseTarget(target); !ok || e != enb || got != tai {
		t.Errorf("target with iE-Extensions: %v, %v, %v", e, got, ok)
	}
	if e, got, ok := s1ap.ParseTarget(target[:len(target)-1]); ok {
		t.Errorf("target with short iE-Extensions: %v, %v", e, got)
	}
}

// TestShortAndLongMacroENodeBs reads and writes the identities of 18 and 21 bits, which are in an extension.
func TestShortAndLongMacroENodeBs(t *testing.T) {
	for _, c := range []struct {
		enb   s1ap.ENB
		value []byte
	}{
		{s1ap.ENB{PLMN: test, ID: 0x2abcd, Kind: s1ap.ShortMacroENB}, slices.Concat([]byte{0}, test[:], []byte{0x80, 3, 0xaa, 0xf3, 0x40})},
		{s1ap.ENB{PLMN: test, ID: 0x1abcde, Kind: s1ap.LongMacroENB}, slices.Concat([]byte{0}, test[:], []byte{0x81, 3, 0xd5, 0xe6, 0xf0})},
	} {
		if got, ok := s1ap.ParseENB(c.value); !ok || got != c.enb {
			t.Errorf("%x: parsed as %+v, %v, want %+v", c.value, got, ok, c.enb)
		}
		const header = 4 // of an element
		if b := s1ap.AppendENB(nil, reject, c.enb); !bytes.Equal(b[header:], c.value) {
			t.Errorf("%+v: encoded as %x, want %x", c.enb, b[header:], c.value)
		}
		target := s1ap.AppendTarget(nil, reject, c.enb, tai)
		if got, area, ok := s1ap.ParseTarget(target[header:]); !ok || got != c.enb || area != tai {
			t.Errorf("target %+v: parsed as %+v, %+v, %v", c.enb, got, area, ok)
		}
		if got, ok := s1ap.ParseENB(c.value[:len(c.value)-1]); ok {
			t.Errorf("%x without its end: parsed as %+v", c.value, got)
		}
	}
	if got, ok := s1ap.ParseENB(slices.Concat([]byte{0}, test[:], []byte{0x82, 3, 1, 2, 3})); ok {
		t.Errorf("alternative of a later version: parsed as %+v", got)
	}
}

func TestRefused(t *testing.T) {
	good := golden(t)["error-indication"]
	change := func(at int, v byte) []byte {
		b := bytes.Clone(good)
		b[at] = v
		return b
	}
	for _, c := range []struct {
		name string
		data []byte
		want error
	}{
		{"nothing", nil, s1ap.ErrShort},
		{"an unknown alternative", change(0, 0x60), s1ap.ErrKind},
		{"an extension", change(0, 0x80), s1ap.ErrKind},
		{"a criticality of 3", change(2, 0xc0), s1ap.ErrKind},
		{"too long", change(3, 0x15), s1ap.ErrLength},
		{"more behind it", append(bytes.Clone(good), 0), s1ap.ErrLength},
		{"fragments", change(3, 0xc1), s1ap.ErrLength},
		{"no container", []byte{0, 15, 0x40, 1, 0}, s1ap.ErrShort},
		{"additions", change(4, 0x80), s1ap.ErrKind},
	} {
		var m s1ap.Message
		if err := m.Parse(c.data); !errors.Is(err, c.want) {
			t.Errorf("%s: got error %v, want %v", c.name, err, c.want)
		}
	}
	for _, c := range []struct {
		name string
		data []byte
		want error
	}{
		{"fewer elements than its count", change(6, 4), s1ap.ErrCount},
		{"more elements than its count", change(6, 2), s1ap.ErrCount},
		{"an element beyond its end", change(len(good)-2, 3), s1ap.ErrLength},
	} {
		var m s1ap.Message
		if err := m.Parse(c.data); err != nil || !errors.Is(m.Check(), c.want) {
			t.Errorf("%s: got errors %v, %v, want %v", c.name, err, m.Check(), c.want)
		}
	}
}

// TestNumbers reads a number with more octets than its range has, and appends a bit rate above 10 Gbit/s.
func TestNumbers(t *testing.T) {
	if id, ok := s1ap.ParseENBUEID([]byte{0xc0, 1, 2, 3, 4}); ok {
		t.Errorf("parsed an eNB UE S1AP ID of four octets as %#x", id)
	}
	// 10 Gbit/s in five octets, and 1 bit/s in one.
	want := []byte{0x20, 0x02, 0x54, 0x0b, 0xe4, 0x00, 0x00, 1}
	const header = 4 // of an element
	if b := s1ap.AppendBitRates(nil, reject, 1<<60, 1); !bytes.Equal(b[header:], want) {
		t.Errorf("got bit rates % x, want % x", b[header:], want)
	}
}

// TestLengths appends values around the sizes where the length changes.
func TestLengths(t *testing.T) {
	for _, n := range []int{0, 1, 125, 126, 127, 128, 129, 255, 256, 16_000} {
		want := bytes.Repeat([]byte{0xa5}, n)
		b := s1ap.AppendHeader(nil, s1ap.Initiating, s1ap.DownlinkNASTransport, ignore)
		b = s1ap.AppendNAS(ids(b, reject, 1, 2), s1ap.NASPDU, reject, want)
		b = s1ap.End(s1ap.AppendTAI(b, ignore, tai), 0)
		all := elements(t, b)
		if got := all[s1ap.NASPDU].([]byte); !bytes.Equal(got, want) || all[s1ap.TAI] != tai || len(all) != 4 {
			t.Errorf("message of %d octets: got %d octets, TAI %v", n, len(got), all[s1ap.TAI])
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("appended a message above the limit")
		}
	}()
	s1ap.End(s1ap.AppendNAS(s1ap.AppendHeader(nil, s1ap.Initiating, s1ap.DownlinkNASTransport, ignore), s1ap.NASPDU, reject, make([]byte, 16_380)), 0)
}

// appendFragments appends the lengths and the octets of an open type of 16,384 octets or more.
func appendFragments(b, v []byte) []byte {
	for len(v) >= 1<<14 {
		n := min(len(v)>>14, 4)
		b = append(append(b, 0xc0|byte(n)), v[:n<<14]...)
		v = v[n<<14:]
	}
	if len(v) < 0x80 { // the last fragment may be empty
		return append(append(b, byte(len(v))), v...)
	}
	return append(append(b, 0x80|byte(len(v)>>8), byte(len(v))), v...)
}

// TestFragments reads messages, elements and octet strings that are too long for one length.
func TestFragments(t *testing.T) {
	for _, n := range []int{1 << 14, 20_000, 1 << 15, 50_000, 1 << 16, 100_000} {
		want := bytes.Repeat([]byte{0xa5}, n)
		b := ids([]byte{0, 0, 4}, reject, 1, 2) // the preamble and the count
		b = append(b, 0, byte(s1ap.RadioCapability), byte(ignore)<<6)
		b = s1ap.AppendTAI(appendFragments(b, appendFragments(nil, want)), ignore, tai)
		b = appendFragments([]byte{byte(s1ap.Initiating) << 5, byte(s1ap.UECapabilityIndication), byte(ignore) << 6}, b)
		all := elements(t, b)
		if got, _ := all[s1ap.RadioCapability].([]byte); !bytes.Equal(got, want) || all[s1ap.TAI] != tai || len(all) != 4 {
			t.Errorf("octet string of %d octets: got %d octets, TAI %v", n, len(got), all[s1ap.TAI])
		}
		var m s1ap.Message
		if err := m.Parse(b[:len(b)-1]); !errors.Is(err, s1ap.ErrLength) {
			t.Errorf("octet string of %d octets without its end: got error %v, want %v", n, err, s1ap.ErrLength)
		}
	}
	for _, length := range []byte{0xc0, 0xc5, 0xff} { // no multiple of 16,384 octets that PER has
		var m s1ap.Message
		if err := m.Parse(append([]byte{0, 0, 0, length}, make([]byte, 100_000)...)); !errors.Is(err, s1ap.ErrLength) {
			t.Errorf("length %#x: got error %v, want %v", length, err, s1ap.ErrLength)
		}
	}
}

func TestNothingIsAllocated(t *testing.T) {
	g := golden(t)
	setup, initial := g["initial-context-setup-request"], g["initial-ue-message"]
	b := make([]byte, 0, 4096)
	found := 0
	if n := testing.AllocsPerRun(100, func() {
		var m s1ap.Message
		if m.Parse(initial) != nil {
			t.Fatal("cannot parse the initial UE message")
		}
		for e := m.Elements(); e.Next(); {
			switch e.ID {
			case s1ap.NASPDU:
				v, _ := s1ap.ParseNAS(e.Value)
				found += len(v)
			case s1ap.TAI:
				v, _ := s1ap.ParseTAI(e.Value)
				found += int(v.TAC)
			}
		}
		if m.Parse(setup) != nil {
			t.Fatal("cannot parse the initial context setup request")
		}
		v, _ := m.Find(s1ap.ToBeSetupContext)
		for e := s1ap.List(v); e.Next(); {
			r, _ := s1ap.ParseERAB(e.ID, e.Value)
			found += int(r.ID)
		}
		b = s1ap.AppendHeader(b[:0], s1ap.Initiating, s1ap.InitialContextSetup, reject)
		b = s1ap.AppendBitRates(ids(b, reject, 1, 2), reject, 256_000_000, 48_000_000)
		b = list(b, s1ap.ToBeSetupContext, reject, s1ap.ToBeSetupItemContext, s1ap.ERAB{ID: 5, QoS: gbr, Tunnel: tunnel, NAS: nas})
		b = s1ap.End(s1ap.AppendCapabilities(b, reject, 0xe000, 0x6000), 0)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestProcedureNames(t *testing.T) {
	names := map[string]bool{}
	for p := range 256 {
		names[s1ap.Procedure(p).String()] = true
	}
	if len(names) != 256 || !names["s1-setup"] || !names["procedure-255"] {
		t.Errorf("got %d names, want 256", len(names))
	}
}
