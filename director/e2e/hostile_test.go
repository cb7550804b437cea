package e2e

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"vitrine"
	"vitrine/director/directortest"
	"vitrine/internal/hosttest"
	"vitrine/load"
	"vitrine/load/loadtest"
	generator "vitrine/load/sip"
)

// Hosts of a site under attack, in addition to those of every site. The load comes from several
// phones, because a quota applies to one source.
const (
	loadPhones    = 4
	strangerHost  = firstPhone + loadPhones
	victimHost    = strangerHost + 1
	innocentHost  = victimHost + 1
	gatedHost     = firstInstance + 1
	firstAttacker = 130 // first of the attackers that use TCP
	attackers     = 20
)

// gateRate is the rate and the burst of the gate of the attacked type, in requests per second
// and in requests.
const gateRate = 20

// An attack describes traffic of strangers while a director serves its load.
type attack struct {
	name    string
	times   float64       // messages (or connections) per second, as a multiple of the load's messages per second
	lasts   time.Duration // duration of the load during the attack; 0: 3 s
	counter string        // a metric of the director that must rise
	labels  []string
	all     bool // the counter must rise by the number of sent messages, except for datagrams lost at a full socket
	run     func(ctx context.Context, rate float64) (sent int, err error)
	check   func(t *testing.T) // called after the attack
}

// A target is a director under attack.
type target struct {
	*steward
	messages float64 // messages of the load per second
	before   int64   // resident memory before the attacks, in bytes
	budget   int64   // allowed growth of resident memory, in bytes
	// serve runs the load for a time. It returns the number of transactions, and an error if one
	// of them failed.
	serve func(t *testing.T, lasting time.Duration) (served int64, err error)
}

// withstand attacks the director while it serves its load. Every transaction of the load must
// succeed, the director must count the attack, and its memory must stay within the budget.
func (d *target) withstand(t *testing.T, a attack) {
	t.Run(a.name, func(t *testing.T) {
		value := func() float64 { return d.metric(a.counter, a.labels...) }
		lost := func() float64 { return d.metric("vitrine_director_drops_total", `reason="socket_full"`) }
		was, wereLost := value(), lost()
		pid := d.status().PID
		hosttest.ForgetPeak(t, pid)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var attacking errgroup.Group
		sent := 0
		began := time.Now()
		attacking.Go(func() (err error) {
			sent, err = a.run(ctx, a.times*d.messages)
			return err
		})
		served, err := d.serve(t, cmp.Or(a.lasts, 3*time.Second))
		took := time.Since(began)
		stop()
		if err := errors.Join(err, attacking.Wait()); err != nil {
			t.Error(err)
		}
		if served == 0 || sent == 0 {
			t.Errorf("served %d transactions during %d messages of the attack: too few to prove anything", served, sent)
		}
		least := was + 1
		if a.all {
			least = was + float64(sent)
		}
		eventually(t, "the attack is counted", func() bool { return value()+lost()-wereLost >= least })
		_, peak := hosttest.Resident(t, pid)
		t.Logf("%d transactions during %d messages of the attack in %s; %s rose by %.0f, full sockets lost %.0f; resident memory %d MB at most, %d MB before",
			served, sent, took.Round(time.Millisecond), a.counter, value()-was, lost()-wereLost, peak>>20, d.before>>20)
		if value() <= was {
			t.Errorf("%s%v did not rise", a.counter, a.labels)
		}
		if peak > d.before+d.budget {
			t.Errorf("resident memory is %d MB, want at most %d MB", peak>>20, (d.before+d.budget)>>20)
		}
		if a.check != nil {
			a.check(t)
		}
		if !d.running() {
			t.Fatalf("the director stopped: %v", d.err)
		}
	})
}

// flood returns an attack that sends datagrams to an address. from returns the source address
// of each datagram: any address of 127.0.0.0/8, like a forged address on a network without
// ingress filtering. Datagrams that the sender's kernel refuses do not count as sent.
func flood(to string, from func(n int) netip.Addr, next func(n int) []byte) func(context.Context, float64) (int, error) {
	return func(ctx context.Context, rate float64) (sent int, err error) {
		c, err := net.ListenUDP("udp4", nil) // all addresses
		if err != nil {
			return 0, err
		}
		defer c.Close()
		at := netip.MustParseAddrPort(to)
		_, err = hosttest.Pace(ctx, rate, func(n int) error {
			_, _, err := c.WriteMsgUDPAddrPort(next(n), sourceOption(from(n)), at)
			switch {
			case err == nil:
				sent++
			case isRefused(err):
				return nil
			}
			return err
		})
		return sent, err
	}
}

// isRefused reports whether the kernel refused to send a datagram, because its table of connections
// or a queue is full. The datagram is then as good as lost on the way.
func isRefused(err error) bool {
	return errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOBUFS)
}

// anywhere returns one of 60,000 source addresses.
func anywhere(n int) netip.Addr {
	return netip.AddrFrom4([4]byte{127, 100, byte(n % 240), byte(1 + n/240%250)})
}

// A hostile is a director for SIP under attack.
type hostile struct {
	site
	target
	rate   float64 // rate of the load, in calls per second
	trials int
	gated  *gated
}

