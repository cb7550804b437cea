package ims_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"vitrine/internal/hosttest"
	"vitrine/reference/ims/bono"
	"vitrine/reference/ims/homer"
	"vitrine/reference/ims/homestead"
	"vitrine/reference/ims/ralf"
	"vitrine/reference/ims/sidecar"
	"vitrine/reference/ims/sprout"
)

var components = map[string]hosttest.Program{
	"bono": bono.Run, "sprout": sprout.Run, "homestead": homestead.Run, "homer": homer.Run, "ralf": ralf.Run,
	"sidecar": sidecar.Run,
}

// processes are the components, and the store beside them.
func processes(name string) hosttest.Program {
	if name == "store" {
		return runStore
	}
	return components[name]
}

// asComponent is the environment variable that makes the test binary run a
// component instead of the tests. So a test can stop and kill a real process.
const asComponent = "IMS_TEST_COMPONENT"

func TestMain(m *testing.M) {
	name := os.Getenv(asComponent)
	if name == "" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := processes(name)(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// patience limits every wait of these tests. Reaching it is a failure.
const patience = 30 * time.Second

// eventually polls until ok returns true.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	hosttest.Until(t, patience, what, ok)
}

// start runs a component in this process until the test ends or stop is called.
func start(t testing.TB, name string, args ...string) (stop func()) {
	t.Helper()
	return hosttest.Start(t, patience, name, processes(name), args...)
}

// spawn runs a component in a separate process.
func spawn(t testing.TB, name string, args ...string) *os.Process {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), asComponent+"="+name)
	hosttest.Spawn(t, patience, name, cmd)
	return cmd.Process
}

// A site holds the addresses of one test's IMS. Tests do not share addresses.
type site struct {
	t      testing.TB
	prefix string
	store  string // URL of the Sprouts' store; empty: they replicate
}

var sites = struct {
	sync.Mutex
	n int
}{}

func newSite(t testing.TB) site {
	sites.Lock()
	defer sites.Unlock()
	sites.n++
	return site{t: t, prefix: fmt.Sprintf("127.%d.%d.", 100+os.Getpid()%100, sites.n)}
}

// forEachKeeper runs a test with Sprouts that replicate, and with Sprouts that
// have a store.
func forEachKeeper(t *testing.T, test func(*testing.T, site)) {
	t.Run("replicas", func(t *testing.T) { test(t, newSite(t)) })
	t.Run("store", func(t *testing.T) {
		test(t, newStoreSite(t))
	})
}

// newStoreSite returns a site with a running store, which the Sprouts use.
func newStoreSite(t *testing.T) site {
	t.Helper()
	s := newSite(t).withStore()
	start(t, "store", s.storeArgs(t.TempDir())...)
	return s
}

func (s site) at(host, port int) string { return fmt.Sprintf("%s%d:%d", s.prefix, host, port) }

// list returns n addresses with consecutive hosts. The hosts of a site are: bono
// 1, 2; sprout 11, 12, ...; homestead 21, 22, ...; homer 31; ralf 32; phones 41
// and up; Kamailio 61 and up; store 251.
func (s site) list(first, n, port int) string {
	addrs := make([]string, n)
	for i := range n {
		addrs[i] = s.at(first+i, port)
	}
	return strings.Join(addrs, ",")
}

func (s site) homesteads(n int, extra ...string) {
	for i := range n {
		start(s.t, "homestead", append(s.homestead(i, n), extra...)...)
	}
}

func (s site) homestead(i, n int) []string {
	args := []string{"--listen", s.at(21+i, 8888), "--subscribers", "1000"}
	if n > 1 {
		args = append(args, "--self", s.at(21+i, 7000), "--peers", s.list(21, n, 7000), "--metrics", s.at(21+i, 9090))
	}
	return args
}

func (s site) sprout(i, n, homesteads int) []string {
	args := []string{
		"--listen", s.at(11+i, 5060), "--homestead", s.list(21, homesteads, 8888), "--metrics", s.at(11+i, 9090),
		"--initial-rate", "5000", "--target-latency", "5s", // a slow test host must not count as overload
	}
	switch {
	case s.store != "":
		args = append(args, "--store", s.store)
	case n > 1:
		args = append(args, "--self", s.at(11+i, 7000), "--peers", s.list(11, n, 7000))
	}
	return args
}

// sprouts starts n Sprouts and waits until they see each other.
func (s site) sprouts(n, homesteads int, extra ...string) {
	s.t.Helper()
	for i := range n {
		start(s.t, "sprout", append(s.sprout(i, n, homesteads), extra...)...)
	}
	s.whole(11, n)
}

// whole waits until the n members of a cluster, from host first, see each other.
func (s site) whole(first, n int) {
	s.t.Helper()
	if s.store != "" {
		return // they do not know each other
	}
	eventually(s.t, "the Sprouts see each other", func() bool {
		for i := range n {
			if s.metric(first+i, "sprout_living") != float64(n) {
				return false
			}
		}
		return true
	})
}

// bono starts a Bono that uses the given Sprouts, and returns its address.
func (s site) bono(host int, sprouts string, extra ...string) string {
	s.t.Helper()
	start(s.t, "bono", append([]string{
		"--listen", s.at(host, 5060), "--sprout", sprouts, "--metrics", s.at(host, 9090), "--target-latency", "5s", "--target-delay", "5s",
	}, extra...)...)
	return s.at(host, 5060)
}

// metric returns the value of a counter, summed over all its labels, or -1 if it
// cannot be read.
func (s site) metric(host int, name string) float64 {
	text, err := hosttest.Scrape(s.at(host, 9090))
	if err != nil {
		return -1
	}
	return hosttest.Metric(s.t, text, name)
}

// state returns the registration state that Homestead holds for a user.
func (s site) state(user string) string {
	res, err := http.Get("http://" + s.at(21, 8888) + "/impu/sip:" + user + "@ims.test/reg-data")
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	m := regexp.MustCompile(`<RegistrationState>(\w+)<`).FindSubmatch(body)
	if m == nil {
		s.t.Fatalf("found no state of %s in %s", user, body)
	}
	return string(m[1])
}
