package e2e

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"vitrine/affinity/capture"
	"vitrine/fabric"
	"vitrine/fabric/bridge"
	"vitrine/fabric/fabrictest"
	"vitrine/fabric/impair"
	"vitrine/fabric/segment"
	"vitrine/internal/capturetest"
	"vitrine/internal/hosttest"
	"vitrine/internal/netns"
	"vitrine/internal/runstate"
)

// patience limits every wait of these tests. Reaching it is a failure.
const patience = 60 * time.Second

// A site is a bridge with functions in namespaces of their own, in one test.
type site struct {
	t       testing.TB
	run     *runstate.Run
	fabric  fabric.Fabric
	dir     string
	places  map[string]place
	running []*running
	logs    []string // of messages, by the functions
}

// A place is where a function is.
type place struct {
	name, netns string
	addr        netip.Addr
}

func (p place) at(port int) string { return netip.AddrPortFrom(p.addr, uint16(port)).String() }

// A running is a process of a function.
type running struct {
	name   string
	cmd    *exec.Cmd
	output hosttest.Output
}

// newSite makes a site. Its links are impaired if links is not nil. go test -artifacts keeps its captures.
func newSite(t testing.TB, links *impair.Config) *site {
	t.Helper()
	for _, program := range []string{"tcpdump", "ip"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("needs %s", program)
		}
	}
	s := &site{t: t, dir: t.ArtifactDir(), places: map[string]place{}}
	s.run = fabrictest.NewRun(t, filepath.Join(s.dir, "runs"))
	plain, err := bridge.New(bridge.Config{Run: s.run})
	hosttest.Need(t, err)
	s.fabric = plain
	if links != nil {
		links.Run, links.Command = s.run, []string{os.Args[0], impair.Verb}
		s.fabric, err = impair.Wrap(t.Context(), plain, *links)
		hosttest.Need(t, err)
	}
	hosttest.AtEnd(t, func() error { return s.fabric.Close(context.Background()) })
	t.Cleanup(s.stop)
	return s
}

// place makes a place for each name.
func (s *site) place(names ...string) {
	s.t.Helper()
	for _, name := range names {
		path := fabrictest.Place(s.t, s.run.ID, name)
		end, err := s.fabric.Attach(s.t.Context(), fabric.Port{Instance: name, NetNS: path})
		if err != nil {
			s.t.Fatal(err)
		}
		s.places[name] = place{name, path, end.Addr}
	}
}

// called returns the names that a user gives to functions, by their addresses. UEs and
// eNodeBs have none.
func (s *site) called() map[string]string {
	called := map[string]string{}
	for name, at := range s.places {
		switch name, _, _ = strings.Cut(name, "-"); name {
		case "bono", "sprout", "homestead", "homer", "ralf", "store":
			called[at.addr.String()] = strings.ToUpper(name[:1]) + name[1:]
		case "mme", "hss", "pcrf":
			called[at.addr.String()] = strings.ToUpper(name)
		case "sgw", "pgw":
			called[at.addr.String()] = strings.ToUpper(name[:1] + "-" + name[1:])
		}
	}
	return called
}

// byPlace returns a function that names functions by their places. eNodeBs get no
// individual names, so that they are equal in all transactions.
func (s *site) byPlace() func(address string) string {
	names := map[string]string{}
	for name, at := range s.places {
		if !strings.HasPrefix(name, "enodeb") {
			names[at.addr.String()] = name
		}
	}
	return func(address string) string { return names[address] }
}

// log returns the file of a new log of messages.
func (s *site) log(name string) string {
	file := filepath.Join(s.dir, fmt.Sprintf("%s-%d.messages", name, len(s.logs)))
	s.logs = append(s.logs, file)
	return file
}

// command returns a program that runs at a place.
func (s *site) command(at, program string, args ...string) *exec.Cmd {
	cmd := exec.Command("ip", append([]string{"netns", "exec", filepath.Base(s.places[at].netns), os.Args[0]}, args...)...)
	cmd.Env = append(os.Environ(), asProgram+"="+program)
	return cmd
}

