package application

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"vitrine"
	"vitrine/fabric"
	"vitrine/fabric/bridge"
	"vitrine/fabric/fabrictest"
	"vitrine/fabric/segment"
	"vitrine/image"
	"vitrine/image/debian"
	packed "vitrine/image/unikernel"
	"vitrine/internal/hosttest"
	"vitrine/internal/netns"
	"vitrine/internal/runstate"
	"vitrine/substrate"
	"vitrine/substrate/docker"
	"vitrine/substrate/docker/dockertest"
	"vitrine/substrate/process"
	"vitrine/substrate/qemu"
	"vitrine/substrate/qemu/machine"
	"vitrine/substrate/unikernel"
)

// insideArg is the first argument that makes the test binary call Inside. parentArg makes the
// test binary run itself with insideArg, as the substrate process does.
const insideArg, parentArg = "IMAGED_TEST_INSIDE", "IMAGED_TEST_PARENT"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == parentArg {
		runtime.LockOSThread() // for Pdeathsig
		c := exec.Command(os.Args[0], append([]string{insideArg}, os.Args[2:]...)...)
		c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
		c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		fmt.Fprintln(os.Stderr, c.Run())
		os.Exit(1)
	}
	if len(os.Args) > 1 && os.Args[1] == insideArg {
		fmt.Fprintln(os.Stderr, Inside(os.Args[2:], os.Environ()))
		os.Exit(127)
	}
	code := m.Run()
	_ = os.RemoveAll(agentDir)
	os.Exit(code)
}

// description describes one application. Its files include the programs with which the test reads
// files in an instance.
const description = `
name: redis
command: [redis-server, /etc/redis/test.conf]
environment: {VITRINE_TEST: everywhere}
configuration:
  - target: /etc/redis/test.conf
    text: |
      bind 0.0.0.0
      protected-mode no
      save ""
      maxmemory 12345678
files:
  - {target: /usr/bin/sha256sum, source: /usr/bin/sha256sum}
  - {target: /bin/cat, source: /bin/cat}
ports: {resp: 6379}
`

// prober is shared, so that all tests probe once.
var prober machine.Prober

// agentDir is the folder of the built agent; empty: there is none.
var agentDir string

// agent builds the agent of virtual machines.
var agent = sync.OnceValues(func() (path string, err error) {
	if agentDir, err = os.MkdirTemp("", "application-"); err != nil {
		return "", err
	}
	path = filepath.Join(agentDir, "agent")
	if err := hosttest.Build(context.Background(), path, "vitrine/substrate/qemu/guest/program"); err != nil {
		return "", err
	}
	return path, nil
})

// A bench is an image store and a run on a bridge.
type bench struct {
	*testing.T
	ctx    context.Context
	shared image.Cache // kernels and guests, shared by all tests
	store  image.Store
	run    *runstate.Run
	fabric *segment.Segment
	client string // path of the client's network namespace, on the bridge
}

