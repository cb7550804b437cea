package unikernel

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"vitrine"
	"vitrine/fabric"
	"vitrine/fabric/bridge"
	"vitrine/fabric/fabrictest"
	"vitrine/image"
	packed "vitrine/image/unikernel"
	"vitrine/internal/hosttest"
	"vitrine/internal/netns"
	"vitrine/substrate"
	"vitrine/substrate/qemu/machine"
	"vitrine/substrate/substratetest"
)

// A stand is one instance on a bridge, and a client's namespace on the same bridge.
type stand struct {
	*testing.T
	ctx      context.Context
	instance substrate.Instance
	address  string // of the instance
	client   string // path of the client's network namespace
	log      string // file with the application's output
}

// onBridge makes an instance of the image and does not start it. It also checks the instance's
// vantage, because the namespace has a tap, too, that counts the same frames.
func onBridge(t *testing.T, img string, change func(*Config)) *stand {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	s, run := substrateOf(t, t.TempDir(), change)
	net, err := bridge.New(bridge.Config{Run: run})
	hosttest.Need(t, err)
	hosttest.AtEnd(t, func() error { return net.Close(context.WithoutCancel(ctx)) })
	dir := t.TempDir()
	in, err := s.Create(ctx, substrate.Spec{Run: run.ID, Name: "app-1", Component: "app", Image: img, Dir: dir, Memory: 128 << 20})
	hosttest.Need(t, err)
	t.Cleanup(func() {
		if err := s.Close(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
		if found, err := substratetest.Left(run.ID); err != nil || len(found) > 1 || len(found) == 1 && found[0] != "vt-"+run.ID+"-fabric" {
			t.Errorf("resources left: %q, error %v", found, err)
		}
	})
	client := fabrictest.Place(t, run.ID, "client-1")
	if _, err := net.Attach(ctx, fabric.Port{Instance: "client-1", NetNS: client}); err != nil {
		t.Fatal(err)
	}
	end, err := net.Attach(ctx, fabric.Port{Instance: "app-1", NetNS: in.NetNS()})
	if err != nil {
		t.Fatal(err)
	}
	if v := in.Vantage(); v.NetNS != in.NetNS() || v.Interface != end.Interface {
		t.Errorf("vantage: got interface %q in namespace %q, want %q in %q", v.Interface, v.NetNS, end.Interface, in.NetNS())
	}
	return &stand{T: t, ctx: ctx, instance: in, address: end.Addr.String(), client: client, log: filepath.Join(dir, "log")}
}

func (s *stand) start(args ...string) substrate.Process {
	s.Helper()
	p, err := s.instance.Start(s.ctx, vitrine.Command{Args: args})
	if err != nil {
		s.Fatal(err)
	}
	return p
}

// dial connects to a port of the instance, and waits until it listens.
func (s *stand) dial(port int) net.Conn {
	s.Helper()
	var conn net.Conn
	s.eventually(fmt.Sprintf("port %d answers", port), func() bool {
		err := netns.Do(s.client, func() (err error) {
			d := net.Dialer{Timeout: 5 * time.Second}
			conn, err = d.DialContext(s.ctx, "tcp4", fmt.Sprintf("%s:%d", s.address, port))
			return err
		})
		return err == nil
	})
	deadline, _ := s.ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = conn.Close() })
	return conn
}

func (s *stand) eventually(what string, holds func() bool) {
	s.Helper()
	defer func() {
		if s.Failed() {
			printed, _ := os.ReadFile(s.log)
			s.Logf("output of the unikernel:\n%s", printed)
		}
	}()
	hosttest.Until(s, 2*time.Minute, what, holds)
}

func (s *stand) logged(text string) {
	s.Helper()
	s.eventually(fmt.Sprintf("%q in the log", text), func() bool {
		b, err := os.ReadFile(s.log)
		return err == nil && strings.Contains(string(b), text)
	})
}

