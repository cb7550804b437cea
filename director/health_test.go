package director

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"vitrine/director/client"
	"vitrine/director/directortest"
	"vitrine/internal/hosttest"
	"vitrine/wire/gtpc"
)

// A fakeInstance answers health checks of SIP and GTP-C. The first byte tells the protocols apart.
type fakeInstance struct {
	address string
	status  atomic.Int64 // status of answers to OPTIONS; 0: no answer
}

func newInstance(t *testing.T) *fakeInstance {
	t.Helper()
	f := new(fakeInstance)
	f.status.Store(200)
	f.address = directortest.Answer(t, "127.0.0.1:0", func(message []byte) []byte { return reply(message, f.status.Load()) })
	return f
}

// reply returns the answer to a health check, or nil for status 0.
func reply(message []byte, status int64) []byte {
	if status == 0 {
		return nil
	}
	if message[0]>>5 == 2 && message[1] == byte(gtpc.EchoRequest) {
		sequence := uint32(message[4])<<16 | uint32(message[5])<<8 | uint32(message[6])
		return gtpc.AppendEchoResponse(nil, sequence, 7)
	}
	return directortest.Response(message, status)
}

// TestHealth checks that an instance that does not answer its health checks, or answers 503, is
// unhealthy and gets no keys until it answers again.
func TestHealth(t *testing.T) {
	for _, protocol := range []string{SIP, GTPC} {
		t.Run(protocol, func(t *testing.T) {
			one, two := newInstance(t), newInstance(t)
			text := fmt.Sprintf(`
listen: {%s: ["udp://127.0.0.1:0"], control: "127.0.0.1:0"}
types: [{name: registration, protocol: %s}]
rules: [{type: registration}]
instances:
  - {name: one, type: registration, address: "%s"}
  - {name: two, type: registration, address: "%s"}
transition: 4s
health: {every: 20ms, timeout: 500ms, fail: 2, rise: 2}
`, protocol, protocol, one.address, two.address)
			r := run(t, write(t, filepath.Join(t.TempDir(), "director.yaml"), text))
			health := func() string {
				in, err := r.client.Instance(t.Context(), "one")
				if err != nil {
					t.Fatal(err)
				}
				return in.Health
			}
			ways := []int64{0}
			if protocol == SIP {
				ways = append(ways, 503)
			}
			for _, status := range ways {
				one.status.Store(status)
				until(t, "the instance is away", func() bool { return health() == "away" })
				until(t, "all keys go to the other", func() bool {
					for key := range uint64(50) {
						v := r.epochs.View()
						if i, ok := v.Table.Pick(0, key, 0, v.Health); !ok || v.Table.Instance(i).Name != "two" {
							return false
						}
					}
					return true
				})
				e, err := r.client.Explain(t.Context(), client.Question{Type: "registration", Key: keyOf(r, "one")})
				if err != nil || e.Instance != "two" || !strings.Contains(strings.Join(e.Steps, "\n"), "one, which is away: ") {
					t.Errorf("%+v, %v", e, err)
				}
				if r.epoch(t) != 1 {
					t.Error("a change of local health created an epoch")
				}
				one.status.Store(404) // any other final answer shows that the instance serves
				until(t, "it is back", func() bool { return health() == "up" })
			}
		})
	}
}

// TestEchoHasTheSharedCounter checks that the Echo Requests of the health checks have the restart
// counter of all other messages. With another one, an instance would drop its sessions.
func TestEchoHasTheSharedCounter(t *testing.T) {
	var counter, commands, echoes atomic.Int64
	address := directortest.Answer(t, "127.0.0.1:0", func(message []byte) []byte {
		counter.Store(int64(message[len(message)-1])) // Recovery is the only element
		commands.Add(int64(message[4] >> 7))
		echoes.Add(1)
		return reply(message, 200)
	})
	file := strings.NewReplacer("127.0.0.9:15062", address, `, gtpc: "off"`, ", every: 20ms").Replace(both) + "gtpc: {restart_counter: 9}\n"
	run(t, write(t, filepath.Join(t.TempDir(), "director.yaml"), file))
	until(t, "there are ten Echo Requests", func() bool { return echoes.Load() >= 10 })
	if n := counter.Load(); n != 9 {
		t.Errorf("the Echo Requests have the restart counter %d, want 9", n)
	}
	if n := commands.Load(); n > 0 {
		t.Errorf("%d Echo Requests have the sequence number of a command", n)
	}
}

