package e2e

import (
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"vitrine/flex"
	"vitrine/flex/unit"
	"vitrine/internal/hosttest"
	"vitrine/store/storetest"
)

// metrics returns the metrics of a store; empty: it does not answer.
func metrics(t *testing.T, address string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return ""
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return ""
	}
	return string(text)
}

var (
	served  = regexp.MustCompile(`vitrine_store_operation_seconds_count\{operation="[^"]+"\} [1-9]`)
	started = regexp.MustCompile(`(?m)^process_start_time_seconds .*$`)
)

// TestSlowStoreGetsAMember runs a store over Redis or etcd to which every request is slow. A member
// must start and get requests, outlive the orchestrator, and end with the next one.
func TestSlowStoreGetsAMember(t *testing.T) {
	t.Parallel()
	for engine, server := range map[string]func(*testing.T) string{
		"redis": func(t *testing.T) string { return storetest.Redis(t, "--maxmemory-policy", "noeviction") },
		"etcd":  func(t *testing.T) string { return storetest.Etcd(t, 1)[0].Endpoint },
	} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			slowStoreGetsAMember(t, engine, server(t))
		})
	}
}

func slowStoreGetsAMember(t *testing.T, engine, server string) {
	s := newBare(t)
	store, member := hosttest.FreeAddress(t, "tcp"), hosttest.FreeAddress(t, "tcp")
	deployment, err := filepath.Abs("testdata/deployment.yaml")
	if err != nil {
		t.Fatal(err)
	}
	command := `[vitrine, store, run, --engine, ` + engine + `, --engine-server, "` + server + `", --slow, 1ns, --slow-window, 1s, --listen, `
	s.writeDirector("")
	s.write("flex.yaml", `
directors: [{control: "`+s.control+`"}]
store: {url: "http://`+store+`", member: {url: "http://`+member+`", after: 2s, command: `+command+`"`+member+`"]}}
services:
  - {name: store, command: `+command+`"`+store+`"], ready: "`+store+`"}
  - {name: director, command: [vitrine, director, run, director.yaml], ready: "`+s.control+`"}
types:
  - name: registration
    deployment: `+deployment+`
    environment: {STORE: "http://`+store+`,http://`+member+`"}
    flavors: [{size: bn1s-sp1s-hs1s-hm1s, rate: 20}]
    max: 1
servers: {substrate: process, fabric: loopback}
`)
	ready := func() bool {
		got := s.status()
		return got != nil && slices.Contains(got.Services, flex.ServiceStatus{Name: "store-member-1", State: unit.Ready})
	}
	first := s.run()
	s.awaitOnly("registration-1")
	hosttest.Until(t, limit, "a member of the store that gets requests", func() bool { return ready() && served.MatchString(metrics(t, member)) })
	s.call("calls", 4, 3, 1).allSucceed(t, 3)

	before := started.FindString(metrics(t, member))
	first.end(syscall.SIGKILL)
	second := s.run()
	s.awaitOnly("registration-1")
	hosttest.Until(t, limit, "the member is taken over", ready)
	if after := started.FindString(metrics(t, member)); after != before || before == "" {
		t.Errorf("the store member started at %q before the orchestrator was killed, at %q after it", before, after)
	}
	second.end(syscall.SIGTERM)
	if c, err := net.Dial("tcp", member); err == nil {
		_ = c.Close()
		t.Error("the store member is still running after the orchestrator stopped")
	}
}

// TestStoreAwayDrainsNothing stops the store of two instances, or the store's Redis, so that their load
// seems to end. No instance may be drained until that process goes on.
func TestStoreAwayDrainsNothing(t *testing.T) {
	t.Parallel()
	t.Run("store", func(t *testing.T) {
		t.Parallel()
		storeAwayDrainsNothing(t, nil)
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		server, process := storetest.RedisProcess(t, "--maxmemory-policy", "noeviction")
		storeAwayDrainsNothing(t, process, "--engine", "redis", "--engine-server", server)
	})
}

// storeAwayDrainsNothing stops a process, or the store if it is nil. arguments are further ones of the
// store.
func storeAwayDrainsNothing(t *testing.T, stopped *os.Process, arguments ...string) {
	s := newBare(t)
	address := hosttest.FreeAddress(t, "tcp")
	store := exec.Command(s.vitrine, append([]string{"store", "run", "--listen", address, "--dir", filepath.Join(s.dir, "records")}, arguments...)...)
	if err := store.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = store.Process.Kill() // it runs, or is stopped
		_ = store.Wait()         // it was killed
	})
	if stopped == nil {
		stopped = store.Process
	}
	send := func(signal syscall.Signal) {
		t.Helper()
		if err := stopped.Signal(signal); err != nil {
			t.Fatal(err)
		}
	}
	hosttest.Until(t, limit, "the store answers", func() bool { return metrics(t, address) != "" })
	deployment, err := filepath.Abs("testdata/deployment.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s.writeDirector("")
	s.write("flex.yaml", `
directors: [{control: "`+s.control+`"}]
store: {url: "http://`+address+`"}
services:
  - {name: director, command: [vitrine, director, run, director.yaml], ready: "`+s.control+`"}
types:
  - name: registration
    deployment: `+deployment+`
    environment: {STORE: "http://`+address+`"}
    flavors: [{size: bn1s-sp1s-hs1s-hm1s, rate: `+strconv.Itoa(shortSwell.rate)+`}]
    max: 2
    stable: 4s
    boot: 3s
servers: {substrate: process, fabric: loopback}
`)
	s.run()
	s.awaitOnly("registration-1")
	burst := s.call("burst", shortSwell.burst, 20, 1)
	hosttest.Until(t, limit, "a second instance for the burst", func() bool { return len(s.names("active")) == 2 })
	send(syscall.SIGSTOP)
	<-burst.done // its calls fail, or wait in vain
	var quiet time.Time
	hosttest.Until(t, limit, "no load for three times the stable time", func() bool {
		switch got := s.status(); {
		case got == nil || got.Types[0].Rate > 0:
			quiet = time.Time{}
		case quiet.IsZero():
			quiet = time.Now()
		}
		return !quiet.IsZero() && time.Since(quiet) > 12*time.Second
	})
	if why := strings.Join(s.status().Types[0].Why, "\n"); s.count(flex.EventDrain) != 0 || len(s.names("active")) != 2 || !strings.Contains(why, "hold: store: no store answers") {
		t.Errorf("want two instances, held because no store answers; got %q, %q: %v", s.names("active"), why, s.events())
	}
	send(syscall.SIGCONT)
	hosttest.Until(t, limit, "one instance after the outage", func() bool { return len(s.status().Instances) == 1 })
}
