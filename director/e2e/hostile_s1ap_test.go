package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"vitrine"
	"vitrine/internal/hosttest"
	"vitrine/load"
	generator "vitrine/load/s1ap"
	"vitrine/reference/epc/enb"
	"vitrine/reference/epc/epctest"
	"vitrine/reference/epc/mme"
	"vitrine/wire/identity"
	"vitrine/wire/nas"
	"vitrine/wire/s1ap"
	"vitrine/wire/s1ap/frame"
)

const s1apPort = 36412

// The pool under attack and its limits. With only the limit of each eNodeB, the eNodeBs of one
// address could take all connections.
const (
	mmesBehind       = 2
	loadENodeBs      = 4
	maxENodeBs       = 128
	enodebsPerSource = 16
	uesPerENodeB     = 512
	maxUEs           = enodebsPerSource * uesPerENodeB
)

// budgetS1AP is the memory bound of a director for S1AP by its configuration, in bytes.
func budgetS1AP() int64 {
	const (
		workers = 2
		entries = 524288
		tables  = (workers+1)*entries*8 + 65536*26 // keys, transactions, sources
		ues     = maxUEs * 160
		queues  = 64 << 20 // bound on all send queues
		// An association has a receive buffer of less than 32 KiB (no attack sends a long message after S1 Setup),
		// an empty queue of 64 KiB, and two stacks.
		association  = 112 << 10
		associations = maxENodeBs * (1 + mmesBehind) * association
		collected    = 2 // the heap grows to twice the live heap between two collections
	)
	if hosttest.Raced {
		return 8 * (tables + ues + queues + associations)
	}
	return tables + collected*(ues+queues+associations)
}

// A hostilePool is a director in front of MMEs under attack.
type hostilePool struct {
	site
	target
	pool   string  // the director's address for eNodeBs
	rate   float64 // rate of the load, in calls per second
	mix    string  // procedures of the load
	trials int
	calls  atomic.Int64 // calls so far
}

// The procedures of the load.
const (
	plainMix    = "service-request=6,tracking-area-update=2,attach=1,detach=1"
	handoverMix = plainMix + ",x2-handover=1,s1-handover=1"
	// messagesPerProcedure is how many messages of a call of the load pass the director.
	messagesPerProcedure = 7
)

// TestHostileS1AP attacks a director's S1AP listener while UEs attach, ask for service, hand
// over and detach at half of the rate that the site carries. Each of their procedures must
// succeed.
func TestHostileS1AP(t *testing.T) {
	hosttest.OpenFiles(t, 2000)
	h := newHostilePool(t)
	attacks := func(all ...attack) {
		for _, a := range all {
			h.withstand(t, a)
		}
	}
	attacks(h.takenIdentity(), h.othersUEs(), h.erroneousIDs(), h.othersResets())
	h.mix = plainMix // an attacker's path switch may occupy the MME's only slot for a waiting message of a UE
	attacks(h.refusedPathSwitches())
	h.mix = handoverMix
	attacks(h.crowdedConfigurations(), h.setUpFlood(), h.tableFlood(), h.crowdOfENodeBs(), h.slowENodeBs(), h.unfinishedFrames(),
		h.oversizedFrames(), h.pipelinedGarbage())
	// The race detector slows the director so that its answers do not fill a queue in time. TestQueuesAreBounded in
	// director/s1ap needs no load.
	if !hosttest.Raced {
		attacks(h.deafENodeBs())
	}
	h.limit(t, 2*h.rate)
	attacks(h.initialFlood())
	eventually(t, "no association is left", func() bool {
		return h.metric("vitrine_director_enodebs") == 0 && h.metric("vitrine_director_instance_associations") == 0 && h.metric("vitrine_director_connected_ues") == 0
	})
}

