package s1ap

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"vitrine"
	"vitrine/fabric"
	"vitrine/fabric/bridge"
	"vitrine/internal/hosttest"
	"vitrine/load"
	"vitrine/substrate"
	"vitrine/substrate/qemu/qemutest"
)

// TestQemuGuestsAttachOverSCTP plays attaches over SCTP from one virtual machine to the reference
// EPC in another one, first to the MME and then through a director. It uses machines because many
// hosts' kernels lack SCTP. First it runs the tests of package sctp in a machine.
func TestQemuGuestsAttachOverSCTP(t *testing.T) {
	program := hosttest.Built(t, hosttest.Product)
	s, run := qemutest.New(t, program, "guest")
	wires, err := bridge.New(bridge.Config{Run: run})
	hosttest.Need(t, err)
	hosttest.AtEnd(t, func() error { return wires.Close(context.Background()) })
	core, eNodeBs := newGuest(t, run.ID, s, wires, "epc-1"), newGuest(t, run.ID, s, wires, "enb-1")
	var booting errgroup.Group
	for _, g := range []*guest{core, eNodeBs} {
		booting.Go(func() error { return g.boot(program) })
	}
	if err := booting.Wait(); err != nil {
		t.Fatal(err)
	}

	core.start(`"$0" reference hss --listen 127.0.0.1:3868 &
		"$0" reference pcrf --listen 127.0.0.2:3868 &
		exec "$0" reference epc --s1 "$1:36412" --s1-transport sctp --hss 127.0.0.1:3868 --pcrf 127.0.0.2:3868 \
			--instance 1 --overload off --metrics "$1:9090"`, program, core.address)
	t.Run("package", func(t *testing.T) { eNodeBs.runTests(t, "vitrine/internal/sctp") })
	eNodeBs.await("http://" + core.address + ":9090/ready")
	eNodeBs.attach(t, program, core.address+":36412")
	if log := core.log(); !strings.Contains(log, "transport=SCTP") {
		t.Errorf("the MME's log does not name SCTP: %s", log)
	}
	// The kernel of the EPC's machine counts accepted associations and data chunks. Each attach
	// and detach has twelve messages, seven from the eNodeB.
	counts := core.run(`cat /proc/net/sctp/snmp`)
	if n := count(t, counts, "SctpPassiveEstabs"); n != 2 {
		t.Errorf("the MME accepted %d associations, want 2", n)
	}
	if n := count(t, counts, "SctpInOrderChunks"); n < 7*attaches {
		t.Errorf("the MME received %d data chunks, fewer than the attaches need", n)
	}

	file := filepath.Join(eNodeBs.dir, "director.yaml")
	text := fmt.Sprintf(directed, eNodeBs.address, core.address)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	eNodeBs.start(`exec "$0" director run "$1"`, program, file)
	eNodeBs.await("http://127.0.0.1:8090/metrics")
	eNodeBs.attach(t, program, eNodeBs.address+":36412")
	const attached = `mme_procedures_total{outcome="success",procedure="attach"}`
	if n := count(t, core.run(`busybox wget -q -O - "http://$0:9090/metrics"`, core.address), attached); n != 2*attaches {
		t.Errorf("the MME counts %d attaches", n)
	}
}

// directed configures a director with SCTP on either side.
const directed = `
listen: {s1ap: ["sctp://%s:36412"], control: "127.0.0.1:8090"}
types: [{name: epc, protocol: s1ap, transport: sctp}]
rules: [{type: epc}]
instances: [{name: epc-1, id: 1, type: epc, address: "%s:36412"}]
`

// attaches is the number of UEs that attach and detach, and seconds is the duration of the trial.
const attaches, seconds = 100, 5