func newBench(t *testing.T) *bench {
	t.Helper()
	shared, err := image.FindCache("", os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	b := &bench{T: t, ctx: t.Context(), shared: shared, run: fabrictest.NewRun(t, t.TempDir())}
	b.store = image.Store{Cache: image.Cache{Dir: t.TempDir()}, Packers: map[string]image.Packer{
		"process": image.Layer{}, "docker": image.Container{},
		"qemu":      debian.Packer{Builder: debian.Builder{Cache: shared, Logger: log, Environ: os.Environ()}},
		"unikernel": packed.Packer{Builder: packed.Builder{Cache: shared, Logger: log}},
	}}
	b.fabric, err = bridge.New(bridge.Config{Run: b.run})
	b.check(err)
	hosttest.AtEnd(t, func() error { return b.fabric.Close(context.WithoutCancel(b.ctx)) })
	b.client = fabrictest.Place(t, b.run.ID, "client-1")
	_, err = b.fabric.Attach(b.ctx, fabric.Port{Instance: "client-1", NetNS: b.client})
	b.check(err)
	return b
}

func (b *bench) check(err error) {
	b.Helper()
	hosttest.Need(b, err)
}

// build builds a substrate's image of a description.
func (b *bench) build(text, substrate string) image.Image {
	b.Helper()
	file := filepath.Join(b.TempDir(), "application.yaml")
	b.check(os.WriteFile(file, []byte(text), 0o600))
	application, err := image.Load(file)
	b.check(err)
	built, err := b.store.Build(b.ctx, application, substrate)
	b.check(err)
	return built
}

// open opens a substrate that uses the store's images.
func (b *bench) open(name string) *Substrate {
	b.Helper()
	c := Config{Name: name, Store: b.store, Run: b.run, Seen: new(sync.Map)}
	var err error
	switch name {
	case "process":
		self, err := os.Executable()
		b.check(err)
		c.Inside = []string{self, insideArg}
		c.Substrate, err = process.New(process.Config{Network: process.NetworkNamespace, Run: b.run, Environ: os.Environ()})
		b.check(err)
	case "docker":
		d, err := docker.New(b.ctx, docker.Config{Host: dockertest.Start(b.T), Runs: b.run.Root})
		b.check(err)
		c.Substrate, c.Load = d, func(ctx context.Context, i image.Image) (string, error) {
			id, err := image.ContainerID(i.File)
			b.check(err)
			return d.Load(ctx, i.File, id, image.Reference(i.Name))
		}
	case "qemu":
		program, err := agent()
		b.check(err)
		c.Started = true
		c.Substrate, err = qemu.New(qemu.Config{Run: b.run, Environ: os.Environ(), Cache: b.shared, Prober: &prober, Agent: []string{program}})
		b.check(err)
	case "unikernel":
		c.Substrate, err = unikernel.New(unikernel.Config{Run: b.run, Environ: os.Environ(), Cache: b.shared, Prober: &prober})
		b.check(err)
	}
	s := New(c)
	hosttest.AtEnd(b, func() error { return s.Close(context.WithoutCancel(b.ctx)) })
	return s
}

// start makes and starts an instance of the application on the bridge.
func (b *bench) start(s *Substrate, name string) (in substrate.Instance, address string) {
	b.Helper()
	in, err := s.Create(b.ctx, substrate.Spec{Run: b.run.ID, Name: name, Component: "redis", Image: "redis", Memory: 256 << 20, Dir: b.TempDir()})
	b.check(err)
	end, err := b.fabric.Attach(b.ctx, fabric.Port{Instance: name, NetNS: in.NetNS()})
	b.check(err)
	_, err = in.Start(b.ctx, vitrine.Command{}) // the image's own command
	b.check(err)
	return in, end.Addr.String()
}

// ask waits until a server answers and returns the value of one of its configuration
// parameters.
func (b *bench) ask(address, parameter string) string {
	b.Helper()
	var conn net.Conn
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for conn == nil {
		err := netns.Do(b.client, func() (err error) {
			d := net.Dialer{Timeout: 5 * time.Second}
			conn, err = d.DialContext(b.ctx, "tcp4", address+":6379")
			return err
		})
		select {
		case <-tick.C:
		case <-b.ctx.Done():
			b.Fatalf("got no answer: %v", err)
		}
	}
	defer conn.Close()
	deadline, _ := b.ctx.Deadline()
	b.check(conn.SetDeadline(deadline))
	_, err := io.WriteString(conn, "CONFIG GET "+parameter+"\r\n")
	b.check(err)
	lines := bufio.NewScanner(conn)
	for range 5 { // *2, $9, the name, $8, the value
		if !lines.Scan() {
			b.Fatalf("got no value for %s: %v", parameter, lines.Err())
		}
	}
	return lines.Text()
}

// TestImageRunsEverywhere builds the images of one description and runs each of them. Every
// server must answer with the description's configuration and run from identical files.
func TestImageRunsEverywhere(t *testing.T) {
	b := newBench(t)
	var want image.Digests
	for _, name := range []string{"process", "docker", "qemu", "unikernel"} {
		built := b.build(description, name) // may first have to build a kernel and a guest
		if want == (image.Digests{}) {
			want = built.Digests
		}
		if built.Digests != want || len(want.Program) != 64 || len(want.Configuration) != 64 {
			t.Errorf("%s: got digests %+v, want those of the other images %+v", name, built.Digests, want)
		}
	}
	for _, name := range []string{"process", "docker", "qemu", "unikernel"} {
		t.Run(name, func(t *testing.T) {
			b := *b
			var cancel context.CancelFunc
			b.T = t
			b.ctx, cancel = context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			in, address := b.start(b.open(name), name+"-1")
			if got := b.ask(address, "maxmemory"); got != "12345678" {
				t.Errorf("got maxmemory %q of another configuration", got)
			}
			if name == "unikernel" {
				return // it runs no other program; the digests are of the files that it boots with
			}
			out := filepath.Join(t.TempDir(), "out")
			b.check(in.Run(b.ctx, vitrine.Command{Args: []string{"/usr/bin/sha256sum", "/usr/bin/redis-server"}, Stdout: out}))
			b.check(in.Run(b.ctx, vitrine.Command{Args: []string{"/bin/cat", "/etc/redis/test.conf"}, Stdout: out}))
			got, err := os.ReadFile(out)
			b.check(err)
			if text := string(got); !strings.HasPrefix(text, want.Program+" ") || !strings.HasSuffix(text, "maxmemory 12345678\n") {
				t.Errorf("want program digest %s, the instance has %s", want.Program, text)
			}
		})
	}
}

func TestImagesMustAgree(t *testing.T) {
	b := newBench(t)
	s := b.open("process")
	spec := substrate.Spec{Run: b.run.ID, Name: "redis-1", Component: "redis", Image: "redis", Dir: t.TempDir()}
	b.build(description, "docker")
	if _, err := s.Create(b.ctx, spec); !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), "not for process") {
		t.Errorf("image for docker only: got %v, want BadInput", err)
	}
	for what, other := range map[string]string{
		"configuration": strings.ReplaceAll(description, "12345678", "87654321"),
		"files":         strings.ReplaceAll(description, "source: /bin/cat", "source: /bin/true"),
	} {
		b.build(other, "process")
		if _, err := s.Create(b.ctx, spec); !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), "differ") {
			t.Errorf("images with different %s: got %v, want BadInput", what, err)
		}
	}
	b.build(description, "process")
	in, err := s.Create(b.ctx, spec)
	b.check(err)
	root := filepath.Join(spec.Dir, rootDir)
	if _, err := os.Stat(filepath.Join(root, "usr/bin/redis-server")); err != nil {
		t.Error(err)
	}
	b.check(in.Remove(b.ctx))
	if _, err := os.Stat(root); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the root file system still exists after Remove: %v", err)
	}
	for _, of := range []string{"docker", "process"} {
		b.build(strings.ReplaceAll(description, "12345678", "87654321"), of)
	}
	if _, err := s.Create(b.ctx, spec); !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), "built again") {
		t.Errorf("images that were built again during the run: got %v, want BadInput", err)
	}
}