// newHostilePool starts MMEs and a director, and measures their capacity. The load is half of
// the capacity.
func newHostilePool(t *testing.T) *hostilePool {
	t.Helper()
	h := &hostilePool{site: newSite(t), mix: handoverMix}
	h.pool = h.at(firstDirector, s1apPort)
	hss := epctest.NewHSS(homeNetwork())
	var table []vitrine.Instance
	for i := range mmesBehind {
		table = append(table, h.mme(firstInstance+i, uint8(i+1), hss))
	}
	h.steward = h.director(firstDirector, options{
		S1AP: h.pool, Instances: table, Fail: 20, Timeout: "5s",
		Types: "- {name: mme, protocol: s1ap}", Rules: "- {type: mme}",
		More: fmt.Sprintf("s1ap: {max_enodebs: %d, associations_per_source: %d, max_connections: %d, connections_per_enodeb: %d}\n", maxENodeBs, enodebsPerSource, maxUEs, uesPerENodeB),
	})
	carried := h.capacity(t)
	h.rate = carried / 2
	h.messages = h.rate * messagesPerProcedure
	h.serve = func(t *testing.T, lasting time.Duration) (int64, error) {
		t.Helper()
		r, err := h.play(t.Context(), h.rate, lasting, patience)
		if failed := r.Offered - r.Succeeded; err == nil && failed > 0 {
			err = fmt.Errorf("%d of %d procedures failed: %v", failed, r.Offered, r.Failed)
		}
		return r.Succeeded, err
	}
	h.before, h.budget = h.memory(), budgetS1AP()
	t.Logf("capacity is %.0f procedures/s; the load is half of that, %.0f messages/s", carried, h.messages)
	return h
}

func homeNetwork() identity.PLMN {
	p, _ := identity.MakePLMN("001", "01")
	return p
}

// mme runs an MME of the reference EPC at a host of the site. Its gateway is in this process.
func (h *hostilePool) mme(host int, number uint8, hss *epctest.HSS) vitrine.Instance {
	h.t.Helper()
	at := h.at(host, s1apPort)
	l, err := new(net.ListenConfig).Listen(h.t.Context(), "tcp4", at)
	if err != nil {
		h.t.Fatal(err)
	}
	m := mme.New(mme.Config{
		GUMMEI: identity.GUMMEI{PLMN: homeNetwork(), Group: 1}, Instance: number, Subscribers: hss, Gateway: epctest.NewGateway(),
		CallTime: patience, Timers: mme.Timers{NAS: patience, S1: patience}, // the host may be busy
	})
	ctx, stop := context.WithCancel(context.WithoutCancel(h.t.Context()))
	var serving errgroup.Group
	serving.Go(func() error { return m.Serve(ctx, l) })
	hosttest.AtEnd(h.t, func() error {
		stop()
		return serving.Wait()
	})
	return vitrine.Instance{Name: fmt.Sprintf("mme-%d", number), Type: "mme", ID: uint16(number), Weight: 100, Address: netip.MustParseAddrPort(at)}
}

