package catalog

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"

	"vitrine"
	"vitrine/document"
	"vitrine/fabric"
	"vitrine/fabric/bridge"
	"vitrine/internal/hosttest"
	"vitrine/internal/netns"
	"vitrine/internal/runstate"
	"vitrine/load"
	"vitrine/load/http"
	"vitrine/load/s1ap"
	"vitrine/load/sip"
	"vitrine/load/sipp"
	"vitrine/result"
	"vitrine/spec"
	"vitrine/substrate"
	"vitrine/substrate/docker"
	"vitrine/substrate/docker/dockertest"
	"vitrine/substrate/process"
	"vitrine/testbed"
	"vitrine/trial"
)

// TestMain makes this test binary its own generator: `TEST generate NAME OPTION...`.
func TestMain(m *testing.M) {
	if len(os.Args) < 3 || os.Args[1] != "generate" {
		if err := os.Setenv("PATH", os.Getenv("PATH")+":/usr/sbin"); err != nil {
			panic(err)
		}
		os.Exit(m.Run())
	}
	t, err := load.ReadTrial(os.Args[3:], os.Environ())
	if err == nil {
		switch os.Args[2] {
		case "http":
			err = http.Run(context.Background(), t, os.Stdout, os.Stderr)
		case "s1ap":
			err = s1ap.Run(context.Background(), t, os.Stdout, os.Stderr)
		case "sip":
			err = sip.Run(context.Background(), t, os.Stdout, os.Stderr)
		case "sipp":
			err = sipp.Run(context.Background(), t, os.Stdout, os.Stderr)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// tolerance is the largest relative difference between two counts of the same thing.
const tolerance = 0.001

// registers is the number of REGISTERs in a call, and accepted is how many of
// them get a 200.
const (
	registers = 3
	accepted  = 2
)

// TestKamailioCountersAgree compares trials.csv with Kamailio's counters and with
// captures at the edges. It runs beside other tests, because rates are far below the capacities, and
// the functions have no load control.
func TestKamailioCountersAgree(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"process", "docker"} {
		t.Run(name, func(t *testing.T) {
			requirePrograms(t, "ims-kamailio", "kamailio", "kamcmd", "redis-server", "redis-cli", "sipp", "docker", "tcpdump", "tshark")
			var engine, tag string
			if name == "docker" {
				engine, tag = buildImage(t)
			}
			for _, w := range []struct{ sizing, workload string }{
				{"ed1l-rg1l", "workload.yaml"},     // SIPp
				{"ed2m-rg2m", "workload-sip.yaml"}, // the built-in generator
			} {
				t.Run(w.sizing, func(t *testing.T) {
					c := newCampaign(t, "ims-kamailio", name, w.sizing, w.workload)
					c.engine = engine
					for i := range c.config.Deployment.Components {
						c.config.Deployment.Components[i].Image = tag
					}
					c.run()
					c.compare()
				})
			}
		})
	}
}

// TestKamailioEdgeSteers checks that an edge with STEERS sends all requests of a Call-ID to
// one registrar, and uses all registrars.
func TestKamailioEdgeSteers(t *testing.T) {
	t.Parallel()
	requirePrograms(t, "ims-kamailio", "kamailio", "kamcmd", "redis-server", "redis-cli", "tcpdump", "tshark")
	c := newCampaign(t, "ims-kamailio", "process", "ed1l-rg2m", "workload-sip.yaml")
	c.capture = []string{"registrar"}
	for i := range c.config.Deployment.Components {
		of := &c.config.Deployment.Components[i]
		of.Image = ""
		if of.Name == "edge" {
			of.Environment = document.Strings{"STEERS": "yes"}
		}
	}
	c.run()
	clear(c.wiring.inside) // the edge is not to be left out
	calls, seen := c.trials(), c.captured()
	if calls["offered"] == 0 || calls["succeeded"] != calls["offered"] {
		t.Errorf("%d of %d calls succeeded", calls["succeeded"], calls["offered"])
	}
	if seen.calls != calls["offered"] || seen.complete != calls["succeeded"] {
		t.Errorf("the registrars saw %d calls, %d of them complete, of %d: a call went to two of them", seen.calls, seen.complete, calls["offered"])
	}
	for name, tap := range c.wiring.taps {
		if one, err := tap.count(c.wiring.inside); err != nil || one.calls == 0 {
			t.Errorf("%s got no call: %v", name, err)
		}
	}
}

// requirePrograms skips the test if a program that the package's README requires
// is missing.
func requirePrograms(t *testing.T, folder string, programs ...string) {
	t.Helper()
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(&vitrine.Unsupported{What: "the package " + folder, Missing: "the program " + program, Do: "run .ci/install"})
		}
	}
	hosttest.Need(t, netns.Possible())
}

