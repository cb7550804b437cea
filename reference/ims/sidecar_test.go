package ims_test

import (
	"context"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/emiago/sipgo/sip"
	"golang.org/x/sync/errgroup"

	"vitrine"
	"vitrine/reference/ims/sidecar"
)

// A registrar is a Kamailio that keeps locations in its own memory, behind a sidecar.
type registrar struct {
	at   string
	stop func() // ends the sidecar and Kamailio
}

// kamailio starts registrar i. trusted says whether it accepts the sidecar's REGISTERs.
func (s site) kamailio(i int, trusted bool) registrar {
	s.t.Helper()
	for _, program := range []string{"kamailio", "kamcmd"} {
		if _, err := exec.LookPath(program); err != nil {
			s.t.Skip(&vitrine.Unsupported{What: "a registrar for the sidecar", Missing: "the program " + program, Do: "run .ci/install"})
		}
	}
	dir := s.t.TempDir()
	for _, file := range []string{"kamailio-sidecar/registrar.cfg", "ims-kamailio/run.sh"} {
		if out, err := exec.Command("cp", filepath.Join("../../catalog", file), dir).CombinedOutput(); err != nil {
			s.t.Fatalf("%v: %s", err, out)
		}
	}
	s.distrustRepeats(filepath.Join(dir, "registrar.cfg"))
	host := 61 + i
	function, own := s.at(host, 5061), s.at(host, 5062)
	env := []string{"env", "ADDRESS=" + strings.TrimSuffix(function, ":5061"), "PORT=5061", "VITRINE_DIR=" + dir}
	if trusted {
		env = append(env, "RESTORER_PORT=5062")
	}
	r := registrar{at: s.at(host, 5060)}
	args := []string{"--listen", r.at, "--function", function, "--restore-from", own, "--store", s.store, "--"}
	r.stop = start(s.t, "sidecar", append(append(args, env...), "sh", filepath.Join(dir, "run.sh"), "registrar.cfg")...)
	prober := s.phone(host, 0, r.at)
	eventually(s.t, "Kamailio serves", func() bool { return prober.ask("OPTIONS", "sip:"+r.at).final().StatusCode == sip.StatusOK })
	return r
}

// distrustRepeats makes Kamailio refuse at once a REGISTER that it has seen. By default it
// accepts one for 20 s, so no test would repeat one late enough.
func (s site) distrustRepeats(cfg string) {
	s.t.Helper()
	text, err := os.ReadFile(cfg)
	if err == nil {
		err = os.WriteFile(cfg, append(text, "\nmodparam(\"usrloc\", \"cseq_delay\", 0)\n"...), 0o600)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// moveTo makes the phone use another registrar.
func (p *phone) moveTo(r registrar) { p.bono = netip.MustParseAddrPort(r.at) }

// TestKamailioSidecarSharesLocations checks that each registrar serves a phone which
// registered at another one, until the phone deregisters, and after that other one has
// ended.
func TestKamailioSidecarSharesLocations(t *testing.T) {
	t.Parallel()
	s := newStoreSite(t)
	first, second := s.kamailio(0, true), s.kamailio(1, true)
	callee, caller := s.phone(41, 1, first.at), s.phone(42, 2, second.at)
	absent := func(at registrar) {
		t.Helper()
		caller.moveTo(at)
		caller.want(caller.call(callee.user, sip.GenerateBranch()).final(), 404)
	}
	present := func(at registrar) {
		t.Helper()
		caller.moveTo(at)
		callee.takeCall(caller)
	}

	absent(second)
	callee.signIn(600)
	present(first)
	spelled := caller.call(strings.ToUpper(callee.user), sip.GenerateBranch()) // Kamailio takes it for the same user
	callee.reply(callee.expect("INVITE"), 200, "OK")
	caller.want(spelled.final(), 200)
	present(first)
	present(second)

	callee.moveTo(second)
	callee.want(callee.register(0), 200) // with the challenge of the first
	absent(second)
	absent(first)

	callee.signIn(600)
	second.stop()
	present(first)
	third := s.kamailio(2, true)
	present(third)
	callee.moveTo(third)
	callee.want(callee.register(0), 200)
	absent(third)
	absent(first)
}

// TestKamailioSidecarKeepsEveryContact registers several phones of one user at two
// registrars at the same time.
func TestKamailioSidecarKeepsEveryContact(t *testing.T) {
	t.Parallel()
	s := newStoreSite(t)
	at := []registrar{s.kamailio(0, true), s.kamailio(1, true)}
	const phones = 8
	var group errgroup.Group
	all := make([]*phone, phones)
	for i := range all {
		all[i] = s.phone(41+i, 1, at[i%2].at)
		group.Go(func() error { all[i].signIn(600); return nil })
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, r := range at {
		all[0].moveTo(r)
		if got := len(all[0].signIn(600).GetHeaders("Contact")); got != phones {
			t.Errorf("%s knows %d contacts of %d", r.at, got, phones)
		}
	}
}

// TestKamailioSidecarConfirmsWhatIsInTheStore checks that no REGISTER is answered 200 while
// the store does not answer.
func TestKamailioSidecarConfirmsWhatIsInTheStore(t *testing.T) {
	t.Parallel()
	s := newSite(t).withStore()
	dir := t.TempDir()
	stop := start(t, "store", s.storeArgs(dir)...)
	first, second := s.kamailio(0, true), s.kamailio(1, true)
	callee, caller := s.phone(41, 1, first.at), s.phone(42, 2, second.at)
	callee.want(callee.register(600), 401)
	stop()
	callee.want(callee.register(600), 503)
	start(t, "store", s.storeArgs(dir)...)
	callee.insist(600)
	callee.takeCall(caller)
}

// TestKamailioSidecarNeedsTrust checks the answer if the registrar challenges the sidecar.
func TestKamailioSidecarNeedsTrust(t *testing.T) {
	t.Parallel()
	s := newStoreSite(t)
	r := s.kamailio(0, false)
	p := s.phone(41, 1, r.at)
	p.want(p.register(600), 500)
}

func TestSidecarRefusesArguments(t *testing.T) {
	for want, args := range map[string][]string{
		"no --store":             {},
		"--function \"nowhere\"": {"--function", "nowhere"},
		"has ended":              {"--store", "http://127.0.0.1:1", "--", "false"},
	} {
		base := []string{"--listen", "127.0.0.1:0", "--function", "127.0.0.1:9", "--restore-from", "127.0.0.1:0"}
		err := sidecar.Run(context.Background(), append(base, args...), io.Discard, io.Discard)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: got %v, want %q", args, err, want)
		}
	}
}
