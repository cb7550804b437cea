package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"vitrine"
	"vitrine/internal/runstate"
	"vitrine/measure"
	"vitrine/measure/chain"
	"vitrine/papers"
	"vitrine/result"
	"vitrine/testbed"
	"vitrine/testbed/quiet"
)

// A measurement is one run whose results one or more exhibits show.
type measurement struct {
	exhibit papers.Exhibit // the exhibit that defines the run; other exhibits may also show the run
	scale   papers.Scale
	digest  string // of its plan
	spec    result.Spec
	flags   []string // flags that change the committed plan
	options options
	given   measure.Options
	dir     string // of the run
	data    *result.Data
	read    papers.Readings
}

// plan determines the plan and its digest.
func (m *measurement) plan(f reproduceFlags) error {
	if f.substrate != "" {
		m.flags = append(m.flags, "--substrate "+f.substrate)
	}
	if f.maxTime > 0 {
		m.flags = append(m.flags, "--max-time "+f.maxTime.String())
	}
	if f.slowdown != quiet.DefaultSlowdown {
		m.flags = append(m.flags, "--slowdown "+f.slowdown.String())
	}
	if f.shared {
		m.flags = append(m.flags, "--shared-cpus")
	}
	if m.exhibit.Measured() && f.options.path != "" {
		components := networkComponents()
		if m.exhibit.Chain != nil {
			components = chainComponents()
		}
		var err error
		if m.given, err = m.options.load(components); err != nil {
			return err
		}
		devices, err := onlyDevices(m.given)
		if err != nil {
			return err
		}
		if !devices {
			m.flags = append(m.flags, "--options "+f.options.path)
		}
	}
	p, err := m.exhibit.Plan(m.scale, m.flags...)
	if err != nil {
		return err
	}
	m.flags = p.Deviations
	if m.spec, err = p.Spec(); err != nil {
		return err
	}
	m.digest, err = p.Digest()
	return err
}

// network returns the settings for a measurement between two instances.
func (m *measurement) network() measure.Settings {
	s := m.exhibit.NetworkSettings(m.scale)
	s.Options = m.given
	return s
}

// chain returns the plan for a measurement of chains.
func (m *measurement) chain() (chain.Plan, error) {
	s := m.exhibit.ChainSettings(m.scale)
	s.Options = m.given
	return chain.MakePlan(s, chains)
}

// load reads the results of the run. If it fails, data stays nil.
func (m *measurement) load() error {
	data, err := loadRun(m.dir)
	if err == nil {
		m.read, err = papers.Read(data)
	}
	if err != nil {
		return err
	}
	m.data = data
	return nil
}

// measure runs the plan. Unless flags change the plan, it must be the committed
// one.
func (a *app) measure(ctx context.Context, m *measurement, f reproduceFlags) error {
	committed, err := papers.ReadHistory(papers.Files(), m.exhibit.Name)
	if err != nil {
		return err
	}
	if now := committed.Committed(); len(m.flags) == 0 && (now == nil || now.Digest != m.digest) {
		return &vitrine.BadInput{File: papers.Prefix + m.exhibit.Name, Found: "plan " + m.digest + ", which is not the committed one",
			Want: "record it with --because TEXT, commit it and build again; or use --quick, which is not judged"}
	}
	m.options.specs = append(m.options.specs, m.spec)
	if m.exhibit.Measured() {
		return a.runPackets(ctx, m, f)
	}
	return a.runCapacities(ctx, m, f)
}

// count adds a new run to the history before the first measurement, so every run is counted, however
// it ends. A refused run is not counted: another run holds its CPUs or its folder.
func (a *app) count(m *measurement, dir string, resumed bool) error {
	if resumed {
		return nil
	}
	if _, err := os.Stat(filepath.Join(dir, filepath.FromSlash(m.exhibit.Paper()), "history")); errors.Is(err, os.ErrNotExist) {
		a.log().Warn("this run is not counted, because the folder has no histories", "papers", dir)
		return nil
	}
	h, err := papers.ReadHistory(os.DirFS(dir), m.exhibit.Name)
	if err != nil {
		return err
	}
	return h.Begin(papers.Begun{Started: time.Now().UTC().Truncate(time.Second), Plan: m.digest, Deviations: m.flags, Tool: "vitrine " + toolVersion()}).Write(dir, m.exhibit.Name)
}

