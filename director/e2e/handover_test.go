package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/wmnsk/go-gtp/gtpv2"
	"github.com/wmnsk/go-gtp/gtpv2/ie"
	"github.com/wmnsk/go-gtp/gtpv2/message"

	store "vitrine/store/client"
)

// The aggregate types of GTPv2-C (Contain-ed, table 1).
const (
	attachDetach = "attach-detach"
	handoverSR   = "handover-sr"
)

const gtpcPort = 2123

// An epc is a director in front of aggregates of gateways, the store that the gateways
// share, and an MME.
type epc struct {
	site
	behind   *steward // the director
	store    string   // the store's address
	kept     *store.KV
	gateways map[string]*instance
	mme      *gtpv2.Conn
	through  *net.UDPAddr
	answers  chan message.Message
	ends     uint32 // TEIDs given to eNodeBs
	teids    uint32 // TEIDs of the MME. Below 1<<29, because the director replaces one that an instance may hand out
}

const storeHost, mmeHost = 20, 31

func newEPC(t *testing.T, changes ...func(*options)) *epc {
	t.Helper()
	e := &epc{site: newSite(t), gateways: map[string]*instance{}, answers: make(chan message.Message, 16)}
	e.store = "http://" + e.at(storeHost, 8070)
	e.ready(spawnSelf(t, "store", "store", e.dir, e.at(storeHost, 8070), t.TempDir()))
	c, err := store.New(store.Config{Base: e.store})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	e.kept = c.KV("sessions")
	o := options{
		Transition: "2s", GTPC: e.at(firstDirector, gtpcPort),
		Types: fmt.Sprintf("- {name: %s, protocol: gtpc, number: 1}\n- {name: %s, protocol: gtpc, number: 2}", attachDetach, handoverSR),
		Rules: fmt.Sprintf("- {message: modify-bearer, type: %s}\n- {type: %s}", handoverSR, attachDetach),
	}
	for _, change := range changes {
		change(&o)
	}
	e.behind = e.director(firstDirector, o)
	for i, ty := range []string{attachDetach, attachDetach, handoverSR, handoverSR} {
		e.gateway(firstInstance+i, fmt.Sprintf("%s-%d", ty, i), ty)
	}
	e.through = net.UDPAddrFromAddrPort(netip.MustParseAddrPort(e.at(firstDirector, gtpcPort)))
	local := net.UDPAddrFromAddrPort(netip.MustParseAddrPort(e.at(mmeHost, gtpcPort)))
	if e.mme, err = gtpv2.Dial(context.WithoutCancel(t.Context()), local, e.through, gtpv2.IFTypeS11MMEGTPC, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.mme.Close() })
	take := func(_ *gtpv2.Conn, _ net.Addr, m message.Message) error {
		e.answers <- m
		return nil
	}
	for _, kind := range []uint8{message.MsgTypeCreateSessionResponse, message.MsgTypeModifyBearerResponse, message.MsgTypeDeleteSessionResponse} {
		e.mme.AddHandler(kind, take)
	}
	return e
}

// ready waits until a program prints that it is ready.
func (s site) ready(p *process) *process {
	s.t.Helper()
	eventually(s.t, p.name+" is ready", func() bool {
		if !p.running() {
			s.t.Fatalf("%s ended: %v", p.name, p.err)
		}
		return strings.Contains(p.output(), "ready on")
	})
	return p
}

// gateway starts an instance with the TEID prefix that the director assigns.
func (e *epc) gateway(host int, name, ty string) {
	e.t.Helper()
	in := &instance{name: name, ty: ty, address: e.at(host, gtpcPort)}
	prefix := fleet{e.behind}.put(entry(in, 0)).TEIDPrefix
	if prefix == 0 {
		e.t.Fatalf("%s has no prefix", name)
	}
	in.process = e.ready(spawnSelf(e.t, "gateway", name, e.dir, "-type", ty, "-listen", in.address,
		"-director", e.host(firstDirector), "-prefix", fmt.Sprint(prefix), "-store", e.store))
	eventually(e.t, name+" is up", func() bool { return e.behind.instance(name).Health == "up" })
	e.gateways[name] = in
}

// An attached is the MME's state of an attached subscriber.
type attached struct {
	imsi           string
	own, peer      uint32 // TEIDs on S11
	user           uint32 // the gateway's TEID on S1-U
	at, over       string // the instances of the attach and of the last handover
	*gtpv2.Session        // session of go-gtp
	ends           []uint32
}

