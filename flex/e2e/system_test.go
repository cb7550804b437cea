// Package e2e tests the orchestrator as users run it: with a director, a store and
// aggregates of the reference IMS in processes, under SIP load.
package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"vitrine/flex"
	"vitrine/internal/cgroup"
	"vitrine/internal/hosttest"
	"vitrine/load"
)

// limit bounds every wait. It is far more than a busy host needs.
const limit = 90 * time.Second

// A system is the file of an orchestrator, with the addresses of its director.
type system struct {
	t       *testing.T
	dir     string
	vitrine string // path of the program
	file    string
	sip     string // address of the director
	control string // control address of the director
	inside  int    // PID of a process whose network namespace calls come from; 0: the host's
}

// newBare returns a system whose files are not written yet. At its end, the test stops everything
// that still runs.
func newBare(t *testing.T) *system {
	t.Helper()
	_, err := cgroup.Detect()
	hosttest.Need(t, err)
	s := &system{t: t, dir: t.TempDir(), sip: hosttest.FreeAddress(t, "udp"), control: hosttest.FreeAddress(t, "tcp")}
	s.vitrine = program(t)
	s.file = filepath.Join(s.dir, "flex.yaml")
	t.Cleanup(func() {
		_, _ = exec.Command(s.vitrine, "flex", "stop", s.file).CombinedOutput() // errors do not matter: most tests have stopped it
		if t.Failed() {
			for _, name := range []string{flex.EventsFile, "holder.log"} {
				text, _ := os.ReadFile(filepath.Join(s.file+".flex", name)) // without the file, there is nothing to show
				t.Logf("%s:\n%s", name, text)
			}
		}
	})
	return s
}

// newSystem writes the files of a system and starts nothing. rate is the declared capacity of an
// instance in transactions/s.
func newSystem(t *testing.T, rate int) *system {
	t.Helper()
	s := newBare(t)
	deployment, err := filepath.Abs("testdata/deployment.yaml")
	if err != nil {
		t.Fatal(err)
	}
	store := hosttest.FreeAddress(t, "tcp")
	s.writeDirector("")
	s.write("flex.yaml", `
directors: [{control: "`+s.control+`"}]
store: {url: "http://`+store+`"}
services:
  - {name: store, command: [vitrine, store, run, --listen, "`+store+`", --dir, "${VITRINE_DIR}/records"], ready: "`+store+`"}
  - {name: director, command: [vitrine, director, run, director.yaml], ready: "`+s.control+`"}
types:
  - name: registration
    deployment: `+deployment+`
    environment: {STORE: "http://`+store+`"}
    flavors: [{size: bn1s-sp1s-hs1s-hm1s, rate: `+strconv.Itoa(rate)+`}]
    max: 2
    stable: 4s
    boot: 3s
servers: {substrate: process, fabric: loopback}
`)
	return s
}

// writeDirector writes the director's file. more is appended to it.
func (s *system) writeDirector(more string) {
	s.t.Helper()
	s.write("director.yaml", `
listen: {sip: ["udp://`+s.sip+`"], control: "`+s.control+`"}
transition: 2s
types: [{name: registration, protocol: sip}]
rules: [{type: registration}]
`+more+"\n")
}

