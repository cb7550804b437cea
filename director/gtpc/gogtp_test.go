package gtpc_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/wmnsk/go-gtp/gtpv2"
	"github.com/wmnsk/go-gtp/gtpv2/ie"
	"github.com/wmnsk/go-gtp/gtpv2/message"

	"vitrine"
	"vitrine/director/datagram"
	director "vitrine/director/gtpc"
	"vitrine/director/meter"
	"vitrine/director/table"
)

// TestGoGTPPrograms sends the traffic of go-gtp's own eNB, MME, S-GW and P-GW
// programs through a director, unchanged: MME to S-GW (S11) and S-GW to P-GW
// (S5), two of each gateway. They choose TEIDs at random, so all of them are
// learned. While subscribers attach, weights change and one S-GW drains; each
// session stays where it was, to its end.
func TestGoGTPPrograms(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs four programs")
	}
	n := newNetwork(t)
	n.program("pgw", "pgw-1", n.pgw(41), "Started serving S5-U")
	n.program("pgw", "pgw-2", n.pgw(42), "Started serving S5-U")
	sgws := []*program{
		n.program("sgw", "sgw-1", n.sgw(21, 31), "Started serving S5-U"),
		n.program("sgw", "sgw-2", n.sgw(22, 32), "Started serving S5-U"),
	}
	n.direct()
	mme := n.program("mme", "mme", fmt.Sprintf(
		"mcc: \"001\"\nmnc: \"01\"\napn: internet.example\nlocal_addresses:\n  s1c_addr: %q\n  s11_ip: %q\nsgw_s11_ip: %q\npgw_s5c_ip: %q\n",
		n.ip(11).String()+":36412", n.ip(11), n.ip(1), n.ip(2)), "Started serving S11")

	const first, more = 12, 6
	enb := n.program("enb", "enb", n.enb(0, first), "Started serving S1-U")
	for i := range first {
		mme.wait("Bearer modified with S-GW for Subscriber: " + imsi(i))
	}
	const made, ended = "Session created with MME and P-GW for Subscriber: ", "Session deleted for Subscriber: "
	before := n.places(sgws, made, first)
	if len(before) != first || len(slices.Compact(slices.Sorted(maps.Values(before)))) != 2 {
		t.Fatalf("sessions of the first %d subscribers: %v", first, before)
	}

	// Another MME, of go-gtp's library, whose sessions outlive the changes.
	own := n.ownMME()
	var sessions []*gtpv2.Session
	for i := 100; i < 110; i++ {
		sessions = append(sessions, own.attach(imsi(i)))
	}
	n.change(func(in *vitrine.Instance) {
		if in.Name == "sgw-2" || in.Name == "pgw-1" {
			in.Weight *= 20
		}
	})
	n.change(func(in *vitrine.Instance) {
		if in.Name == "sgw-1" {
			in.State = vitrine.Draining
		}
	})
	for i := first; i < first+more; i++ { // one by one: the MME mixes up attaches at the same time
		n.reload(enb, n.enb(i, i+1))
		mme.wait("Bearer modified with S-GW for Subscriber: " + imsi(i))
	}
	at := n.places(sgws, made, first+more+len(sessions))
	for i := range first + more {
		switch {
		case i >= first && at[imsi(i)] != "sgw-2":
			t.Errorf("subscriber %d, new, was attached at %q, which does not serve new ones", i, at[imsi(i)])
		case i < first && at[imsi(i)] != before[imsi(i)]:
			t.Errorf("subscriber %d was attached at %s and at %s", i, before[imsi(i)], at[imsi(i)])
		}
	}
	for _, s := range sessions {
		own.modify(s)
		own.detach(s)
	}
	end := n.places(sgws, ended, len(sessions))
	drained := 0
	for i := 100; i < 110; i++ {
		if at[imsi(i)] == "" || at[imsi(i)] != end[imsi(i)] {
			t.Errorf("the session of %s was made at %q and ended at %q", imsi(i), at[imsi(i)], end[imsi(i)])
		}
		if at[imsi(i)] == "sgw-1" {
			drained++
		}
	}
	if drained == 0 {
		t.Error("no session was at the S-GW that drained")
	}
	totals := n.director.Totals(n.now())
	if totals.Stray+totals.Malformed+totals.Rejected+totals.Unruled+totals.UnknownTEID+totals.Keyless+totals.ExchangesForgotten != 0 {
		t.Errorf("%+v", totals)
	}
	t.Logf("%d sessions at %v; %+v", len(at), sgws, totals)
}

