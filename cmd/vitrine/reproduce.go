package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"vitrine"
	"vitrine/papers"
	"vitrine/trial"
)

func (a *app) reproduceCommand() *cobra.Command {
	var f characterizeFlags
	var list bool
	var from string
	c := &cobra.Command{
		Use:   "reproduce NAME",
		Short: "Measure a table or figure of a paper again, and judge what the paper states",
		Args:  args(cobra.MaximumNArgs(1)),
		RunE: func(c *cobra.Command, given []string) error {
			if list || len(given) == 0 {
				return a.listExhibits()
			}
			for _, flag := range []string{"out", "resume", "dry-run", "max-time", "substrate"} {
				if from != "" && c.Flags().Changed(flag) {
					return &vitrine.BadInput{File: c.CommandPath(), Found: "--from and --" + flag, Want: "one of them: --from measures nothing"}
				}
			}
			if from != "" {
				return a.judge(given[0], from, f.json)
			}
			return a.reproduce(c.Context(), given[0], f)
		},
	}
	c.Flags().BoolVar(&list, "list", false, "list the tables and figures")
	c.Flags().StringVar(&from, "from", "", "judge by the results in this folder instead of measuring: Table II's hold figures 1 to 4")
	f.register(c, "verdicts")
	c.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		exhibits, _ := papers.List()
		var names []string
		for _, e := range exhibits {
			names = append(names, e.Name)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
	return c
}

func (a *app) listExhibits() error {
	exhibits, err := papers.List()
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	for _, e := range exhibits {
		fmt.Fprintf(w, "%s\t%s\n", e.Name, e.Title)
	}
	return w.Flush()
}

// reproduce runs the exhibit's specs and judges its statements.
func (a *app) reproduce(ctx context.Context, name string, f characterizeFlags) error {
	e, err := papers.Find(name)
	if err != nil {
		return err
	}
	f.out = f.folder(strings.ReplaceAll(name, "/", "-"))
	specs, err := os.MkdirTemp("", "vitrine-reproduce-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(specs)
	deployment, workload, err := e.Unpack(specs)
	if err != nil {
		return err
	}
	cfg, err := a.load(deployment, workload, f.substrate)
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
	summary, err := a.campaign(ctx, cfg, plan, f)
	if err != nil {
		return err
	}
	verdicts := e.Judge(summary)
	if err := saveVerdicts(filepath.Join(f.out, "verdicts.json"), verdicts); err != nil {
		return err
	}
	if !f.json {
		if err := a.present(f.out); err != nil {
			return err
		}
	}
	return a.printVerdicts(e, verdicts, f.json)
}

// judge judges the exhibit's statements by results that are there already.
func (a *app) judge(name, dir string, asJSON bool) error {
	e, err := papers.Find(name)
	if err != nil {
		return err
	}
	data, err := loadRun(dir)
	if err != nil {
		return err
	}
	if data.Summary == nil {
		return &vitrine.BadInput{File: dir, Found: "a run that has not ended", Want: "vitrine reproduce --resume first"}
	}
	verdicts := e.Judge(*data.Summary)
	if !slices.ContainsFunc(verdicts, func(v papers.Verdict) bool { return v.Result != papers.Unmeasured }) {
		return &vitrine.BadInput{File: dir, Found: "results that hold none of the sizes that " + name + " states something of",
			Want: "a run of vitrine reproduce"}
	}
	return a.printVerdicts(e, verdicts, asJSON)
}

func saveVerdicts(path string, verdicts []papers.Verdict) error {
	text, err := json.MarshalIndent(verdicts, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

func (a *app) printVerdicts(e papers.Exhibit, verdicts []papers.Verdict, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(a.stdout).Encode(verdicts)
	}
	fmt.Fprintf(a.stdout, "\n%s\n", e.Title)
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "verdict\tfactor here\tin the paper\tstatement")
	for _, v := range verdicts {
		here, paper := "", ""
		if v.Ratio != nil {
			here = fmt.Sprintf("%.2f", *v.Ratio)
		}
		if v.Factor > 0 {
			paper = fmt.Sprintf("%.2f", v.Factor)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n\t\t\t  %s\n", v.Result, here, paper, v.Claim, v.Detail)
	}
	return w.Flush()
}