// runCapacities runs the exhibit's campaign.
func (a *app) runCapacities(ctx context.Context, m *measurement, f reproduceFlags) error {
	return a.withCampaign(m, f, func(c campaign) error {
		c.options.specs = append(c.options.specs, m.options.specs...)
		c.onBegin = func(resumed bool) error { return a.count(m, f.papers, resumed) }
		run := f.characterizeFlags
		run.out, run.resume = m.dir, m.resumes(f)
		summary, err := a.run(ctx, c, run)
		if err != nil {
			return err
		}
		return anyValid(summary, run.out)
	})
}

// withCampaign plans the exhibit's campaign and calls do. The specification files and install
// scripts exist until do returns.
func (a *app) withCampaign(m *measurement, f reproduceFlags, do func(campaign) error) (err error) {
	specs, remove, err := makeSpecs()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	deployment, workload, err := m.exhibit.Unpack(specs, m.scale)
	if err != nil {
		return err
	}
	c, err := a.plan(deployment, workload, f.characterizeFlags)
	if err != nil {
		return err
	}
	return do(c)
}

// specsKind is the kind of record for folders of unpacked specifications.
const specsKind = "specs"

// makeSpecs makes a folder for an exhibit's specifications, and records it so that cleaning removes
// it if this process is killed. The folder is not that of a run, because a host may forbid programs
// there.
func makeSpecs() (dir string, remove func() error, err error) {
	temporary, err := filepath.Abs(os.TempDir())
	if err != nil {
		return "", nil, err
	}
	run, err := runstate.New(runstate.DefaultRoot())
	if err != nil {
		return "", nil, err
	}
	dir = filepath.Join(temporary, "vitrine-reproduce-"+run.ID)
	forget := func() error { return errors.Join(run.Erase(specsKind, "folder"), run.Close()) }
	if err = run.Record(specsKind, "folder", []byte(dir)); err == nil {
		err = os.Mkdir(dir, 0o700)
	}
	if err != nil {
		return "", nil, errors.Join(err, forget())
	}
	return dir, func() error {
		if err := os.RemoveAll(dir); err != nil {
			return errors.Join(err, run.Abandon()) // vitrine clean tries again
		}
		return forget()
	}, nil
}

// A specsCleaner removes the folders of specifications that dead runs left.
type specsCleaner struct{ root string }

// Clean removes the folders and returns their paths.
func (c specsCleaner) Clean(context.Context) (removed []string, err error) {
	return runstate.RemoveRecorded(c.root, specsKind)
}

// resumes reports whether to continue the run in the folder. With --resume, a run that has not
// begun begins now.
func (m *measurement) resumes(f reproduceFlags) bool {
	return f.resume && isFile(manifestPath(m.dir))
}

// runPackets runs a measurement of packets in the folder, or continues it there.
func (a *app) runPackets(ctx context.Context, m *measurement, f reproduceFlags) error {
	cpus, err := testbed.ShareCPUs(nil, nil)
	if err != nil {
		return err
	}
	in := session{dir: m.dir, resume: m.resumes(f), cpus: cpus, options: &m.options, planned: true, cpuSharing: f.cpuSharing,
		onBegin: func(resumed bool) error { return a.count(m, f.papers, resumed) }}
	if m.exhibit.Chain != nil {
		plan, err := m.chain()
		if err != nil {
			return err
		}
		return a.chain(ctx, plan, in)
	}
	return a.network(ctx, m.network(), measure.OwnCPU, in)
}

// A paperPlan is the plan of one run, as JSON.
type paperPlan struct {
	Name       string   `json:"name"`
	Title      string   `json:"title"`
	Plan       string   `json:"plan"`                 // digest
	Deviations []string `json:"deviations,omitempty"` // flags that change the committed plan: nothing of it is judged
	Wall       float64  `json:"wall_seconds"`
	Measures   any      `json:"measures"` // as characterize or measure prints it with --dry-run --json
}

