package gtpc_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"vitrine"
	"vitrine/director/directortest"
	director "vitrine/director/gtpc"
	"vitrine/director/meter"
	"vitrine/director/table"
)

// A network has the addresses and programs of one run. All of them are on loopback.
type network struct {
	t         *testing.T
	folder    string
	binaries  string
	start     time.Time
	instances []vitrine.Instance
	epochs    *table.Epochs
	meter     *meter.Meter
	epoch     uint64
	pgws      []*program
}

func newNetwork(t *testing.T) *network {
	t.Helper()
	n := &network{t: t, folder: t.TempDir(), start: time.Now().Add(-time.Minute)}
	n.binaries = filepath.Join(n.folder, "bin")
	source, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/wmnsk/go-gtp").Output()
	if err != nil {
		t.Fatalf("find go-gtp: %v", err)
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", n.binaries+"/",
		"./examples/gw-tester/enb", "./examples/gw-tester/mme", "./examples/gw-tester/sgw", "./examples/gw-tester/pgw")
	build.Dir = strings.TrimSpace(string(source))
	build.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off", "CGO_ENABLED=0")
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

// gateways starts go-gtp's gateways, two of each, and returns the S-GWs.
func (n *network) gateways() (sgws []*program) {
	n.t.Helper()
	for i := range byte(2) {
		n.pgws = append(n.pgws, n.program("pgw", fmt.Sprintf("pgw-%d", i+1), n.pgw(41+i), "Started serving S5-U"))
	}
	for i := range byte(2) {
		sgws = append(sgws, n.program("sgw", fmt.Sprintf("sgw-%d", i+1), n.sgw(21+i, 31+i), "Started serving S5-U"))
	}
	return sgws
}

// mme starts go-gtp's MME behind a director.
func (n *network) mme(through *side) *program {
	n.t.Helper()
	return n.program("mme", "mme", fmt.Sprintf(
		"mcc: \"001\"\nmnc: \"01\"\napn: internet.example\nlocal_addresses:\n  s1c_addr: %q\n  s11_ip: %q\nsgw_s11_ip: %q\npgw_s5c_ip: %q\n",
		n.ip(11).String()+":36412", n.ip(11), through.s11, through.s5), "Started serving S11")
}

// enb returns the configuration of go-gtp's eNB for the subscribers from first to end-1.
func (n *network) enb(first, end int) string {
	b := fmt.Sprintf("mcc: \"001\"\nmnc: \"01\"\nrat_type: 6\ntai: 1\neci: 257\nmme_addr: %q\nlocal_addresses:\n  s1c_ip: %q\n  s1u_ip: %q\nuse_kernel_gtp: false\nsubscribers:\n",
		n.ip(11).String()+":36412", n.ip(12), n.ip(12))
	for i := first; i < end; i++ {
		b += fmt.Sprintf("  - {imsi: %q, msisdn: \"8190000%05d\", imeisv: \"35480209%08d\", src_ip: 192.0.2.%d, i_tei: 0, type: external, euu_if_name: lo, http_url: \"\", reattach_on_reload: false}\n",
			imsi(i), i, i, i+1)
	}
	return b
}

// A side is one director of the network, on an S11 and an S5 address.
type side struct {
	*director.Server
	n       *network
	s11, s5 netip.Addr
	config  director.Config
	stop    func()
}

// direct starts a director on two host addresses. The first director must start before
// the gateways.
func (n *network) direct(s11, s5 byte) *side {
	n.t.Helper()
	types := []string{"sgw", "pgw"}
	if n.epochs == nil {
		n.begin(types)
	}
	policy, err := director.NewPolicy(types, []director.TypeOption{{Type: "sgw", Sessions: true}, {Type: "pgw", Sessions: true}},
		[]director.Rule{{Interface: "s5", Type: "pgw"}, {Type: "sgw"}})
	if err != nil {
		n.t.Fatal(err)
	}
	d := &side{n: n, s11: n.ip(s11), s5: n.ip(s5)}
	addresses := []netip.AddrPort{netip.AddrPortFrom(d.s11, director.Port), netip.AddrPortFrom(d.s5, director.Port)}
	d.config = director.Config{Addresses: addresses, Workers: 2, Now: n.now, Epochs: n.epochs, Meter: n.meter, Policy: policy, Log: slog.New(slog.DiscardHandler), Counter: 3, Exchanges: 4096, Sessions: 4096, Keys: 1024}
	if d.Server, err = director.Listen(d.config); err != nil {
		n.t.Fatal(err)
	}
	d.stop = directortest.Serve(n.t, d.Run, d.Close)
	return d
}

// begin publishes the first table, which has two S-GWs and two P-GWs.
func (n *network) begin(types []string) {
	n.t.Helper()
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
}

// restart replaces this director as a hand-over does: the new director gets the sockets and the
// memory.
func (d *side) restart() error {
	files, err := d.Files()
	if err != nil {
		return err
	}
	d.stop()
	var memory bytes.Buffer
	if err := d.Carry(&memory); err != nil {
		return err
	}
	d.config.First += 1 << 20
	d.config.Inherited = files
	next, err := director.Listen(d.config)
	for _, f := range files {
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return err
	}
	if _, err := next.TakeOver(&memory, nil); err != nil {
		return errors.Join(err, next.Close())
	}
	d.Server = next
	d.stop = directortest.Serve(d.n.t, d.Run, d.Close)
	return nil
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

// places waits until count IMSIs have a log line. It returns the programs that logged the line, by
// IMSI. A gateway logs after it has answered.
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
			n.t.Fatalf("%q was logged %d times, want %d", line, len(found), count)
		}
	}
}

// registered counts the sessions of a subscriber that the P-GWs have logged.
func (n *network) registered(imsi string) (count int) {
	for _, p := range n.pgws {
		count += strings.Count(p.log(), "Session created with S-GW for subscriber: "+imsi)
	}
	return count
}

// awaitRegistered waits until the P-GWs have logged count sessions. go-gtp's P-GW answers before it
// has stored the session, and crashes on messages that arrive in between.
func (n *network) awaitRegistered(imsi string, count int) {
	n.t.Helper()
	limit := time.After(30 * time.Second)
	for n.registered(imsi) < count {
		select {
		case <-n.pgws[0].news:
		case <-n.pgws[1].news:
		case <-limit:
			n.t.Fatalf("no P-GW has the session of %s", imsi)
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

// A program is a running program of go-gtp.
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

// program starts a program and waits until it logs that it is ready.
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
