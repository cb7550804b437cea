package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"vitrine/director/client"
	"vitrine/flex"
	"vitrine/flex/config"
	"vitrine/flex/policy"
	"vitrine/internal/durable"
	"vitrine/redline"
	"vitrine/report/measured"
)

// measurerOf returns a function that runs redline with all directors of the file. nil: the rules of
// another autoscaler decide. The lease of a measurement would stop their scaling.
func measurerOf(p flexPlan, directors []*client.Client) flex.Measurer {
	if p.policyName != policy.Flex {
		return nil
	}
	return func(ctx context.Context, o redline.Options) (redline.Result, error) {
		for i, d := range directors {
			o.Directors, o.Names = append(o.Directors, d), append(o.Names, p.file.Directors[i].Control)
		}
		return redline.Run(ctx, o)
	}
}

// printRedline prints the state of a type's redline measurements.
func printRedline(w io.Writer, r *flex.RedlineStatus) {
	if r == nil {
		return
	}
	at := func(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05") }
	if r.Under != nil {
		fmt.Fprintf(w, "- redline measures %s since %s: %s\n", r.Under.Instance, at(r.Under.At), r.Under.Reason)
	}
	if r.Last != nil {
		fmt.Fprintf(w, "- redline measured %s at %s: %s\n", r.Last.Instance, at(r.Last.At), r.Last)
	}
	switch {
	case r.Under != nil:
	case r.Waits != "":
		fmt.Fprintf(w, "- a measurement is due and waits: %s\n", r.Waits)
	case r.Next != nil:
		fmt.Fprintf(w, "- the next measurement is due at %s\n", at(*r.Next))
	}
	if r.Ratio != nil {
		fmt.Fprintf(w, "- a transaction takes %.0f%% of the CPU time in the profile\n", 100**r.Ratio)
	}
}

// redlineCell summarises the state of a type's redline measurements for a table.
func redlineCell(r *flex.RedlineStatus) string {
	switch {
	case r == nil:
		return "-"
	case r.Under != nil:
		return "measures " + r.Under.Instance
	case r.Waits != "":
		return "waits"
	case r.Last != nil && r.Next != nil:
		return fmt.Sprintf("%s, next in %s", r.Last.Verdict, time.Until(*r.Next).Round(time.Second))
	case r.Last != nil:
		return string(r.Last.Verdict)
	}
	return "not yet"
}

func (a *app) flexProfile() *cobra.Command {
	var asJSON bool
	var page string
	c := &cobra.Command{
		Use:   "profile FILE",
		Short: "Print redline's measurements of each type, and the use of their capacity",
		Long: "Print redline's measurements of each type, the oldest first, and the changes of the capacity\n" +
			"that decisions use. It reads the state folder, so it works without an orchestrator.",
		Args: args(cobra.ExactArgs(1)),
		RunE: func(_ *cobra.Command, given []string) error {
			if err := checkTarget("--page", page); err != nil {
				return err
			}
			file, err := config.Load(given[0], knownBackends())
			if err != nil {
				return err
			}
			all, err := flex.Histories(file.State)
			if errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("%s: no orchestrator has run it", file.Path)
			}
			if err != nil {
				return err
			}
			if page != "" {
				return writeProfilePage(page, file.Path, all)
			}
			if asJSON {
				return printJSON(a.stdout, all)
			}
			return printProfiles(a.stdout, all)
		},
	}
	c.Flags().StringVar(&page, "page", "", "write a page with figures to this HTML file instead")
	return jsonFlag(c, &asJSON)
}

func writeProfilePage(path, title string, all map[string][]flex.Measured) error {
	page, err := measured.Page(title, all)
	if err != nil {
		return err
	}
	if err := durable.Replace(path, page, 0o644); err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	return nil
}

func printProfiles(w io.Writer, all map[string][]flex.Measured) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "TYPE\tAT\tINSTANCE\tSIZE\tCAUSE\tFOUND")
	for _, name := range slices.Sorted(maps.Keys(all)) {
		for i := range all[name] {
			m := &all[name][i]
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", name, m.At.Local().Format("2006-01-02 15:04:05"), m.Instance, m.Size, m.Cause, m)
		}
	}
	return t.Flush()
}