func imsi(i int) string { return fmt.Sprintf("00101%010d", i) }

// places says which program logged the line for each IMSI, once it was logged
// for so many: all of them, where it was more than one. A gateway logs what it
// has done after it has answered.
func (n *network) places(programs []*program, line string, count int) map[string]string {
	n.t.Helper()
	limit := time.After(30 * time.Second)
	for {
		found := placesOf(programs, line)
		if len(found) >= count {
			return found
		}
		select {
		case <-programs[0].news:
		case <-programs[1].news:
		case <-limit:
			n.t.Fatalf("%q was logged for %d of %d", line, len(found), count)
		}
	}
}

func placesOf(programs []*program, line string) map[string]string {
	found := map[string]string{}
	pattern := regexp.MustCompile(regexp.QuoteMeta(line) + `(\d{15})`)
	for _, p := range programs {
		for _, m := range pattern.FindAllStringSubmatch(p.log(), -1) {
			if !strings.Contains(found[m[1]], p.name) {
				found[m[1]] += p.name
			}
		}
	}
	return found
}

// A network is the addresses of one run, all on loopback, and what runs there.
type network struct {
	t         *testing.T
	folder    string
	binaries  string
	start     time.Time
	instances []vitrine.Instance
	epochs    *table.Epochs
	meter     *meter.Meter
	epoch     uint64
	director  *director.Director
}

func newNetwork(t *testing.T) *network {
	t.Helper()
	n := &network{t: t, folder: t.TempDir(), start: time.Now().Add(-time.Minute)}
	n.binaries = filepath.Join(n.folder, "bin")
	source, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/wmnsk/go-gtp").Output()
	if err != nil {
		t.Fatalf("find go-gtp: %v", err)
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", n.binaries+"/",
		"./examples/gw-tester/enb", "./examples/gw-tester/mme", "./examples/gw-tester/sgw", "./examples/gw-tester/pgw")
	build.Dir = strings.TrimSpace(string(source))
	build.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build go-gtp's programs: %v\n%s", err, out)
	}
	return n
}

func (n *network) now() time.Duration { return time.Since(n.start) }

func (n *network) ip(host byte) netip.Addr { return loopback(host) }

func (n *network) sgw(s11, s5 byte) string {
	return fmt.Sprintf("local_addresses:\n  s11_ip: %q\n  s1u_ip: %q\n  s5c_ip: %q\n  s5u_ip: %q\nuse_kernel_gtp: false\n",
		n.ip(s11), n.ip(s11+100), n.ip(s5), n.ip(s5+100))
}

func (n *network) pgw(s5 byte) string {
	return fmt.Sprintf("local_addresses:\n  s5c_ip: %q\n  s5u_ip: %q\n  sgi_ip: %q\nsgi_if_name: lo\nroute_subnet: 192.0.2.0/24\nuse_kernel_gtp: false\n",
		n.ip(s5), n.ip(s5+100), n.ip(s5+110))
}

// enb is for the subscribers from first to before end.
func (n *network) enb(first, end int) string {
	b := fmt.Sprintf("mcc: \"001\"\nmnc: \"01\"\nrat_type: 6\ntai: 1\neci: 257\nmme_addr: %q\nlocal_addresses:\n  s1c_ip: %q\n  s1u_ip: %q\nuse_kernel_gtp: false\nsubscribers:\n",
		n.ip(11).String()+":36412", n.ip(12), n.ip(12))
	for i := first; i < end; i++ {
		b += fmt.Sprintf("  - {imsi: %q, msisdn: \"8190000%05d\", imeisv: \"35480209%08d\", src_ip: 192.0.2.%d, i_tei: 0, type: external, euu_if_name: lo, http_url: \"\", reattach_on_reload: false}\n",
			imsi(i), i, i, i+1)
	}
	return b
}

