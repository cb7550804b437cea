package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types"

	"vitrine"
	"vitrine/internal/hosttest"
	"vitrine/internal/runstate"
	"vitrine/substrate"
	"vitrine/substrate/docker/dockertest"
)

// TestDockerSubstrateEngineDies checks that errors say that the engine is lost, and that nothing
// hangs. When the engine is back, Clean must find what was left.
func TestDockerSubstrateEngineDies(t *testing.T) {
	e := dockertest.Own(t)
	t.Setenv("DOCKER_HOST", e.Host)
	s, run := open(t, filepath.Join(t.TempDir(), "runs"))
	tool := hosttest.Built(t, "./testdata/tool")
	spec := substrate.Spec{Run: run.ID, Name: "c-1", Dir: t.TempDir()}
	in, err := s.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	p, err := in.Start(t.Context(), vitrine.Command{Args: []string{tool, "wait"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Kill(); err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	lost := func(what string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), e.Host) || !strings.Contains(err.Error(), "lost the engine") {
			t.Errorf("%s with a stopped engine: got %v", what, err)
		}
	}
	lost("the process", p.Err())
	spec.Name = "c-2"
	_, err = s.Create(t.Context(), spec)
	lost("Create", err)
	lost("Run", in.Run(t.Context(), vitrine.Command{Args: []string{tool, "environ"}}))
	lost("Remove", in.Remove(t.Context()))
	lost("Close", s.Close(t.Context()))
	if _, err := New(t.Context(), Config{Host: e.Host}); !vitrine.IsUnsupported(err) {
		t.Errorf("New with a stopped engine: got %v, want Unsupported", err)
	}

	e.Restart(t)
	if err := run.Close(); err != nil {
		t.Fatal(err)
	}
	removed, err := s.Clean(t.Context())
	if err != nil || len(removed) != 4 { // sandbox and function, and their images
		t.Errorf("Clean removed %q, error %v, want 4", removed, err)
	}
	if left, err := labelled(t, run.ID); err != nil || len(left) > 0 {
		t.Errorf("containers left: %q, error %v", left, err)
	}
}

// TestDockerSubstrateEngineIsNamed checks that the version of an engine names its software and its
// address.
func TestDockerSubstrateEngineIsNamed(t *testing.T) {
	host := dockertest.Start(t)
	if got, err := Version(t.Context(), Config{Host: host}); err != nil || !strings.HasPrefix(got, "Docker Engine, version ") || !strings.HasSuffix(got, ", "+host) {
		t.Errorf("got %q, error %v, want Docker Engine, its version and %s", got, err, host)
	}
}

// TestPodmanIsNamed checks the name of an engine with Podman's answer to GET /version.
func TestPodmanIsNamed(t *testing.T) {
	var v types.Version
	if err := json.Unmarshal([]byte(`{"Platform":{"Name":"linux/amd64/debian-12"},"Components":[{"Name":"Podman Engine","Version":"4.3.1",
		"Details":{"APIVersion":"4.3.1"}},{"Name":"Conmon","Version":"conmon version 2.1.6"}],"Version":"4.3.1","ApiVersion":"1.41"}`), &v); err != nil {
		t.Fatal(err)
	}
	if got := nameOfEngine(v); got != "Podman Engine" {
		t.Errorf("got %q, want Podman Engine", got)
	}
}

// TestRootlessEngineHasAnotherNetwork checks that a rootless Docker Engine is refused for instances in
// the host's network, because no generator reaches them there. Rootless Podman is not.
func TestRootlessEngineHasAnotherNetwork(t *testing.T) {
	for component, refused := range map[string]bool{"Engine": true, "Podman Engine": false} {
		socket := filepath.Join(t.TempDir(), "socket")
		l, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Api-Version", "1.41")
			switch path.Base(r.URL.Path) {
			case "version":
				fmt.Fprintf(w, `{"Components":[{"Name":%q}],"ApiVersion":"1.41"}`, component)
			case "info":
				fmt.Fprint(w, `{"OSType":"linux","SecurityOptions":["name=seccomp,profile=builtin","name=rootless"]}`)
			}
		}))
		_ = server.Listener.Close()
		server.Listener = l
		server.Start()
		t.Cleanup(server.Close)
		s, err := New(t.Context(), Config{Host: "unix://" + socket, Network: "host"})
		if err == nil {
			err = s.api.Close()
		}
		if refused && (!vitrine.IsUnsupported(err) || !strings.Contains(err.Error(), "rootless")) || !refused && err != nil {
			t.Errorf("%s: got %v, want it to be refused: %t", component, err, refused)
		}
	}
}

