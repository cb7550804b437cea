package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"vitrine/document"
	"vitrine/result"
	"vitrine/spec"
	"vitrine/trial"
)

// characterizeFlags is what the user asked for.
type characterizeFlags struct {
	out       string
	substrate string
	resume    bool
	dryRun    bool
	json      bool
	maxTime   time.Duration
}

func (a *app) characterizeCommand() *cobra.Command {
	var f characterizeFlags
	c := &cobra.Command{
		Use:   "characterize DEPLOYMENT WORKLOAD",
		Short: "Deploy a function at the sizes asked for, drive it, find what each carries",
		Example: "  vitrine characterize deployment.yaml workload.yaml --dry-run\n" +
			"  vitrine characterize deployment.yaml workload.yaml --out runs/ims\n" +
			"  vitrine characterize deployment.yaml workload.yaml --out runs/ims --resume",
		Args: args(cobra.ExactArgs(2)),
		RunE: func(c *cobra.Command, given []string) error {
			return a.characterize(c.Context(), given[0], given[1], f)
		},
	}
	f.register(c, "summary")
	return c
}

// register gives the verb the flags of a campaign; outcome is what --json prints.
func (f *characterizeFlags) register(c *cobra.Command, outcome string) {
	c.Flags().StringVar(&f.out, "out", "", "run folder (default runs/NAME-TIME)")
	c.Flags().StringVar(&f.substrate, "substrate", "", "run on this substrate, whatever the deployment says")
	c.Flags().BoolVar(&f.resume, "resume", false, "continue the run in --out; no finished trial is repeated")
	c.Flags().BoolVar(&f.dryRun, "dry-run", false, "print the plan and its time, start nothing")
	c.Flags().BoolVar(&f.json, "json", false, "print the "+outcome+" (or the plan) as JSON")
	c.Flags().DurationVar(&f.maxTime, "max-time", 0, "begin no trial after this long; 0: no limit")
	_ = c.RegisterFlagCompletionFunc("substrate", cobra.FixedCompletions(substrateNames(), cobra.ShellCompDirectiveNoFileComp))
}

func (a *app) characterize(ctx context.Context, deploymentPath, workloadPath string, f characterizeFlags) error {
	cfg, err := a.load(deploymentPath, workloadPath, f.substrate)
	if err != nil {
		return err
	}
	cfg.MaxTime = f.maxTime
	plan, err := trial.MakePlan(cfg)
	if err != nil {
		return err
	}
	if f.dryRun {
		return a.printPlan(cfg, plan, f.json)
	}
	f.out = runFolder(f.out, cfg.Deployment.VNFName)
	summary, err := a.campaign(ctx, cfg, plan, f)
	if err != nil {
		return err
	}
	if f.json {
		return json.NewEncoder(a.stdout).Encode(summary)
	}
	return a.present(f.out)
}

// load reads both files and decides who runs on which CPUs.
func (a *app) load(deploymentPath, workloadPath, substrate string) (*trial.Config, error) {
	d, derr := spec.LoadDeployment(deploymentPath, known())
	w, werr := spec.LoadWorkload(workloadPath, known())
	if err := errors.Join(derr, werr); err != nil {
		return nil, err
	}
	if substrate != "" {
		if err := oneOf("--substrate", substrate, substrateNames()); err != nil {
			return nil, err
		}
		d.Servers.Substrate = document.OneOrMany[string]{substrate}
	}
	if _, err := deploymentOptions(d); err != nil {
		return nil, err
	}
	cpus, err := trial.ShareCPUs(d.Servers.CPUs, d.Servers.GeneratorCPUs)
	if err != nil {
		return nil, err
	}
	return &trial.Config{Deployment: d, Workload: w, CPUs: cpus, Seed: 1, Log: a.log()}, nil
}

// campaign runs the plan into the run folder and writes the report.
func (a *app) campaign(ctx context.Context, cfg *trial.Config, plan trial.Plan, f characterizeFlags) (summary result.Summary, err error) {
	told, err := deploymentOptions(cfg.Deployment)
	if err != nil {
		return summary, err
	}
	manifest := func(b *backends) (result.Manifest, error) {
		m := campaignManifest(ctx, cfg, b)
		if f.substrate != "" {
			m.Specs = append(m.Specs, result.NewSpec("--substrate", f.substrate, []byte(f.substrate)))
		}
		return m, nil
	}
	err = a.record(ctx, session{f.out, f.resume, cfg.CPUs, told}, manifest, func(b *backends, results *result.Run) (err error) {
		cfg.Backends, cfg.RunID, cfg.Results = b.forTrials(), b.run.ID, results
		cfg.Observe = newProgress(a.stderr, cfg.Workload.Unit, plan).observe
		summary, err = trial.Run(ctx, *cfg)
		return err
	})
	return summary, err
}

func (a *app) printPlan(cfg *trial.Config, p trial.Plan, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(a.stdout).Encode(p)
	}
	w := a.stdout
	fmt.Fprintf(w, "%s: mode %s, search %s, on CPUs %v (generator on %v)\n",
		cfg.Deployment.VNFName, cfg.Deployment.Mode.Name, cfg.Workload.Search, cfg.CPUs.Function, cfg.CPUs.Generator)
	for _, o := range p.Combinations {
		fmt.Fprintf(w, "on %s %s\n", o.Substrate, o.Options)
	}
	for _, name := range p.Names {
		fmt.Fprintf(w, "  %s\n", name)
	}
	if p.Open {
		fmt.Fprintf(w, "  then as measured, at most %d sizings\n", p.MostSizings)
	}
	_, err := fmt.Fprintf(w, "about %d trials of %s per sizing, about %s in all, deploying and invalid trials aside\n",
		p.Trials, p.Trial, p.About.Round(time.Second))
	return err
}
