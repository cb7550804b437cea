package director

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vitrine"
	"vitrine/director/client"
	"vitrine/internal/hosttest"
)

// bySocket returns a client that uses the director's unix socket.
func (r *running) bySocket(t testing.TB) *http.Client {
	t.Helper()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", r.socket)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// ask sends a request and returns the status of the answer.
func ask(t testing.TB, c *http.Client, method, url string, headers ...string) int {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		q.Header.Set(headers[i], headers[i+1])
	}
	q.Host = q.Header.Get("Host")
	a, err := c.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	return a.StatusCode
}

// changing returns all requests that change something.
func changing() map[string]string {
	return map[string]string{
		"/v1/restart": http.MethodPost, "/v1/reload": http.MethodPost, "/v1/rules": http.MethodPut, "/v1/rooms": http.MethodPut,
		"/v1/instances": http.MethodPut, "/v1/instances/reg-1": http.MethodPatch, "/v1/instances/reg-2": http.MethodDelete,
	}
}

// TestLoopbackChangesNothing checks that clients over loopback without a token can read but not
// change, however they spell the path.
func TestLoopbackChangesNothing(t *testing.T) {
	r := runGood(t)
	base := "http://" + r.Control()
	for path, method := range changing() {
		for _, spelt := range []string{path, path + "/", "//" + path[1:], "/./" + path[1:], strings.ToUpper(path)} {
			if got := ask(t, http.DefaultClient, method, base+spelt); got/100 == 2 {
				t.Errorf("%s %s: %d", method, spelt, got)
			}
		}
		if got := ask(t, http.DefaultClient, method, base+path); got != http.StatusForbidden {
			t.Errorf("%s %s: got status %d, want 403", method, path, got)
		}
	}
	for _, path := range []string{"/v1/status", "/v1/instances", "/v1/rules", "/metrics", "/healthz"} {
		if got := ask(t, http.DefaultClient, http.MethodGet, base+path); got != http.StatusOK {
			t.Errorf("GET %s: got status %d, want 200", path, got)
		}
	}
	if got := ask(t, http.DefaultClient, http.MethodPost, base+explainPath); got != http.StatusBadRequest {
		t.Errorf("explain without a message: got status %d, want 400", got)
	}
	if s := r.settle(t); s.Epoch != 1 {
		t.Errorf("got epoch %d, want 1", s.Epoch)
	}
}

// TestSocket checks that a director accepts all requests through its own socket, with and without
// tokens. Only the director's user can open the socket. The director removes it at its end.
func TestSocket(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "tokens"), token+"\n")
	for _, more := range []string{"", "control: {token_file: tokens}\n"} {
		r := run(t, write(t, filepath.Join(dir, "director.yaml"), good+more))
		is, err := os.Stat(r.socket)
		if err != nil {
			t.Fatal(err)
		}
		if is.Mode() != os.ModeSocket|0o600 {
			t.Errorf("mode of the control socket: got %s, want 0600", is.Mode())
		}
		if got := ask(t, r.bySocket(t), http.MethodPost, "http://director/v1/reload"); got != http.StatusOK {
			t.Errorf("reload through the socket: got status %d, want 200", got)
		}
		c, err := client.New(client.Access{URL: "unix:" + r.socket})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Drain(t.Context(), "reg-1"); err != nil {
			t.Error(err)
		}
		r.stop()
		if _, err := os.Stat(r.socket); err == nil {
			t.Errorf("%s still exists after the director stopped", r.socket)
		}
	}
}

// TestSocketPath checks control.socket. A director replaces the socket of a dead director. It
// leaves alone the socket of a live director, and files that are no sockets.
func TestSocketPath(t *testing.T) {
	dir, err := os.MkdirTemp("", "vt") // t.TempDir is too long: a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "c"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close()
	path := write(t, filepath.Join(dir, "director.yaml"), good+"control: {socket: c}\n")
	r := run(t, path)
	if got := ask(t, r.bySocket(t), http.MethodPost, "http://director/v1/reload"); got != http.StatusOK || r.socket != filepath.Join(dir, "c") {
		t.Errorf("reload through %s: got status %d, want 200", r.socket, got)
	}
	clock, err := HostClock()
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "file"), "")
	for name, want := range map[string]string{"c": "another director", "file": "not a socket"} {
		other := write(t, filepath.Join(dir, "other.yaml"), good+"control: {socket: "+name+"}\n")
		if _, err := New(t.Context(), Options{Path: other, Clock: clock, Log: r.log.Logger()}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestASupervisedDirectorIsNotReplaced checks that a director that another program supervises refuses to
// hand over, and says what to do instead.
func TestASupervisedDirectorIsNotReplaced(t *testing.T) {
	const want = "and vitrine flex starts the director again"
	r := run(t, write(t, filepath.Join(t.TempDir(), "director.yaml"), good), func(o *Options) { o.Supervisor = "vitrine flex" })
	if err := r.restart(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("restart by a signal: got error %v, want one with %q", err, want)
	}
	if status, _, body := r.request(t, http.MethodPost, "/v1/restart", ""); status != http.StatusConflict || !strings.Contains(string(body), want) {
		t.Errorf("restart by REST: got %d %s, want 409 with %q", status, body, want)
	}
}

// TestSocketTooLong checks that a path that is too long for a unix socket is refused as bad input.
func TestSocketTooLong(t *testing.T) {
	clock, err := HostClock()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{strings.Repeat("f", 90) + "/c", strings.Repeat("c", 108)} {
		path := write(t, filepath.Join(t.TempDir(), "director.yaml"), good+"control: {socket: /"+name+"}\n")
		_, err := New(t.Context(), Options{Path: path, Clock: clock, Log: new(hosttest.Output).Logger()})
		if !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), "too long for a unix socket") {
			t.Errorf("socket name of %d bytes: got error %v", len(name)+1, err)
		}
	}
}