// buildImage starts a Docker engine and builds the package's image in it. The
// image's tag is removed at the end of the test.
func buildImage(t *testing.T) (engine, tag string) {
	t.Helper()
	engine = dockertest.Start(t)
	tag = fmt.Sprintf("vitrine/ims-kamailio:test-%d", os.Getpid())
	cmd := exec.Command("ims-kamailio/image.sh", tag)
	cmd.Env = append(os.Environ(), "DOCKER_HOST="+engine)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("image.sh: %v:\n%s", err, out)
	}
	t.Cleanup(func() {
		api, err := client.NewClientWithOpts(client.WithHost(engine), client.WithAPIVersionNegotiation())
		if err == nil {
			defer api.Close()
			_, err = api.ImageRemove(context.Background(), tag, image.RemoveOptions{})
		}
		if err != nil {
			t.Errorf("remove the image: %v", err)
		}
	})
	return engine, tag
}

var timeout = regexp.MustCompile(`timeout: \d+m?s`)

// A campaign measures one sizing of the package, with a capture at each edge.
type campaign struct {
	t       *testing.T
	dir     string
	label   *runstate.Run
	capture []string // components whose instances are captured
	filter  string   // of the packets that are captured
	engine  string   // address of the Docker engine
	config  trial.Config
	wiring  *tapped
}

func newCampaign(t *testing.T, folder, substrate, sizing, workload string) *campaign {
	t.Helper()
	c := &campaign{t: t, dir: t.TempDir(), capture: []string{"edge"}, filter: "udp"}
	var err error
	c.config = trial.Config{Log: slog.New(slog.DiscardHandler), Seed: 1}
	if c.config.Deployment, err = spec.LoadDeployment(filepath.Join(folder, "deployment.yaml"), known()); err != nil {
		t.Fatal(err)
	}
	c.config.Deployment.Servers.Substrate = document.OneOrMany[string]{substrate}
	c.config.Deployment.Mode = spec.Mode{Name: spec.Custom, Sizes: []string{sizing}}
	path := filepath.Join(folder, workload)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// A busy host may delay an answer; that is not a failure here.
	patient := timeout.ReplaceAll(text, []byte("timeout: 10s"))
	if bytes.Equal(patient, text) {
		t.Fatalf("%s: no timeout to lengthen", path)
	}
	w, err := spec.ParseWorkload(path, patient, known())
	if err != nil {
		t.Fatal(err)
	}
	// The rates are well below the capacity of the sizes. There is no warm-up,
	// because Kamailio would count its calls but trials.csv would not.
	w.Search, w.Range, w.Increase, w.Repeat = spec.Ramp, spec.Range{20, 40}, 20, 1
	w.Warmup, w.Duration, w.Settle = 0, 4*time.Second, 0
	c.config.Workload = w
	c.config.CPUs, err = testbed.ShareCPUs(nil, nil)
	hosttest.Need(t, err)
	if c.label, err = runstate.New(runstate.DefaultRoot()); err != nil {
		t.Fatal(err)
	}
	hosttest.AtEnd(t, c.label.Close)
	c.useTestbed()
	return c
}

// useTestbed configures the campaign to run on this host, with this program as
// its generators.
func (c *campaign) useTestbed() {
	self := hosttest.Self(c.t)
	host := func(context.Context, spec.Choice) (substrate.Substrate, error) {
		return process.New(process.Config{Run: c.label, Environ: os.Environ()})
	}
	c.config.Generator = func(name string) ([]string, error) { return []string{self, "generate", name}, nil }
	c.config.Testbed = testbed.Config{
		Run: c.label.ID, Parts: c.config.Deployment.Servers.Parts, Self: self,
		Host: host,
		Substrate: func(ctx context.Context, o spec.Choice, part document.Node) (substrate.Substrate, error) {
			if o.Substrate == "process" {
				return host(ctx, o)
			}
			config := docker.Config{Folder: c.config.Deployment.Resolve(".")}
			if err := part.Decode(&config); err != nil {
				return nil, err
			}
			config.Host = c.engine
			return docker.New(ctx, config)
		},
		Fabric: func(context.Context, spec.Choice, document.Node) (fabric.Fabric, error) {
			inner, err := bridge.New(bridge.Config{Run: c.label})
			c.wiring = &tapped{Fabric: inner, components: c.capture, filter: c.filter, dir: c.dir, taps: map[string]*tapping{}, inside: map[netip.Addr]bool{}}
			return c.wiring, err
		},
	}
}

// run runs the campaign into the folder "run".
func (c *campaign) run() {
	c.t.Helper()
	var err error
	c.config.Results, err = result.Create(filepath.Join(c.dir, "run"), result.Manifest{})
	if err != nil {
		c.t.Fatal(err)
	}
	planned, err := trial.New(c.config)
	if err != nil {
		c.t.Fatal(err)
	}
	_, err = planned.Run(c.t.Context())
	if err := errors.Join(err, c.config.Results.Close()); err != nil {
		c.t.Fatal(err)
	}
	left, err := netns.List("vt-" + c.label.ID)
	if err != nil || len(left) > 0 {
		c.t.Errorf("left behind: %v %v", left, err)
	}
}

