package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"vitrine"
	"vitrine/papers"
)

// reproduceFlags are the flags of reproduce.
type reproduceFlags struct {
	characterizeFlags
	list     bool
	from     string
	quick    bool
	markdown bool
	page     string
	because  string
	papers   string  // folder of the committed histories and records
	options  options // for exhibits that measure packets
}

func (a *app) reproduceCommand() *cobra.Command {
	var f reproduceFlags
	c := &cobra.Command{
		Use:   "reproduce [NAME...]",
		Short: "Measure tables or figures of a paper again, and compare with the paper's statements",
		Long: "Measures tables or figures of a paper again with their committed plans, and reports\n" +
			"which of the paper's statements hold here. NAME is a name from --list, or a paper for\n" +
			"all of its exhibits; without NAME, the names are listed. Exhibits of the same run share\n" +
			"it. See docs/reproducing.md.",
		Example: "  vitrine reproduce papers/nfv-vital/table-2 --dry-run\n" +
			"  vitrine reproduce papers/nfv-vital/table-2 --out runs/table-2\n" +
			"  vitrine reproduce papers/nfv-vital/table-2 --from runs/table-2 --markdown\n" +
			"  vitrine reproduce papers/nfv-vital --because \"windows of 6 s: 4 s were not steady\"",
		RunE: func(c *cobra.Command, given []string) error {
			if f.list || len(given) == 0 && f.because == "" && f.from == "" {
				return a.listExhibits()
			}
			if len(given) == 0 {
				return &vitrine.BadInput{File: c.CommandPath(), Found: "no name", Want: "name tables or figures, see vitrine reproduce --list"}
			}
			return a.reproduceAll(c.Context(), c, given, f)
		},
	}
	flags := c.Flags()
	flags.BoolVar(&f.list, "list", false, "list the tables and figures")
	flags.StringVar(&f.from, "from", "", "judge the run in this folder instead of measuring; for several runs, those in its subfolders")
	flags.BoolVar(&f.quick, "quick", false, "short run to check that everything works; it is not judged")
	flags.Bool("full", true, "measure with the plan")
	_ = flags.MarkDeprecated("full", "it is the default")
	flags.BoolVar(&f.markdown, "markdown", false, "with --from: write tables and verdicts into the page, and the run's record into --papers")
	flags.StringVar(&f.page, "page", "", "page for --markdown (default docs/PAPER.md)")
	flags.StringVar(&f.because, "because", "", "measure nothing; record the plans in --papers, with this reason for the change")
	flags.StringVar(&f.papers, "papers", "papers", "folder of the committed plans, runs and records")
	f.options.register(c, "exhibits of packets: ")
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

// reproduceAll measures the named exhibits and judges them. With --from, it judges
// an existing run instead.
func (a *app) reproduceAll(ctx context.Context, c *cobra.Command, given []string, f reproduceFlags) error {
	exhibits, err := findExhibits(given)
	if err != nil {
		return err
	}
	if err := checkReproduce(c, exhibits[0].Measured(), f); err != nil {
		return err
	}
	list, err := measurements(exhibits, f)
	if err != nil {
		return err
	}
	switch {
	case f.because != "":
		return a.recordPlans(list, f)
	case f.dryRun:
		return a.printPaperPlans(list, f)
	}
	var failed []error
	for _, m := range list {
		var measuring error
		if f.from == "" {
			measuring = a.measure(ctx, m, f)
			if cause := context.Cause(ctx); cause != nil { // the runs so far are in their folders
				return errors.Join(append(failed, cmp.Or(measuring, cause))...)
			}
			if measuring != nil {
				failed = append(failed, fmt.Errorf("%s: %w", m.exhibit.Name, measuring))
			}
		}
		// A failed run may have left nothing to read, which is not a second error.
		if err := m.load(); err != nil && measuring == nil {
			failed = append(failed, err)
		}
	}
	list = slices.DeleteFunc(list, func(m *measurement) bool { return m.data == nil })
	if len(list) > 0 {
		failed = append(failed, a.show(exhibits, list, f))
	}
	return errors.Join(failed...)
}

// checkReproduce refuses flags that cannot be combined.
func checkReproduce(c *cobra.Command, packets bool, f reproduceFlags) error {
	refuse := func(found, want string) error {
		return &vitrine.BadInput{File: c.CommandPath(), Found: found, Want: want}
	}
	changed := func(names ...string) string {
		for _, name := range names {
			if c.Flags().Changed(name) {
				return name
			}
		}
		return ""
	}
	measures := []string{"out", "resume", "dry-run", "max-time", "substrate", "quick", "options", "slowdown", "shared-cpus"}
	if name := changed(measures...); f.from != "" && name != "" {
		return refuse("--from and --"+name, "give only one of them: --from measures nothing")
	}
	if name := changed(append(measures, "from", "markdown")...); f.because != "" && name != "" {
		return refuse("--because and --"+name, "give only one of them: --because measures nothing")
	}
	if f.markdown && f.from == "" {
		return refuse("--markdown without --from", "name the run's folder with --from: review a run before it goes into a page")
	}
	if f.page != "" && !f.markdown {
		return refuse("--page without --markdown", "give --markdown too: it writes the page")
	}
	if name := changed("max-time", "substrate"); packets && name != "" {
		return refuse("--"+name, "an exhibit of capacities is needed: exhibits of packets do not have this flag")
	}
	if f.options.path != "" && !packets {
		return refuse("--options", "an exhibit of packets is needed: exhibits of capacities have options in their deployment")
	}
	return nil
}

// findExhibits returns the exhibits with the given names. All must be of one kind.
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

// measurements returns the runs that the exhibits need, with their folders. A single run uses the
// folder of --out or --from. Several runs use one subfolder each.
func measurements(exhibits []papers.Exhibit, f reproduceFlags) ([]*measurement, error) {
	var list []*measurement
	for _, e := range exhibits {
		if slices.ContainsFunc(list, func(m *measurement) bool { return m.exhibit.Name == e.Base() }) {
			continue
		}
		base, err := papers.Find(e.Base())
		if err != nil {
			return nil, err
		}
		m := &measurement{exhibit: base, scale: papers.Full, options: f.options}
		if f.quick {
			m.scale = papers.Quick
		}
		if err := m.plan(f); err != nil {
			return nil, err
		}
		list = append(list, m)
	}
	name := list[0].exhibit.Name
	if len(list) > 1 {
		name = filepath.Dir(name)
	}
	dir := f.from
	if dir == "" {
		dir = runFolder(f.out, strings.ReplaceAll(name, "/", "-"))
	}
	for _, m := range list {
		m.dir = dir
		below := filepath.Join(dir, filepath.Base(m.exhibit.Name))
		if _, err := os.Stat(below); len(list) > 1 || f.from != "" && err == nil {
			m.dir = below
		}
	}
	if f.resume && !slices.ContainsFunc(list, func(m *measurement) bool { return m.resumes(f) }) {
		return nil, &vitrine.BadInput{File: dir, Found: "no run in this folder", Want: "name the folder of a run with --out, or begin a run without --resume"}
	}
	return list, nil
}

// recordPlans adds new plans to the histories, with the reason.
func (a *app) recordPlans(list []*measurement, f reproduceFlags) error {
	count := 0
	for _, m := range list {
		h, err := papers.ReadHistory(os.DirFS(f.papers), m.exhibit.Name)
		if err != nil {
			return err
		}
		if now := h.Committed(); now != nil && now.Digest == m.digest {
			continue
		}
		h.Plans = append(h.Plans, papers.Planned{Digest: m.digest, Date: time.Now().UTC().Truncate(time.Second), Because: f.because})
		if err := h.Write(f.papers, m.exhibit.Name); err != nil {
			return err
		}
		fmt.Fprintf(a.stdout, "%s%s: plan %s recorded: commit it before the run\n", papers.Prefix, m.exhibit.Name, m.digest)
		count++
	}
	if count == 0 {
		return &vitrine.BadInput{File: f.papers, Found: "all named plans are recorded already", Want: "use --because only if a plan has changed"}
	}
	return nil
}