// direct starts the director before the gateways, on an S11 and an S5 address.
func (n *network) direct() {
	n.t.Helper()
	types := []string{"sgw", "pgw"}
	for i := range byte(2) {
		n.instances = append(n.instances,
			vitrine.Instance{Name: fmt.Sprintf("sgw-%d", i+1), Type: "sgw", Address: netip.AddrPortFrom(n.ip(21+i), director.Port), Weight: 1},
			vitrine.Instance{Name: fmt.Sprintf("pgw-%d", i+1), Type: "pgw", Address: netip.AddrPortFrom(n.ip(41+i), director.Port), Weight: 1})
	}
	first, err := table.New(1, types, n.instances)
	if err != nil {
		n.t.Fatal(err)
	}
	n.epoch, n.meter = 1, meter.New(1024, 15*time.Second)
	if err := n.meter.Register(first); err != nil {
		n.t.Fatal(err)
	}
	n.epochs = table.NewEpochs(10*time.Second, 0, first, nil)
	policy, err := director.NewPolicy(types, []director.TypeOption{{Type: "sgw", Sessions: true}, {Type: "pgw", Sessions: true}},
		[]director.Rule{{Interface: "s5", Type: "pgw"}, {Type: "sgw"}})
	if err != nil {
		n.t.Fatal(err)
	}
	group, err := datagram.Listen(datagram.Config{
		Addresses: []netip.AddrPort{netip.AddrPortFrom(n.ip(1), director.Port), netip.AddrPortFrom(n.ip(2), director.Port)},
		Workers:   2, Now: n.now,
	})
	if err != nil {
		n.t.Fatal(err)
	}
	n.director, err = director.New(director.Config{Addresses: group.Addresses(), Epochs: n.epochs, Meter: n.meter, Policy: policy, Counter: 3})
	if err != nil {
		n.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = group.Run(ctx, func(int) datagram.Handler { return n.director.Worker() })
	}()
	n.t.Cleanup(func() {
		cancel()
		<-done
		_ = group.Close()
	})
}

func (n *network) change(change func(*vitrine.Instance)) {
	n.t.Helper()
	for i := range n.instances {
		change(&n.instances[i])
	}
	n.epoch++
	next, err := table.New(n.epoch, []string{"sgw", "pgw"}, n.instances)
	if err != nil {
		n.t.Fatal(err)
	}
	if err := n.meter.Register(next); err != nil {
		n.t.Fatal(err)
	}
	for wait := n.epochs.Publish(n.now(), next, nil); wait > 0; wait = n.epochs.Publish(n.now(), next, nil) {
		<-time.After(wait)
	}
}

// A program is one of go-gtp's, running.
type program struct {
	t      *testing.T
	name   string
	config string
	cmd    *exec.Cmd
	mu     sync.Mutex
	out    bytes.Buffer
	news   chan struct{} // something was logged
}

func (p *program) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case p.news <- struct{}{}:
	default:
	}
	return p.out.Write(b)
}

func (p *program) log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

func (p *program) String() string { return p.name }

// program starts one and waits until it logs that it is ready.
func (n *network) program(binary, name, config, ready string) *program {
	n.t.Helper()
	p := &program{t: n.t, name: name, config: filepath.Join(n.folder, name+".yml"), news: make(chan struct{}, 1)}
	if err := os.WriteFile(p.config, []byte(config), 0o600); err != nil {
		n.t.Fatal(err)
	}
	p.cmd = exec.Command(filepath.Join(n.binaries, binary), "-config", p.config)
	p.cmd.Stdout, p.cmd.Stderr = p, p
	if err := p.cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
		if n.t.Failed() {
			n.t.Logf("%s:\n%s", p.name, p.log())
		}
	})
	p.wait(ready)
	return p
}

// wait waits until the program has logged the line.
func (p *program) wait(line string) {
	p.t.Helper()
	limit := time.After(30 * time.Second)
	for !strings.Contains(p.log(), line) {
		select {
		case <-p.news:
		case <-limit:
			p.t.Fatalf("%s did not log %q", p.name, line)
		}
	}
}

func (n *network) reload(p *program, config string) {
	n.t.Helper()
	if err := os.WriteFile(p.config, []byte(config), 0o600); err != nil {
		n.t.Fatal(err)
	}
	if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		n.t.Fatal(err)
	}
}

// An ownMME is an MME made of go-gtp's library.
type ownMME struct {
	n        *network
	conn     *gtpv2.Conn
	director *net.UDPAddr
	answers  chan message.Message
}

