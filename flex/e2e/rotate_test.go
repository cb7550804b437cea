package e2e

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"vitrine/internal/certtest"
	"vitrine/internal/hosttest"
)

// edit replaces a part of one of the system's files.
func (s *system) edit(name, old, now string) {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, name))
	if err != nil {
		s.t.Fatal(err)
	}
	if !strings.Contains(string(text), old) {
		s.t.Fatalf("%s does not contain %q", name, old)
	}
	s.write(name, strings.Replace(string(text), old, now, 1))
}

// TestTokensAreReadAgain rotates the token of the director, and that of the orchestrator's own
// REST API, while both run. The orchestrator goes on with the new one: it moves traffic from one
// instance to another. Its API refuses the old one.
func TestTokensAreReadAgain(t *testing.T) {
	t.Parallel()
	const first, second = "first-token-of-the-test", "second-token-of-the-test"
	s := newSystem(t, shortSwell.rate)
	api := hosttest.FreeAddress(t, "tcp")
	rotate := func(token string, files ...string) {
		for _, name := range files {
			s.write(name, token+"\n")
		}
	}
	rotate(first, "director.tokens", "shown.token", "api.tokens")
	s.writeDirector("control: {token_file: director.tokens}")
	s.edit("flex.yaml", `"}]`, `", token_file: shown.token}]
control: {listen: "`+api+`", token_file: api.tokens}`)
	o := s.run()
	s.awaitOnly("registration-1")

	rotate(second, "director.tokens")
	if out, err := exec.Command(s.vitrine, "director", "reload", "--director", s.control).CombinedOutput(); err != nil {
		t.Fatalf("reload the director: %v: %s", err, out)
	}
	hosttest.Until(t, limit, "the director refuses the old token", func() bool { return s.awayNow("director") })
	rotate(second, "shown.token", "api.tokens")
	if err := o.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	hosttest.Until(t, limit, "the orchestrator acts on SIGHUP", func() bool {
		return strings.Contains(o.output.String(), "tokens and certificates were read again") // only a signal causes this line
	})
	hosttest.Until(t, limit, "the director takes the new token", func() bool { return !s.awayNow("director") })
	for token, want := range map[string]int{first: http.StatusUnauthorized, second: http.StatusOK} {
		if got := ask(t, "http://"+api+"/v1/status", token); got != want {
			t.Errorf("with %s the API answered status %d, want %d", token, got, want)
		}
	}
	if out, status := s.verb("drain", "registration-1"); status != 0 {
		t.Errorf("drain: %d: %s", status, out)
	}
	s.awaitOnly("registration-2")
	s.call("after", 4, 3, 1).allSucceed(t, 3)
}

// TestPeersShowCertificates runs a system whose director and store accept only clients with a
// certificate, such as the orchestrator and Sprout. Calls must succeed, and a drained instance must be
// replaced.
func TestPeersShowCertificates(t *testing.T) {
	t.Parallel()
	s := newSystem(t, shortSwell.rate)
	file := func(name string) string { return filepath.Join(s.dir, name) }
	authority := certtest.Loopback(t, s.dir, "authority", nil)
	for _, name := range []string{"director", "store", "flex", "sprout"} {
		certtest.Loopback(t, s.dir, name, authority)
	}
	s.writeDirector("control: {certificate: director.pem, key: director.key, clients: authority.pem}")
	const shown = `, authorities: authority.pem, certificate: flex.pem, key: flex.key}`
	s.edit("flex.yaml", s.control+`"}]`, `https://`+s.control+`"`+shown+`]`)
	s.edit("flex.yaml", `"}
services`, `"`+shown+`
services`)
	s.edit("flex.yaml", `"http://`, `"https://`)
	s.edit("flex.yaml", `{STORE: "http://`, `{STORE: "https://`)
	s.edit("flex.yaml", `store, run, `, fmt.Sprintf("store, run, --tls-cert, %q, --tls-key, %q, --client-ca, %q, ", file("store.pem"), file("store.key"), file("authority.pem")))
	deployment, err := os.ReadFile("testdata/deployment.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s.write("deployment.yaml", string(deployment))
	s.edit("deployment.yaml", `"${STORE}"]`, fmt.Sprintf(`"${STORE}", --store-ca, %q, --store-cert, %q, --store-key, %q]`,
		file("authority.pem"), file("sprout.pem"), file("sprout.key")))
	s.edit("flex.yaml", "deployment: ", "deployment: deployment.yaml # ")

	s.run()
	s.awaitOnly("registration-1")
	s.call("calls", 4, 3, 1).allSucceed(t, 3)
	if out, status := s.verb("drain", "registration-1"); status != 0 {
		t.Errorf("drain: %d: %s", status, out)
	}
	s.awaitOnly("registration-2")
	if away := s.status().Away; len(away) != 0 {
		t.Errorf("away: %q", away)
	}
}

// ask returns the status of an answer to a GET with a token.
func ask(t *testing.T, url, token string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close() // the status is enough
	return a.StatusCode
}