// TestCheckEndsWithItsContext ends a check of an instance that does not answer. The end of the director waits
// for its checks, and must not wait for such an instance.
func TestCheckEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	address := directortest.Answer(t, "127.0.0.1:0", func([]byte) []byte {
		cancel()
		return nil
	})
	began := time.Now()
	err := askOptions(ctx, netip.MustParseAddrPort(address))
	if took := time.Since(began); err == nil || took > 15*time.Second {
		t.Errorf("the check ended after %v with error %v, want an error at once", took, err)
	}
}

// TestShortageOfDescriptors checks that an instance stays up if the director has no descriptor for its
// checks.
func TestShortageOfDescriptors(t *testing.T) {
	log := new(hosttest.Output)
	d := newDirector(t, good, func(o *Options) { o.Log = log.Logger() })
	err := &net.OpError{Op: "dial", Net: "udp", Err: os.NewSyscallError("socket", syscall.EMFILE)}
	for range 3 {
		d.watch.record(d.watch.watched["reg-1"], err, Health{Fail: 1, Rise: 1})
	}
	if d.watch.away("reg-1") || !strings.Contains(log.String(), "cannot check an instance") {
		t.Errorf("away: %v; log: %s", d.watch.away("reg-1"), log)
	}
}

// TestFewFiles checks that the director warns if it may open fewer files than it may have connections.
func TestFewFiles(t *testing.T) {
	log := new(hosttest.Output)
	d := newDirector(t, strings.Replace(good, `"udp://127.0.0.1:0"`, `"udp://127.0.0.1:0", "tcp://127.0.0.1:0"`, 1))
	d.log = log.Logger()
	const need = 10_000 + 3 + otherFiles
	if d.warnOfFiles(d.config.Load(), need); log.String() != "" {
		t.Errorf("with enough files: %s", log)
	}
	if d.warnOfFiles(d.config.Load(), 4096); !strings.Contains(log.String(), fmt.Sprintf("limit=4096 may_need=%d", need)) {
		t.Errorf("got log %q", log)
	}
}

// TestHealthChanges checks that an unhealthy instance gets its keys back when the kind of health
// check changes.
func TestHealthChanges(t *testing.T) {
	d := newDirector(t, good)
	served := func() bool {
		v := d.epochs.View()
		for key := range uint64(50) {
			if i, ok := v.Table.Pick(0, key<<48, 0, v.Health); ok && v.Table.Instance(i).Name == "reg-1" {
				return true
			}
		}
		return false
	}
	d.watch.record(d.watch.watched["reg-1"], io.EOF, Health{Fail: 1})
	publish := func() {
		t.Helper()
		select {
		case <-d.watch.changed:
		default:
			t.Fatal("no health change to publish")
		}
		until(t, "it is published", func() bool {
			wait, err := d.publish()
			if err != nil {
				t.Fatal(err)
			}
			return wait == 0
		})
	}
	publish()
	if served() {
		t.Fatal("the unhealthy instance still gets requests")
	}
	write(t, d.options.Path, strings.Replace(good, `health: {sip: "off"}`, `health: {sip: "off", fail: 5}`, 1))
	if err := d.reload(); err != nil {
		t.Fatal(err)
	}
	publish()
	if !served() {
		t.Error("no request reaches the recovered instance")
	}
}

// keyOf returns a key whose first choice is the named instance.
func keyOf(r *running, name string) string {
	for i := range 1000 {
		text := fmt.Sprint(i)
		e, err := r.explain(client.Question{Type: "registration", Key: text})
		if err == nil && len(e.Steps) > 1 && strings.Contains(e.Steps[1], "instance "+name) {
			return text
		}
	}
	return ""
}