// newHostile starts a director with an instance for the load and an instance of a type with a
// gate, and measures their capacity. The load is half of the capacity.
func newHostile(t *testing.T) *hostile {
	t.Helper()
	h := &hostile{site: newSite(t)}
	function, err := loadtest.NewResponder(context.WithoutCancel(t.Context()), h.host(firstInstance), loadtest.Behaviour{})
	if err != nil {
		t.Fatal(err)
	}
	h.gated = newGated(t, h.at(gatedHost, sipPort))
	var table []vitrine.Instance
	for i, ty := range []string{registration, session, gatedType} {
		in := &instance{name: ty + "-1", ty: ty, address: function.Addr()}
		if ty == gatedType {
			in.address = h.at(gatedHost, sipPort)
		}
		table = append(table, entry(in, uint16(i+1)))
	}
	h.steward = h.director(firstDirector, options{
		Instances: table, Fail: 20, Timeout: "5s",
		Types:  fmt.Sprintf("- {name: %s, protocol: sip, overload: {target: 2s, initial: %d, min: 1, max: %d, burst: %d}}", gatedType, gateRate, gateRate, gateRate),
		Rules:  fmt.Sprintf("- {method: PUBLISH, type: %s}", gatedType),
		Memory: fmt.Sprintf(", connections: %d", crowdSize),
		More:   "feedback: true\n",
	})
	carried := h.capacity(t)
	h.rate = carried / 2
	h.messages = h.rate * messagesPerCall
	h.limit(t, 1.5*carried) // twice the rate of one phone of the load
	h.serve = func(t *testing.T, lasting time.Duration) (int64, error) {
		t.Helper()
		r, err := h.call(t.Context(), h.rate, lasting, true)
		if failed := r.Offered - r.Succeeded; err == nil && failed > 0 {
			err = fmt.Errorf("%d of %d calls failed: %v", failed, r.Offered, r.Failed)
		}
		return r.Succeeded, err
	}
	h.before, h.budget = h.memory(), budgetSIP()
	t.Logf("capacity is %.0f calls/s; the load is half of that, %.0f messages/s", carried, h.messages)
	return h
}

// messagesPerCall is how many messages of a call of the load pass the director.
const messagesPerCall = 15

// capacity returns how many calls per second the site carries without retransmission.
func (h *hostile) capacity(t *testing.T) (carried float64) {
	t.Helper()
	first, most := 50.0, 1600.0
	if hosttest.Raced {
		first, most = 20, 200
	}
	for rate := first; rate <= most; rate *= 2 {
		r, err := h.call(t.Context(), rate, time.Second, false)
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

// limit sets the quota of each source, in requests per second.
func (h *hostile) limit(t *testing.T, rate float64) {
	t.Helper()
	text := fmt.Appendf(mustRead(t, h.file), "quota: {sip: {rate: %.0f}}\n", rate)
	if err := os.WriteFile(h.file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := h.client.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// call runs calls from all phones and returns the sum of the generators' reports.
func (h *hostile) call(ctx context.Context, rate float64, lasting time.Duration, retransmit bool) (sum load.Report, err error) {
	h.trials++
	reports := make([]load.Report, loadPhones)
	g, ctx := errgroup.WithContext(ctx)
	for i := range reports {
		params := map[string]string{
			"scenario": generator.RegInvite, "port": "0", "local": h.host(firstPhone + i), "first_user": fmt.Sprint(1 + i*1_000_000),
			"retransmit": "false", "timeout": "2s", "call_time": "4s",
		}
		if retransmit {
			maps.Copy(params, map[string]string{"retransmit": "true", "timeout": "32s", "call_time": "8s"})
		}
		trial := load.Trial{
			Rate: rate / loadPhones, Duration: lasting.Seconds(), Targets: []string{h.address}, Scratch: h.dir,
			Seed: uint64(h.trials*loadPhones + i), Params: params,
		}
		g.Go(func() (err error) {
			var out, log bytes.Buffer
			if err := generator.Run(ctx, trial, &out, &log); err != nil {
				return fmt.Errorf("%w: %s", err, log.String())
			}
			reports[i], err = load.ParseReport(&out)
			return err
		})
	}
	err = g.Wait()
	sum.Failed = map[string]int64{}
	for _, r := range reports {
		sum.Scheduled += r.Scheduled
		sum.Offered += r.Offered
		sum.Succeeded += r.Succeeded
		for cause, n := range r.Failed {
			sum.Failed[cause] += n
		}
	}
	return sum, err
}

// gatedType is an aggregate type with a gate. It serves PUBLISH.
const gatedType = "gated"

// A gated is the instance of gatedType.
type gated struct {
	requests atomic.Int64
	last     atomic.Pointer[[]byte] // the last request, as the director sent it
}

// newGated starts an instance that answers every request 200.
func newGated(t *testing.T, address string) *gated {
	t.Helper()
	g := new(gated)
	directortest.Answer(t, address, func(message []byte) []byte {
		if bytes.HasPrefix(message, []byte("PUBLISH ")) {
			g.requests.Add(1)
			last := bytes.Clone(message)
			g.last.Store(&last)
		}
		return directortest.Response(message, 200)
	})
	return g
}