// TestRestoreUnpacksAgain checks that a fresh deployment does not find what an earlier one wrote into
// its image, and does not unpack an image that was built again meanwhile.
func TestRestoreUnpacksAgain(t *testing.T) {
	b := newBench(t)
	b.build(description, "process")
	dir := t.TempDir()
	in, err := b.open("process").Create(b.ctx, substrate.Spec{Run: b.run.ID, Name: "redis-1", Component: "redis", Image: "redis", Dir: dir})
	b.check(err)
	left := filepath.Join(dir, rootDir, "left")
	deploy := func() {
		b.check(in.Run(b.ctx, vitrine.Command{Args: []string{"/bin/cat", "/etc/redis/test.conf"}}))
		b.check(os.WriteFile(left, nil, 0o600))
		b.check(in.Stop(b.ctx, 0))
	}
	deploy()
	b.check(substrate.Restore(in))
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file of the earlier deployment is still there: %v", err)
	}
	deploy() // the image's files are there
	b.build(strings.ReplaceAll(description, "12345678", "87654321"), "process")
	if err := substrate.Restore(in); !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), "built again") {
		t.Errorf("an image that was built again: got %v, want BadInput", err)
	}
	b.check(in.Remove(b.ctx))
}

// TestCommandEndsWithVitrine kills a program that runs a command inside an image, as root and as another
// user. The command must end too, although nothing cleans up.
func TestCommandEndsWithVitrine(t *testing.T) {
	b := newBench(t)
	b.build(description, "process")
	dir := t.TempDir()
	in, err := b.open("process").Create(b.ctx, substrate.Spec{Run: b.run.ID, Name: "redis-1", Component: "redis", Image: "redis", Dir: dir})
	b.check(err)
	self, err := os.Executable()
	b.check(err)
	for _, user := range []string{"", "65534:65534"} {
		c := exec.CommandContext(b.ctx, self, parentArg, filepath.Join(dir, rootDir), dir, user, "/", "/bin/cat")
		c.Stderr = t.Output()
		stdin, err := c.StdinPipe()
		b.check(err)
		stdout, err := c.StdoutPipe()
		b.check(err)
		b.check(c.Start())
		_, err = io.WriteString(stdin, "runs\n")
		b.check(err)
		echoed := bufio.NewReader(stdout)
		if line, err := echoed.ReadString('\n'); line != "runs\n" {
			t.Fatalf("user %q: read %q, %v", user, line, err)
		}
		b.check(c.Process.Kill())
		ended := make(chan error, 1)
		go func() {
			_, err := io.Copy(io.Discard, echoed)
			ended <- err
		}()
		select {
		case <-ended:
		case <-time.After(20 * time.Second):
			t.Errorf("user %q: the command outlived the program that ran it", user)
		}
		_ = stdin.Close() // ends a command that is left
		_ = c.Wait()      // killed
	}
	b.check(in.Remove(b.ctx))
}