func (n *network) ownMME() *ownMME {
	n.t.Helper()
	m := &ownMME{n: n, answers: make(chan message.Message, 16), director: net.UDPAddrFromAddrPort(netip.AddrPortFrom(n.ip(1), director.Port))}
	ctx, cancel := context.WithCancel(context.Background())
	n.t.Cleanup(cancel)
	local := net.UDPAddrFromAddrPort(netip.AddrPortFrom(n.ip(13), director.Port))
	var err error
	m.conn, err = gtpv2.Dial(ctx, local, m.director, gtpv2.IFTypeS11MMEGTPC, 0) // which exchanges Echo first
	if err != nil {
		n.t.Fatal(err)
	}
	take := func(_ *gtpv2.Conn, _ net.Addr, msg message.Message) error {
		m.answers <- msg
		return nil
	}
	for _, kind := range []uint8{message.MsgTypeCreateSessionResponse, message.MsgTypeModifyBearerResponse, message.MsgTypeDeleteSessionResponse} {
		m.conn.AddHandler(kind, take)
	}
	return m
}

// answer waits for the answer to a request.
func (m *ownMME) answer(kind uint8, sequence uint32) message.Message {
	m.n.t.Helper()
	select {
	case a := <-m.answers:
		if a.MessageType() != kind || a.Sequence() != sequence {
			m.n.t.Fatalf("%s, %#x, instead of %d, %#x", a.MessageTypeName(), a.Sequence(), kind, sequence)
		}
		return a
	case <-time.After(20 * time.Second):
		m.n.t.Fatalf("no answer of type %d", kind)
	}
	return nil
}

func (m *ownMME) attach(imsi string) *gtpv2.Session {
	m.n.t.Helper()
	s, sequence, err := m.conn.CreateSession(m.director,
		ie.NewIMSI(imsi), ie.NewMSISDN("819012345678"), ie.NewMobileEquipmentIdentity("3548020912345678"),
		ie.NewServingNetwork("001", "01"), ie.NewRATType(gtpv2.RATTypeEUTRAN), ie.NewIndicationFromOctets(0, 0, 0, 0, 0, 0, 0),
		m.conn.NewSenderFTEID(m.n.ip(13).String(), ""),
		ie.NewFullyQualifiedTEID(gtpv2.IFTypeS5S8PGWGTPC, 0, m.n.ip(2).String(), "").WithInstance(1),
		ie.NewAccessPointName("internet.example"), ie.NewSelectionMode(0), ie.NewPDNType(gtpv2.PDNTypeIPv4),
		ie.NewPDNAddressAllocation("192.0.2.77"), ie.NewAPNRestriction(0), ie.NewAggregateMaximumBitRate(0, 0),
		ie.NewUserLocationInformationStruct(nil, nil, nil, ie.NewTAI("001", "01", 1), ie.NewECGI("001", "01", 257), nil, nil, nil),
		ie.NewBearerContext(ie.NewEPSBearerID(5), ie.NewBearerQoS(1, 2, 1, 9, 0, 0, 0, 0)),
		ie.NewFullyQualifiedCSID(m.n.ip(13).String(), 1))
	if err != nil {
		m.n.t.Fatal(err)
	}
	response := m.answer(message.MsgTypeCreateSessionResponse, sequence).(*message.CreateSessionResponse)
	if cause, err := response.Cause.Cause(); err != nil || cause != gtpv2.CauseRequestAccepted {
		m.n.t.Fatalf("%s: cause %d, %v", imsi, cause, err)
	}
	s.AddTEID(gtpv2.IFTypeS11S4SGWGTPC, response.SenderFTEIDC.MustTEID())
	return s
}

func (m *ownMME) gateway(s *gtpv2.Session) uint32 {
	m.n.t.Helper()
	teid, err := s.GetTEID(gtpv2.IFTypeS11S4SGWGTPC)
	if err != nil {
		m.n.t.Fatal(err)
	}
	return teid
}

func (m *ownMME) modify(s *gtpv2.Session) {
	m.n.t.Helper()
	sequence, err := m.conn.ModifyBearer(m.gateway(s), s, ie.NewIndicationFromOctets(0, 0, 0, 0, 0, 0, 0),
		ie.NewBearerContext(ie.NewEPSBearerID(5), ie.NewFullyQualifiedTEID(gtpv2.IFTypeS1UeNodeBGTPU, 7, m.n.ip(14).String(), "")))
	if err != nil {
		m.n.t.Fatal(err)
	}
	m.answer(message.MsgTypeModifyBearerResponse, sequence)
}

func (m *ownMME) detach(s *gtpv2.Session) {
	m.n.t.Helper()
	sequence, err := m.conn.DeleteSession(m.gateway(s), s, ie.NewEPSBearerID(5))
	if err != nil {
		m.n.t.Fatal(err)
	}
	m.answer(message.MsgTypeDeleteSessionResponse, sequence)
}