func (s *system) write(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// programs is the folder of the program, which is built once for all tests.
var programs string

var build = sync.OnceValues(func() (string, error) {
	path := filepath.Join(programs, "vitrine")
	return path, hosttest.Build(context.Background(), path, hosttest.Product)
})

func TestMain(m *testing.M) {
	if capacity := os.Getenv(servesVariable); capacity != "" {
		os.Exit(serveMember(capacity, os.Args[1]))
	}
	err := os.Setenv("PATH", os.Getenv("PATH")+":/usr/sbin") // of kamailio
	if err == nil {
		programs, err = os.MkdirTemp("", "flex-e2e-")
	}
	if err != nil {
		panic(err)
	}
	status := m.Run()
	_ = os.RemoveAll(programs) // in the temporary folder
	os.Exit(status)
}

// program returns the path of the program.
func program(t *testing.T) string {
	t.Helper()
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// An orchestrator is a process of vitrine flex run.
type orchestrator struct {
	s      *system
	cmd    *exec.Cmd
	output *hosttest.Output
	ended  chan struct{}
}

// run starts an orchestrator.
func (s *system) run(more ...string) *orchestrator {
	s.t.Helper()
	o := &orchestrator{s: s, cmd: exec.Command(s.vitrine, append([]string{"flex", "run", s.file}, more...)...), output: &hosttest.Output{}, ended: make(chan struct{})}
	o.cmd.Stdout, o.cmd.Stderr = o.output, o.output
	if err := o.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() {
		_ = o.cmd.Wait() // end checks the exit code
		close(o.ended)
	}()
	s.t.Cleanup(func() {
		o.end(syscall.SIGTERM)
		if s.t.Failed() {
			s.t.Logf("vitrine flex run, pid %d:\n%s", o.cmd.Process.Pid, o.output)
		}
	})
	return o
}

// end sends a signal and waits for the end. SIGTERM must end the orchestrator with exit code 0.
func (o *orchestrator) end(signal syscall.Signal) {
	o.s.t.Helper()
	err := o.cmd.Process.Signal(signal) // an error means that it has ended
	select {
	case <-o.ended:
		if code := o.cmd.ProcessState.ExitCode(); err == nil && signal == syscall.SIGTERM && code != 0 {
			o.s.t.Errorf("the orchestrator ended with exit code %d on %s, want 0", code, signal)
		}
	case <-time.After(limit):
		o.s.t.Errorf("the orchestrator did not stop on %s", signal)
	}
}

// refuseTakeover starts an orchestrator whose control address is in use. It must end.
func (s *system) refuseTakeover() {
	s.t.Helper()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	defer taken.Close()
	text, err := os.ReadFile(s.file)
	if err != nil {
		s.t.Fatal(err)
	}
	s.write(filepath.Base(s.file), string(text)+"control: {listen: \""+taken.Addr().String()+"\"}\n")
	if out, status := s.verb("run"); status != 1 || !strings.Contains(out, "address already in use") {
		s.t.Errorf("an orchestrator whose control address is in use ended with status %d: %s", status, out)
	}
	s.write(filepath.Base(s.file), string(text))
}

// verb runs a verb of vitrine flex on the file, which is also its standard input: a holder reads it there. It
// returns the output and the exit code.
func (s *system) verb(name string, more ...string) (out string, status int) {
	s.t.Helper()
	file, err := os.Open(s.file)
	if err != nil {
		s.t.Fatal(err)
	}
	defer file.Close()
	c := exec.CommandContext(s.t.Context(), s.vitrine, append([]string{"flex", name, s.file}, more...)...)
	c.Stdin = file
	text, err := c.CombinedOutput()
	if c.ProcessState == nil {
		s.t.Fatal(err)
	}
	return string(text), c.ProcessState.ExitCode()
}

// status returns the orchestrator's status, or nil if no orchestrator runs.
func (s *system) status() *flex.Status {
	s.t.Helper()
	time.Sleep(50 * time.Millisecond) // most callers poll, and each process takes CPU time from the system
	out, status := s.verb("status", "--json")
	var got flex.Status
	if status != 0 || json.Unmarshal([]byte(out), &got) != nil || got.PID == 0 {
		return nil
	}
	return &got
}

// names returns the names of the instances in a state.
func (s *system) names(state string) []string {
	s.t.Helper()
	return inState(s.status(), state)
}

// inState returns the names of a status's instances in a state. There may be no status.
func inState(got *flex.Status, state string) (names []string) {
	if got != nil {
		for _, in := range got.Instances {
			if in.State == state {
				names = append(names, in.Name)
			}
		}
	}
	return names
}

// awaitOnly waits until exactly these instances exist, and all are active.
func (s *system) awaitOnly(names ...string) {
	s.t.Helper()
	hosttest.Until(s.t, limit, fmt.Sprintf("only %s run", names), func() bool {
		got := s.status()
		return got != nil && len(got.Instances) == len(names) && slices.Equal(inState(got, "active"), names)
	})
}

// events returns the log of events.
func (s *system) events() (all []flex.Event) {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.file+".flex", flex.EventsFile))
	if err != nil {
		s.t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		var e flex.Event
		if err := json.Unmarshal(line, &e); err == nil {
			all = append(all, e)
		}
	}
	return all
}

