package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"vitrine"
	"vitrine/document"
	"vitrine/result"
	"vitrine/spec"
	"vitrine/testbed"
	"vitrine/trial"
)

// characterizeFlags are the flags of characterize.
type characterizeFlags struct {
	runFlags
	substrate string
	maxTime   time.Duration
}

func (a *app) characterizeCommand() *cobra.Command {
	var f characterizeFlags
	c := &cobra.Command{
		Use:   "characterize DEPLOYMENT WORKLOAD",
		Short: "Deploy a function at different sizes, drive it and find the capacity of each size",
		Example: "  vitrine characterize deployment.yaml workload.yaml --dry-run\n" +
			"  vitrine characterize deployment.yaml workload.yaml --out runs/ims\n" +
			"  vitrine characterize deployment.yaml workload.yaml --out runs/ims --resume",
		Args: args(cobra.ExactArgs(2)),
		RunE: func(c *cobra.Command, given []string) error {
			return a.characterize(c.Context(), given[0], given[1], f)
		},
	}
	f.register(c, "the summary")
	return c
}

// register adds the flags of a campaign. outcome is what --json prints.
func (f *characterizeFlags) register(c *cobra.Command, outcome string) {
	f.runFlags.register(c, "NAME", "trial", outcome)
	c.Flags().StringVar(&f.substrate, "substrate", "", "run on this substrate instead of the deployment's")
	c.Flags().DurationVar(&f.maxTime, "max-time", 0, "begin no trial after this time; 0: no limit")
	completeFlag(c, "substrate", substrateNames())
}

func (a *app) characterize(ctx context.Context, deploymentPath, workloadPath string, f characterizeFlags) error {
	c, err := a.plan(deploymentPath, workloadPath, f)
	if err != nil {
		return err
	}
	if f.dryRun {
		return a.printPlan(c, f.json)
	}
	f.out = runFolder(f.out, c.Deployment.VNFName)
	summary, err := a.run(ctx, c, f)
	if err != nil {
		return err
	}
	if f.json {
		err = json.NewEncoder(a.stdout).Encode(summary)
	} else {
		err = a.present(f.out)
	}
	return errors.Join(err, anyValid(summary, f.out))
}

// anyValid returns an error if there were trials and none of them was valid.
func anyValid(s result.Summary, dir string) error {
	known := slices.ContainsFunc(s.Sizings, func(z result.Sizing) bool { return !slices.ContainsFunc(z.Capacities, vitrine.Capacity.Unmeasured) })
	if known || s.InvalidTrials == 0 {
		return nil
	}
	return fmt.Errorf("no trial was valid, so no capacity is known: %s says why", filepath.Join(dir, "trials.csv"))
}

// A campaign is a trial.Campaign with the back ends' options from its deployment.
type campaign struct {
	*trial.Campaign
	options *options
	onBegin func(resumed bool) error // see session
}

// plan reads both files, assigns the CPUs and plans the campaign.
func (a *app) plan(deploymentPath, workloadPath string, f characterizeFlags) (c campaign, err error) {
	if f.maxTime < 0 {
		return c, &vitrine.BadInput{File: "--max-time", Found: f.maxTime.String(), Want: "want a time above 0, or 0 for no limit"}
	}
	d, derr := spec.LoadDeployment(deploymentPath, knownBackends())
	w, werr := loadWorkload(workloadPath)
	if err := errors.Join(derr, werr); err != nil {
		return c, err
	}
	if f.substrate != "" {
		if err := oneOf("--substrate", f.substrate, substrateNames()); err != nil {
			return c, err
		}
		d.Servers.Substrate = document.OneOrMany[string]{f.substrate}
	}
	if c.options, err = deploymentOptions(d); err != nil {
		return c, err
	}
	cpus, err := testbed.ShareCPUs(d.Servers.CPUs, d.Servers.GeneratorCPUs)
	if err != nil {
		return c, err
	}
	c.Campaign, err = trial.New(trial.Config{Deployment: d, Workload: w, CPUs: cpus, Seed: 1, MaxTime: f.maxTime, Log: a.log()})
	return c, err
}

// run runs the campaign in the run folder and writes the report.
func (a *app) run(ctx context.Context, c campaign, f characterizeFlags) (_ result.Summary, err error) {
	r, err := a.begin(ctx, session{dir: f.out, resume: f.resume, cpus: c.CPUs, options: c.options, onBegin: c.onBegin, cpuSharing: f.cpuSharing}, func(b *backends) (result.Manifest, error) {
		c.Testbed = b.testbed(c.options.parts)
		if !f.resume { // a resumed run may have all its trials
			if err := c.Check(ctx); err != nil {
				return result.Manifest{}, err
			}
		}
		m := campaignManifest(ctx, &c.Config, b)
		m.Specs = append(m.Specs, c.options.specs...)
		if f.substrate != "" {
			m.Specs = append(m.Specs, result.NewSpec("--substrate", f.substrate, []byte(f.substrate)))
		}
		return m, nil
	})
	if err != nil {
		return result.Summary{}, err
	}
	defer func() { err = r.end(ctx, err) }()
	c.Generator, c.Results = r.backends.generator, r.results
	if c.Watch, err = r.watcher(ctx); err != nil {
		return result.Summary{}, err
	}
	c.Observe = newProgress(a.stderr, c.Workload, c.Plan).observe
	return c.Run(ctx)
}

func (a *app) printPlan(c campaign, asJSON bool) error {
	p := c.Plan
	if asJSON {
		return json.NewEncoder(a.stdout).Encode(p)
	}
	printSizings(a.stdout, c)
	more := ""
	if c.Workload.Search == spec.Adaptive {
		more = fmt.Sprintf("; each sizing is deployed %d times or more", max(trial.AdaptiveDeployments, c.Workload.Repeat))
	}
	first := time.Duration(p.Trials) * p.Trial
	if c.Deployment.Mode.Interleave { // all sizings end in the last turn
		first = p.About
	}
	if c.MaxTime > 0 && first > c.MaxTime {
		more += fmt.Sprintf("\n--max-time %s ends the run before the first sizing is measured, which takes about %s", c.MaxTime, first.Round(time.Second))
	}
	_, err := fmt.Fprintf(a.stdout, "about %d trials of %s per sizing, %s %s in all, without deployment and invalid trials%s\n",
		p.Trials, p.Trial, about(p.Open), p.About.Round(time.Second), more)
	return err
}

// printSizings prints the sizes that the campaign would measure, and the CPUs,
// substrates and options.
func printSizings(w io.Writer, c campaign) {
	p := c.Plan
	fmt.Fprintf(w, "%s: mode %s, search %s, on %s\n",
		c.Deployment.VNFName, c.Deployment.Mode.Name, c.Workload.Search, result.Reservation(c.CPUs))
	for _, o := range p.Combinations {
		fmt.Fprintf(w, "on %s %s\n", o.Substrate, o.Options)
	}
	if p.Lowered != "" {
		fmt.Fprintln(w, p.Lowered)
	}
	for _, name := range p.Names {
		fmt.Fprintf(w, "  %s\n", name)
	}
	if p.Open {
		fmt.Fprintf(w, "  then sizings chosen from the results, at most %d\n", p.MostSizings)
	}
}
