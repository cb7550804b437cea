package ims_test

import (
	"context"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/emiago/sipgo/sip"
	"github.com/spf13/pflag"

	"vitrine"
	"vitrine/internal/access"
	"vitrine/internal/certtest"
	"vitrine/internal/hosttest"
	"vitrine/reference/ims"
	"vitrine/store"
	"vitrine/store/embedded"
	"vitrine/store/etcd"
	"vitrine/store/kv"
	"vitrine/store/redis"
	"vitrine/store/service"
	"vitrine/store/service/servicetest"
	"vitrine/store/storetest"
)

// runStore runs a store with any engine and the API that Sprout uses.
func runStore(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var listen, dir, redisAt, etcdAt, tokens, cert, key string
	flags := pflag.NewFlagSet("store", pflag.ContinueOnError)
	flags.StringVar(&listen, "listen", "", "")
	flags.StringVar(&dir, "dir", "", "")
	flags.StringVar(&redisAt, "redis", "", "")
	flags.StringVar(&etcdAt, "etcd", "", "")
	flags.StringVar(&tokens, "token-file", "", "")
	flags.StringVar(&cert, "tls-cert", "", "")
	flags.StringVar(&key, "tls-key", "", "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(stderr, nil))
	config := service.Config{Logger: log}
	var err error
	if tokens != "" {
		if config.Tokens, err = access.ReadTokenFile(tokens); err != nil {
			return err
		}
	}
	if cert != "" {
		if config.TLS, err = service.LoadTLS(cert, key, ""); err != nil {
			return err
		}
	}
	var engine store.Engine
	switch {
	case redisAt != "":
		engine, err = redis.Open(ctx, redis.Config{Addresses: []string{redisAt}, Now: time.Now, Logger: log})
	case etcdAt != "":
		engine, err = etcd.Open(ctx, etcd.Config{Endpoints: []string{etcdAt}, Now: time.Now, Logger: log})
	default:
		engine, err = embedded.Open(embedded.Config{Dir: dir, Now: time.Now, Logger: log})
	}
	if err != nil {
		return err
	}
	return servicetest.Run(ctx, listen, engine, config, stdout)
}

// withStore returns the site with Sprouts that have a store.
func (s site) withStore() site {
	s.store = "http://" + s.at(251, 8070)
	return s
}

func (s site) storeArgs(dir string) []string {
	return []string{"--listen", s.at(251, 8070), "--dir", dir}
}

// TestEveryEngineServesSprouts runs two Sprouts with a store over each engine that
// several stores can share.
func TestEveryEngineServesSprouts(t *testing.T) {
	t.Parallel()
	for name, engine := range map[string]func(*testing.T) string{
		"redis": func(t *testing.T) string {
			return storetest.Redis(t, "--appendonly", "yes", "--appendfsync", "always")
		},
		"etcd": func(t *testing.T) string { return storetest.Etcd(t, 1)[0].Endpoint },
	} {
		for what, test := range map[string]func(*testing.T, site){
			"share":  testSproutsShareChallengesAndRegistrations,
			"expire": testExpiredRegistrationIsClearedOnce,
		} {
			t.Run(name+"/"+what, func(t *testing.T) {
				s := newSite(t).withStore()
				start(t, "store", "--listen", s.at(251, 8070), "--"+name, engine(t))
				test(t, s)
			})
		}
	}
}

// insist registers until it succeeds, as a client does that is answered 503 or
// not at all. It returns the number of attempts.
func (p *phone) insist(expires int) int {
	p.t.Helper()
	attempts := 0
	eventually(p.t, p.user+" is registered", func() bool {
		attempts++
		switch res := p.register(expires); res.StatusCode {
		case sip.StatusOK:
			return true
		case sip.StatusUnauthorized, sip.StatusRequestTimeout, sip.StatusServiceUnavailable:
		default:
			p.t.Fatalf("%s: got answer %d %s", p.user, res.StatusCode, res.Reason)
		}
		return false
	})
	return attempts
}

// takeCall has the caller invite p, who answers.
func (p *phone) takeCall(caller *phone) {
	p.t.Helper()
	call := caller.call(p.user, sip.GenerateBranch())
	p.reply(p.expect("INVITE"), 200, "OK")
	caller.want(call.final(), 200)
}

// TestKilledSproutLosesNoUser kills one of three Sprouts under load. Its users
// are served by the others without registering again, and every client gets
// through.
func TestKilledSproutLosesNoUser(t *testing.T) {
	t.Parallel()
	s := newStoreSite(t)
	s.homesteads(1)
	start(t, "sprout", s.sprout(0, 3, 1)...)
	start(t, "sprout", s.sprout(1, 3, 1)...)
	victim := spawn(t, "sprout", s.sprout(2, 3, 1)...)
	viaVictim, viaAll := s.bono(1, s.at(13, 5060)), s.bono(2, s.list(11, 3, 5060), "--aside-after", "1", "--aside-for", "1h", "--timeout", "2s")
	var users []*phone
	for n := range 12 {
		p := s.phone(41+n, 50+n, viaVictim)
		p.signIn(300)
		users = append(users, p)
	}
	var killed sync.WaitGroup
	killed.Add(1)
	var load sync.WaitGroup
	for n := range 8 {
		p := s.phone(81+n, 100+n, viaAll)
		load.Go(func() {
			for range 10 {
				p.insist(60)
			}
			killed.Wait()
			for range 10 {
				p.insist(60)
			}
		})
	}
	eventually(t, "the victim serves the load", func() bool { return s.metric(13, "sprout_requests_total") > 30 })
	if err := victim.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	killed.Done()
	load.Wait()
	caller := s.phone(101, 200, viaAll)
	eventually(t, "the killed Sprout is set aside", func() bool {
		caller.insist(60)
		return s.metric(2, "bono_set_aside_total") > 0
	})
	for _, p := range users {
		p.takeCall(caller)
		p.bono = netip.MustParseAddrPort(viaAll)
		p.want(p.register(60), 200) // with the nonce that the victim gave
	}
}

// TestConcurrentRegistersLoseNoContact registers many contacts of one user
// through two Sprouts at the same time.
func TestConcurrentRegistersLoseNoContact(t *testing.T) {
	t.Parallel()
	s := newStoreSite(t)
	s.homesteads(1)
	s.sprouts(2, 1)
	bonos := []string{s.bono(1, s.at(11, 5060)), s.bono(2, s.at(12, 5060))}
	const contacts = 10
	var phones []*phone
	for n := range contacts {
		p := s.phone(41+n, 7, bonos[n%2])
		p.want(p.register(60), 401)
		phones = append(phones, p)
	}
	var all sync.WaitGroup
	for _, p := range phones {
		all.Go(func() {
			for range 5 {
				if res := p.register(60); res.StatusCode != sip.StatusOK {
					t.Errorf("%s: got answer %d %s", p.contact(), res.StatusCode, res.Reason)
				}
			}
		})
	}
	all.Wait()
	res := phones[0].want(phones[0].register(60), 200)
	for _, p := range phones {
		if !slices.ContainsFunc(res.GetHeaders("Contact"), func(h sip.Header) bool { return strings.Contains(h.Value(), p.contact()) }) {
			t.Errorf("the contact %s was lost", p.contact())
		}
	}
	if got := len(res.GetHeaders("Contact")); got != contacts {
		t.Errorf("got %d contacts, want %d", got, contacts)
	}
	if got := s.metric(11, "sprout_store_conflicts_total") + s.metric(12, "sprout_store_conflicts_total"); got == 0 {
		t.Error("no writes conflicted, so the test proves nothing")
	}
}

// TestExpiryIsNotifiedByAnotherSprout kills a Sprout that has claimed an expiry
// and has not yet notified it.
func TestExpiryIsNotifiedByAnotherSprout(t *testing.T) {
	t.Parallel()
	s := newStoreSite(t)
	homestead := spawn(t, "homestead", s.homestead(0, 1)...)
	victim := spawn(t, "sprout", append(s.sprout(0, 2, 1), "--homestead-timeout", "1m")...)
	p := s.phone(41, 80, s.bono(1, s.at(11, 5060)))
	p.signIn(4)
	p.want(p.subscribe("watch"), 200)
	p.reply(p.expect("NOTIFY"), 200, "OK")
	if err := homestead.Signal(syscall.SIGSTOP); err != nil { // the victim waits for its answer before it notifies
		t.Fatal(err)
	}
	eventually(t, "the expiry is claimed", func() bool { return s.metric(11, "sprout_expired_total") == 1 })
	if err := victim.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := homestead.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	start(t, "sprout", s.sprout(1, 2, 1)...)
	p.expectEnd()
	if got := s.state(p.user); got != ims.StateNotRegistered {
		t.Errorf("state at Homestead: got %s", got)
	}
}

// TestReadyWithTheirStore starts a Sprout and a sidecar before their store. They must not be ready until
// it answers, although nobody sends them a request.
func TestReadyWithTheirStore(t *testing.T) {
	t.Parallel()
	s := newSite(t).withStore()
	start(t, "sprout", s.sprout(0, 1, 1)...)
	start(t, "sidecar", "--listen", s.at(61, 5060), "--function", s.at(61, 5061), "--restore-from", s.at(61, 5062), "--store", s.store, "--metrics", s.at(61, 9090))
	ready := func(host int) int {
		t.Helper()
		res, err := http.Get("http://" + s.at(host, 9090) + "/ready")
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res.StatusCode
	}
	for host, up := range map[int]string{11: "sprout_store_up", 61: "sidecar_store_up"} {
		if got := ready(host); got != http.StatusServiceUnavailable || s.metric(host, up) != 0 {
			t.Errorf("without a store: got status %d, and %s %g", got, up, s.metric(host, up))
		}
	}
	start(t, "store", s.storeArgs(t.TempDir())...)
	for host, up := range map[int]string{11: "sprout_store_up", 61: "sidecar_store_up"} {
		eventually(t, "it is ready", func() bool { return ready(host) == http.StatusOK && s.metric(host, up) == 1 })
	}
}

// TestStoreAwayAndBack stops the store, continues it, kills it and starts it
// again. Requests meanwhile are refused with 503, and nothing is lost.
func TestStoreAwayAndBack(t *testing.T) {
	t.Parallel()
	s := newSite(t).withStore()
	dir := t.TempDir()
	process := spawn(t, "store", s.storeArgs(dir)...)
	s.homesteads(1)
	start(t, "sprout", append(s.sprout(0, 2, 1), "--store-timeout", "300ms")...)
	start(t, "sprout", append(s.sprout(1, 2, 1), "--store-timeout", "300ms")...)
	callee := s.phone(41, 7, s.bono(1, s.at(11, 5060)))
	caller := s.phone(42, 8, s.bono(2, s.at(12, 5060)))
	callee.insist(300)
	caller.insist(300)

	away := func(signal syscall.Signal) {
		t.Helper()
		before := s.metric(11, "sprout_store_refused_total")
		if err := process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		res := callee.want(callee.register(60), 503)
		if h := res.GetHeader("Retry-After"); h == nil || h.Value() != "1" {
			t.Errorf("got Retry-After %v, want 1", h)
		}
		eventually(t, "the Sprouts notice", func() bool {
			return s.metric(11, "sprout_store_up") == 0 && s.metric(12, "sprout_store_up") == 0
		})
		caller.want(caller.call(callee.user, sip.GenerateBranch()).final(), 503)
		if got := s.metric(11, "sprout_store_refused_total"); got <= before {
			t.Errorf("counted %g refusals, %g before", got, before)
		}
	}
	back := func() {
		t.Helper()
		eventually(t, "the store is back", func() bool {
			return s.metric(11, "sprout_store_up") == 1 && s.metric(12, "sprout_store_up") == 1
		})
		callee.takeCall(caller)
		callee.insist(300)
	}
	away(syscall.SIGSTOP)
	if err := process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	back()
	away(syscall.SIGKILL)
	if _, err := process.Wait(); err != nil {
		t.Fatal(err)
	}
	process = spawn(t, "store", s.storeArgs(dir)...)
	back()
}

// TestStoreWithTokensAndTLS checks the flags that a store beyond loopback needs.
func TestStoreWithTokensAndTLS(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.store = "https://" + s.at(251, 8070)
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	write := func(name, text string) {
		if err := os.WriteFile(file(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("token", "# of the laboratory\n0123456789abcdef\n")
	write("wrong", "fedcba9876543210\n")
	certtest.Write(t, &x509.Certificate{IPAddresses: []net.IP{net.ParseIP(s.prefix + "251")}}, nil, file("cert.pem"), file("key.pem"))
	start(t, "store", append(s.storeArgs(file("records")), "--token-file", file("token"), "--tls-cert", file("cert.pem"), "--tls-key", file("key.pem"))...)
	s.homesteads(1)
	start(t, "sprout", append(s.sprout(0, 2, 1), "--store-ca", file("cert.pem"), "--store-token-file", file("token"))...)
	start(t, "sprout", append(s.sprout(1, 2, 1), "--store-ca", file("cert.pem"), "--store-token-file", file("wrong"))...)
	s.phone(41, 7, s.bono(1, s.at(11, 5060))).signIn(60)
	p := s.phone(42, 8, s.bono(2, s.at(12, 5060)))
	p.want(p.register(60), 503)
	res, err := http.Get("http://" + s.at(251, 8070) + kv.Root)
	if err == nil {
		defer res.Body.Close()
		if res.StatusCode < 400 {
			t.Errorf("the store answered without TLS: status %d", res.StatusCode)
		}
	}
}

func TestStoreFlags(t *testing.T) {
	for args, want := range map[string]string{
		"--store http://127.0.0.1:1 --self 127.0.0.1:2 --peers 127.0.0.1:2": "--store and --peers",
		"--store-token-file x":                                "without --store",
		"--store nowhere":                                     "http://HOST:PORT",
		"--store https://127.0.0.1:1 --store-ca /none":        "/none",
		"--store https://127.0.0.1:1 --store-cert /none":      "/none",
		"--store https://127.0.0.1:1 --store-token-file none": "none",
		"--store http://127.0.0.1:1 --store-calls 0":          "--store-calls 0",
	} {
		var out, errs hosttest.Output
		err := components["sprout"](t.Context(), strings.Fields("--listen 127.0.0.1:0 --homestead 127.0.0.1:1 "+args), &out, &errs)
		if !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want a bad input about %s", args, err, want)
		}
	}
}
