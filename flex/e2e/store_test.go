package e2e

import (
	"io"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"
	"testing"

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
	for engine, server := range map[string]func(*testing.T) string{
		"redis": func(t *testing.T) string { return storetest.Redis(t, "--maxmemory-policy", "noeviction") },
		"etcd":  func(t *testing.T) string { return storetest.Etcd(t, 1)[0].Endpoint },
	} {
		t.Run(engine, func(t *testing.T) { slowStoreGetsAMember(t, engine, server(t)) })
	}
}

func slowStoreGetsAMember(t *testing.T, engine, server string) {
	s := newBare(t)
	store, member := freePort(t, "tcp"), freePort(t, "tcp")
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