// TestSocketOfNone checks that a director that is closed before Run removes its socket.
func TestSocketOfNone(t *testing.T) {
	clock, err := HostClock()
	if err != nil {
		t.Fatal(err)
	}
	d, err := New(t.Context(), Options{Path: write(t, filepath.Join(t.TempDir(), "director.yaml"), good), Clock: clock, Log: new(hosttest.Output).Logger()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(d.socket); err != nil {
		t.Error(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(d.socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s was not removed: %v", d.socket, err)
	}
}

// TestSocketOfAnother checks that a director does not remove a socket that another process has put
// in the place of its own.
func TestSocketOfAnother(t *testing.T) {
	r := runGood(t)
	if err := os.Remove(r.socket); err != nil {
		t.Fatal(err)
	}
	l, err := openSocket("unix", r.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	defer os.Remove(r.socket)
	r.stop()
	if _, err := os.Lstat(r.socket); err != nil {
		t.Error(err)
	}
}

// TestALostSocketIsReportedOnce removes the socket, as the system does at the end of the user's last session.
func TestALostSocketIsReportedOnce(t *testing.T) {
	log := new(hosttest.Output)
	d := &Director{log: log.Logger(), socket: write(t, filepath.Join(t.TempDir(), "socket"), "")}
	d.warnOfLostSocket()
	if log.String() != "" {
		t.Errorf("a socket that exists is reported:\n%s", log.String())
	}
	if err := os.Remove(d.socket); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		d.warnOfLostSocket()
	}
	if log.Count("level=WARN") != 1 || log.Count(d.socket) != 1 {
		t.Errorf("a lost socket must have one warning with its path:\n%s", log.String())
	}
}

// TestOrigins checks that a web page has no access, whatever its host name resolves to.
func TestOrigins(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "tokens"), token+"\n")
	r := run(t, write(t, filepath.Join(dir, "director.yaml"), good+"control: {token_file: tokens}\n"))
	base, bearer := "http://"+r.Control(), "Bearer "+token
	for _, c := range []struct {
		method, path string
		headers      []string
		want         int
	}{
		{http.MethodGet, "/v1/status", []string{"Host", "evil.example"}, http.StatusMisdirectedRequest},
		{http.MethodGet, "/v1/status", []string{"Host", "evil.example", "Authorization", bearer}, http.StatusMisdirectedRequest},
		{http.MethodGet, "/v1/status", []string{"Host", "localhost:8090", "Authorization", bearer}, http.StatusOK},
		{http.MethodGet, "/v1/status", []string{"Host", "[::1]", "Authorization", bearer}, http.StatusOK},
		{http.MethodPost, "/v1/reload", []string{"Host", "127.0.0.1", "Origin", "http://evil.example", "Authorization", bearer}, http.StatusForbidden},
		{http.MethodPost, "/v1/reload", []string{"Host", "127.0.0.1", "Sec-Fetch-Site", "cross-site", "Authorization", bearer}, http.StatusForbidden},
		{http.MethodPost, "/v1/reload", []string{"Host", "127.0.0.1", "Origin", "http://127.0.0.1", "Authorization", bearer}, http.StatusOK},
		{http.MethodPost, "/v1/reload", []string{"Authorization", bearer}, http.StatusOK},
		{http.MethodPost, "/v1/reload", nil, http.StatusUnauthorized},
	} {
		if got := ask(t, http.DefaultClient, c.method, base+c.path, c.headers...); got != c.want {
			t.Errorf("%s %s %q: got status %d, want %d", c.method, c.path, c.headers, got, c.want)
		}
	}
}
