package main

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vitrine/flex"
	"vitrine/flex/config"
	"vitrine/flex/unit"
	"vitrine/internal/access"
	"vitrine/internal/certtest"
	"vitrine/internal/hosttest"
)

const flexToken = "0123456789abcdef0123456789abcdef"

// errNothingRuns is the error of every call of a nothing. It makes the orchestrator hold, because
// these tests only check who has access.
var errNothingRuns = errors.New("nothing runs here")

// A nothing is a runner that fails every call.
type nothing struct{}

func (nothing) Units(context.Context) ([]unit.Unit, error) { return nil, errNothingRuns }
func (nothing) Start(context.Context, unit.Order) error    { return errNothingRuns }
func (nothing) Remove(context.Context, string) error       { return errNothingRuns }

// A servedFlex is an orchestrator behind the same server as that of vitrine flex run.
type servedFlex struct {
	t       *testing.T
	dir     string
	address string
	socket  string
	log     *hosttest.Output
	reload  chan struct{}
}

// flexFile writes the file of an orchestrator and loads it. more is appended to the file.
func flexFile(t *testing.T, dir, more string) *config.Config {
	t.Helper()
	for name, text := range map[string]string{
		"flex.yaml": "directors: [{control: 127.0.0.1:1}]\n" +
			"types:\n  - {name: registration, deployment: deployment.yaml, flavors: [{size: fr1s, rate: 20}], max: 2}\n" +
			"servers: {substrate: process, fabric: loopback}\n" + more,
		"deployment.yaml": "vnf_name: front\ncomponents:\n  - {name: front, short: fr, command: [vitrine], ports: {http: 80}, entry: http}\n" +
			"flavors: [{name: small, vcpus: 0.1, memory: 64MiB}]\nmode: {name: custom, sizes: [fr1s]}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := config.Load(filepath.Join(dir, "flex.yaml"), knownBackends())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// serveFlexWith serves an orchestrator. control is text for further options of the file's control
// section.
func serveFlexWith(t *testing.T, dir, control string) *servedFlex {
	t.Helper()
	s := &servedFlex{t: t, dir: dir, address: hosttest.FreeAddress(t, "tcp"), log: &hosttest.Output{}, reload: make(chan struct{})}
	c := flexFile(t, dir, "control: {listen: \""+s.address+"\""+control+"}\n")
	if err := os.MkdirAll(c.State, 0o700); err != nil {
		t.Fatal(err)
	}
	s.socket = flexSocket(c.State)
	log := slog.New(slog.NewTextHandler(s.log, nil))
	o, err := flex.New(flex.Options{File: c, Runner: nothing{}, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- (&app{stdout: io.Discard, stderr: io.Discard}).serveFlex(ctx, c, o, log, s.reload) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("serve: got error %v", err)
		}
		if _, err := os.Lstat(s.socket); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the orchestrator left its socket %s: error %v", s.socket, err)
		}
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	})
	hosttest.Until(t, 30*time.Second, "the orchestrator listens", func() bool {
		c, err := net.Dial("tcp", s.address)
		if err != nil {
			return false
		}
		return c.Close() == nil
	})
	return s
}

// client returns a client that trusts the authority. Unless name is empty, the client presents the
// certificate with that name.
func (s *servedFlex) client(name string) *http.Client {
	s.t.Helper()
	roots, err := access.Authorities(filepath.Join(s.dir, "authority.pem"))
	if err != nil {
		s.t.Fatal(err)
	}
	secure := &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	if name != "" {
		own, err := tls.LoadX509KeyPair(filepath.Join(s.dir, name+".pem"), filepath.Join(s.dir, name+".key"))
		if err != nil {
			s.t.Fatal(err)
		}
		secure.Certificates = []tls.Certificate{own}
	}
	transport := &http.Transport{TLSClientConfig: secure}
	s.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 30 * time.Second}
}

// ask sends a request with headers and returns the status of the answer, or 0 if there is no
// answer.
func (s *servedFlex) ask(c *http.Client, scheme, method, path string, headers ...string) int {
	s.t.Helper()
	q, err := http.NewRequestWithContext(s.t.Context(), method, scheme+"://"+s.address+path, http.NoBody)
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		q.Header.Set(headers[i], headers[i+1])
	}
	q.Host = q.Header.Get("Host")
	a, err := c.Do(q)
	if err != nil {
		return 0
	}
	defer a.Body.Close() // errors do not matter: only the status counts
	return a.StatusCode
}

// rereads makes the orchestrator read its files again, and waits for a line in its log.
func (s *servedFlex) rereads(line string) {
	s.t.Helper()
	before := strings.Count(s.log.String(), line)
	s.reload <- struct{}{}
	hosttest.Until(s.t, time.Minute, line, func() bool { return strings.Count(s.log.String(), line) > before })
}