// start runs a function at a place until stop, and waits until it is ready.
func (s *site) start(at, program string, args ...string) {
	s.t.Helper()
	r := &running{name: at, cmd: s.command(at, program, args...)}
	r.cmd.Stdout, r.cmd.Stderr = &r.output, &r.output
	if err := r.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.running = append(s.running, r)
	hosttest.Until(s.t, patience, at+" is ready", r.output.Ready)
}

// function is like start, with a log of messages.
func (s *site) function(at, program string, args ...string) {
	s.t.Helper()
	s.start(at, program, append(args, "--messages", s.log(at))...)
}

// stop ends all functions, the last one first, so that their logs are whole.
func (s *site) stop() {
	for i := len(s.running) - 1; i >= 0; i-- {
		r := s.running[i]
		_ = r.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		if err := r.cmd.Wait(); err != nil {
			s.t.Errorf("%s ended with %v", r.name, err)
		}
		if s.t.Failed() {
			s.t.Logf("%s:\n%s", r.name, r.output.String())
		}
	}
	s.running = nil
}

// capture captures what passes the bridge: each packet once, where it comes from its
// sender's link. finish ends it.
func (s *site) capture(name string) (file string, finish func()) {
	return s.captureAt(netns.Path(segment.Name(s.run.ID)), "any", name, "-Q", "in")
}

// captureAt captures at an interface of a namespace.
func (s *site) captureAt(namespace, iface, name string, options ...string) (file string, finish func()) {
	s.t.Helper()
	file = filepath.Join(s.dir, name+".pcap")
	// With --immediate-mode, a slot of the kernel's ring has the size of the longest packet.
	// These give room for 12,000 packets, while tcpdump waits for a CPU.
	options = append(options, "--time-stamp-precision=nano", "-U", "-s", "16384", "-B", "196608")
	c, err := capturetest.Start(namespace, iface, "ip", file, options...)
	hosttest.Need(s.t, err)
	return file, func() {
		s.t.Helper()
		if err := c.Stop(); err != nil {
			s.t.Fatal(err)
		}
	}
}

// settle waits until the functions have sent all consequences of the last request: until a
// second in which the capture gets only polls of the store and their acknowledgements.
func (s *site) settle(file string) {
	s.t.Helper()
	hosttest.Until(s.t, patience, "all is sent", func() bool {
		return time.Now().UnixNano()-lastActivity(s.t, file) > int64(time.Second)
	})
}

// lastActivity returns when the last packet of a function's protocol, other than the
// store's, was captured.
func lastActivity(t testing.TB, file string) (at int64) {
	t.Helper()
	reader, err := capture.Open([]string{file}, capture.Options{})
	if err != nil {
		return time.Now().UnixNano() // it is not written yet
	}
	defer reader.Close()
	for p := reader.Next(); p != nil; p = reader.Next() {
		protocol := cmp.Or(ports[p.Dst.Port()], ports[p.Src.Port()])
		if len(p.Payload) > 0 && protocol != "" && protocol != http2Name {
			at = p.Time
		}
	}
	return at
}

// ready waits until functions at places say at their metrics' address that they are
// connected to what they need.
func (s *site) ready(names ...string) {
	s.t.Helper()
	for _, name := range names {
		hosttest.Until(s.t, patience, name+" is connected", func() bool {
			answer, err := s.ask(name, 9090, "GET /ready")
			return err == nil && strings.Contains(answer, " 200 ")
		})
	}
}

// ask sends an HTTP request without a body to a function from where the function is, so that
// no capture has it. It returns the whole answer.
func (s *site) ask(name string, port int, request string) (answer string, err error) {
	at := s.places[name]
	var conn net.Conn
	if err := netns.Do(at.netns, func() (err error) {
		conn, err = net.Dial("tcp4", at.at(port))
		return err
	}); err != nil {
		return "", err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, request+" HTTP/1.0\r\n\r\n"); err != nil {
		return "", err
	}
	text, err := io.ReadAll(conn)
	return string(text), err
}