// answer waits for the accepting answer to a request.
func answer[M message.Message](e *epc, of *attached, sequence uint32, cause func(M) *ie.IE) M {
	e.t.Helper()
	select {
	case m := <-e.answers:
		response, ok := m.(M)
		if !ok || m.Sequence() != sequence || m.TEID() != of.own {
			e.t.Fatalf("%s got a %s with number %#x and TEID %#x, want %T, %#x, %#x", of.imsi, m.MessageTypeName(), m.Sequence(), m.TEID(), response, sequence, of.own)
		}
		if c, err := cause(response).Cause(); err != nil || c != gtpv2.CauseRequestAccepted {
			e.t.Fatalf("%s: %s with cause %d, %v", of.imsi, m.MessageTypeName(), c, err)
		}
		return response
	case <-time.After(patience):
		e.t.Fatalf("%s: no answer to %#x", of.imsi, sequence)
		panic("unreachable")
	}
}

// userEnd returns the gateway's TEID on S1-U in a bearer context.
func (e *epc) userEnd(contexts ...*ie.IE) (teid uint32) {
	e.t.Helper()
	for _, c := range contexts {
		parts, err := c.BearerContext()
		if err != nil {
			e.t.Fatal(err)
		}
		for _, part := range parts {
			if part.Type == ie.FullyQualifiedTEID {
				teid = part.MustTEID()
			}
		}
	}
	return teid
}

func (e *epc) attach(imsi string) *attached {
	e.t.Helper()
	e.teids++
	own := ie.NewFullyQualifiedTEID(gtpv2.IFTypeS11MMEGTPC, e.teids, e.host(mmeHost), "")
	s, sequence, err := e.mme.CreateSession(e.through, ie.NewIMSI(imsi), own,
		ie.NewFullyQualifiedTEID(gtpv2.IFTypeS5S8PGWGTPC, 0, e.host(firstDirector), "").WithInstance(1),
		ie.NewBearerContext(ie.NewEPSBearerID(5)))
	if err != nil {
		e.t.Fatal(err)
	}
	a := &attached{imsi: imsi, own: own.MustTEID(), Session: s}
	response := answer(e, a, sequence, func(m *message.CreateSessionResponse) *ie.IE { return m.Cause })
	a.peer, a.user = response.SenderFTEIDC.MustTEID(), e.userEnd(response.BearerContextsCreated...)
	a.at = e.who(imsi, "attached")
	return a
}

// handOver moves a subscriber to another eNodeB, and returns the instance that served it.
func (e *epc) handOver(a *attached) (at string) {
	e.t.Helper()
	before := e.count(a.imsi, "handed-over")
	e.ends++
	sequence, err := e.mme.ModifyBearer(a.peer, a.Session,
		ie.NewBearerContext(ie.NewEPSBearerID(5), ie.NewFullyQualifiedTEID(gtpv2.IFTypeS1UeNodeBGTPU, e.ends, e.host(mmeHost+1), "")))
	if err != nil {
		e.t.Fatal(err)
	}
	response := answer(e, a, sequence, func(m *message.ModifyBearerResponse) *ie.IE { return m.Cause })
	if user := e.userEnd(response.BearerContextsModified...); user != a.user || user == 0 {
		e.t.Errorf("%s: the gateway's TEID for user data is %#x after a handover, want %#x as before", a.imsi, user, a.user)
	}
	a.ends = append(a.ends, e.ends)
	for name, n := range e.count(a.imsi, "handed-over") {
		if n > before[name] {
			at += name
		}
	}
	return at
}

func (e *epc) detach(a *attached) (at string) {
	e.t.Helper()
	sequence, err := e.mme.DeleteSession(a.peer, a.Session, ie.NewEPSBearerID(5))
	if err != nil {
		e.t.Fatal(err)
	}
	answer(e, a, sequence, func(m *message.DeleteSessionResponse) *ie.IE { return m.Cause })
	return e.who(a.imsi, "detached")
}

// count returns how often each gateway has served a procedure of a subscriber. Gateways print
// it before they answer.
func (e *epc) count(imsi, what string) map[string]int {
	n := map[string]int{}
	for name, in := range e.gateways {
		n[name] = strings.Count(in.output(), imsi+" "+what+";")
	}
	return n
}

// who returns the gateways that served a procedure of a subscriber.
func (e *epc) who(imsi, what string) (names string) {
	for name, n := range e.count(imsi, what) {
		names += strings.Repeat(name, n)
	}
	return names
}