// TestDockerSubstrateEngineSilent checks that calls to a hung engine end, even where the SDK itself
// ignores the context.
func TestDockerSubstrateEngineSilent(t *testing.T) {
	e := dockertest.Own(t)
	t.Setenv("DOCKER_HOST", e.Host)
	s, run := open(t, filepath.Join(t.TempDir(), "runs"))
	in, err := s.Create(t.Context(), substrate.Spec{Run: run.ID, Name: "c-1", Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	box := in.(*Instance)
	if err := e.Freeze(); err != nil {
		t.Fatal(err)
	}
	s.limit = 200 * time.Millisecond
	calls := map[string]func(context.Context) error{
		"inspect": func(ctx context.Context) error { _, err := s.inspect(ctx, box.sandbox); return err },
		"attach": func(ctx context.Context) error {
			return box.startWatched(ctx, &process{id: box.sandbox, s: s, name: "c-1"})
		},
	}
	for name, call := range calls {
		if err := call(t.Context()); err == nil || !strings.Contains(err.Error(), "has not answered for 200ms") {
			t.Errorf("%s with an engine that does not answer: got %v", name, err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("interrupted"))
		if err := call(ctx); err == nil || !strings.Contains(err.Error(), "interrupted") {
			t.Errorf("%s with a cancelled context: got %v", name, err)
		}
	}
	if err := e.Thaw(); err != nil {
		t.Fatal(err)
	}
	s.limit = callLimit
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if left, err := labelled(t, run.ID); err != nil || len(left) > 0 {
		t.Errorf("containers left: %q, error %v", left, err)
	}
}

func TestDockerUnreachable(t *testing.T) {
	dir := t.TempDir()
	dead := filepath.Join(dir, "dead")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: dead})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{filepath.Join(dir, "none"): "install Docker", dead: "nothing listens"} {
		_, err := New(t.Context(), Config{Host: "unix://" + path})
		if !vitrine.IsUnsupported(err) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an Unsupported with %s and %q", err, path, want)
		}
	}
	denied := unreachable("unix:///s", "/s", &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.EACCES)})
	if !vitrine.IsUnsupported(denied) || !strings.Contains(denied.Error(), "group docker") {
		t.Errorf("no permission: got %v, want a hint to group docker", denied)
	}
	if _, err := New(t.Context(), Config{Host: "here"}); !vitrine.IsBadInput(err) {
		t.Errorf("host here: got %v, want BadInput", err)
	}
}

func TestDockerSubstrateCheck(t *testing.T) {
	host := dockertest.Start(t)
	s, err := New(t.Context(), Config{Host: host, Runs: runstate.DefaultRoot()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.api.Close()
	found := make(map[string]vitrine.Check)
	for _, c := range s.Check(t.Context()) {
		found[c.Name] = c
		t.Logf("%+v", c)
	}
	for name, detail := range map[string]string{
		"docker: engine": host, "docker: storage": "driver", "docker: runtimes": "runc", "docker: CPU quotas": "cgroup v",
		"docker: memory limits": "swap", "docker: binding to CPUs": "driver", "docker: network namespaces": "",
	} {
		c, ok := found[name]
		if !ok || c.OK && !strings.Contains(c.Detail, detail) || !c.OK && c.Missing == "" {
			t.Errorf("check %q: %+v", name, c)
		}
	}
	if len(found) != 7 {
		t.Errorf("got %d checks, want 7: %s", len(found), fmt.Sprint(found))
	}
}
