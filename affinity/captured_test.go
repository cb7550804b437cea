package affinity

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"vitrine/affinity/capture"
	"vitrine/affinity/correlate"
	"vitrine/affinity/course"
	"vitrine/affinity/message"
	"vitrine/internal/capturetest"
)

// A recorder writes datagrams into a capture.
type recorder struct {
	t    *testing.T
	file *pcapgo.Writer
	at   time.Time
	id   uint16
}

func (r *recorder) send(after time.Duration, from, to, payload string) {
	r.t.Helper()
	r.at = r.at.Add(after)
	src, dst := netip.MustParseAddrPort(from), netip.MustParseAddrPort(to)
	r.id++
	b := make([]byte, 28, 28+len(payload)) // RFC 791 section 3.1, RFC 768
	b[0], b[8], b[9] = 0x45, 64, 17
	binary.BigEndian.PutUint16(b[2:], uint16(28+len(payload)))
	binary.BigEndian.PutUint16(b[4:], r.id)
	copy(b[12:], src.Addr().AsSlice())
	copy(b[16:], dst.Addr().AsSlice())
	binary.BigEndian.PutUint16(b[20:], src.Port())
	binary.BigEndian.PutUint16(b[22:], dst.Port())
	binary.BigEndian.PutUint16(b[24:], uint16(8+len(payload)))
	b = append(b, payload...)
	if err := r.file.WritePacket(gopacket.CaptureInfo{Timestamp: r.at, CaptureLength: len(b), Length: len(b)}, b); err != nil {
		r.t.Fatal(err)
	}
}

// register records a registration through a proxy that takes 1 ms for a message, at a
// registrar with the given processing time.
func (r *recorder) register(user int, registrar time.Duration) {
	ue, proxy, server := fmt.Sprintf("192.0.2.%d:5060", 10+user), "198.51.100.1:5060", "198.51.100.2:5060"
	text := func(first, via string, credentials bool) string {
		s := fmt.Sprintf("%s\r\nVia: SIP/2.0/UDP %s;branch=z9hG4bK%d-%d-%t\r\nFrom: <sip:u%d@ims.test>;tag=a%d\r\nTo: <sip:u%d@ims.test>\r\nCall-ID: c%d\r\nCSeq: 1 REGISTER\r\n",
			first, via, len(via), user, credentials, user, user, user, user)
		if credentials {
			s = strings.Replace(s, "CSeq: 1", "CSeq: 2", 1) + fmt.Sprintf("Authorization: Digest username=\"u%d@ims.test\", realm=\"ims.test\"\r\n", user)
		}
		return s + "Content-Length: 0\r\n\r\n"
	}
	for _, round := range []struct {
		answer      string
		credentials bool
	}{{"SIP/2.0 401 Unauthorized", false}, {"SIP/2.0 200 OK", true}} {
		const request = "REGISTER sip:ims.test SIP/2.0"
		r.send(2*time.Millisecond, ue, proxy, text(request, ue, round.credentials))
		r.send(time.Millisecond, proxy, server, text(request, proxy, round.credentials))
		r.send(registrar, server, proxy, text(round.answer, proxy, round.credentials))
		r.send(time.Millisecond, proxy, ue, text(round.answer, ue, round.credentials))
	}
}

func record(t *testing.T, registrar time.Duration) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sip.pcap")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close() // the test reads it after each write is done
	r := &recorder{t: t, file: pcapgo.NewWriterNanos(file), at: time.Unix(1_700_000_000, 0)}
	if err := r.file.WriteFileHeader(1<<16, layers.LinkTypeRaw); err != nil {
		t.Fatal(err)
	}
	for user := range 50 {
		r.register(user, registrar)
	}
	return path
}

func TestCapturesBecomeTransactions(t *testing.T) {
	path := record(t, 95*time.Millisecond)
	n, err := names(t, "functions: [{name: Proxy, also: [198.51.100.1]}, {name: Registrar, also: [198.51.100.2]}]")
	if err != nil {
		t.Fatal(err)
	}
	c, err := ReadCaptures(context.Background(), []string{path}, message.Options{Name: n.Called}, correlate.Options{Explain: 6}, nil)
	if err != nil {
		t.Fatal(err)
	}
	a, err := Analyse(c.Flows, Options{Names: n, Delay: 5 * time.Millisecond, Captured: c})
	if err != nil {
		t.Fatal(err)
	}
	if len(a.Types) != 1 || a.Types[0].Type != "REGISTER" || !slices.Equal(a.Types[0].Members, []string{"Proxy", "Registrar"}) {
		t.Fatalf("%+v", a.Types)
	}
	x := a.Types[0]
	if len(x.Flows) != 1 || x.Flows[0].Count != 50 || len(x.Flows[0].Messages) != 8 || !slices.Equal(x.Flows[0].Functions, []string{"UE", "Proxy", "Registrar"}) {
		t.Errorf("%+v", x.Flows)
	}
	// 2*(1+95+1) ms, and 2 ms at the UE.
	if d := x.Measured.Duration.P50; d < 195 || d > 197 {
		t.Errorf("median duration of a registration: got %g ms, want about 196 ms", d)
	}
	at := slices.IndexFunc(x.Measured.Functions, func(f course.Function) bool { return f.Name == "Registrar" })
	if f := x.Measured.Functions[at]; f.Time < 189.9 || f.Time > 190.1 || f.Passes != 0 || f.Decides != 2 {
		t.Errorf("registrar: got %+v", f)
	}
	at = slices.IndexFunc(x.Measured.Functions, func(f course.Function) bool { return f.Name == "Proxy" })
	if f := x.Measured.Functions[at]; f.Time < 3.9 || f.Time > 4.1 || f.Passes != 4 || f.Asks != 0 || f.Decides != 0 {
		t.Errorf("proxy: got %+v", f)
	}
	if e := c.Explanation; e == nil || e.Type != "REGISTER" || e.Because != correlate.Contained.String() || len(e.Course) != 8 {
		t.Errorf("%+v", e)
	}
	validate(t, a)
}