// printPaperPlans prints the plans and their estimated wall times.
func (a *app) printPaperPlans(list []*measurement, f reproduceFlags) error {
	var total time.Duration
	var all []paperPlan
	for _, m := range list {
		wall, plan, err := a.printPaperPlan(m, f)
		if err != nil {
			return err
		}
		if f.json {
			all = append(all, paperPlan{papers.Prefix + m.exhibit.Name, m.exhibit.Title, m.digest, m.flags, wall.Seconds(), plan})
			continue
		}
		total += wall
		fmt.Fprintf(a.stdout, "plan %s; about %s of wall time\n", m.digest, wall.Round(time.Minute/2))
		if len(m.flags) > 0 {
			fmt.Fprintf(a.stdout, "not the committed plan (%s): nothing of it is judged\n", strings.Join(m.flags, ", "))
		}
	}
	if f.json {
		return json.NewEncoder(a.stdout).Encode(all)
	}
	if len(list) > 1 {
		fmt.Fprintf(a.stdout, "%d runs, about %s of wall time in all\n", len(list), total.Round(time.Minute))
	}
	return nil
}

// printPaperPlan prints one plan, and returns its estimated wall time. With --json it prints nothing, and
// also returns the plan.
func (a *app) printPaperPlan(m *measurement, f reproduceFlags) (wall time.Duration, measures any, err error) {
	e := m.exhibit
	if !f.json {
		fmt.Fprintln(a.stdout, e.Title)
	}
	switch {
	case e.Chain != nil:
		plan, err := m.chain()
		if err != nil {
			return 0, nil, err
		}
		s := plan.Settings
		hops := len(plan.Paths) * s.Repeat * (1 + slices.Max(s.Lengths))
		wall = plan.Sending + deploying(s.Substrates, plan.Streams, hops)
		if f.json {
			return wall, plan, nil
		}
		return wall, nil, a.printChainPlan(plan, false)
	case e.Network != nil:
		s := m.network()
		plan, err := measure.MakePlan(s, machines)
		if err != nil {
			return 0, nil, err
		}
		wall = plan.Sending + deploying(s.AllSubstrates(), plan.Streams, len(plan.Combinations)*s.Repeat)
		if f.json {
			return wall, plan, nil
		}
		cpus, err := testbed.ShareCPUs(nil, nil)
		if err != nil {
			return 0, nil, err
		}
		return wall, nil, a.printNetworkPlan(s, cpus, measure.OwnCPU, false)
	}
	err = a.withCampaign(m, f, func(c campaign) (err error) {
		measures = c.Plan
		wall, err = a.printCampaign(e, c, f)
		return err
	})
	return wall, measures, err
}

// deploying estimates the wall time of a run of packets, apart from sending them. Instances are pairs,
// or hops of a chain, of the slowest substrate.
func deploying(names []string, streams, instances int) time.Duration {
	const perStream = 700 * time.Millisecond
	var each time.Duration
	for _, name := range names {
		each = max(each, substrates()[name].deploy)
	}
	return time.Duration(streams)*perStream + time.Duration(instances)*each
}

// printCampaign estimates the wall time of an exhibit's campaign and, without --json, prints its plan.
func (a *app) printCampaign(e papers.Exhibit, c campaign, f reproduceFlags) (time.Duration, error) {
	x := *e.Expect
	shortest := c.Workload.Warmup + c.Workload.Duration + c.Workload.Settle // Expect.Overhead has the rest
	wall := x.Wall(shortest)
	if f.maxTime > 0 {
		wall = min(wall, f.maxTime)
	}
	if f.json {
		return wall, nil
	}
	printSizings(a.stdout, c)
	_, err := fmt.Fprintf(a.stdout, "about %d sizings of %d trials of %s, and %s each for deployment and longer windows\n", x.Sizings, x.Trials, shortest, x.Overhead)
	return wall, err
}
