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
)

// reproduceFlags is what the user asked for.
type reproduceFlags struct {
	characterizeFlags
	list        bool
	from        string
	quick, full bool    // of exhibits of packets
	markdown    string  // likewise
	options     options // likewise
}

func (a *app) reproduceCommand() *cobra.Command {
	var f reproduceFlags
	c := &cobra.Command{
		Use:   "reproduce NAME...",
		Short: "Measure tables or figures of a paper again, and judge what the paper states",
		Long: "Measures tables or figures of a paper again, on whatever this host has, and says\n" +
			"which of the orderings that the paper states held here. NAME is one of --list, or a\n" +
			"paper: all of its exhibits. Exhibits that show one measurement share it.",
		Example: "  vitrine reproduce papers/nfv-vital/table-2\n" +
			"  vitrine reproduce papers/container-networking/table-1 --quick\n" +
			"  vitrine reproduce papers/container-networking --full --markdown tables.md",
		RunE: func(c *cobra.Command, given []string) error {
			if f.list || len(given) == 0 {
				return a.listExhibits()
			}
			return a.reproduceAll(c.Context(), c, given, f)
		},
	}
	c.Flags().BoolVar(&f.list, "list", false, "list the tables and figures")
	c.Flags().StringVar(&f.from, "from", "", "judge by the results in this folder instead of measuring: Table II's hold figures 1 to 4")
	c.Flags().BoolVar(&f.quick, "quick", false, "of packets: two repeats of short streams, a minute or two; intervals are wide")
	c.Flags().BoolVar(&f.full, "full", false, "of packets: ten repeats of streams as long as the paper's; up to hours")
	c.Flags().StringVar(&f.markdown, "markdown", "", "of packets: also write the tables as Markdown into this file, in place of what stands there between its marks")
	f.options.register(c, "of packets: ")
	f.register(c, "the verdicts")
	c.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		exhibits, _ := papers.List()
		var names []string
		for _, e := range exhibits {
			names = append(names, papers.Prefix+e.Name)
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
		fmt.Fprintf(w, "%s%s\t%s\n", papers.Prefix, e.Name, e.Title)
	}
	return w.Flush()
}

// reproduceAll finds what was named and measures it, or judges it by what is
// there already.
func (a *app) reproduceAll(ctx context.Context, c *cobra.Command, given []string, f reproduceFlags) error {
	exhibits, err := findExhibits(given)
	if err != nil {
		return err
	}
	for _, flag := range []string{"out", "resume", "dry-run", "max-time", "substrate", "quick", "full", "options"} {
		if f.from != "" && c.Flags().Changed(flag) {
			return &vitrine.BadInput{File: c.CommandPath(), Found: "--from and --" + flag, Want: "one of them: --from measures nothing"}
		}
	}
	if f.quick && f.full {
		return &vitrine.BadInput{File: c.CommandPath(), Found: "--quick and --full", Want: "one of them, or neither"}
	}
	if exhibits[0].Measured() {
		for _, flag := range []string{"max-time", "substrate"} {
			if c.Flags().Changed(flag) {
				return &vitrine.BadInput{File: c.CommandPath(), Found: "--" + flag, Want: "an exhibit of capacities: those of packets have no such choice"}
			}
		}
		return a.reproducePackets(ctx, exhibits, f)
	}
	if f.options.path != "" {
		return &vitrine.BadInput{File: c.CommandPath(), Found: "--options", Want: "an exhibit of packets: those of capacities have them in their deployment"}
	}
	if len(exhibits) > 1 && f.out != "" {
		return &vitrine.BadInput{File: c.CommandPath(), Found: "--out and several exhibits", Want: "one of them: each is a run of its own"}
	}
	for _, e := range exhibits {
		if f.from != "" {
			err = a.judge(e, f.from, f.json)
		} else {
			err = a.reproduce(ctx, e, f.characterizeFlags)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// findExhibits gives the exhibits of the names, which are of one kind.
func findExhibits(names []string) ([]papers.Exhibit, error) {
	all, err := papers.List()
	if err != nil {
		return nil, err
	}
	var found []papers.Exhibit
	for _, name := range names {
		name = strings.Trim(strings.TrimPrefix(name, papers.Prefix), "/")
		before := len(found)
		for _, e := range all {
			if e.Name == name || strings.HasPrefix(e.Name, name+"/") {
				found = append(found, e)
			}
		}
		if len(found) == before {
			_, err := papers.Find(name)
			return nil, err
		}
	}
	for _, e := range found {
		if e.Measured() != found[0].Measured() {
			return nil, &vitrine.BadInput{File: "vitrine reproduce", Found: "exhibits of packets and of capacities", Want: "name those of one kind at a time"}
		}
	}
	return found, nil
}

// reproduce runs the exhibit's specs and judges its statements.
func (a *app) reproduce(ctx context.Context, e papers.Exhibit, f characterizeFlags) error {
	f.out = runFolder(f.out, strings.ReplaceAll(e.Name, "/", "-"))
	specs, err := os.MkdirTemp("", "vitrine-reproduce-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(specs)
	deployment, workload, err := e.Unpack(specs)
	if err != nil {
		return err
	}
	c, err := a.plan(deployment, workload, f)
	if err != nil {
		return err
	}
	if f.dryRun {
		return a.printPlan(c, f.json)
	}
	summary, err := a.run(ctx, c, f)
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
func (a *app) judge(e papers.Exhibit, dir string, asJSON bool) error {
	data, err := loadRun(dir)
	if err != nil {
		return err
	}
	if data.Summary == nil {
		return &vitrine.BadInput{File: dir, Found: "a run that has not ended", Want: "vitrine reproduce --resume first"}
	}
	verdicts := e.Judge(*data.Summary)
	if !slices.ContainsFunc(verdicts, func(v papers.Verdict) bool { return v.Detail != "" }) {
		return &vitrine.BadInput{File: dir, Found: "results that hold none of the sizes that " + e.Name + " states something of",
			Want: "a run of vitrine reproduce"}
	}
	return a.printVerdicts(e, verdicts, asJSON)
}

func saveVerdicts(path string, verdicts any) error {
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