// serial returns the serial number of the orchestrator's certificate.
func (s *servedFlex) serial() *big.Int {
	s.t.Helper()
	roots, err := access.Authorities(filepath.Join(s.dir, "authority.pem"))
	if err != nil {
		s.t.Fatal(err)
	}
	c, err := tls.Dial("tcp", s.address, &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12})
	if err != nil {
		s.t.Fatal(err)
	}
	defer c.Close()
	return c.ConnectionState().PeerCertificates[0].SerialNumber
}

// hasMetric checks that /metrics has a line, for a client with the token over TLS.
func (s *servedFlex) hasMetric(token, line string) {
	s.t.Helper()
	q, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, "https://"+s.address+"/metrics", http.NoBody)
	if err != nil {
		s.t.Fatal(err)
	}
	q.Header.Set("Authorization", "Bearer "+token)
	a, err := s.client("").Do(q)
	if err != nil {
		s.t.Fatal(err)
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	if err != nil || !strings.Contains(string(text), "\n"+line) {
		s.t.Errorf("/metrics lacks %s: status %d, error %v:\n%s", line, a.StatusCode, err, text)
	}
}

// drain is the path of a change. The instance does not exist, so a client that may change gets 404.
const drain = "/v1/instances/nobody/drain"

// TestFlexNeedsItsToken checks that, with a token file, all requests except /healthz need a token,
// and that refusals are logged. A web page must have no access, whatever its host name resolves
// to.
func TestFlexNeedsItsToken(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "tokens"), []byte("# operators\n"+flexToken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := serveFlexWith(t, dir, ", token_file: tokens")
	bearer := "Bearer " + flexToken
	for _, c := range []struct {
		method, path string
		headers      []string
		want         int
	}{
		{http.MethodGet, "/v1/status", nil, http.StatusUnauthorized},
		{http.MethodGet, "/metrics", nil, http.StatusUnauthorized},
		{http.MethodGet, "/nothing", nil, http.StatusUnauthorized},
		{http.MethodGet, "/healthz", nil, http.StatusOK},
		{http.MethodGet, "/v1/status", []string{"Authorization", bearer + "x"}, http.StatusUnauthorized},
		{http.MethodGet, "/v1/status", []string{"Authorization", bearer[:len(bearer)-1]}, http.StatusUnauthorized},
		{http.MethodGet, "/v1/status", []string{"Authorization", bearer}, http.StatusOK},
		{http.MethodPost, drain, nil, http.StatusUnauthorized},
		{http.MethodPost, drain, []string{"Authorization", bearer}, http.StatusNotFound},
		{http.MethodGet, "/v1/status", []string{"Host", "evil.example", "Authorization", bearer}, http.StatusMisdirectedRequest},
		{http.MethodGet, "/v1/status", []string{"Host", "localhost:8092", "Authorization", bearer}, http.StatusOK},
		{http.MethodPost, drain, []string{"Host", "127.0.0.1", "Origin", "http://evil.example", "Authorization", bearer}, http.StatusForbidden},
		{http.MethodPost, drain, []string{"Host", "127.0.0.1", "Sec-Fetch-Site", "cross-site", "Authorization", bearer}, http.StatusForbidden},
		{http.MethodPost, drain, []string{"Host", "127.0.0.1", "Origin", "http://127.0.0.1", "Authorization", bearer}, http.StatusNotFound},
	} {
		if got := s.ask(http.DefaultClient, "http", c.method, c.path, c.headers...); got != c.want {
			t.Errorf("%s %s %q: got status %d, want %d", c.method, c.path, c.headers, got, c.want)
		}
	}
	if log := s.log.String(); !strings.Contains(log, "access refused") || strings.Contains(log, flexToken[1:]) {
		t.Errorf("log of refused access: %s", log)
	}
}