// compare checks that trials.csv, Kamailio's counters and the captures agree.
func (c *campaign) compare() {
	calls, seen := c.trials(), c.captured()
	edge, registrar := c.counters("edge"), c.counters("registrar")
	c.t.Logf("trials.csv: %v", calls)
	c.t.Logf("captured at the edges: %+v", seen)
	for _, counters := range []map[string]int64{edge, registrar} {
		for _, name := range slices.Sorted(maps.Keys(counters)) {
			if !strings.HasPrefix(name, "shmem:") {
				c.t.Logf("  %s = %d", name, counters[name])
			}
		}
	}
	if calls["scheduled"] == 0 {
		c.t.Fatal("no calls")
	}
	// The edge counts the phones' retransmissions too.
	again := seen.packets - seen.transactions
	for _, same := range []struct {
		what       string
		ours, them int64
	}{
		{"scheduled calls, and calls in captures", calls["scheduled"], seen.calls},
		{"offered calls, and calls in captures", calls["offered"], seen.calls},
		{"successful calls, and complete calls in captures", calls["succeeded"], seen.complete},
		{"REGISTERs of offered calls, and the edges' rcv_requests_register", registers * calls["offered"], edge["core:rcv_requests_register"] - again},
		{"REGISTERs of offered calls, and REGISTERs in captures", registers * calls["offered"], seen.transactions},
		{"200s of successful calls, and the edges' 2xx_transactions", accepted * calls["succeeded"], edge["tmx:2xx_transactions"]},
		{"200s of successful calls, and 200s in captures", accepted * calls["succeeded"], seen.ok},
		{"challenges, one per call, and the edges' 4xx_transactions", calls["offered"], edge["tmx:4xx_transactions"]},
		{"challenges, one per call, and challenges in captures", calls["offered"], seen.challenged},
	} {
		if off := same.them - same.ours; math.Abs(float64(off)) > tolerance*float64(same.ours) {
			c.t.Errorf("%s: %d and %d", same.what, same.ours, same.them)
		}
	}
	// An edge may repeat a request to a slow registrar.
	if got, least := registrar["registrar:accepted_regs"], accepted*calls["succeeded"]; float64(got) < (1-tolerance)*float64(least) {
		c.t.Errorf("the registrars accepted %d REGISTERs, but the phones got %d answers 200", got, least)
	}
}

// trials returns the sums of the columns of trials.csv over all rows.
func (c *campaign) trials() map[string]int64 {
	c.t.Helper()
	return trialSums(c.t, filepath.Join(c.dir, "run"))
}

// trialSums returns the sums of the columns of a run's trials.csv over all rows.
func trialSums(t *testing.T, run string) map[string]int64 {
	t.Helper()
	f, err := os.Open(filepath.Join(run, "trials.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	sums := map[string]int64{}
	for _, row := range rows[1:] {
		t.Log(strings.Join(row, ","))
		for i, column := range rows[0] {
			if slices.Contains([]string{"scheduled", "offered", "succeeded", "failed"}, column) {
				n, err := strconv.ParseInt(row[i], 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				sums[column] += n
			}
		}
	}
	return sums
}

// captured returns the sums of the captures at the edges.
func (c *campaign) captured() captured {
	c.t.Helper()
	var sum captured
	if len(c.wiring.taps) == 0 {
		c.t.Fatal("the campaign has no captures")
	}
	for _, tap := range c.wiring.taps {
		one, err := tap.count(c.wiring.inside)
		if err != nil {
			c.t.Fatal(err)
		}
		sum.packets += one.packets
		sum.transactions += one.transactions
		sum.calls += one.calls
		sum.ok += one.ok
		sum.challenged += one.challenged
		sum.complete += one.complete
	}
	return sum
}

var counter = regexp.MustCompile(`^([a-z_]+:\w+) = (\d+)$`)

// counters returns the sums of the Kamailio counters that the component's
// instances printed when they ended.
func (c *campaign) counters(component string) map[string]int64 {
	c.t.Helper()
	logs, err := filepath.Glob(filepath.Join(c.dir, "run", "logs", "*", "*", component+"-*", "log"))
	if err != nil || len(logs) == 0 {
		c.t.Fatalf("no logs of %s: %v", component, err)
	}
	sums := map[string]int64{}
	for _, path := range logs {
		log, err := os.ReadFile(path)
		if err != nil {
			c.t.Fatal(err)
		}
		if !strings.Contains(string(log), "\ncounters:\n") {
			c.t.Errorf("%s: no counters in it:\n%s", path, log)
		}
		for line := range strings.Lines(string(log)) {
			if match := counter.FindStringSubmatch(strings.TrimSpace(line)); match != nil {
				n, err := strconv.ParseInt(match[2], 10, 64)
				if err != nil {
					c.t.Fatal(err)
				}
				sums[match[1]] += n
			}
		}
	}
	return sums
}