// A verbose is an instance with a log besides Dir/log.
type verbose struct{ substrate.Instance }

func (verbose) Logs() []string { return []string{"console"} }

// TestLogsOfTheSubstrate checks that an instance of an image reports the logs of its substrate,
// because a testbed bounds only the logs that it knows.
func TestLogsOfTheSubstrate(t *testing.T) {
	if got := substrate.Logs(&instance{Instance: verbose{}}); !slices.Equal(got, []string{"console"}) {
		t.Errorf("got logs %q, want the substrate's console", got)
	}
}

// TestKilledRunLeavesNoImage cleans up after a run that ended without removing its
// instances.
func TestKilledRunLeavesNoImage(t *testing.T) {
	root, dir := t.TempDir(), filepath.Join(t.TempDir(), rootDir)
	run := fabrictest.NewRun(t, root)
	if err := errors.Join(os.Mkdir(dir, 0o755), run.Record(recordKind, "redis-1", []byte(dir))); err != nil {
		t.Fatal(err)
	}
	if removed, err := (Cleaner{root}).Clean(t.Context()); err != nil || len(removed) > 0 {
		t.Errorf("Clean removed files of a running run: %q, error %v", removed, err)
	}
	dead := t.TempDir() // a runs folder with a copy of the run's records, but without its lock
	if err := os.CopyFS(filepath.Join(dead, run.ID), os.DirFS(run.Dir())); err != nil {
		t.Fatal(err)
	}
	if removed, err := (Cleaner{dead}).Clean(t.Context()); err != nil || len(removed) != 1 {
		t.Errorf("Clean removed %q, error %v, want 1", removed, err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder was not removed: %v", err)
	}
}
