package s1ap

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"vitrine"
	"vitrine/director"
	"vitrine/director/client"
	"vitrine/internal/hosttest"
	"vitrine/load"
	"vitrine/reference/epc/enb"
	"vitrine/reference/epc/s1"
	"vitrine/reference/epc/ue"
	wire "vitrine/wire/s1ap"
	"vitrine/wire/s1ap/frame"
)

// directorHost is the host of the director in an epc.
const directorHost = 51

// startDirector starts a director in front of MMEs. Types and rules are those given.
func (e *epc) startDirector(types string, mmes ...vitrine.Instance) *client.Client {
	e.t.Helper()
	return e.direct(fmt.Sprintf("s1ap: [\"tcp://%s\"]", e.at(directorHost, 36412)), types+"\nhealth: {every: 200ms, fail: 2}", mmes...)
}

// direct starts a director that listens for a protocol.
func (e *epc) direct(listen, types string, all ...vitrine.Instance) *client.Client {
	e.t.Helper()
	dir := e.t.TempDir()
	var b strings.Builder
	fmt.Fprintf(&b, "listen: {%s, control: \"%s\"}\n%s\ntransition: 2s\ninstances:\n", listen, e.at(directorHost, 8090), types)
	for _, in := range all {
		fmt.Fprintf(&b, "- {name: %s, id: %d, type: %s, address: \"%s\"}\n", in.Name, in.ID, in.Type, in.Address)
	}
	file := filepath.Join(dir, "director.yaml")
	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		e.t.Fatal(err)
	}
	clock, err := director.HostClock()
	if err != nil {
		e.t.Fatal(err)
	}
	d, err := director.New(e.t.Context(), director.Options{Path: file, Clock: clock, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		e.t.Fatal(err)
	}
	hosttest.Run(e.t, patience, "the director", func(ctx context.Context) error { return errors.Join(d.Run(ctx), d.Close()) })
	c, err := client.New(client.Access{URL: d.Control()})
	if err != nil {
		e.t.Fatal(err)
	}
	return c
}

// entry is MME n as the director knows it.
func (e *epc) entry(n int, ty string) vitrine.Instance {
	return vitrine.Instance{Name: fmt.Sprint("mme-", n), ID: uint16(n), Type: ty, Weight: 1, Address: netip.MustParseAddrPort(e.at(n, 36412))}
}

// oneType is a director's configuration with one aggregate type.
const oneType = "types: [{name: mme, protocol: s1ap}]\nrules: [{type: mme}]"

// drive plays a trial against the director and returns its report. Any goroutine may call it.
func (e *epc) drive(rate, duration, warmup float64, params map[string]string) load.Report {
	e.t.Helper()
	report, err := e.try(load.Trial{Rate: rate, Duration: duration, Warmup: warmup, Params: params, Targets: []string{e.at(directorHost, 36412)}})
	if err != nil {
		e.t.Error(err)
	}
	return report
}

// TestMMEsComeAndGoBehindADirector plays the mix through a director. Meanwhile it adds an MME, and
// drains and removes another one. Every call must succeed.
func TestMMEsComeAndGoBehindADirector(t *testing.T) {
	t.Parallel()
	v := startStore(t, engines()["embedded"])
	e, processes := startStoreEPC(t, 81, 2, v.URL)
	c := e.startDirector(oneType, e.entry(1, "mme"), e.entry(2, "mme"))
	var report load.Report
	var playing sync.WaitGroup
	playing.Go(func() {
		report = e.drive(25, 14, 4, map[string]string{"scenario": Mix, "timeout": patience.String(), "enodebs": "3", "arrivals": "poisson"})
	})
	ended := func(host int) int { return e.metric(host, "mme_procedures_total", `outcome="success"`) }
	hosttest.Until(t, patience, "both MMEs serve UEs", func() bool { return ended(1) > 10 && ended(2) > 10 })
	e.spawn(3, v.URL)
	if _, err := c.Put(t.Context(), e.entry(3, "mme")); err != nil {
		t.Fatal(err)
	}
	hosttest.Until(t, patience, "the new MME serves UEs", func() bool { return ended(3) > 10 })
	if _, err := c.Drain(t.Context(), "mme-1"); err != nil {
		t.Fatal(err)
	}
	hosttest.Until(t, patience, "the MME is drained", func() bool {
		in, err := c.Instance(t.Context(), "mme-1")
		return err == nil && in.Drained
	})
	if err := c.Remove(t.Context(), "mme-1"); err != nil {
		t.Fatal(err)
	}
	if err := processes[0].Kill(); err != nil {
		t.Fatal(err)
	}
	playing.Wait()
	if report.Offered == 0 || report.Succeeded != report.Offered {
		t.Errorf("%d of %d succeeded: %v, %s", report.Succeeded, report.Offered, report.Failed, report.Error)
	}
	for _, procedure := range []string{"service-request", "tracking-area-update", "detach", "attach"} {
		if e.succeeded(3, procedure) == 0 {
			t.Errorf("the new MME handled no %s", procedure)
		}
	}
	if e.metric(3, "mme_taken_over_total")+e.metric(2, "mme_taken_over_total") == 0 {
		t.Error("no MME took over a UE")
	}
}

