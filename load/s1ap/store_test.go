package s1ap

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"vitrine/internal/hosttest"
	"vitrine/load"
	"vitrine/reference/epc/hss"
	"vitrine/reference/epc/mme"
	"vitrine/reference/epc/pgw"
	"vitrine/reference/epc/sgw"
	"vitrine/store"
	"vitrine/store/client"
	"vitrine/store/embedded"
	"vitrine/store/etcd"
	"vitrine/store/redis"
	"vitrine/store/service/servicetest"
	"vitrine/store/storetest"
)

// asMME is the environment variable that makes the test binary run an MME instead of the tests.
// With it, a test can kill a real process.
const asMME = "S1AP_TEST_MME"

// runMME runs an MME if asMME is set.
func runMME() {
	if os.Getenv(asMME) == "" {
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := mme.Run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// engines are the engines of stores.
func engines() map[string]func(*testing.T) (store.Engine, error) {
	log := slog.New(slog.DiscardHandler)
	return map[string]func(*testing.T) (store.Engine, error){
		"embedded": func(t *testing.T) (store.Engine, error) {
			return embedded.Open(embedded.Config{Dir: t.TempDir(), Now: time.Now, Logger: log})
		},
		"redis": func(t *testing.T) (store.Engine, error) {
			at := storetest.Redis(t, "--appendonly", "yes", "--appendfsync", "always")
			return redis.Open(t.Context(), redis.Config{Addresses: []string{at}, Now: time.Now, Logger: log})
		},
		"etcd": func(t *testing.T) (store.Engine, error) {
			at := storetest.Etcd(t, 1)[0].Endpoint
			return etcd.Open(t.Context(), etcd.Config{Endpoints: []string{at}, Now: time.Now, Logger: log})
		},
	}
}

// startStore serves a store with an engine.
func startStore(t *testing.T, open func(*testing.T) (store.Engine, error)) *servicetest.Store {
	t.Helper()
	engine, err := open(t)
	if err != nil {
		t.Fatal(err)
	}
	return servicetest.Serve(t, engine)
}

// keys returns how many keys with a prefix the store has.
func keys(t *testing.T, v *servicetest.Store, prefix string) (n int) {
	t.Helper()
	c, err := client.New(client.Config{Base: v.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, err := range c.KV("mme").List(t.Context(), prefix, false) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

// startStoreEPC starts the reference EPC with MMEs 1 to mmes. Each MME has its own process, and
// all share a store.
func startStoreEPC(t *testing.T, number, mmes int, url string, flags ...string) (*epc, []*os.Process) {
	t.Helper()
	e := newEPC(t, number)
	e.start("hss", hss.Run, "--listen", e.at(41, 3868), "--metrics", e.at(41, 9090))
	e.start("pgw", pgw.Run, "--listen", e.at(21, 2123), "--metrics", e.at(21, 9090))
	e.start("sgw", sgw.Run, "--listen", e.at(11, 2123), "--metrics", e.at(11, 9090), "--downlink", e.at(11, 8080))
	var processes []*os.Process
	for n := 1; n <= mmes; n++ {
		processes = append(processes, e.spawn(n, url, flags...))
	}
	return e, processes
}

// spawn runs MME n in a separate process.
func (e *epc) spawn(n int, url string, flags ...string) *os.Process {
	e.t.Helper()
	cmd := exec.Command(os.Args[0], append(e.member(n,
		"--hss", e.at(41, 3868), "--sgw", e.at(11, 2123), "--pgw", e.at(21, 2123),
		"--ciphering", "eea2", "--workers", strconv.Itoa(n), "--overload", "off", "--store", url, "--store-timeout", "20s", // on a busy host disks are slow
	), flags...)...)
	cmd.Env = append(os.Environ(), asMME+"=1")
	hosttest.Spawn(e.t, patience, fmt.Sprint("MME ", n), cmd)
	e.connected(n)
	return cmd.Process
}

// TestKilledMMELosesNoUE kills one of two MMEs under load. The other MME must serve its UEs, and
// these must not attach again. Procedures in progress begin again.
func TestKilledMMELosesNoUE(t *testing.T) {
	for name, open := range engines() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const mmes = 2
			v := startStore(t, open)
			e, processes := startStoreEPC(t, 60+len(name), mmes, v.URL)
			var load sync.WaitGroup
			load.Go(func() {
				e.play(25, 4, 3, mmes, map[string]string{"scenario": ServiceRequest, "retries": "3", "enodebs": "2", "timeout": patience.String()})
			})
			services := func(host int) int { return e.succeeded(host, "service-request") }
			hosttest.Until(t, patience, "both MMEs serve UEs", func() bool { return services(1) > 5 && services(2) > 5 })
			if err := processes[0].Kill(); err != nil {
				t.Fatal(err)
			}
			load.Wait()
			if got := e.metric(2, "mme_taken_over_total"); got == 0 {
				t.Error("no MME took over a UE")
			}
			if n := e.metric(2, "mme_procedures_total", `outcome="unknown-identity"`); n > 0 {
				t.Errorf("%d UEs had an unknown identity, want 0", n)
			}
			agree(t, e, v)
		})
	}
}

// TestEveryProcedureMovesBetweenMMEs plays the mix and kills an MME, so that an MME gets attaches,
// updates and detaches of UEs that it did not attach.
func TestEveryProcedureMovesBetweenMMEs(t *testing.T) {
	t.Parallel()
	const mmes = 2
	v := startStore(t, engines()["embedded"])
	e, processes := startStoreEPC(t, 70, mmes, v.URL)
	params := map[string]string{"scenario": Mix, "timeout": patience.String(), "retries": "3", "enodebs": "2", "arrivals": "poisson"}
	var load sync.WaitGroup
	load.Go(func() { e.play(30, 6, 5, mmes, params) })
	hosttest.Until(t, patience, "both MMEs detach UEs", func() bool { return e.succeeded(1, "detach") > 2 && e.succeeded(2, "detach") > 2 })
	if err := processes[0].Kill(); err != nil {
		t.Fatal(err)
	}
	load.Wait()
	for _, procedure := range []string{"service-request", "tracking-area-update", "detach", "attach"} {
		if e.succeeded(2, procedure) == 0 {
			t.Errorf("no successful %s", procedure)
		}
	}
	agree(t, e, v)
}

// agree waits until the store and the S-GW have the same number of UEs.
func agree(t *testing.T, e *epc, v *servicetest.Store) {
	t.Helper()
	last := ""
	hosttest.Until(t, patience, "the store and the S-GW have the same UEs", func() bool {
		n := keys(t, v, "ue/")
		at := e.metric(11, "sgw_ues")
		if now := fmt.Sprintf("%d UEs in the store, %d at the S-GW, %d M-TMSIs, %d timers", n, at, keys(t, v, "tmsi/"), keys(t, v, "due/")); now != last {
			last = now
			t.Log(now)
		}
		return n > 0 && n == at && n == keys(t, v, "tmsi/") && n == keys(t, v, "due/")
	})
}

// TestStoreAway checks that an MME refuses with congestion while the store is away, and serves
// again when the store is back.
func TestStoreAway(t *testing.T) {
	t.Parallel()
	v := startStore(t, engines()["embedded"])
	e, _ := startStoreEPC(t, 80, 1, v.URL)
	params := map[string]string{"scenario": ServiceRequest, "timeout": patience.String()}
	e.play(20, 1, 3, 1, params)
	v.Away.Store(true)
	away := load.Trial{Rate: 20, Duration: 1, Params: map[string]string{"scenario": Attach, "subscribers": "001010000040001"}}
	report := e.run(away)
	if report.Succeeded != 0 || report.Failed["emm-22"] != report.Offered {
		t.Errorf("%d of %d succeeded, %v", report.Succeeded, report.Offered, report.Failed)
	}
	if got := e.metric(1, "mme_store_refused_total"); got != int(report.Offered) {
		t.Errorf("counted %d refusals, want %d", got, report.Offered)
	}
	v.Away.Store(false)
	hosttest.Until(t, patience, "the store is back", func() bool { return e.metric(1, "mme_store_up") == 1 })
	away.Params["subscribers"] = "001010000050001"
	e.play(20, 1, 0, 1, away.Params)
}