// count returns the number of events of a kind.
func (s *system) count(kind string) (n int) {
	s.t.Helper()
	for _, e := range s.events() {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

// A calls is a running generator.
type calls struct {
	name string
	done chan struct{}
	out  bytes.Buffer
	errs bytes.Buffer
	err  error
}

// call starts a generator. Each call registers and deregisters a user of its own, in perCall
// transactions.
func (s *system) call(name string, rate, seconds float64, firstUser int) *calls {
	s.t.Helper()
	c, err := s.generate(name, load.Trial{Rate: rate, Duration: seconds, Seed: 1, Params: map[string]string{"first_user": fmt.Sprint(firstUser), "users": "20000"}})
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

// generate starts a generator. The trial's parameters override the defaults here.
func (s *system) generate(name string, trial load.Trial) (*calls, error) {
	local, _, err := net.SplitHostPort(s.sip)
	if err != nil {
		return nil, err
	}
	params := map[string]string{"scenario": "reg-dereg", "retransmit": "true", "timeout": "30s", "local": local, "port": "0"}
	maps.Copy(params, trial.Params)
	trial.Params, trial.Targets, trial.Scratch = params, []string{s.sip}, filepath.Join(s.dir, name)
	if err := os.Mkdir(trial.Scratch, 0o700); err != nil {
		return nil, err
	}
	generator := []string{s.vitrine, "generate", "sip"}
	if s.inside != 0 {
		generator = append([]string{"nsenter", "--net", "--target", strconv.Itoa(s.inside)}, generator...)
	}
	command := load.Command(generator, trial)
	c := &calls{name: name, done: make(chan struct{})}
	cmd := exec.CommandContext(s.t.Context(), command.Args[0], command.Args[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), command.Env...), &c.out, &c.errs
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		c.err = cmd.Wait()
		close(c.done)
	}()
	return c, nil
}

// perCall is the number of transactions of a call.
const perCall = 3

// allSucceed waits for the end of a generator that offers calls for some seconds. Every call must
// have succeeded. It returns the number of transactions.
func (c *calls) allSucceed(t *testing.T, seconds float64) (transactions int64) {
	t.Helper()
	select {
	case <-c.done:
	case <-time.After(2*limit + time.Duration(seconds*float64(time.Second))):
		t.Fatalf("the generator %s did not end", c.name)
	}
	if c.err != nil {
		t.Fatalf("the generator %s: %v:\n%s", c.name, c.err, c.errs.String())
	}
	r, err := load.ParseReport(&c.out)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: %d calls scheduled, %d succeeded, failed: %v", c.name, r.Scheduled, r.Succeeded, r.Failed)
	if r.Succeeded != r.Scheduled || r.Scheduled == 0 {
		t.Errorf("%s: %d of %d calls succeeded, failed: %v", c.name, r.Succeeded, r.Scheduled, r.Failed)
	}
	return perCall * r.Succeeded
}

// awayNow reports whether the orchestrator misses something whose description contains the text,
// such as its director.
func (s *system) awayNow(text string) bool {
	s.t.Helper()
	got := s.status()
	return got != nil && slices.ContainsFunc(got.Away, func(what string) bool { return strings.Contains(what, text) })
}

// directorPID returns the process ID of the director.
func (s *system) directorPID() int {
	s.t.Helper()
	out, err := exec.CommandContext(s.t.Context(), s.vitrine, "director", "status", "--json", "--director", s.control).Output()
	var got struct{ PID int }
	if err == nil {
		err = json.Unmarshal(out, &got)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return got.PID
}

// kill sends SIGKILL to a process.
func kill(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}