// TestKilledMMEBehindADirectorLosesNoUE kills one of two MMEs under load. The eNodeBs keep their
// association. The director resets the connections of the killed MME, and their calls begin again
// at the other MME. No call may fail, and no UE may attach again. The test kills the MME after all
// UEs have attached in the warm-up.
func TestKilledMMEBehindADirectorLosesNoUE(t *testing.T) {
	t.Parallel()
	v := startStore(t, engines()["embedded"])
	e, processes := startStoreEPC(t, 82, 2, v.URL)
	c := e.startDirector(oneType, e.entry(1, "mme"), e.entry(2, "mme"))
	var report load.Report
	var playing sync.WaitGroup
	playing.Go(func() {
		report = e.drive(25, 8, 7, map[string]string{"scenario": ServiceRequest, "timeout": "5s", "retries": "3", "enodebs": "2"})
	})
	services := func(host int) int { return e.succeeded(host, "service-request") }
	const warmUp = 25*7 - 126 // service requests of the warm-up: its calls minus one attach for each UE
	hosttest.Until(t, patience, "both MMEs serve UEs after the warm-up", func() bool {
		return services(1) > 10 && services(2) > 10 && services(1)+services(2) > warmUp+10
	})
	attached := e.metric(2, "mme_procedures_total", `procedure="attach"`)
	served := services(2)
	if err := processes[0].Kill(); err != nil {
		t.Fatal(err)
	}
	playing.Wait()
	t.Logf("%d of %d calls failed: %v", report.Offered-report.Succeeded, report.Offered, report.Failed)
	if failed := report.Offered - report.Succeeded; report.Offered == 0 || failed > 0 {
		t.Errorf("%d of %d failed: %v, %s", failed, report.Offered, report.Failed, report.Error)
	}
	if again := e.metric(2, "mme_procedures_total", `procedure="attach"`) - attached; again > 0 {
		t.Errorf("%d UEs attached again, want 0", again)
	}
	if n := e.metric(2, "mme_procedures_total", `outcome="unknown-identity"`); n > 0 {
		t.Errorf("%d UEs had an unknown identity, want 0", n)
	}
	if e.metric(2, "mme_taken_over_total") == 0 || services(2) <= served {
		t.Error("no MME took over a UE")
	}
	in, err := c.Instance(t.Context(), "mme-1")
	if err != nil || in.Health != "away" || in.Dialogs != 0 {
		t.Errorf("%+v, %v", in, err)
	}
}

// A phone is a UE with its current eNodeB.
type phone struct {
	ue.UE
	t    *testing.T
	at   *tower
	ids  enb.IDs
	in   enb.Message
	last uint32 // eNB UE S1AP ID
}

// A tower is an eNodeB with its own association.
type tower struct {
	enb.Cell
	t      *testing.T
	conn   net.Conn
	reader s1.Reader
}

// tower connects an eNodeB to a host and sets it up.
func (e *epc) tower(t *testing.T, host int, cell enb.Cell) *tower {
	t.Helper()
	conn, err := net.Dial("tcp4", e.at(host, 36412))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	w := &tower{Cell: cell, t: t, conn: conn}
	w.send(w.AppendSetup(nil))
	var m enb.Message
	w.receive(&m, wire.Successful, wire.S1Setup)
	return w
}

func (w *tower) send(message []byte) {
	w.t.Helper()
	if _, err := w.conn.Write(frame.Append(nil, frame.UE, message)); err != nil {
		w.t.Fatal(err)
	}
}

// receive reads the next message, which must belong to the procedure.
func (w *tower) receive(m *enb.Message, k wire.Kind, procedure wire.Procedure) {
	w.t.Helper()
	if err := w.conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		w.t.Fatal(err)
	}
	for {
		message, err := w.reader.Next()
		if err != nil {
			w.t.Fatal(err)
		}
		if message != nil {
			if err := m.Parse(message); err != nil || m.Kind != k || m.Procedure != procedure {
				w.t.Fatalf("got kind %d of %v with cause %v, error %v, want kind %d of %v", m.Kind, m.Procedure, m.Cause, err, k, procedure)
			}
			return
		}
		n, err := w.conn.Read(w.reader.Room())
		if err != nil {
			w.t.Fatal(err)
		}
		w.reader.Received(n)
	}
}