// record returns the store's record of a subscriber.
func (e *epc) record(a *attached) (b bearer) {
	e.t.Helper()
	v, err := e.kept.Get(e.t.Context(), key(a.peer), store.Conditions{})
	if err == nil {
		err = json.Unmarshal(v.Data, &b)
	}
	if err != nil {
		e.t.Fatalf("%s: %v", a.imsi, err)
	}
	return b
}

// TestHandoverReadsTheStore attaches subscribers at aggregates of one type, which write the
// session to the store. Aggregates of another type serve the handover with the session from
// the store, even after the instances of the attach have drained or died. Any remaining
// instance can serve the detach.
func TestHandoverReadsTheStore(t *testing.T) {
	t.Parallel()
	e := newEPC(t)
	const subscribers = 24
	var all []*attached
	attachedAt, handedOverAt := map[string]int{}, map[string]int{}
	for i := range subscribers {
		a := e.attach(fmt.Sprintf("00101%010d", i))
		all = append(all, a)
		attachedAt[a.at]++
	}
	handOver := func(when string) {
		t.Helper()
		for _, a := range all {
			at := e.handOver(a)
			handedOverAt[at]++
			if in := e.gateways[at]; in == nil || in.ty != handoverSR || a.over != "" && a.over != at && e.gateways[a.over].running() {
				t.Errorf("%s: %s was handed over by %q, previously by %q", when, a.imsi, at, a.over)
			}
			a.over = at
			if b := e.record(a); b.IMSI != a.imsi || b.MME != a.own || fmt.Sprint(b.ENodeBs) != fmt.Sprint(a.ends) {
				t.Errorf("%s: the store has %+v, want %+v", when, b, a)
			}
		}
	}
	handOver("at first")
	if len(attachedAt) != 2 || len(handedOverAt) != 2 || attachedAt["attach-detach-0"] == 0 || attachedAt["attach-detach-1"] == 0 {
		t.Fatalf("got attaches at %v, handovers at %v", attachedAt, handedOverAt)
	}

	f := fleet{e.behind}
	f.drain("attach-detach-0")
	f.remove("attach-detach-0")
	f.agree()
	e.gateways["attach-detach-0"].stop()
	handOver("after one that attached has drained")

	e.gateways["handover-sr-2"].kill()
	eventually(t, "handover-sr-2 is seen to be away", func() bool { return e.behind.instance("handover-sr-2").Health == "away" })
	e.gateways["attach-detach-1"].kill()
	before := handedOverAt["handover-sr-2"]
	handOver("after all that attached are gone")
	if handedOverAt["handover-sr-2"] != before {
		t.Error("a killed instance performs handovers")
	}

	e.gateway(firstInstance+4, "attach-detach-4", attachDetach)
	eventually(t, "attach-detach-1 is seen to be away", func() bool { return e.behind.instance("attach-detach-1").Health == "away" })
	for _, a := range all[1:] {
		if at := e.detach(a); at != "attach-detach-4" {
			t.Errorf("%s was detached by %q, want attach-detach-4", a.imsi, at)
		}
	}
	e.noContext(all[1])
	left := 0
	for entry, err := range e.kept.List(t.Context(), "", false) {
		if left++; err != nil || entry.Key != key(all[0].peer) {
			t.Errorf("unexpected entry in the store: %+v, error %v", entry, err)
		}
	}
	if left != 1 {
		t.Errorf("the store has %d sessions, want 1 of the subscriber that did not detach", left)
	}
	t.Logf("%d subscribers, attached at %v, handed over at %v", subscribers, attachedAt, handedOverAt)
}

// noContext checks that instances have no copy of a session after its removal from the store.
func (e *epc) noContext(a *attached) {
	e.t.Helper()
	if _, err := e.mme.ModifyBearer(a.peer, a.Session, ie.NewBearerContext(ie.NewEPSBearerID(5))); err != nil {
		e.t.Fatal(err)
	}
	select {
	case m := <-e.answers:
		response, ok := m.(*message.ModifyBearerResponse)
		if !ok {
			e.t.Fatalf("Modify Bearer: got %s as answer", m.MessageTypeName())
		}
		if c, err := response.Cause.Cause(); err != nil || c != gtpv2.CauseContextNotFound {
			e.t.Errorf("Modify Bearer for an ended session: got cause %d, error %v", c, err)
		}
	case <-time.After(patience):
		e.t.Fatal("no answer to Modify Bearer for an ended session")
	}
}