// TestADamagedHeaderHidesNoTransactions: the second of two files ends within its header.
func TestADamagedHeaderHidesNoTransactions(t *testing.T) {
	whole := record(t, time.Millisecond)
	octets, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	cut := filepath.Join(t.TempDir(), "cut.pcap")
	if err := os.WriteFile(cut, octets[:20], 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := ReadCaptures(t.Context(), []string{whole, cut}, message.Options{}, correlate.Options{}, nil)
	if damage, ok := errors.AsType[*capture.Damage](err); !ok || damage.File != cut {
		t.Errorf("got error %v, want a damage of %s", err, cut)
	}
	if m := c.Measured["REGISTER"]; m == nil || m.Transactions != 50 {
		t.Errorf("got %+v, want 50 registrations", m)
	}
}

// TestA5GReleaseIsPartOfItsDeregistration reads a deregistration whose AMF then releases the
// UE's connection (TS 23.502 clause 4.2.2.3.2).
func TestA5GReleaseIsPartOfItsDeregistration(t *testing.T) {
	const (
		amf  = "\x00\x0a\x00\x02\x00\x01"         // AMF UE NGAP ID 1
		ran  = "\x00\x55\x00\x02\x00\x02"         // RAN UE NGAP ID 2
		both = "\x00\x72\x00\x04\x00\x01\x00\x02" // UE NGAP IDs
		nas  = "\x00\x26\x00\x04\x03\x7e\x00"     // a plain NAS PDU without its type

		uplink, downlink, release = 46, 4, 41
		initiating, successful    = 0x00, 0x20
	)
	ngap := func(kind, procedure byte, elements ...string) []byte {
		value := string([]byte{0, 0, byte(len(elements))}) + strings.Join(elements, "")
		return append([]byte{kind, procedure, 0, byte(len(value))}, value...)
	}
	path := filepath.Join(t.TempDir(), "n2.pcap")
	file, err := capturetest.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	var frames capturetest.Frames
	ends := [2]netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:38412"), netip.MustParseAddrPort("192.0.2.2:38412")} // gNodeB, AMF
	for i, m := range []struct {
		from int
		text []byte
	}{
		{0, ngap(initiating, uplink, amf, ran, nas+"\x45")}, // Deregistration request
		{1, ngap(initiating, downlink, amf, ran, nas+"\x46")},
		{1, ngap(initiating, release, both)},
		{0, ngap(successful, release, amf, ran)},
	} {
		const ppid = 60 // NGAP
		file.Add(int64(1_700_000_000+i)*1e9, frames.SCTP(ends[m.from], ends[1-m.from], uint32(i+1), ppid, m.text))
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	c, err := ReadCaptures(t.Context(), []string{path}, message.Options{}, correlate.Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if m := c.Measured["DEREGISTRATION"]; m == nil || m.Transactions != 1 || m.Messages != 4 || len(c.Measured) != 1 {
		t.Fatalf("got %d types, of a deregistration %+v", len(c.Measured), m)
	}
	if last := c.Flows[0].Messages[3].Name; last != "UEContextReleaseComplete" {
		t.Errorf("the last message is %s", last)
	}
}

// TestTheSlowStepIsInThePath adds 5 ms in one function, and checks that they appear there
// and nowhere else.
func TestTheSlowStepIsInThePath(t *testing.T) {
	var paths [2][]course.Segment
	for i, registrar := range []time.Duration{10 * time.Millisecond, 15 * time.Millisecond} {
		c, err := ReadCaptures(context.Background(), []string{record(t, registrar)}, message.Options{}, correlate.Options{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		paths[i] = c.Measured["REGISTER"].Path
	}
	for i, s := range paths[0] {
		more, want := paths[1][i].Mean-s.Mean, 0.0
		if s.Function == "198.51.100.2" {
			want = 5
		}
		if more < want-0.01 || more > want+0.01 {
			t.Errorf("%s %s: got %g ms more, want %g", s.Function, s.Out, more, want)
		}
	}
}
