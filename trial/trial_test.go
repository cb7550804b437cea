package trial_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"vitrine"
	"vitrine/document"
	"vitrine/fabric"
	"vitrine/fabric/fabrictest"
	"vitrine/internal/hosttest"
	"vitrine/internal/netns"
	"vitrine/internal/runstate"
	"vitrine/load"
	"vitrine/result"
	"vitrine/search/rate"
	"vitrine/spec"
	"vitrine/substrate"
	"vitrine/substrate/substratetest"
	"vitrine/testbed"
	"vitrine/testbed/testbedtest"
	"vitrine/trial"
)

// TestMain makes the test binary the function under test and the generator, too. Both run as real
// processes in real places. Campaigns that run in parallel mostly wait for their generators.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "serve":
			exit(serve(os.Args[2:]))
		case "touch":
			exit(call(os.Args[2]))
		case "drive":
			exit(drive(os.Args[2:]))
		case "deaf":
			exit(deaf(os.Args[2:]))
		}
	}
	if err := flag.Set("test.parallel", "3"); err != nil {
		exit(err)
	}
	os.Exit(m.Run())
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// serve is a function that answers one byte per connection. If it has a second argument, it dies
// after that many connections.
func serve(args []string) error {
	address, dieAfter := args[0], -1
	if len(args) > 1 {
		dieAfter, _ = strconv.Atoi(args[1])
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	go func() {
		<-stop
		os.Exit(0)
	}()
	for served := 0; ; served++ {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		if served == dieAfter {
			fmt.Fprintln(os.Stderr, "out of luck")
			os.Exit(7)
		}
		go func() {
			defer conn.Close()
			if b := make([]byte, 1); len(b) == 1 {
				if _, err := io.ReadFull(conn, b); err == nil {
					_, _ = conn.Write(b)
				}
			}
		}()
	}
}

// drive is a generator that follows the contract. The parameter "fault" makes it fail. Above
// "ceiling" calls per second, every second call fails. Its window begins after "delay". With "simulate"
// it makes all calls at once, and its window begins when it is over.
func drive(args []string) error {
	t, err := load.ReadTrial(args, os.Environ())
	if err != nil {
		return err
	}
	switch t.Params["fault"] {
	case "garbage":
		fmt.Println("this is not a report")
		return nil
	case "crash":
		return errors.New("generator crashed on purpose")
	case "hang":
		never := make(chan os.Signal, 1)
		signal.Notify(never, syscall.SIGUSR1)
		<-never
	}
	n := int(t.Rate * t.Duration)
	r := load.Report{Duration: t.Duration, Scheduled: int64(n), Offered: int64(n), Failed: map[string]int64{}}
	switch t.Params["fault"] {
	case "slow":
		r.Offered = int64(n / 2)
	case "late":
		r.Offered = int64(n - 1)
	}
	if delay, err := time.ParseDuration(t.Params["delay"]); err == nil {
		time.Sleep(delay)
		r.WindowStart = float64(time.Now().UnixMicro()) / 1e6
	}
	if t.Params["fault"] == "clock" {
		r.WindowStart = float64(time.Now().Add(time.Hour).UnixMicro()) / 1e6
	}
	rec := make([]int64, 1)
	ceiling, _ := strconv.ParseFloat(t.Params["ceiling"], 64)
	begin := time.Now()
	if t.Params["simulate"] != "" {
		begin = begin.Add(-time.Duration(t.Duration * float64(time.Second)))
	}
	histogram := hdrhistogram.New(1, int64(time.Minute), 3)
	for i := range n {
		time.Sleep(time.Until(begin.Add(time.Duration(float64(i) / t.Rate * float64(time.Second)))))
		if err := call(t.Targets[i%len(t.Targets)]); err != nil {
			r.Failed["connect"]++
			continue
		}
		if ceiling > 0 && t.Rate > ceiling && i%2 == 1 {
			r.Failed["503"]++
			continue
		}
		if int64(i) < r.Offered {
			rec[0]++
			_ = histogram.RecordValue(1e6)
		}
	}
	r.Succeeded = rec[0]
	r.Seconds = load.Seconds{Scheduled: []int64{r.Scheduled}, Offered: []int64{r.Offered}, Succeeded: []int64{r.Succeeded}, Failed: map[string][]int64{}}
	for cause, count := range r.Failed {
		r.Seconds.Failed[cause] = []int64{count}
	}
	time.Sleep(time.Until(begin.Add(time.Duration(t.Duration * float64(time.Second)))))
	if t.Params["simulate"] != "" {
		r.WindowStart = float64(time.Now().UnixMicro()) / 1e6
	}
	latency, err := histogram.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	if err != nil {
		return err
	}
	r.Latency = string(latency)
	return r.Print(os.Stdout)
}

func call(target string) error {
	conn, err := net.DialTimeout("tcp", target, time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := conn.Write([]byte{1}); err != nil {
		return err
	}
	_, err = io.ReadFull(conn, make([]byte, 1))
	return err
}

// A campaign is a campaign under test: files, back ends, results.
type campaign struct {
	t      *testing.T
	run    *runstate.Run
	dir    string
	config trial.Config
	events []trial.Event
}

const deploymentText = `
vnf_name: echo
components:
  - name: front
    short: fr
    command: [%q, serve, "${ADDRESS}:7000"%s]
    ports: {tcp: 7000}
    entry: tcp
    dependencies: [{component: back, as: BACK, port: tcp}]
    ready: {tcp: tcp, timeout: 5s}
  - name: back
    short: bk
    scalable: false
    flavor: small
    command: [%q, serve, "${ADDRESS}:7000"]
    ports: {tcp: 7000}
    ready: {tcp: tcp, timeout: 5s}
flavors:
  - {name: small, vcpus: 0.3, memory: 128MiB}
  - {name: medium, vcpus: 0.6, memory: 128MiB}
mode: {name: custom, sizes: %s}
`

const workloadText = `
generator: %q
parameters: {%s}
range: [10, 40]
increase: 10
search: ramp
duration: 1s
settle: 0s
repeat: 2
stop: success_ratio < 0.6
`

// setUp makes a campaign in which the test binary is the function and the generator.
func setUp(t *testing.T, function, sizes, params string) *campaign {
	t.Helper()
	if err := netns.Possible(); vitrine.IsUnsupported(err) {
		t.Skip(err)
	}
	c := &campaign{t: t, dir: t.TempDir()}
	files, program := t.TempDir(), hosttest.Self(t)
	generator := filepath.Join(files, "generator")
	write(t, generator, fmt.Sprintf("#!/bin/sh\nexec %q drive \"$@\"\n", program), 0o755)
	deployment, workload := filepath.Join(files, "deployment.yaml"), filepath.Join(files, "workload.yaml")
	write(t, deployment, fmt.Sprintf(deploymentText, program, function, program, sizes), 0o644)
	write(t, workload, fmt.Sprintf(workloadText, generator, params), 0o644)
	c.config = trial.Config{Log: slog.New(slog.DiscardHandler), Seed: 1}
	var err error
	if c.config.Deployment, err = spec.LoadDeployment(deployment, spec.Known{}); err != nil {
		t.Fatal(err)
	}
	if c.config.Workload, err = spec.LoadWorkload(workload, spec.Known{}); err != nil {
		t.Fatal(err)
	}
	if c.config.CPUs, err = testbed.ShareCPUs(nil, nil); err != nil {
		t.Skip(err)
	}
	if c.run, err = runstate.New(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.run.Close() })
	c.config.Testbed = testbedtest.Local(c.run)
	c.config.Testbed.Parts = c.config.Deployment.Servers.Parts
	c.config.Observe = func(e trial.Event) { c.events = append(c.events, e) }
	return c
}

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// measure runs the campaign into its folder. If the folder exists, it resumes the campaign.
func (c *campaign) measure(ctx context.Context) (result.Summary, error) {
	c.t.Helper()
	var err error
	if _, statErr := os.Stat(filepath.Join(c.dir, "manifest.json")); statErr == nil {
		c.config.Results, err = result.Open(c.dir)
	} else {
		c.config.Results, err = result.Create(c.dir, result.Manifest{})
	}
	if err != nil {
		c.t.Fatal(err)
	}
	planned, err := trial.New(c.config)
	if err != nil {
		c.t.Fatal(err)
	}
	summary, err := planned.Run(ctx)
	if closing := c.config.Results.Close(); closing != nil {
		c.t.Fatal(closing)
	}
	c.nothingLeft()
	return summary, err
}

// nothingLeft fails the test if a namespace or a cgroup of the run still exists.
func (c *campaign) nothingLeft() {
	c.t.Helper()
	if left, err := substratetest.Left(c.run.ID); err != nil || len(left) > 0 {
		c.t.Errorf("left behind: %v, error %v", left, err)
	}
}

func (c *campaign) outcomes() []vitrine.Outcome {
	c.t.Helper()
	data, err := result.Load(c.dir)
	if err != nil {
		c.t.Fatal(err)
	}
	return data.Outcomes
}

// someOutcomes is outcomes of a run that must have some.
func (c *campaign) someOutcomes() []vitrine.Outcome {
	c.t.Helper()
	all := c.outcomes()
	if len(all) == 0 {
		c.t.Fatal("the run has no outcomes")
	}
	return all
}

func TestCampaignFindsCapacity(t *testing.T) {
	t.Parallel()
	c := setUp(t, "", "[fr1s, fr2s]", "ceiling: 25")
	summary, err := c.measure(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(summary.Sizings) != 2 {
		t.Fatalf("measured %d sizings, want 2", len(summary.Sizings))
	}
	for _, s := range summary.Sizings {
		got := s.Capacities[0]
		if got.Rate < 20 || got.Rate > 30 || got.Low > 20 || got.High < 30 || got.Censored != vitrine.CensoredNone {
			t.Errorf("%s: capacity %+v, want it between 20 and 30", s.Name, got)
		}
		if s.Bottleneck == "" {
			t.Errorf("%s: no bottleneck; utilization %v", s.Name, s.Utilization)
		}
	}
	if summary.Optimal == nil || summary.Optimal.Sizing != "fr1s" {
		t.Errorf("optimal %v, want fr1s, because both sizes carry the same and fr1s has fewer vCPUs", summary.Optimal)
	}
	for _, o := range c.outcomes() {
		for _, instance := range []string{"front-1", "back-1", "generator"} {
			if o.Use[instance].CPU == nil {
				t.Errorf("trial %d: no CPU reading of %s: %v", o.Seq, instance, o.Use[instance].Missing)
			}
		}
		if o.Sampling == nil || o.Sampling.Longest <= 0 {
			t.Errorf("trial %d: sampling is %+v", o.Seq, o.Sampling)
		}
		if o.Rate > 30 {
			t.Errorf("trial %d at %g runs, although the stop condition had ended the ramp", o.Seq, o.Rate)
		}
	}
}

// An emulated is a substrate that claims to emulate machines, which boot without their quota.
type emulated struct{ substrate.Substrate }

func (emulated) BootsUnlimited() bool { return true }

func (emulated) Accelerator(context.Context) (string, error) { return vitrine.Emulation, nil }

// TestEmulationIsMarked checks that every trial names the accelerator of its virtual machines. The
// profile must name it too, and must say that machines boot without quota, even if all trials are
// on record.
func TestEmulationIsMarked(t *testing.T) {
	t.Parallel()
	c := setUp(t, "", "[fr1s]", "ceiling: 15")
	c.config.Workload.Repeat = 1 // trials at 10 and 20
	plain := c.config.Testbed.Substrate
	c.config.Testbed.Substrate = func(ctx context.Context, o spec.Choice, part document.Node) (substrate.Substrate, error) {
		s, err := plain(ctx, o, part)
		return emulated{s}, err
	}
	for range 2 {
		if _, err := c.measure(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, o := range c.outcomes() {
			if o.Accelerator != vitrine.Emulation {
				t.Errorf("trial %d ran with %q", o.Seq, o.Accelerator)
			}
		}
		text, err := os.ReadFile(filepath.Join(c.dir, "profile.json"))
		if err != nil {
			t.Fatal(err)
		}
		conforms(t, text)
		p, err := vitrine.ParseProfile(text)
		if err != nil || p.Settings[0].Accelerator != vitrine.Emulation || !p.Settings[0].Unlimited {
			t.Errorf("the profile is not marked: %v\n%s", err, text)
		}
	}
}

// bootTime is how long an instance of slowBoots boots.
const bootTime = 200 * time.Millisecond

// A slowBoots is a substrate whose instances boot at their first start and then stay up, as machines do.
type slowBoots struct{ substrate.Substrate }

func (slowBoots) StaysUp() bool { return true }

func (s slowBoots) Create(ctx context.Context, spec substrate.Spec) (substrate.Instance, error) {
	in, err := s.Substrate.Create(ctx, spec)
	if err != nil {
		return nil, err
	}
	return &slowBoot{Instance: in}, nil
}

type slowBoot struct {
	substrate.Instance
	up bool
}

func (s *slowBoot) Start(ctx context.Context, command vitrine.Command) (substrate.Process, error) {
	if !s.up {
		time.Sleep(bootTime)
		s.up = true
	}
	return s.Instance.Start(ctx, command)
}

// TestBootTimeOfMachines checks that the boot time in the profile is that of machines, although most
// deployments start only a process in a machine that runs.
func TestBootTimeOfMachines(t *testing.T) {
	t.Parallel()
	c := setUp(t, "", "[fr1s]", "ceiling: 15")
	c.config.Workload.Duration, c.config.Workload.Repeat = 300*time.Millisecond, 3
	plain := c.config.Testbed.Substrate
	c.config.Testbed.Substrate = func(ctx context.Context, o spec.Choice, part document.Node) (substrate.Substrate, error) {
		s, err := plain(ctx, o, part)
		return slowBoots{s}, err
	}
	if _, err := c.measure(t.Context()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(c.dir, "profile.json"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := vitrine.ParseProfile(text)
	if err != nil {
		t.Fatal(err)
	}
	const least = 2 * bootTime // front boots after back
	if boot := p.Settings[0].Sizes[0].Boot; boot < least.Seconds() {
		t.Errorf("the profile has a boot time of %v s, want at least %v", boot, least)
	}
}

func TestFaultsMakeTrialsInvalid(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ function, params, reason string }{
		"garbage":       {params: "fault: garbage", reason: "report"},
		"crash":         {params: "fault: crash", reason: "generator crashed on purpose"},
		"hang":          {params: "fault: hang", reason: "generator had not ended after"},
		"slow":          {params: "fault: slow", reason: "generator"},
		"clock":         {params: "fault: clock", reason: "generator: window_start_unix_s"},
		"instance dies": {function: ", \"5\"", reason: "front-1 ended (exit status 7); its log ends: out of luck"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := setUp(t, tt.function, "[fr1s]", tt.params)
			if name == "hang" {
				c.config.Grace = 100 * time.Millisecond
			}
			summary, err := c.measure(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			outcomes := c.outcomes()
			if len(outcomes) == 0 || summary.InvalidTrials != len(outcomes) {
				t.Fatalf("%d of %d trials are invalid, want all", summary.InvalidTrials, len(outcomes))
			}
			for _, o := range outcomes {
				if o.Valid || !strings.Contains(o.Reason, tt.reason) {
					t.Errorf("trial %d.%d: valid %v, reason %q, want %q", o.Seq, o.Attempt, o.Valid, o.Reason, tt.reason)
				}
			}
			if got := summary.Sizings[0].Ended; got != map[bool]int{true: len(outcomes)}[name == "instance dies"] {
				t.Errorf("the summary says that an instance ended in %d of %d trials", got, len(outcomes))
			}
			if got := summary.Sizings[0].Capacities[0].Censored; got != vitrine.CensoredGenerator {
				t.Errorf("capacity censored %q, want generator, because no trial shows anything about the function", got)
			}
		})
	}
}

// TestUnsentCallThatDecides uses a generator that sends 199 of 200 calls, which all succeed. That
// shows that the function meets a threshold of 0.9, but nothing about a threshold of 0.999.
func TestUnsentCallThatDecides(t *testing.T) {
	t.Parallel()
	for threshold, valid := range map[float64]bool{0.9: true, 0.999: false} {
		c := setUp(t, "", "[fr1s]", "fault: late")
		w := c.config.Workload
		w.Range, w.Repeat, w.Thresholds = spec.Range{200, 200}, 1, []float64{threshold}
		if _, err := c.measure(t.Context()); err != nil {
			t.Fatal(err)
		}
		outcomes := c.someOutcomes()
		for _, o := range outcomes {
			if o.Succeeded != 199 || o.Valid != valid || !valid && !strings.HasPrefix(o.Reason, "generator: 1 of 200 calls") {
				t.Errorf("threshold %g: %d succeeded, valid %v, reason %q", threshold, o.Succeeded, o.Valid, o.Reason)
			}
		}
	}
}

// TestUsageBeginsWithTheWindow checks that t_s of the samples counts from the start of the window that
// the generator reports, here a second later than asked.
func TestUsageBeginsWithTheWindow(t *testing.T) {
	t.Parallel()
	c := setUp(t, "", "[fr1s]", "delay: 1s")
	c.config.Workload.Range, c.config.Workload.Repeat = spec.Range{10, 20}, 1
	if _, err := c.measure(t.Context()); err != nil {
		t.Fatal(err)
	}
	data, err := result.Load(c.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range data.Outcomes {
		first := 0.0
		err := data.Usage(o.Key, func(s result.Sample) error {
			first = min(first, s.Time)
			return nil
		})
		if err != nil || first > -0.5 {
			t.Errorf("%d calls/s: the first sample is %g s after the start of the window, want about 0.9 s before it: %v", int(o.Rate), first, err)
		}
	}
}

// TestWindowThatHasNotPassed uses a generator that answers at once. The monitor cannot watch its window, which
// is no gap of the monitor.
func TestWindowThatHasNotPassed(t *testing.T) {
	t.Parallel()
	c := setUp(t, "", "[fr1s]", "simulate: 1")
	c.config.Workload.Range, c.config.Workload.Repeat = spec.Range{10, 20}, 1
	if _, err := c.measure(t.Context()); err != nil {
		t.Fatal(err)
	}
	all := c.someOutcomes()
	for _, o := range all {
		front := o.Use["front-1"]
		if !o.Valid || o.Sampling != nil || front.CPU != nil || !strings.Contains(front.Missing["cpu"], "its generator simulates") {
			t.Errorf("%g calls/s: valid %t (%s), sampling %+v, CPU of front-1 %v, missing %v", o.Rate, o.Valid, o.Reason, o.Sampling, front.CPU, front.Missing)
		}
	}
}

// A catcher is a substrate that gives the instance front-1 to the test.
type catcher struct {
	substrate.Substrate
	front *substrate.Instance
}

func (c catcher) Create(ctx context.Context, spec substrate.Spec) (substrate.Instance, error) {
	in, err := c.Substrate.Create(ctx, spec)
	if spec.Name == "front-1" {
		*c.front = in
	}
	return in, err
}

// TestInstanceEndsBetweenTrials ends an instance after the first trial. The next trial must run on a fresh
// deployment, and say so.
func TestInstanceEndsBetweenTrials(t *testing.T) {
	t.Parallel()
	c := setUp(t, "", "[fr1s]", "ceiling: 25")
	c.config.Workload.Duration, c.config.Workload.Repeat = 300*time.Millisecond, 1
	var front substrate.Instance
	plain := c.config.Testbed.Substrate
	c.config.Testbed.Substrate = func(ctx context.Context, o spec.Choice, part document.Node) (substrate.Substrate, error) {
		s, err := plain(ctx, o, part)
		return catcher{s, &front}, err
	}
	c.config.Observe = func(e trial.Event) {
		if e.Kind == trial.TrialDone && e.Outcome.Seq == 1 {
			if err := front.Stop(t.Context(), time.Second); err != nil {
				t.Error(err)
			}
		}
	}
	if _, err := c.measure(t.Context()); err != nil {
		t.Fatal(err)
	}
	const note = "from this trial on repeat 1 has another deployment, because front-1 ended"
	for _, o := range c.outcomes() {
		if !o.Valid || strings.Contains(o.Reason, note) != (o.Seq == 2) {
			t.Errorf("trial %d: valid %t, reason %q", o.Seq, o.Valid, o.Reason)
		}
	}
}

// TestEndedFabricEndsTheCampaign checks that the campaign ends with the fabric's error, that it does
// not record the trial, and that a resumed campaign makes the trial.
func TestEndedFabricEndsTheCampaign(t *testing.T) {
	t.Parallel()
	c := setUp(t, "", "[fr1s]", "ceiling: 15")
	c.config.Workload.Repeat = 1 // trials at 10 and 20
	const reason = "the fabric ended on purpose"
	plain := c.config.Testbed.Fabric
	c.config.Testbed.Fabric = func(ctx context.Context, o spec.Choice, part document.Node) (fabric.Fabric, error) {
		f, err := plain(ctx, o, part)
		return fabrictest.Ended{Fabric: f, Err: errors.New(reason)}, err
	}
	summary, err := c.measure(t.Context())
	if err == nil || !strings.Contains(err.Error(), reason) || !strings.Contains(summary.StoppedBecause, reason) || !summary.Partial {
		t.Errorf("got the error %v and the summary %+v, want both to say %q", err, summary, reason)
	}
	if all := c.outcomes(); len(all) > 0 {
		t.Fatalf("got the trials %+v, want none on record", all)
	}
	c.config.Testbed.Fabric = plain
	if _, err := c.measure(t.Context()); err != nil {
		t.Fatal(err)
	}
	if first := c.outcomes()[0]; first.Seq != 1 || first.Attempt != 1 || !first.Valid {
		t.Errorf("the first trial of the resumed campaign is %+v, want a valid first attempt", first)
	}
}

// TestAllBackEndsAreCheckedFirst checks that a campaign learns before its first measurement that a later
// fabric cannot be used, and that the check opens each further place once.
func TestAllBackEndsAreCheckedFirst(t *testing.T) {
	c := setUp(t, "", "[fr1s]", "")
	s := &c.config.Deployment.Servers
	s.Fabric = document.OneOrMany[string]{"bridge", "ovs", "macvlan", "vxlan"}
	s.Pinning = document.OneOrMany[document.Switch]{false, true}
	var opened []string
	plain := c.config.Testbed.Fabric
	c.config.Testbed.Fabric = func(ctx context.Context, o spec.Choice, part document.Node) (fabric.Fabric, error) {
		opened = append(opened, o.Fabric)
		if o.Fabric == "macvlan" {
			return nil, &vitrine.BadInput{File: "macvlan", Found: "interface absent"}
		}
		return plain(ctx, o, part)
	}
	planned, err := trial.New(c.config)
	if err != nil {
		t.Fatal(err)
	}
	if err := planned.Check(t.Context()); !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), "interface absent") {
		t.Errorf("got %v, want the error of the fabric macvlan", err)
	}
	if !slices.Equal(opened, []string{"ovs", "macvlan"}) {
		t.Errorf("the check opened the fabrics %q, want ovs and macvlan", opened)
	}
	c.nothingLeft()
}

func TestComponentThatNeverGetsReady(t *testing.T) {
	c := setUp(t, "", "[fr1s]", "")
	front := c.config.Deployment.Component("front")
	front.Command = spec.Args{"/bin/sh", "-c", "echo waiting for nothing; exec sleep 60"}
	front.Ready.Timeout = 300 * time.Millisecond
	_, err := c.measure(t.Context())
	for _, want := range []string{"fr1s", "front-1", "not ready within 300ms", "waiting for nothing"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Fatalf("error %v does not contain %q", err, want)
		}
	}
}

// TestPortInUse checks a process that an install script left running and that has the function's
// port.
func TestPortInUse(t *testing.T) {
	t.Parallel()
	c := setUp(t, "", "[fr1s]", "")
	front := c.config.Deployment.Component("front")
	script := filepath.Join(t.TempDir(), "install.sh")
	write(t, script, fmt.Sprintf("#!/bin/sh\n%q serve \"$ADDRESS:%d\" &\nuntil %q touch \"$ADDRESS:%d\"; do :; done\n",
		front.Command[0], front.Ports["tcp"], front.Command[0], front.Ports["tcp"]), 0o755)
	c.config.Deployment.Install = []spec.Install{{Component: "front", Script: script, TimeLimit: 10 * time.Second}}
	_, err := c.measure(t.Context())
	// That process may answer the readiness check before front has ended.
	reason := fmt.Sprint(err)
	for _, o := range c.outcomes() {
		reason = o.Reason
		if o.Valid {
			t.Errorf("trial %d is valid", o.Seq)
		}
	}
	for _, want := range []string{"front-1 ended (exit status 1)", "address already in use"} {
		if !strings.Contains(reason, want) {
			t.Errorf("%q does not contain %q", reason, want)
		}
	}
}

func TestInstallScript(t *testing.T) {
	t.Parallel()
	c := setUp(t, "", "[fr1s]", "")
	c.config.Workload.Range, c.config.Workload.Repeat = spec.Range{10, 20}, 1
	script := filepath.Join(t.TempDir(), "install.sh")
	write(t, script, "#!/bin/sh\necho \"$BACK\" > \"$VITRINE_DIR/peers\"\n", 0o755)
	c.config.Deployment.Install = []spec.Install{{Component: "front", Script: script, TimeLimit: 10 * time.Second}}
	front := c.config.Deployment.Component("front")
	front.Command = slices.Concat(spec.Args{"/bin/sh", "-c", `grep -q :7000 "$VITRINE_DIR/peers" && exec "$0" "$@"`}, front.Command)
	if _, err := c.measure(t.Context()); err != nil {
		t.Fatal(err)
	}

	failing := setUp(t, "", "[fr1s]", "")
	write(t, script, "#!/bin/sh\necho no such luck >&2; exit 3\n", 0o755)
	failing.config.Deployment.Install = c.config.Deployment.Install
	_, err := failing.measure(t.Context())
	if err == nil || !strings.Contains(err.Error(), "no such luck") || !strings.Contains(err.Error(), "front-1") {
		t.Fatalf("error %v does not have the end of the script's output", err)
	}
	write(t, script, "#!/bin/sh\nexec sleep 60\n", 0o755)
	slow := setUp(t, "", "[fr1s]", "")
	slow.config.Deployment.Install = []spec.Install{{Component: "front", Script: script, TimeLimit: 200 * time.Millisecond}}
	if _, err := slow.measure(t.Context()); err == nil || !strings.Contains(err.Error(), "time_limit of 200ms") {
		t.Fatalf("error %v does not name the time limit", err)
	}
}

func TestResumeRepeatsNoTrial(t *testing.T) {
	t.Parallel()
	c := setUp(t, "", "[fr1s, fr1m]", "ceiling: 25")
	ctx, cancel := context.WithCancelCause(t.Context())
	interrupted := errors.New("interrupted by the test")
	done := 0
	c.config.Observe = func(e trial.Event) {
		if e.Kind == trial.TrialDone {
			if done++; done == 4 {
				cancel(interrupted)
			}
		}
	}
	if _, err := c.measure(ctx); !errors.Is(err, interrupted) {
		t.Fatalf("error %v, want %v", err, interrupted)
	}
	before := lines(t, filepath.Join(c.dir, "outcomes.jsonl"))
	if len(before) != 4 {
		t.Fatalf("%d trials on record, want 4", len(before))
	}
	fresh := 0
	c.config.Observe = func(e trial.Event) {
		switch {
		case e.Kind == trial.TrialBegins:
			fresh++
		case e.Kind == trial.SizingChosen && fresh > 0: // a size was measured, and the summary saved
			data, err := result.Load(c.dir)
			if err != nil || data.Summary == nil || !data.Summary.Partial {
				t.Errorf("during the run the summary is not partial: %v", err)
			}
		}
	}
	summary, err := c.measure(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if summary.Partial {
		t.Error("the summary of the complete run is partial")
	}
	after := lines(t, filepath.Join(c.dir, "outcomes.jsonl"))
	if !bytes.Equal(bytes.Join(before, nil), bytes.Join(after[:4], nil)) || len(after) != 4+fresh {
		t.Errorf("%d trials on record after %d fresh ones, want the first 4 unchanged", len(after), fresh)
	}
	seen := map[vitrine.Key]bool{}
	for i, o := range c.outcomes() {
		if seen[o.Key] {
			t.Errorf("trial %+v was run twice", o.Key)
		}
		seen[o.Key] = true
		if noted := strings.Contains(o.Reason, "repeat 2 has another deployment, because the run was resumed"); noted != (i == 4) {
			t.Errorf("trial %d of repeat %d has the reason %q", o.Seq, o.Repeat, o.Reason)
		}
	}
	if len(summary.Sizings) != 2 {
		t.Errorf("%d sizings, want 2", len(summary.Sizings))
	}
	// A complete run must not start anything.
	fresh = 0
	again, err := c.measure(t.Context())
	if err != nil || fresh != 0 {
		t.Errorf("a complete run began %d trials (%v)", fresh, err)
	}
	a, _ := json.Marshal(summary)
	b, _ := json.Marshal(again)
	if !bytes.Equal(a, b) {
		t.Errorf("the summary changed:\n%s\n%s", a, b)
	}
}

// TestTurns measures a function with and without its front, in turns, and interrupts the campaign in
// the second turn.
func TestTurns(t *testing.T) {
	t.Parallel()
	c := setUp(t, "", "[fr1s]", "ceiling: 25")
	text, err := os.ReadFile(c.config.Deployment.Path)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.NewReplacer(
		"scalable: false\n    flavor: small", "entry: tcp",
		"sizes: [fr1s]", "interleave: true, sizes: [bk1s, fr1s-bk1s]",
	).Replace(string(text))
	write(t, c.config.Deployment.Path, changed, 0o644)
	if c.config.Deployment, err = spec.LoadDeployment(c.config.Deployment.Path, spec.Known{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	interrupted := errors.New("interrupted by the test")
	done := 0
	c.config.Observe = func(e trial.Event) {
		if e.Kind == trial.TrialDone {
			if done++; done == 7 {
				cancel(interrupted)
			}
		}
	}
	if summary, err := c.measure(ctx); !errors.Is(err, interrupted) || !summary.Partial || len(summary.Sizings) != 2 {
		t.Fatalf("%d sizes, partial %t, error %v, want two sizes and %v", len(summary.Sizings), summary.Partial, err, interrupted)
	}
	data, err := result.Load(c.dir)
	if err != nil {
		t.Fatal(err)
	}
	if p := data.Profile; p == nil || len(p.Settings) != 1 || len(p.Settings[0].Sizes) != 2 {
		t.Errorf("profile %+v, want both sizes, which are unfinished", p)
	}
	summary, err := c.measure(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	for i, o := range c.outcomes() {
		if o.Seq != i+1 || o.Succeeded == 0 {
			t.Errorf("trial %d has the number %d, and %d calls of it succeeded", i+1, o.Seq, o.Succeeded)
		}
		if _, front := o.Use["front-1"]; front != (o.Subject == "fr1s-bk1s") {
			t.Errorf("trial %d of %s: the front ran: %t", o.Seq, o.Subject, front)
		}
		order = append(order, fmt.Sprintf("%s %d", o.Subject, o.Repeat))
	}
	order = slices.Compact(order)
	if want := []string{"bk1s 1", "fr1s-bk1s 1", "bk1s 2", "fr1s-bk1s 2"}; !slices.Equal(order, want) {
		t.Errorf("trials of %v, want %v", order, want)
	}
	if !summary.Interleaved || summary.Partial || len(summary.Sizings) != 2 || len(summary.Path) != 2 {
		t.Errorf("summary %+v, want two complete sizings, measured in turns", summary)
	}
	for _, s := range summary.Sizings {
		if s.Trials != 6 || s.Capacities[0].Rate < 20 || s.Capacities[0].Rate > 30 {
			t.Errorf("%s: %d trials, capacity %+v, want 6, and 20 to 30", s.Name, s.Trials, s.Capacities[0])
		}
	}
}

// A raised search is that of another build: it chooses rates that are one call a second higher.
type raised struct{ rate.Search }

func (r raised) Next(history []vitrine.Outcome) rate.Step {
	step := r.Search.Next(history)
	step.Rate++
	return step
}

// TestAnotherSearchChangesNoResult checks that a finished run keeps all its files if it is resumed by a
// build that would measure its first or its second size at other rates, and that the error says so.
func TestAnotherSearchChangesNoResult(t *testing.T) {
	t.Parallel()
	c := setUp(t, "", "[fr1s, fr1m]", "ceiling: 15")
	c.config.Workload.Duration, c.config.Workload.Repeat = 300*time.Millisecond, 1
	if _, err := c.measure(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := contents(t, c.dir)
	for _, other := range []string{"fr1s", "fr1m"} {
		sizing := ""
		c.config.Observe = func(e trial.Event) { sizing = e.Sizing.String() }
		c.config.Rates = func(cfg rate.Config) (rate.Search, error) {
			search, err := rate.New(c.config.Workload.Search, cfg)
			if sizing == other {
				search = raised{search}
			}
			return search, err
		}
		_, err := c.measure(t.Context())
		if want := "now " + other + " repeat 1 at 11"; !errors.Is(err, result.ErrDiverged) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s at other rates: got the error %v, want %q in it", other, err, want)
		}
		if after := contents(t, c.dir); !maps.Equal(after, before) {
			t.Errorf("%s at other rates: the files of the run changed:\n%v\nbefore:\n%v", other, after, before)
		}
	}
}

// contents returns the text of each file in a folder and the folders below it.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		files[path] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func lines(t *testing.T, path string) [][]byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"))
}

// TestKeepAwake checks the idle states of the function's CPUs while a trial runs. With keep_awake,
// no CPU enters an idle state that needs a wake-up. Without keep_awake, CPUs enter such states.
func TestKeepAwake(t *testing.T) {
	for _, awake := range []bool{true, false} {
		c := setUp(t, "", "[fr1s]", "")
		c.config.Workload.Range = spec.Range{10, 20} // a second shows thousands of halts
		c.config.Deployment.Servers.KeepAwake = document.OneOrMany[document.Switch]{document.Switch(awake)}
		planned, err := trial.New(c.config)
		if err != nil {
			t.Fatal(err)
		}
		check := planned.Check(t.Context())
		var seen []int // at the end of each trial
		c.config.Observe = func(e trial.Event) {
			if e.Kind == trial.TrialDone {
				seen = append(seen, halts(t, c.config.CPUs.Function))
			}
		}
		_, err = c.measure(t.Context())
		if (check == nil) != (err == nil) {
			t.Errorf("the check before the run says %v, the run %v", check, err)
		}
		hosttest.Need(t, err)
		if len(seen) < 2 || awake != (seen[0] == seen[len(seen)-1]) {
			t.Errorf("keep_awake %v: at the ends of the trials the function's CPUs had halted %d times", awake, seen)
		}
	}
}

// halts returns how often the CPUs have entered idle states, except for the first one, which
// polls.
func halts(t *testing.T, cpus []int) (sum int) {
	t.Helper()
	for _, cpu := range cpus {
		files, err := filepath.Glob(fmt.Sprintf("/sys/devices/system/cpu/cpu%d/cpuidle/state[1-9]*/usage", cpu))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			count, err := strconv.Atoi(strings.TrimSpace(string(text)))
			if err != nil {
				t.Fatal(err)
			}
			sum += count
		}
	}
	return sum
}

func TestInterruptInsideATrial(t *testing.T) {
	c := setUp(t, "", "[fr1s]", "fault: hang")
	ctx, cancel := context.WithCancelCause(t.Context())
	interrupted := errors.New("interrupted by the test")
	go func() { // cancels once the file of the report shows that the generator runs
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for running := []string(nil); len(running) == 0 && ctx.Err() == nil; <-tick.C {
			running, _ = filepath.Glob(filepath.Join(c.dir, "*", vitrine.Generator, "1-1", "report.json"))
		}
		cancel(interrupted)
	}()
	if _, err := c.measure(ctx); !errors.Is(err, interrupted) {
		t.Fatalf("error %v, want %v", err, interrupted)
	}
	if n := len(c.outcomes()); n != 0 {
		t.Errorf("%d trials on record, want none, because an interrupted trial does not count", n)
	}
}

func TestMaxTimeEndsInOrder(t *testing.T) {
	c := setUp(t, "", "[fr1s, fr1m]", "")
	c.config.MaxTime = time.Nanosecond
	c.config.Deployment.Mode = spec.Mode{Name: spec.Directed, Scaling: spec.ScaleOut, ScaleOn: vitrine.CPU, Limit: spec.Limit{VCPUs: 1e4}}
	summary, err := c.measure(t.Context())
	if err != nil || !strings.Contains(summary.StoppedBecause, "--max-time") || !strings.Contains(summary.StoppedBecause, "the limit is lowered from 1e+04") {
		t.Fatalf("stopped because %q (%v), want --max-time and the lowered limit", summary.StoppedBecause, err)
	}
	if !summary.Partial {
		t.Error("the summary is not marked partial")
	}
}

// TestStoppedSearchIsMarked checks that the capacity of a size whose search was stopped is marked in
// the summary and in the profile, and no longer once the resumed run has ended it.
func TestStoppedSearchIsMarked(t *testing.T) {
	t.Parallel()
	c := setUp(t, "", "[fr1s]", "ceiling: 25")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	done := 0
	c.config.Observe = func(e trial.Event) {
		if e.Kind == trial.TrialDone {
			if done++; done == 2 {
				cancel(errors.New("interrupted by the test"))
			}
		}
	}
	for _, stopped := range []bool{true, false} {
		summary, err := c.measure(ctx)
		if (err != nil) != stopped {
			t.Fatalf("stopped %t: %v", stopped, err)
		}
		text, err := os.ReadFile(filepath.Join(c.dir, "profile.json"))
		if err != nil {
			t.Fatal(err)
		}
		profile, err := vitrine.ParseProfile(text)
		if err != nil {
			t.Fatal(err)
		}
		conforms(t, text)
		row, size := summary.Sizings[0], profile.Settings[0].Sizes[0]
		if (row.Unfinished != "") != stopped || size.Unfinished != row.Unfinished {
			t.Errorf("stopped %t: the summary says %q, and the profile %q", stopped, row.Unfinished, size.Unfinished)
		}
		if stopped && len(profile.Settings[0].Components) > 0 {
			t.Error("the model is fitted to a search that did not end")
		}
		ctx = t.Context()
	}
}

// TestSizesWithoutAPlaceAreNotChosen checks sizes that fit only without pinning: four instances of
// 0.4 CPUs and another of 0.4 fit in two CPUs, but not if each is pinned to one CPU.
func TestSizesWithoutAPlaceAreNotChosen(t *testing.T) {
	c := setUp(t, "", "[fr1s]", "")
	d := c.config.Deployment
	c.config.CPUs.Function = []int{0, 1}
	d.Flavors[0].VCPUs = 0.4
	d.Mode = spec.Mode{Name: spec.Model, Objective: spec.MostCapacity, ScaleOn: vitrine.CPU}
	for pinned, want := range map[document.Switch]int{false: 6, true: 5} { // fr1s to fr3s, fr1m, fr2m; fr4s only without pinning
		d.Servers.Pinning = document.OneOrMany[document.Switch]{pinned}
		planned, err := trial.New(c.config)
		if err != nil || planned.Plan.MostSizings != want+1 {
			t.Errorf("pinning %v: %+v, %v; want %d sizings, and the winner again", pinned, planned, err, want)
		}
	}
}

// TestLimitBeyondTheCPUs checks limits that allow more than the function's CPUs. exhaustive must not
// leave out sizes, so it is refused. The other modes must say that the CPUs lower the limit.
func TestLimitBeyondTheCPUs(t *testing.T) {
	c := setUp(t, "", "[fr1s]", "")
	c.config.CPUs.Function = []int{0, 1}
	mode := &c.config.Deployment.Mode
	for _, m := range []spec.Mode{
		{Name: spec.Exhaustive},
		{Name: spec.Directed, Scaling: spec.ScaleOut, ScaleOn: vitrine.CPU},
		{Name: spec.Model, Objective: spec.MostCapacity, ScaleOn: vitrine.CPU},
	} {
		*mode = m
		const room = "1.7 vCPUs, which the function's CPUs [0 1] leave to the scalable components"
		for limit, lowered := range map[spec.Limit]string{
			{}:                  "",
			{VCPUs: 1.2}:        "",
			{VCPUs: 6}:          "the limit is lowered from 6 to " + room,
			{Memory: 512 << 20}: "besides the limit of memory there is one of " + room, // fr4m needs 2.4
		} {
			mode.Limit = limit
			planned, err := trial.New(c.config)
			if m.Name == spec.Exhaustive && lowered != "" {
				if !vitrine.IsUnsupported(err) {
					t.Errorf("%s: limit %+v: %v, want the error of a size that needs too many CPUs", m.Name, limit, err)
				}
				continue
			}
			if err != nil || planned.Plan.Lowered != lowered {
				t.Errorf("%s: limit %+v: %+v, %v; want %q", m.Name, limit, planned, err, lowered)
			}
		}
	}
	*mode = spec.Mode{Name: spec.Exhaustive, Limit: spec.Limit{Memory: 256 << 20}}
	if planned, err := trial.New(c.config); err != nil || len(planned.Plan.Sizings) != 4 { // fr1s, fr2s, fr1m, fr2m
		t.Errorf("a limit of memory alone: %+v, %v; want all 4 sizes", planned, err)
	}
	*mode = spec.Mode{Name: spec.Directed, Scaling: spec.ScaleOut, ScaleOn: vitrine.CPU, Limit: spec.Limit{VCPUs: 6}}
	c.config.CPUs.Function = []int{0}
	c.config.Deployment.Flavors[0].VCPUs = 0.6
	if _, err := trial.New(c.config); !vitrine.IsUnsupported(err) {
		t.Errorf("a smallest size of 1.2 vCPUs on one CPU: %v, want an error that asks for CPUs, not for a higher limit", err)
	}
}

// TestModeIsNamedWithItsPlace checks that an error of the size search has a position in the file,
// like an error of the file's reader.
func TestModeIsNamedWithItsPlace(t *testing.T) {
	c := setUp(t, "", "[fr1s]", "")
	d := c.config.Deployment
	d.Mode = spec.Mode{Name: spec.Directed, Scaling: spec.ScaleUp, ScaleOn: vitrine.CPU, Limit: spec.Limit{VCPUs: 0.1}}
	_, err := trial.New(c.config)
	bad := (*vitrine.BadInput)(nil)
	if !errors.As(err, &bad) || bad.File != d.Path || bad.Line == 0 || !strings.Contains(bad.Found, "over the limit by 0.2 vCPUs") {
		t.Errorf("%v", err)
	}
}

func TestSizeBeyondTheCPUsIsRefused(t *testing.T) {
	c := setUp(t, "", fmt.Sprintf("[fr%dm]", 3*len(mustShare(t).Function)), "")
	if _, err := trial.New(c.config); !vitrine.IsUnsupported(err) {
		t.Errorf("plan: %v, want an error", err)
	}
}

func mustShare(t *testing.T) testbed.CPUs {
	t.Helper()
	cpus, err := testbed.ShareCPUs(nil, nil)
	if err != nil {
		t.Skip(err)
	}
	return cpus
}