// capacity returns how many procedures per second the site carries.
func (h *hostilePool) capacity(t *testing.T) (carried float64) {
	t.Helper()
	first, most := 25.0, 400.0
	if hosttest.Raced {
		first, most = 10, 80
	}
	for rate := first; rate <= most; rate *= 2 {
		r, err := h.play(t.Context(), rate, time.Second, 2*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if r.Succeeded < r.Scheduled {
			break
		}
		carried = rate
	}
	return max(carried, first/2)
}

// limit sets the quota of each source, in connections of UEs per second.
func (h *hostilePool) limit(t *testing.T, rate float64) {
	t.Helper()
	text := fmt.Appendf(mustRead(t, h.file), "quota: {s1ap: {rate: %.0f, burst: %.0f}}\n", rate, 5*rate)
	if err := os.WriteFile(h.file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := h.client.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// stayed is how long UEs of the load stay connected. Meanwhile attackers use their IDs.
const stayed = 500 * time.Millisecond

// play runs the mix of procedures at a rate, with new subscribers.
func (h *hostilePool) play(ctx context.Context, rate float64, lasting, timeout time.Duration) (load.Report, error) {
	h.trials++
	trial := load.Trial{
		Rate: rate, Duration: lasting.Seconds(), Targets: []string{h.pool}, Seed: uint64(h.trials), Params: map[string]string{
			"scenario": generator.Mix, "mix": h.mix, "enodebs": fmt.Sprint(loadENodeBs), "stay": stayed.String(), "timeout": timeout.String(),
			"subscribers": fmt.Sprintf("00101%010d", h.trials*1_000_000+1),
		},
	}
	var out, log bytes.Buffer
	if err := generator.Run(ctx, trial, &out, &log); err != nil {
		return load.Report{}, fmt.Errorf("%w: %s", err, log.String())
	}
	r, err := load.ParseReport(&out)
	if err == nil && r.Error != "" {
		err = errors.New(r.Error)
	}
	h.calls.Add(r.Offered)
	return r, err
}

// awaitLoad waits until the eNodeBs of the load are set up.
func (h *hostilePool) awaitLoad() {
	eventually(h.t, "the load's eNodeBs are set up", func() bool { return h.metric("vitrine_director_enodebs") >= loadENodeBs })
}

func (h *hostilePool) strangers() hosttest.Strangers {
	s := hosttest.Strangers{Address: h.pool}
	for i := range attackers {
		s.Sources = append(s.Sources, h.host(firstAttacker+i))
	}
	return s
}

// firstRogue is the identity of the first of the attackers' eNodeBs.
const firstRogue = 0x80000

func rogueCell(id uint32) enb.Cell {
	return enb.Cell{
		ID: s1ap.ENB{PLMN: homeNetwork(), ID: id}, Name: "rogue", TAI: identity.TAI{PLMN: homeNetwork(), TAC: 1}, Address: netip.AddrFrom4([4]byte{198, 18, 0, 1}),
	}
}

// A rogue is an attacker's eNodeB.
type rogue struct {
	enb.Cell
	conn *net.TCPConn
}

// setUp waits until the director has accepted the eNodeB.
func (r *rogue) setUp() error {
	if err := r.conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if err := r.send(r.AppendSetup(nil)); err != nil {
		return err
	}
	buffer := make([]byte, 4096)
	for got := 0; ; {
		n, err := r.conn.Read(buffer[got:])
		if err != nil {
			return err
		}
		got += n
		var m enb.Message
		switch message, _, err := frame.Cut(buffer[:got]); {
		case err != nil:
			return err
		case message == nil:
			continue
		default:
			err = m.Parse(message)
			if err != nil || m.Procedure != s1ap.S1Setup || m.Kind != s1ap.Successful {
				return fmt.Errorf("answer to S1 Setup: %v, kind %d, cause %v: %w", m.Procedure, m.Kind, m.Cause, err)
			}
			return r.conn.SetDeadline(time.Time{})
		}
	}
}

func (r *rogue) send(message []byte) error {
	_, err := r.conn.Write(frame.Append(nil, frame.UE, message))
	return err
}

// A gang describes how a set of attackers' eNodeBs send messages.
type gang struct {
	h      *hostilePool
	size   int
	oneIP  bool    // all are at one address
	before func()  // called before they connect
	raw    bool    // they do not complete S1 Setup
	least  float64 // lowest rate, in messages per second
	after  func()  // called while they are connected
	next   func(r *rogue, n int) []byte
}

// run sends messages at a rate until ctx ends. All that was sent reaches the director.
func (g gang) run(ctx context.Context, rate float64) (sent int, err error) {
	if g.before != nil {
		g.before()
	}
	all := make([]*rogue, g.size)
	var reading sync.WaitGroup
	defer func() {
		for _, r := range all {
			if r != nil {
				_ = r.conn.Close() // the director has closed it, or there is an error
			}
		}
		reading.Wait()
	}()
	for i := range all {
		if all[i], err = g.connect(i, &reading); err != nil {
			return 0, err
		}
	}
	sent, err = hosttest.Pace(ctx, max(rate, g.least), func(n int) (err error) {
		i := n % len(all)
		err = all[i].send(g.next(all[i], n))
		if err != nil && g.raw { // it was not set up in time
			all[i], err = g.connect(i, &reading)
		}
		return err
	})
	if g.after != nil {
		g.after()
	}
	for _, r := range all {
		if r != nil {
			_ = r.conn.CloseWrite() // fails if the director has ended it
		}
	}
	if err == nil {
		reading.Wait()
	}
	return sent, err
}

// connect connects an eNodeB, and discards the answers that it gets.
func (g gang) connect(i int, reading *sync.WaitGroup) (*rogue, error) {
	source := i
	if g.oneIP {
		source = 0
	}
	conn, err := g.h.strangers().Dial(context.Background(), source, nil)
	if err != nil {
		return nil, err
	}
	r := &rogue{rogueCell(firstRogue + uint32(i)), conn.(*net.TCPConn)}
	if !g.raw {
		if err := r.setUp(); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
	}
	reading.Go(func() {
		_, _ = io.Copy(io.Discard, conn) // the director may reset it
		_ = conn.Close()
	})
	return r, nil
}

// guess returns identifiers that a UE of the load may have. MMEs count their MME UE S1AP IDs.
func (h *hostilePool) guess(n int) enb.IDs {
	given := int(h.calls.Load())/mmesBehind + 1000 // estimate of the IDs of an MME, including the running load
	return enb.IDs{MME: uint32(1+n%mmesBehind)<<24 | uint32(1+n/mmesBehind%given), ENB: uint32(n % 1000)}
}

const (
	handledTotal  = "vitrine_director_handled_total"
	failuresTotal = "vitrine_director_failures_total"
	ofS1AP        = `protocol="s1ap"`
)

// takenIdentity sends S1 Setup with the identities of the load's eNodeBs.
func (h *hostilePool) takenIdentity() attack {
	return attack{
		name: "eNodeBs with another's identity", times: 10, counter: drops, labels: []string{ofS1AP, `reason="stranger"`},
		run: gang{h: h, size: 4, raw: true, before: h.awaitLoad, next: func(_ *rogue, n int) []byte {
			cell := rogueCell(uint32(1 + n%loadENodeBs))
			return cell.AppendSetup(nil)
		}}.run,
	}
}

// othersUEs names UEs of other eNodeBs in messages about a connection.
func (h *hostilePool) othersUEs() attack {
	target := rogueCell(1)
	return attack{
		name: "eNodeBs that name others' UEs", times: 10, counter: handledTotal, labels: []string{ofS1AP, `how="unknown_connection"`}, all: true,
		run: gang{h: h, size: 4, next: func(r *rogue, n int) []byte {
			ids := h.guess(n)
			switch n / 7 % 4 {
			case 0:
				return r.AppendUplink(nil, ids, []byte{7, 0x55})
			case 1:
				return r.AppendReleaseRequest(nil, ids, s1ap.CauseUserInactivity)
			case 2:
				return r.AppendHandoverRequired(nil, ids, &target, []byte{1})
			}
			return r.AppendContextSetUp(nil, ids, 5)
		}}.run,
	}
}

// extended returns a message with additional elements.
func extended(message []byte, more func([]byte) []byte) []byte {
	var m s1ap.Message
	_ = m.Parse(message) // it is the test's own
	b := s1ap.AppendHeader(nil, m.Kind, m.Procedure, m.Criticality)
	return s1ap.End(more(append(b, m.IEs...)), 0)
}

// update is an eNB Configuration Update.
func update() []byte {
	b := s1ap.AppendHeader(nil, s1ap.Initiating, s1ap.ENBConfigurationUpdate, s1ap.Reject)
	return s1ap.End(s1ap.AppendName(b, s1ap.ENBName, s1ap.Ignore, "rogue"), 0)
}

// erroneousIDs names UEs of other eNodeBs in procedures that have no such identifier.
func (h *hostilePool) erroneousIDs() attack {
	return attack{
		name: "identifiers where a procedure has none", times: 10, counter: failuresTotal, labels: []string{`cause="malformed"`}, all: true,
		run: gang{h: h, size: 4, next: func(r *rogue, n int) []byte {
			ids := h.guess(n)
			message := [][]byte{
				r.AppendInitial(nil, uint32(n&0xffffff), []byte{7, 0x41}, nil), r.AppendPathSwitch(nil, ids, 5), update(),
				r.AppendReset(nil, s1ap.CauseOverload), r.AppendSetup(nil),
			}[n/7%5]
			return extended(message, func(b []byte) []byte { return s1ap.AppendMMEUEID(b, s1ap.MMEUEID, s1ap.Reject, ids.MME) })
		}}.run,
	}
}

// othersResets resets connections of other eNodeBs.
func (h *hostilePool) othersResets() attack {
	return attack{
		name: "Resets of others' UEs", times: 10, counter: handledTotal, labels: []string{ofS1AP, `how="unknown_connection"`}, all: true,
		run: gang{h: h, size: 4, next: func(r *rogue, n int) []byte {
			ids := h.guess(n)
			return r.AppendReset(nil, s1ap.CauseOverload,
				s1ap.Connection{MME: ids.MME, HasMME: true}, s1ap.Connection{MME: ids.MME, ENB: ids.ENB, HasMME: true, HasENB: true}, s1ap.Connection{ENB: ids.ENB, HasENB: true})
		}}.run,
	}
}

// crowdedConfigurations sends configurations with thousands of elements. Without a limit, the
// director would compare each of them with each element of the last configuration.
func (h *hostilePool) crowdedConfigurations() attack {
	crowd := func(b []byte) []byte {
		for n := range 2000 {
			b = s1ap.AppendElement(b, s1ap.ID(5000+n), s1ap.Ignore, nil)
		}
		return b
	}
	return attack{
		name: "configurations with thousands of elements", times: 0.5, counter: failuresTotal, labels: []string{`cause="malformed"`}, all: true,
		run: gang{h: h, size: 4, next: func(r *rogue, n int) []byte {
			return extended([][]byte{update(), r.AppendSetup(nil)}[n/7%2], crowd)
		}}.run,
	}
}

// setUpFlood sends S1 Setup Requests, each with a new identity.
func (h *hostilePool) setUpFlood() attack {
	return attack{
		name: "S1 Setups with changing identities", times: 10, counter: "vitrine_director_s1_setup_failures_total",
		run: gang{h: h, size: enodebsPerSource, oneIP: true, raw: true, next: func(_ *rogue, n int) []byte {
			cell := rogueCell(firstRogue + uint32(n%firstRogue))
			return cell.AppendSetup(nil)
		}}.run,
	}
}

// unknownUE returns the first message of a UE that no MME knows.
func unknownUE(r *rogue, n int) []byte {
	return r.AppendInitial(nil, uint32(n&0xffffff), nas.AppendServiceRequest(nil, 1, 2), &identity.STMSI{Code: uint8(1 + n%mmesBehind), TMSI: uint32(n)})
}

// tableFlood begins connections and never releases them, from as many eNodeBs as one address
// may have.
func (h *hostilePool) tableFlood() attack {
	var taken float64
	return attack{
		name: "Initial UE Messages with new identifiers", times: 10, counter: handledTotal, labels: []string{ofS1AP, `how="no_room"`},
		run: gang{h: h, size: enodebsPerSource, oneIP: true, least: maxUEs / 4, next: unknownUE, after: func() {
			taken = h.metric("vitrine_director_connected_ues")
		}}.run,
		check: func(t *testing.T) {
			if taken < maxUEs/4 || taken > maxUEs/2 {
				t.Errorf("%.0f of %d connections are in use, want the share of one address and those of the load", taken, maxUEs)
			}
		},
	}
}

// crowd returns an attack by eNodeBs that never complete S1 Setup or a frame. The director must
// end all of their associations.
func (h *hostilePool) crowd(name, counter string, size int, act func(c net.Conn, second int)) attack {
	return attack{
		name: name, lasts: 5 * time.Second, counter: counter,
		run: func(ctx context.Context, _ float64) (int, error) {
			h.awaitLoad()
			return size, h.strangers().Crowd(ctx, size, patience, act)
		},
	}
}

// crowdOfENodeBs opens more associations than the director allows.
func (h *hostilePool) crowdOfENodeBs() attack {
	return h.crowd("more eNodeBs than allowed", "vitrine_director_enodeb_associations_refused_total", 4*maxENodeBs, func(net.Conn, int) {})
}

const late = "vitrine_director_enodeb_associations_late_total"

// slowENodeBs send S1 Setup at one byte a second.
func (h *hostilePool) slowENodeBs() attack {
	cell := rogueCell(firstRogue)
	text := frame.Append(nil, frame.Common, cell.AppendSetup(nil))
	return h.crowd("eNodeBs that send a byte a second", late, maxENodeBs/2, func(c net.Conn, second int) {
		_ = c.SetWriteDeadline(time.Now().Add(time.Second)) // fails once the director has ended the connection
		_, _ = c.Write(text[second%len(text) : second%len(text)+1])
	})
}

// unfinishedFrames completes S1 Setup, and then begins a frame that does not end.
func (h *hostilePool) unfinishedFrames() attack {
	return h.crowd("frames that do not end", late, maxENodeBs/2, func(c net.Conn, second int) {
		if second > 0 {
			return
		}
		cell := rogueCell(firstRogue/2 | uint32(c.LocalAddr().(*net.TCPAddr).Port))
		b := frame.Append(nil, frame.Common, cell.AppendSetup(nil))
		_ = c.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = c.Write(frame.Append(b, frame.UE, make([]byte, 1000))[:len(b)+500])
	})
}

// oversizedFrames sends empty frames, and frames longer than the largest message.
func (h *hostilePool) oversizedFrames() attack {
	long := frame.Append(nil, frame.UE, make([]byte, 80_000))
	return attack{
		name: "oversized frames", times: 0.02, counter: drops, labels: []string{ofS1AP, `reason="malformed"`},
		run: func(ctx context.Context, rate float64) (int, error) {
			return h.strangers().Burst(ctx, rate, false, func(n int) [][]byte {
				if n%2 == 0 {
					return [][]byte{make([]byte, frame.HeaderSize)}
				}
				return [][]byte{long[:3], long[3:5000], long[5000:]}
			})
		},
	}
}

// pipelinedGarbage sends frames with malformed messages, and then octets that are no frame.
func (h *hostilePool) pipelinedGarbage() attack {
	random := rand.New(rand.NewPCG(7, 7))
	var text []byte
	for n := range 200 {
		message := make([]byte, 1+n)
		for i := range message {
			message[i] = byte(random.Uint32())
		}
		text = frame.Append(text, frame.UE, message)
	}
	text = append(text, bytes.Repeat([]byte{0xff}, 20_000)...)
	return attack{
		name: "pipelined garbage", times: 0.02, counter: failuresTotal, labels: []string{`cause="malformed"`},
		run: func(ctx context.Context, rate float64) (int, error) {
			return h.strangers().Burst(ctx, rate, false, func(int) [][]byte { return [][]byte{text} })
		},
	}
}

// deafENodeBs send messages that the director answers, and do not read the answers.
func (h *hostilePool) deafENodeBs() attack {
	text := bytes.Repeat(frame.Append(nil, frame.UE, []byte{0}), 200_000)
	return attack{
		name: "eNodeBs that do not read", times: 0.002, counter: drops, labels: []string{ofS1AP, `reason="queue_full"`},
		run: func(ctx context.Context, rate float64) (int, error) {
			return h.strangers().Burst(ctx, rate, true, func(int) [][]byte { return [][]byte{text} })
		},
	}
}

// initialFlood begins connections faster than the quota of one address allows.
func (h *hostilePool) initialFlood() attack {
	return attack{
		name: "Initial UE Messages over the quota", times: 10, counter: drops, labels: []string{ofS1AP, `reason="over_quota"`},
		run: gang{h: h, size: 4, oneIP: true, next: unknownUE}.run,
	}
}

// refusedPathSwitches sends Path Switch Requests for UEs of other eNodeBs, with bearers that the
// UEs do not have. The MME refuses them.
func (h *hostilePool) refusedPathSwitches() attack {
	const noBearer = 15
	return attack{
		name: "path switches of others' UEs", times: 10, counter: "vitrine_director_transactions_ended_total", labels: []string{`type="mme"`, `outcome="declined"`},
		run: gang{h: h, size: 4, next: func(r *rogue, n int) []byte {
			ids := enb.IDs{MME: h.guess(n).MME, ENB: uint32(n & 0xffffff)}
			return r.AppendPathSwitch(nil, ids, noBearer)
		}}.run,
	}
}