// built builds an image from a description, with the kernel from the cache that all tests share.
func built(t *testing.T, description string) image.Image {
	t.Helper()
	file := filepath.Join(t.TempDir(), "application.yaml")
	if err := os.WriteFile(file, []byte(description), 0o600); err != nil {
		t.Fatal(err)
	}
	a, err := image.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	kernel(t)
	builder := packed.Builder{Cache: config(t, nil).Cache}
	store := image.Store{Cache: image.Cache{Dir: t.TempDir()}, Packers: map[string]image.Packer{Name: packed.Packer{Builder: builder}}}
	i, err := store.Build(t.Context(), a, Name)
	hosttest.Need(t, err)
	return i
}

// TestUnikernelStartReadsNoImage checks that Start uses what Create unpacked, because reading the image
// would count as boot time. QEMU's user may read the files, so that Start need not copy them either.
func TestUnikernelStartReadsNoImage(t *testing.T) {
	img := built(t, "name: sleeper\ncommand: [sleep, \"60\"]\n")
	in := &Instance{dir: t.TempDir(), origin: origin{file: img.File, builtHere: true}}
	if err := in.unpack(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(img.File); err != nil {
		t.Fatal(err)
	}
	var spec machine.Spec
	start, err := in.files(vitrine.Command{}, &spec)
	if err != nil || !slices.Equal(start.Args, []string{"/usr/bin/sleep", "60"}) {
		t.Fatalf("got %+v, error %v", start, err)
	}
	for _, file := range []string{spec.Kernel, spec.Initrd} {
		if info, err := os.Stat(file); err != nil || info.Size() == 0 || info.Mode().Perm() != 0o644 {
			t.Errorf("%s: %+v, error %v", file, info, err)
		}
	}
}

func TestUnikernelRunsRedis(t *testing.T) {
	needs(t, "redis-server")
	img := built(t, `
name: redis
command: [redis-server, /etc/redis/test.conf]
configuration:
  - target: /etc/redis/test.conf
    text: |
      bind 0.0.0.0
      protected-mode no
      save ""
      maxmemory 12345678
ports: {resp: 6379}
`)
	s := onBridge(t, img.File, func(*Config) {})
	p := s.start() // the image's own command
	conn := s.dial(6379)
	answers := bufio.NewReader(conn)
	for _, step := range []struct{ say, want string }{
		{"PING", "+PONG"},
		{"SET subscriber 6505550001", "+OK"},
		{"GET subscriber", "$10 6505550001"},
		{"CONFIG GET maxmemory", "*2 $9 maxmemory $8 12345678"},
	} {
		if _, err := io.WriteString(conn, step.say+"\r\n"); err != nil {
			t.Fatal(err)
		}
		var got []string
		for len(got) < len(strings.Fields(step.want)) {
			line, err := answers.ReadString('\n')
			if err != nil {
				t.Fatalf("%s: %q, %v", step.say, got, err)
			}
			got = append(got, strings.TrimSpace(line))
		}
		if strings.Join(got, " ") != step.want {
			t.Errorf("%s: got %q, want %q", step.say, got, step.want)
		}
	}
	if err := s.instance.Stop(s.ctx, time.Minute); err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	if err := p.Err(); err != nil {
		t.Errorf("stopped on request with error: %v", err)
	}
	s.logged("Redis is now ready to exit")
}

func TestUnikernelRunsHTTPServer(t *testing.T) {
	needs(t, "busybox")
	img := built(t, `
name: web
command: [busybox, httpd, -f, -p, "80", -c, /etc/httpd.conf, -h, /www]
configuration:
  - {target: /etc/httpd.conf, text: "E404:/www/none.html\n"}
files:
  - {target: /www/index.html, text: "served by a unikernel"}
  - {target: /www/none.html, text: "the configured page"}
ports: {http: 80}
`)
	s := onBridge(t, img.File, func(*Config) {})
	s.start()
	s.dial(80)
	client := http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return s.dial(80), nil }}}
	defer client.CloseIdleConnections()
	for path, want := range map[string]string{"/": "200 served by a unikernel", "/missing": "404 the configured page"} {
		request, err := http.NewRequestWithContext(s.ctx, http.MethodGet, "http://"+s.address+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if got := fmt.Sprintf("%d %s", answer.StatusCode, body); err != nil || got != want {
			t.Errorf("GET %s: got %q, error %v, want %q", path, got, err, want)
		}
	}
}