// TestFlexWithoutTokensIsReadOnly checks that clients over TCP may only read if there are no
// tokens. Clients of the unix socket, which only its user can open, may change.
func TestFlexWithoutTokensIsReadOnly(t *testing.T) {
	s := serveFlexWith(t, t.TempDir(), "")
	for path, want := range map[string]int{"/v1/status": http.StatusOK, "/v1/events": http.StatusOK, "/metrics": http.StatusOK} {
		if got := s.ask(http.DefaultClient, "http", http.MethodGet, path); got != want {
			t.Errorf("%s: got status %d, want %d", path, got, want)
		}
	}
	if got := s.ask(http.DefaultClient, "http", http.MethodPost, drain); got != http.StatusForbidden {
		t.Errorf("change over TCP: got status %d, want 403", got)
	}
	k, err := dialFlex(filepath.Join(s.dir, "flex.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := k.call(t.Context(), http.MethodPost, drain, nil); err == nil || !strings.Contains(err.Error(), "no instance nobody") {
		t.Errorf("change through the unix socket: got %v", err)
	}
	if info, err := os.Stat(s.socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode of the unix socket: got %v, error %v", info, err)
	}
	k.root = t.TempDir()
	if err := os.Chmod(k.root, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := k.call(t.Context(), http.MethodPost, drain, nil); err == nil || !strings.Contains(err.Error(), "can be written by others") {
		t.Errorf("change through a socket below a folder that all may write to: got %v", err)
	}
}

// TestFlexAsksForCertificates checks TLS with client authorities. Only clients with a certificate
// of these authorities have access, and they may change.
func TestFlexAsksForCertificates(t *testing.T) {
	dir := t.TempDir()
	authority := certtest.Loopback(t, dir, "authority", nil)
	certtest.Loopback(t, dir, "flex", authority)
	certtest.Loopback(t, dir, "operator", authority)
	certtest.Loopback(t, dir, "stranger", nil)
	s := serveFlexWith(t, dir, ", certificate: flex.pem, key: flex.key, clients: authority.pem")
	for name, want := range map[string]int{"operator": http.StatusNotFound, "": 0, "stranger": 0} {
		if got := s.ask(s.client(name), "https", http.MethodPost, drain); got != want {
			t.Errorf("change by %q: got status %d, want %d", name, got, want)
		}
	}
	if got := s.ask(http.DefaultClient, "http", http.MethodGet, "/v1/status"); got != http.StatusBadRequest {
		t.Errorf("without TLS: got status %d, want 400", got)
	}
	if got := s.ask(s.client("operator"), "https", http.MethodPost, drain, "Host", "127.0.0.1", "Origin", "http://evil.example"); got != http.StatusForbidden {
		t.Errorf("web page with the certificate: got status %d", got)
	}
}

// TestFlexTakesTokensOverTLS checks tokens over TLS without client authorities.
func TestFlexTakesTokensOverTLS(t *testing.T) {
	dir := t.TempDir()
	authority := certtest.Loopback(t, dir, "authority", nil)
	certtest.Loopback(t, dir, "flex", authority)
	if err := os.WriteFile(filepath.Join(dir, "tokens"), []byte(flexToken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := serveFlexWith(t, dir, ", certificate: flex.pem, key: flex.key, token_file: tokens")
	c := s.client("")
	if got := s.ask(c, "https", http.MethodGet, "/v1/status"); got != http.StatusUnauthorized {
		t.Errorf("without a token: got status %d, want 401", got)
	}
	if got := s.ask(c, "https", http.MethodPost, drain, "Authorization", "Bearer "+flexToken); got != http.StatusNotFound {
		t.Errorf("with the token: got status %d, want 404", got)
	}
}

// TestFlexReadsItsFilesAgain replaces the token and the certificate of a running orchestrator.
// From then on the old token is refused. A broken file must change nothing.
func TestFlexReadsItsFilesAgain(t *testing.T) {
	dir := t.TempDir()
	authority := certtest.Loopback(t, dir, "authority", nil)
	old := certtest.Loopback(t, dir, "flex", authority)
	put := func(text string) {
		if err := os.WriteFile(filepath.Join(dir, "tokens"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(flexToken + "\n")
	s := serveFlexWith(t, dir, ", certificate: flex.pem, key: flex.key, token_file: tokens")
	status := func(token string) int {
		return s.ask(s.client(""), "https", http.MethodGet, "/v1/status", "Authorization", "Bearer "+token)
	}
	put("short\n")
	s.rereads("the old ones stay in use")
	if got := status(flexToken); got != http.StatusOK {
		t.Errorf("after a reload with a broken file: got status %d, want 200", got)
	}
	s.hasMetric(flexToken, "vitrine_flex_reload_failed 1\n")
	s.hasMetric(flexToken, "vitrine_flex_certificate_expiry_timestamp_seconds ")
	if got := s.serial(); got.Cmp(old.Certificate.SerialNumber) != 0 {
		t.Errorf("certificate serial: got %s, want %s", got, old.Certificate.SerialNumber)
	}
	const next = "fedcba9876543210fedcba9876543210"
	put(next + "\n")
	made := certtest.Loopback(t, dir, "flex", authority)
	s.rereads("were read again")
	if got := status(next); got != http.StatusOK {
		t.Errorf("with the new token: got status %d, want 200", got)
	}
	s.hasMetric(next, "vitrine_flex_reload_failed 0\n")
	if got := status(flexToken); got != http.StatusUnauthorized {
		t.Errorf("with the old token: got status %d, want 401", got)
	}
	if got := s.serial(); got.Cmp(made.Certificate.SerialNumber) != 0 {
		t.Errorf("certificate serial: got %s, want %s of the new certificate", got, made.Certificate.SerialNumber)
	}
}
