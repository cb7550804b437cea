package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/client"

	"vitrine/flex/hold"
	"vitrine/internal/hosttest"
	"vitrine/internal/runstate"
	"vitrine/substrate/docker/dockertest"
	"vitrine/substrate/substratetest"
)

// members is the number of members of an aggregate of testdata/deployment.yaml. Each is two
// containers: a sandbox and the function.
const members = 4

// holder returns the record of the process that holds the instances.
func (s *system) holder() (r hold.Record) {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.file+".flex", hold.RecordFile))
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

// containers returns the IDs of the engine's containers with a run's label, running or not, by
// their names.
func containers(t *testing.T, run string) map[string]string {
	t.Helper()
	api, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	all, err := api.ContainerList(t.Context(), container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", "vitrine.run="+run))})
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]string{}
	for _, c := range all {
		ids[c.Names[0]] = c.ID
	}
	return ids
}

// nothingLeft checks that the engine and the host have nothing with a run's label.
func nothingLeft(t *testing.T, run string) {
	t.Helper()
	if left := containers(t, run); len(left) != 0 {
		t.Errorf("containers left: %v", slices.Sorted(maps.Keys(left)))
	}
	if left, err := substratetest.Left(run); err != nil || len(left) != 0 {
		t.Errorf("resources left: %v, error %v", left, err)
	}
}

// clean runs vitrine clean.
func (s *system) clean() {
	s.t.Helper()
	if out, err := exec.CommandContext(s.t.Context(), s.vitrine, "clean").CombinedOutput(); err != nil {
		s.t.Errorf("clean: %v: %s", err, out)
	}
}

// newDockerSystem returns a system whose instances are containers.
func newDockerSystem(t *testing.T) *system {
	t.Helper()
	t.Setenv("DOCKER_HOST", dockertest.Start(t)) // first, so that the engine outlives the system
	s := newSystem(t, shortSwell.rate)
	s.edit("flex.yaml", "substrate: process", "substrate: docker")
	return s
}

// takeOver kills an orchestrator while calls go on, and starts another one. The new one must
// find the containers of the only instance, and start nothing.
func (s *system) takeOver(first *orchestrator, base *calls, seconds float64) (second *orchestrator) {
	s.t.Helper()
	run, only, starts := s.holder().Run, s.names("active"), s.count("start")
	before := containers(s.t, run)
	if len(before) != 2*members {
		s.t.Errorf("got %d containers: %v, want %d", len(before), slices.Sorted(maps.Keys(before)), 2*members)
	}
	first.end(syscall.SIGKILL)
	s.clean()
	second = s.run()
	s.awaitOnly(only...)
	base.allSucceed(s.t, seconds)
	if after := containers(s.t, run); !maps.Equal(after, before) {
		s.t.Errorf("the containers changed from %v to %v", before, after)
	}
	if n := s.count("start"); n != starts {
		s.t.Errorf("%d instances were started again, want 0", n-starts)
	}
	return second
}

// TestContainersOutliveTheOrchestrator runs instances as containers, with the director on the
// host. After SIGKILL, a new orchestrator takes the same containers over, and can drain and stop
// them. After SIGKILL of the holder, the containers are replaced. After SIGKILL of both, vitrine
// clean removes everything.
func TestContainersOutliveTheOrchestrator(t *testing.T) {
	s := newDockerSystem(t)
	first := s.run()
	s.awaitOnly("registration-1")
	second := s.takeOver(first, s.call("base", 2, 10, 1), 10)

	one := s.holder()
	old := containers(t, one.Run)
	if out, status := s.verb("drain", "registration-1"); status != 0 {
		t.Errorf("drain: %d: %s", status, out)
	}
	s.awaitOnly("registration-2")
	for name := range containers(t, one.Run) {
		if old[name] != "" {
			t.Errorf("container %s of a drained instance still exists", name)
		}
	}
	s.call("drained", 2, 3, 1000).allSucceed(t, 3)

	kill(t, one.PID)
	s.awaitOnly("registration-3")
	nothingLeft(t, one.Run)
	s.call("held", 2, 3, 2000).allSucceed(t, 3)

	two := s.holder()
	second.end(syscall.SIGKILL)
	kill(t, two.PID)
	hosttest.Until(t, limit, "the holder has ended", func() bool { return !runstate.Alive(two.Root, two.Run) })
	s.clean()
	nothingLeft(t, two.Run)
}

// service is the address of the first service at a bridge: the prober has the one before.
const service = "198.18.0.2"

// newBridgeSystem returns a system whose instances are containers at a bridge. The director is
// a service, and so at the bridge too: the orchestrator reaches it by its unix socket.
func newBridgeSystem(t *testing.T) *system {
	t.Helper()
	s := newDockerSystem(t)
	s.sip, s.control = service+":5060", "unix:"+filepath.Join(s.dir, "director.sock")
	s.write("director.yaml", fmt.Sprintf(`
listen: {sip: ["udp://%s"], control: "127.0.0.1:8090"}
control: {socket: director.sock}
transition: 2s
types: [{name: registration, protocol: sip}]
rules: [{type: registration}]
`, s.sip))
	text, err := os.ReadFile("testdata/deployment.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s.write("deployment.yaml", strings.Replace(string(text), `, --store, "${STORE}"`, "", 1)) // a store beyond loopback needs TLS
	s.write("flex.yaml", fmt.Sprintf(`
directors: [{control: %q}]
services: [{name: director, command: [vitrine, director, run, director.yaml], ready: "127.0.0.1:8090"}]
types:
  - name: registration
    deployment: deployment.yaml
    flavors: [{size: bn1s-sp1s-hs1s-hm1s, rate: %d}]
    max: 2
    boot: 3s
servers: {substrate: docker, fabric: bridge}
`, s.control, shortSwell.rate))
	return s
}

// TestContainersAtABridgeOutliveTheOrchestrator is about containers with networks of their
// own. Calls come from the director's network namespace, because nothing else reaches the bridge.
func TestContainersAtABridgeOutliveTheOrchestrator(t *testing.T) {
	s := newBridgeSystem(t)
	first := s.run()
	s.awaitOnly("registration-1")
	s.inside = s.directorPID()
	second := s.takeOver(first, s.call("base", 2, 10, 1), 10)
	run := s.holder().Run
	second.end(syscall.SIGTERM)
	nothingLeft(t, run)
}