// attach attaches the UE at an eNodeB.
func (p *phone) attach(at *tower) {
	p.t.Helper()
	p.at, p.last = at, p.last+1
	at.send(at.AppendInitial(nil, p.last, p.AppendAttach(nil), nil))
	for range 2 { // authentication, security mode
		at.receive(&p.in, wire.Initiating, wire.DownlinkNASTransport)
		p.ids = p.in.IDs
		reply, _, err := p.Receive(nil, p.in.NAS)
		if err != nil {
			p.t.Fatal(err)
		}
		at.send(at.AppendUplink(nil, p.ids, reply))
	}
	at.receive(&p.in, wire.Initiating, wire.InitialContextSetup)
	reply, event, err := p.Receive(nil, p.in.NAS)
	if err != nil || event != ue.Accepted {
		p.t.Fatalf("got event %d, error %v", event, err)
	}
	at.send(at.AppendContextSetUp(nil, p.ids, p.in.Bearer))
	at.send(at.AppendUplink(nil, p.ids, reply))
}

// handOver hands the UE over by S1.
func (p *phone) handOver(to *tower) {
	p.t.Helper()
	from, was := p.at, p.ids
	from.send(from.AppendHandoverRequired(nil, was, &to.Cell, []byte{1}))
	to.receive(&p.in, wire.Initiating, wire.HandoverResourceAllocation)
	p.last++
	p.at, p.ids = to, enb.IDs{MME: p.in.IDs.MME, ENB: p.last}
	to.send(to.AppendHandoverAdmitted(nil, p.ids, []byte{2}, p.in.Bearer))
	from.receive(&p.in, wire.Successful, wire.HandoverPreparation)
	to.send(to.AppendHandoverNotify(nil, p.ids))
	from.receive(&p.in, wire.Initiating, wire.UEContextRelease)
	from.send(from.AppendReleased(nil, was))
}

// pathSwitch hands the UE over by X2.
func (p *phone) pathSwitch(to *tower) {
	p.t.Helper()
	p.last++
	p.at, p.ids = to, enb.IDs{MME: p.ids.MME, ENB: p.last}
	to.send(to.AppendPathSwitch(nil, p.ids, 5))
	to.receive(&p.in, wire.Successful, wire.PathSwitchRequest)
}

// detach detaches the UE from its connection.
func (p *phone) detach() {
	p.t.Helper()
	p.at.send(p.at.AppendUplink(nil, p.ids, p.AppendDetach(nil, false)))
	p.at.receive(&p.in, wire.Initiating, wire.DownlinkNASTransport)
	p.at.receive(&p.in, wire.Initiating, wire.UEContextRelease)
	p.at.send(p.at.AppendReleased(nil, p.ids))
}

// TestHandoversBehindADirector moves UEs of two MMEs between two eNodeBs, by S1 and by X2, while
// one of the MMEs drains. The connections must stay at their MMEs.
func TestHandoversBehindADirector(t *testing.T) {
	t.Parallel()
	const mmes, ues = 2, 12
	e := startEPC(t, 83, mmes)
	c := e.startDirector("types: [{name: attach-detach, protocol: s1ap}, {name: handover-sr, protocol: s1ap}]\nrules: [{message: service-request, type: handover-sr}, {type: attach-detach}]",
		e.entry(1, "attach-detach"), e.entry(2, "attach-detach"))
	params := Defaults()
	one, two := e.tower(t, directorHost, params.cell(0)), e.tower(t, directorHost, params.cell(1))
	var phones []*phone
	for n := range ues {
		p := &phone{UE: ue.New(params.imsi(n), params.network), t: t, last: uint32(n * 100)}
		p.attach(one)
		phones = append(phones, p)
	}
	attached := func(host int) int { return e.succeeded(host, "attach") }
	hosttest.Until(t, patience, "all attaches have ended", func() bool { return attached(1)+attached(2) == ues })
	if attached(1) == 0 || attached(2) == 0 {
		t.Errorf("got %d UEs at the first MME, %d at the second", attached(1), attached(2))
	}
	if _, err := c.Drain(t.Context(), "mme-1"); err != nil {
		t.Fatal(err)
	}
	for _, p := range phones {
		p.handOver(two)
	}
	moved := func(procedure string) int {
		n := 0
		for host := 1; host <= mmes; host++ {
			n += e.succeeded(host, procedure)
		}
		return n
	}
	hosttest.Until(t, patience, "all handovers have ended", func() bool { return moved("handover") == ues })
	for _, p := range phones {
		p.pathSwitch(one)
		p.detach()
	}
	hosttest.Until(t, patience, "the draining MME has no connection", func() bool {
		in, err := c.Instance(t.Context(), "mme-1")
		return err == nil && in.Dialogs == 0
	})
	if n := moved("path-switch"); n != ues {
		t.Errorf("got %d path switches, want one per UE", n)
	}
}