// attach plays attaches and detaches. All must succeed.
func (g *guest) attach(t *testing.T, program, target string) {
	t.Helper()
	stdout := g.run(`exec "$0" generate s1ap --rate "$1" --duration "$2" --targets "$3" --param transport=sctp --param enodebs=2 --param timeout=1m`,
		program, strconv.Itoa(attaches/seconds), strconv.Itoa(seconds), target)
	report, err := load.ParseReport(strings.NewReader(stdout))
	if err != nil {
		t.Fatal(err)
	}
	if report.Offered != attaches || report.Succeeded != attaches {
		t.Errorf("offered %d attaches, %d succeeded: %v %s", report.Offered, report.Succeeded, report.Failed, report.Error)
	}
	if log := g.log(); !strings.Contains(log, "s1ap: over SCTP;") {
		t.Errorf("the generator's log does not name SCTP: %s", log)
	}
}

// await waits until the URL can be read.
func (g *guest) await(url string) {
	g.t.Helper()
	g.run(`for try in $(seq 3000); do busybox wget -q -O /dev/null "$0" && exit; sleep 0.1; done; exit 1`, url)
}

// count returns a number of a text with lines of a name and a number.
func count(t *testing.T, text, name string) int {
	t.Helper()
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + `\s+(\d+)$`).FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("missing counter %s in:\n%s", name, text)
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A guest is a virtual machine whose kernel has SCTP.
type guest struct {
	substrate.Instance
	t       *testing.T
	dir     string
	address string
}

func newGuest(t *testing.T, run string, s substrate.Substrate, wires fabric.Fabric, name string) *guest {
	t.Helper()
	component, _, _ := strings.Cut(name, "-")
	g := &guest{t: t, dir: t.TempDir()}
	in, err := s.Create(t.Context(), substrate.Spec{Run: run, Name: name, Component: component, Dir: g.dir})
	hosttest.Need(t, err)
	end, err := wires.Attach(t.Context(), fabric.Port{Instance: name, NetNS: in.NetNS()})
	if err != nil {
		t.Fatal(err)
	}
	g.Instance, g.address = in, end.Addr.String()
	return g
}

// boot starts the machine with a program and loads the SCTP module.
func (g *guest) boot(program string) error {
	return errors.Join(
		g.Run(g.t.Context(), vitrine.Command{Args: []string{program, "version"}}),
		g.Run(g.t.Context(), vitrine.Command{Args: []string{"/sbin/modprobe", "sctp"}}))
}

func script(text string, args ...string) []string {
	return append([]string{"/bin/sh", "-euc", text}, args...)
}

// start starts a shell script. args are its $0, $1 and so on.
func (g *guest) start(text string, args ...string) {
	g.t.Helper()
	if _, err := g.Start(g.t.Context(), vitrine.Command{Args: script(text, args...)}); err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() {
		if g.t.Failed() {
			g.t.Log(g.log())
		}
	})
}

// run runs a shell script and returns its standard output. args are its $0, $1 and so on.
func (g *guest) run(text string, args ...string) string {
	g.t.Helper()
	file := filepath.Join(g.t.TempDir(), "output")
	if err := g.Run(g.t.Context(), vitrine.Command{Args: script(text, args...), Stdout: file}); err != nil {
		g.t.Fatal(err)
	}
	return read(g.t, file)
}

func (g *guest) log() string { return read(g.t, filepath.Join(g.dir, "log")) }

// runTests runs the tests of a package in the machine. Each test must pass, except those for
// kernels without SCTP.
func (g *guest) runTests(t *testing.T, name string) {
	binary, output := hosttest.BuiltTests(t, name), filepath.Join(t.TempDir(), "output")
	begun := time.Now()
	err := g.Run(t.Context(), vitrine.Command{Args: []string{binary, "-test.v", "-test.skip=WithoutSCTP"}, Stdout: output})
	text := read(t, output)
	t.Logf("output of the machine after %v:\n%s", time.Since(begun), text)
	if err != nil || !strings.Contains(text, "--- PASS") || strings.Contains(text, "--- SKIP") {
		t.Errorf("not all tests passed: %v", err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
